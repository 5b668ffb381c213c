//! What `why` prints, as an interface (docs/why-output.md) and for people.

use std::fmt::Write as _;

use edgeward_core::config::Config;
use edgeward_core::model::workload::Workload;
use edgeward_core::placement::verdict::{Assessment, Verdict};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::scheduling_state::{Decided, SchedulingState, Then, duration};
use crate::cli::installed::DOMAIN;
use crate::cli::review::report::{ProfileItem, SiteItem, harmless};
use crate::controllers::events::{bounds, in_words};
use crate::inspect::installation::Leaderless;

/// Everything that is printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explanation {
    api_version: &'static str,
    kind: &'static str,
    namespace: String,
    name: String,
    answer: String,
    asks: Vec<String>,
    decided: Option<Decided>,
    #[serde(rename = "standing")]
    state: SchedulingState,
    queue: Option<Queue>,
    now: Now,
    changes: Vec<String>,
    causes: Vec<String>,
    notes: Vec<String>,
}

/// The pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'s> {
    pub(super) namespace: &'s str,
    pub(super) name: &'s str,
    pub(super) workload: &'s Workload<'s>,
    /// When it was asked about.
    pub(super) at: Timestamp,
}

/// The place of a held pod in the queue.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    /// How many held pods are given room before it; `None` where it has no place in the plan.
    pub(super) ahead: Option<usize>,
    /// How many are held, it included.
    pub(super) held: usize,
    /// Since when it is held longer than it may be.
    pub(super) limit_over: Option<Timestamp>,
    /// That nobody leads, who would release it.
    pub(super) leaderless: Option<Leaderless>,
}

impl Queue {
    /// What is wrong, and what to do, where a pod is not only waiting.
    fn stuck(&self, subject: &Subject<'_>, config: &Config) -> Option<String> {
        let ago = |at: Timestamp| {
            let seconds = u64::try_from(subject.at.duration_since(at).as_secs()).unwrap_or(0);
            format!("{at:.0} ({} ago)", duration(seconds))
        };
        let Some(Leaderless { lease, since }) = &self.leaderless else {
            let end = ago(self.limit_over?);
            return Some(format!(
                "its limit is over since {end}, and nobody has released it; Events on it and the log of the leader say why"
            ));
        };
        let Subject { namespace, name, .. } = subject;
        let domain = match &*config.keys.domain {
            DOMAIN => String::new(),
            other => format!(" --domain {other}"),
        };
        let nobody = match since {
            Some(since) => format!("no replica of edgeward has led since {}", ago(*since)),
            None => format!(
                "no replica of edgeward leads, for there is no Lease {lease} (where edgeward has another namespace, \
                 --deployment NAMESPACE/NAME tells it)"
            ),
        };
        Some(format!(
            "nobody releases it: {nobody}; start a replica, or remove its gate: edgeward release {name} -n {namespace}{domain}"
        ))
    }
}

/// What would be decided now.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Now {
    verdict: &'static str,
    site: Option<String>,
    reason: &'static str,
    wan_rtt_ms: Option<Value>,
    sites: Vec<SiteItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileItem>,
    warnings: Vec<String>,
    /// To compare with what was written.
    #[serde(skip)]
    brief: Vec<Then>,
}

impl From<&Verdict<'_>> for Now {
    fn from(verdict: &Verdict<'_>) -> Self {
        Self {
            verdict: verdict.action.as_str(),
            site: verdict.site().map(|site| site.name().to_owned()),
            reason: verdict.reason.as_str(),
            wan_rtt_ms: verdict.rtt.map(Value::from),
            sites: verdict.sites.iter().map(SiteItem::from).collect(),
            profile: ProfileItem::of(verdict),
            warnings: verdict.warnings.clone(),
            brief: verdict.sites.iter().map(Then::from).collect(),
        }
    }
}

impl From<&Assessment<'_>> for Then {
    fn from(assessment: &Assessment<'_>) -> Self {
        let refusals = assessment.refusals.iter();
        Self {
            name: assessment.site.name().to_owned(),
            fitting_nodes: json!(assessment.fitting.len()),
            eta_ms: assessment.estimate.eta().map_or(Value::Null, Value::from),
            score: json!(assessment.score),
            refusals: refusals.map(|refusal| refusal.code.as_str().to_owned()).collect(),
            said: vec![],
        }
    }
}

