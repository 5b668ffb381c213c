//! The scheduling state of a pod: what was decided, where it is, and what keeps it.

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use edgeward_core::keys::Keys;
use edgeward_core::placement::{explain, sentences};

/// A pod that exists, for people.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SchedulingState {
    /// What was written on it; `None` where no decision was.
    #[serde(skip)]
    pub(super) decided: Option<Decided>,
    /// `status.phase`.
    pub(super) phase: String,
    /// Its site, by its spec.
    pub(super) site: Option<String>,
    /// Its node.
    pub(super) node: Option<String>,
    /// Since when it runs.
    pub(super) started: Option<String>,
    /// Its scheduling gates.
    pub(super) gates: Vec<String>,
    /// For how long ours has gated it.
    pub(super) gated_seconds: Option<u64>,
    /// What kube-scheduler says of it.
    pub(super) scheduler: Option<String>,
    /// What its containers wait for.
    pub(super) waiting: Vec<String>,
    /// What was said last of a pod on a node, of whose containers nothing is known there.
    pub(super) events: Vec<String>,
    /// Whether that is so.
    #[serde(skip)]
    pub(super) is_silent: bool,
    /// Since when it is being deleted.
    pub(super) deleted: Option<String>,
}

/// A decision as the pod carries it. Anybody may write annotations.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decided {
    /// `edge` or `cloud`; `None` where it was to be gated.
    pub(super) decision: Option<String>,
    /// The site.
    pub(super) site: Option<String>,
    /// The reason code.
    pub(super) reason: String,
    /// When.
    pub(super) timestamp: Option<Timestamp>,
    /// How long ago, in seconds.
    #[serde(skip)]
    pub(super) age: Option<u64>,
    /// The RTT behind it.
    pub(super) wan_rtt_ms: Option<String>,
    /// The numbers behind it.
    pub(super) sites: Vec<Then>,
}

/// What one site meant for the pod then, of either form of the explanation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Then {
    pub(super) name: String,
    pub(super) fitting_nodes: Value,
    pub(super) eta_ms: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) score: Value,
    pub(super) refusals: Vec<String>,
    /// The same for people.
    #[serde(skip)]
    pub(super) said: Vec<String>,
}

impl SchedulingState {
    /// Reads the pod's JSON. `site` is the one that it is of by its spec.
    ///
    /// # Errors
    /// It is not JSON.
    pub(super) fn read(json: &str, keys: &Keys, site: Option<String>, now: Timestamp) -> anyhow::Result<Self> {
        let pod: Value = serde_json::from_str(json).context("not JSON")?;
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
        let gates = list(&spec["schedulingGates"]).filter_map(|gate| text(&gate["name"]));
        let gates: Vec<_> = gates.collect();
        let decided = Decided::read(&metadata["annotations"], keys, now);
        let age = decided.as_ref().map(|decided| decided.age.unwrap_or(0));
        let scheduled = list(&status["conditions"]).find(|condition| condition["type"] == "PodScheduled");
        let refusal = scheduled.filter(|condition| condition["status"] == "False");
        let said = |condition: &Value| text(&condition["message"]).or_else(|| text(&condition["reason"]));
        let containers = || list(&status["initContainerStatuses"]).chain(list(&status["containerStatuses"]));
        Ok(Self {
            phase: text(&status["phase"]).unwrap_or_else(|| "Unknown".to_owned()),
            site,
            node: text(&spec["nodeName"]),
            started: text(&status["startTime"]),
            gated_seconds: gates.contains(&keys.gate).then(|| age.unwrap_or(0)),
            gates,
            scheduler: refusal.and_then(said),
            waiting: containers().filter_map(waiting).collect(),
            events: vec![],
            is_silent: status["phase"] == "Pending"
                && text(&spec["nodeName"]).is_some()
                && containers().next().is_none(),
            deleted: text(&metadata["deletionTimestamp"]),
            decided,
        })
    }

