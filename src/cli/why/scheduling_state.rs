//! The scheduling state of a pod: its decision, where it is, and what keeps it from running.

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};

use edgeward_decision::keys::Keys;
use edgeward_decision::placement::explain;

use crate::controllers::events::assessment;

/// The scheduling state of an existing pod.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SchedulingState {
    /// The decision on the pod; `None` if it carries none.
    #[serde(skip)]
    pub(super) decided: Option<Decided>,
    /// `status.phase`.
    pub(super) phase: String,
    /// The site that its spec selects.
    pub(super) site: Option<String>,
    pub(super) node: Option<String>,
    /// `status.startTime`.
    pub(super) started: Option<String>,
    /// Its scheduling gates.
    pub(super) gates: Vec<String>,
    /// How long edgeward has gated it, in seconds.
    pub(super) gated_seconds: Option<u64>,
    /// The message of kube-scheduler, if it found no node.
    pub(super) scheduler: Option<String>,
    /// The reasons why its containers wait.
    pub(super) waiting: Vec<String>,
    /// The latest Events of a pending pod on a node that reports no containers.
    pub(super) events: Vec<String>,
    /// Whether the pod is pending on a node that reports no containers.
    #[serde(skip)]
    pub(super) is_silent: bool,
    /// `metadata.deletionTimestamp`.
    pub(super) deleted: Option<String>,
}

/// A decision in the pod's annotations, which other users can write too.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Decided {
    /// `edge` or `cloud`; `None` if the pod was gated.
    pub(super) decision: Option<String>,
    pub(super) site: Option<String>,
    /// The reason code.
    pub(super) reason: String,
    pub(super) timestamp: Option<Timestamp>,
    /// Seconds since the timestamp.
    #[serde(skip)]
    pub(super) age: Option<u64>,
    /// The RTT that the decision used, in milliseconds.
    pub(super) wan_rtt_ms: Option<String>,
    /// The numbers of each site.
    pub(super) sites: Vec<Then>,
}

/// The assessment of a site at the time of the decision. Both forms of the explanation are understood.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Then {
    pub(super) name: String,
    pub(super) fitting_nodes: Value,
    pub(super) eta_ms: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub(super) score: Value,
    pub(super) refusals: Vec<String>,
    /// All of it as text for people.
    #[serde(skip)]
    pub(super) line: String,
}

impl SchedulingState {
    /// Reads the pod's JSON. `site` is the site that its spec selects.
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

    /// Says where the pod is and whether it runs, to follow the pod's name in a sentence.
    pub(super) fn location(&self, keys: &Keys) -> String {
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
            // The message from the cluster behind a virtual node, or else an Event.
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

    /// Whether edgeward's gate keeps the pod from kube-scheduler.
    pub(super) fn is_gated(&self) -> bool {
        self.gated_seconds.is_some() && self.node.is_none() && self.deleted.is_none() && !self.is_finished()
    }

    /// Says that the pod's gate belongs to another domain than `keys`, if it does.
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
        // A held pod has no decision id.
        if !reason.starts_with("held_") {
            written(&keys.decision_id)?;
        }
        let timestamp = written(&keys.timestamp).and_then(|at| at.parse::<Timestamp>().ok());
        let age = timestamp.and_then(|at| u64::try_from(now.duration_since(at).as_secs()).ok());
        let explained = written(&keys.explain).and_then(|text| serde_json::from_str::<Map<String, Value>>(&text).ok());
        Some(Self {
            decision: written(&keys.decision),
            site: written(&keys.site),
            reason,
            timestamp,
            age,
            wan_rtt_ms: written(&keys.wan_rtt_ms),
            sites: explained
                .iter()
                .flatten()
                .filter(|(name, _)| *name != explain::GROUP_PODS)
                .map(Then::read)
                .collect(),
        })
    }
}

impl Then {
    fn read((name, entry): (&String, &Value)) -> Self {
        let either = |short: &str, full: &str| entry.get(short).or(entry.get(full)).cloned().unwrap_or_default();
        Self {
            name: name.clone(),
            fitting_nodes: either("fit", "fittingNodes"),
            eta_ms: either("eta", "etaMs"),
            score: entry["score"].clone(),
            refusals: explain::refusals(entry).map(|(code, _)| code.to_owned()).collect(),
            line: format!("{name}: {}", assessment(entry)),
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the reason why a container waits, if it does.
fn waiting(container: &Value) -> Option<String> {
    let waiting = container["state"]["waiting"].as_object()?;
    let text = |name: &str| waiting.get(name).and_then(Value::as_str).unwrap_or_default();
    // Every container starts with one of these reasons, so they explain nothing.
    let reason =
        Some(text("reason")).filter(|reason| !["ContainerCreating", "PodInitializing", ""].contains(reason))?;
    let name = container["name"].as_str().unwrap_or_default();
    Some(match text("message") {
        "" => format!("container {name}: {reason}"),
        message => format!("container {name}: {reason}: {message}"),
    })
}

/// Formats a duration for people: `1h 3m 20s`.
pub(super) fn duration(seconds: u64) -> String {
    format!(
        "{:#}",
        SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX))
    )
}