impl Explanation {
    pub(super) fn new(
        subject: Subject<'_>,
        state: SchedulingState,
        queue: Option<Queue>,
        now: Now,
        causes: Vec<String>,
        config: &Config,
    ) -> Self {
        let decided = state.decided.clone();
        let stuck = queue.as_ref().filter(|_| state.is_held());
        let stuck = stuck.and_then(|queue| queue.stuck(&subject, config));
        let why = match (stuck, &decided) {
            (Some(stuck), _) => stuck,
            (None, Some(decided)) => format!("{} ({})", in_words(&decided.reason), decided.reason),
            (None, None) => {
                let cause = causes.first().map_or("nobody knows why", |cause| cause);
                format!("edgeward did not decide it: {cause}")
            }
        };
        let Subject { namespace, name, .. } = subject;
        let answer = format!("{namespace}/{name} {}: {why}", state.place(&config.keys));
        let changes = decided.as_ref().map(|then| changes(then, &now)).unwrap_or_default();
        let notes = decided.iter().filter_map(|decided| disagreement(decided, &state));
        Self {
            api_version: "edgeward.io/v1alpha1",
            kind: "PodExplanation",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            answer,
            asks: asks(subject.workload),
            notes: notes.collect(),
            decided,
            state,
            queue,
            now,
            changes,
            causes,
        }
    }

    /// Adds what is to be known of the explanation itself.
    pub(super) fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n", harmless(&self.answer));
        let mut say = |title: &str, lines: &[String]| {
            for (i, line) in lines.iter().enumerate() {
                let title = if i == 0 { title } else { "" };
                let _ = writeln!(text, "{title:<9} {}", harmless(line));
            }
        };
        say("asks for", &[self.asks.join(", ")]);
        match &self.decided {
            Some(decided) => say("decided", &decided.lines()),
            None => say("undecided", &self.causes),
        }
        say("is", &self.state_lines());
        let now = &self.now;
        let verdict = match &now.site {
            Some(site) => format!("site {site}"),
            None => now.verdict.to_owned(),
        };
        let mut lines = vec![format!("{verdict}: {} ({})", in_words(now.reason), now.reason)];
        lines.extend(now.sites.iter().map(SiteItem::line));
        lines.extend(now.profile.iter().map(|profile| profile.line.clone()));
        lines.extend(now.warnings.iter().map(|warning| format!("warning: {warning}")));
        say("now", &lines);
        if self.decided.is_some() {
            match self.changes.is_empty() {
                true => say("changed", &["nothing that the decision names".to_owned()]),
                false => say("changed", &self.changes),
            }
        }
        say("note", &self.notes);
        text
    }

    fn state_lines(&self) -> Vec<String> {
        let state = &self.state;
        let place = match (&state.node, &state.site) {
            (Some(node), Some(site)) => format!(", node {node}, site {site}"),
            (Some(node), None) => format!(", node {node}, of no site"),
            (None, Some(site)) => format!(", no node yet, site {site} by its spec"),
            (None, None) => ", no node yet".to_owned(),
        };
        let mut lines = vec![format!("{}{place}", state.phase)];
        if let Some(started) = &state.started {
            lines.push(format!("started at {started}"));
        }
        if let Some(queue) = &self.queue {
            let Queue { ahead, held, .. } = queue;
            lines.push(match ahead {
                Some(ahead) => format!("{ahead} of {held} held pods are given room before it"),
                None => {
                    "in no plan: its constraints are longer than 4 KiB; it is decided alone at its limit".to_owned()
                }
            });
            lines.extend(
                queue
                    .limit_over
                    .map(|end| format!("held longer than it may be, since {end}")),
            );
        }
        if !state.gates.is_empty() {
            lines.push(format!("gates: {}", state.gates.join(", ")));
        }
        let said = state.scheduler.iter().map(|said| format!("kube-scheduler: {said}"));
        lines.extend(said);
        lines.extend(state.waiting.iter().cloned());
        lines.extend(state.events.iter().map(|event| format!("Event {event}")));
        lines
    }
}