    /// Where the pod is and whether it runs, as the rest of a sentence that begins with its name.
    pub(super) fn place(&self, keys: &Keys) -> String {
        let at = match (&self.node, &self.site) {
            (Some(node), Some(site)) => format!(" on node {node} of site {site}"),
            (Some(node), None) => format!(" on node {node}, which is of no site"),
            (None, _) => String::new(),
        };
        if self.is_finished() {
            return format!("has finished ({}){at}", self.phase);
        }
        if self.deleted.is_some() {
            return format!("is being deleted{at}");
        }
        if self.node.is_some() {
            // What the cluster behind a virtual node says, or else an Event.
            let said = self.scheduler.as_ref().filter(|_| self.is_silent);
            return match said.or(self.events.first()) {
                _ if !self.waiting.is_empty() => format!("is{at}, but does not run whole: {}", self.waiting.join("; ")),
                _ if self.phase == "Running" => format!("runs{at}"),
                Some(said) => format!("does not run: it is{at}, and waits there: {said}"),
                None => format!("is{at}, and is being started there"),
            };
        }
        let others: Vec<_> = self.gates.iter().filter(|gate| **gate != keys.gate).cloned().collect();
        let others = others.join(", ");
        if let Some(seconds) = self.gated_seconds {
            let beside = match &*others {
                "" => String::new(),
                others => format!(" (and by gates of others: {others})"),
            };
            return format!("does not run: gated by edgeward for {}{beside}", duration(seconds));
        }
        if !others.is_empty() {
            return format!("does not run: gates of others hold it: {others}");
        }
        let sent = self.site.as_ref().map(|site| format!("sent to site {site}, "));
        let said = match &self.scheduler {
            Some(said) => format!("kube-scheduler finds no node for it: {said}"),
            None => "kube-scheduler has not placed it yet".to_owned(),
        };
        format!("does not run: {}{said}", sent.unwrap_or_default())
    }

    fn is_finished(&self) -> bool {
        ["Succeeded", "Failed"].contains(&&*self.phase)
    }

    /// Whether our gate is what keeps it from kube-scheduler.
    pub(super) fn is_gated(&self) -> bool {
        self.gated_seconds.is_some() && self.node.is_none() && self.deleted.is_none() && !self.is_finished()
    }

    /// That the domain asked about is not that of its gate, if that is to be seen.
    pub(super) fn other_domain(&self, keys: &Keys) -> Option<String> {
        let mut gates = self.gates.iter();
        let (gate, domain) = gates.find_map(|gate| Some((gate, keys.other_domain(gate)?)))?;
        let asked = &keys.domain;
        Some(format!(
            "its gate {gate} is that of an edgeward with the domain {domain}, and {asked} was asked about; name the \
             edgeward that has it with --deployment, or its configuration with --config"
        ))
    }
}

impl Decided {
    fn read(annotations: &Value, keys: &Keys, now: Timestamp) -> Option<Self> {
        let written = |key: &String| annotations[key].as_str().map(str::to_owned);
        let reason = written(&keys.reason)?;
        // A hold has no id.
        if !reason.starts_with("held_") {
            written(&keys.decision_id)?;
        }
        let timestamp = written(&keys.timestamp).and_then(|at| at.parse::<Timestamp>().ok());
        let age = timestamp.and_then(|at| u64::try_from(now.duration_since(at).as_secs()).ok());
        let explain = written(&keys.explain).and_then(|text| serde_json::from_str::<Map<String, Value>>(&text).ok());
        Some(Self {
            decision: written(&keys.decision),
            site: written(&keys.site),
            reason,
            timestamp,
            age,
            wan_rtt_ms: written(&keys.wan_rtt_ms),
            sites: explain.iter().flatten().map(Then::read).collect(),
        })
    }
}

impl Then {
    fn read((name, entry): (&String, &Value)) -> Self {
        let either = |short: &str, full: &str| entry.get(short).or(entry.get(full)).cloned().unwrap_or_default();
        let refusals = || explain::refusals(entry);
        let said = refusals().map(|(code, numbers)| sentences::refusal(code, &numbers));
        Self {
            name: name.clone(),
            fitting_nodes: either("fit", "fittingNodes"),
            eta_ms: either("eta", "etaMs"),
            score: entry["score"].clone(),
            refusals: refusals().map(|(code, _)| code.to_owned()).collect(),
            said: said.collect(),
        }
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let judged = match self.said.is_empty() {
            true => "not refused".to_owned(),
            false => format!("refused: {}", self.said.join("; ")),
        };
        let fits = self.fitting_nodes.as_u64().map(sentences::fits);
        let fits = fits.map(|fits| format!(", {fits}"));
        let score = self.score.as_f64().map(|score| format!(", score {score}"));
        let eta = match &self.eta_ms {
            Value::Null => "unknown".to_owned(),
            eta => format!("{eta} ms"),
        };
        let (fits, score) = (fits.unwrap_or_default(), score.unwrap_or_default());
        format!("{}: ETA {eta}{fits}, {judged}{score}", self.name)
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What a container waits for, if it does.
fn waiting(container: &Value) -> Option<String> {
    let waiting = container["state"]["waiting"].as_object()?;
    let text = |name: &str| waiting.get(name).and_then(Value::as_str).unwrap_or_default();
    // What every container waits for at first says nothing.
    let reason =
        Some(text("reason")).filter(|reason| !["ContainerCreating", "PodInitializing", ""].contains(reason))?;
    let name = container["name"].as_str().unwrap_or_default();
    Some(match text("message") {
        "" => format!("container {name}: {reason}"),
        message => format!("container {name}: {reason}: {message}"),
    })
}

/// `41 s`, `12 min`, `3 h`, `2 d`: as much of a duration as a person needs.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