/// What the pod asks for.
fn asks(workload: &Workload<'_>) -> Vec<String> {
    let mut asks = Vec::new();
    match &workload.intent {
        Some(intent) => {
            let slo = &intent.slo;
            asks.push(match intent.class_known {
                true => slo.class.as_str().to_owned(),
                false => "no class".to_owned(),
            });
            asks.extend(bounds(slo));
            asks.push(format!("priority {}", slo.priority));
            if !slo.offload_allowed {
                asks.push("no offload".to_owned());
            }
            asks.extend(intent.traits.iter().map(|traits| format!("traits {traits}")));
            asks.extend(intent.profile.iter().map(|profile| format!("profile {profile}")));
            asks.extend(intent.faults.iter().map(|fault| format!("fault: {fault}")));
        }
        None => asks.push("no SLO".to_owned()),
    }
    asks.extend(workload.request.quantities());
    asks
}

impl Decided {
    fn lines(&self) -> Vec<String> {
        let verdict = match (&self.site, &self.decision) {
            (Some(site), _) => format!("site {site}"),
            (None, Some(decision)) => decision.clone(),
            (None, None) => "hold".to_owned(),
        };
        let mut lines = vec![format!("{verdict}: {} ({})", in_words(&self.reason), self.reason)];
        let at = self.timestamp.map(|at| format!("at {at}"));
        let age = self.age.map(|age| format!("{} ago", duration(age)));
        let rtt = self.wan_rtt_ms.as_ref().map(|rtt| format!("RTT {rtt} ms"));
        let facts: Vec<_> = [at, age, rtt].into_iter().flatten().collect();
        if !facts.is_empty() {
            lines.push(facts.join(", "));
        }
        lines.extend(self.sites.iter().map(Then::line));
        lines
    }
}

/// Annotations that the spec does not bear out.
fn disagreement(decided: &Decided, state: &SchedulingState) -> Option<String> {
    let written = decided.site.as_ref()?;
    if state.site.as_ref() == Some(written) {
        return None;
    }
    let found = match &state.site {
        Some(site) => format!("it is of site {site}"),
        None => "it is of no site".to_owned(),
    };
    Some(format!(
        "its annotations say site {written}, by its spec {found}: anybody may write annotations, and labels of nodes change"
    ))
}

/// What is another now than what was written.
fn changes(then: &Decided, now: &Now) -> Vec<String> {
    let or = |text: Option<&str>, other: &str| text.unwrap_or(other).to_owned();
    let mut changes = Vec::new();
    let mut compare = |what: String, then: String, now: String| {
        if then != now {
            changes.push(format!("{what} {then} → {now}"));
        }
    };
    compare(
        "site".to_owned(),
        or(then.site.as_deref(), "none"),
        or(now.site.as_deref(), "none"),
    );
    compare("reason".to_owned(), then.reason.clone(), now.reason.to_owned());
    let ms = |rtt: Option<String>| rtt.map_or_else(|| "unknown".to_owned(), |rtt| format!("{rtt} ms"));
    // A hold has none written.
    if then.decision.is_some() {
        compare(
            "RTT".to_owned(),
            ms(then.wan_rtt_ms.clone()),
            ms(now.wan_rtt_ms.as_ref().map(Value::to_string)),
        );
    }
    for site in &now.brief {
        let Some(before) = then.sites.iter().find(|before| before.name == site.name) else {
            continue;
        };
        let name = &site.name;
        let number = |value: &Value| match value {
            Value::Null => "unknown".to_owned(),
            value => value.to_string(),
        };
        compare(
            format!("{name}: nodes that it fits"),
            number(&before.fitting_nodes),
            number(&site.fitting_nodes),
        );
        compare(
            format!("{name}: ETA in ms"),
            number(&before.eta_ms),
            number(&site.eta_ms),
        );
        compare(format!("{name}: score"), number(&before.score), number(&site.score));
        let codes = |codes: &[String]| match codes.is_empty() {
            true => "none".to_owned(),
            false => codes.join(", "),
        };
        compare(
            format!("{name}: refusals"),
            codes(&before.refusals),
            codes(&site.refusals),
        );
    }
    changes
}

#[cfg(test)]
mod tests;
