//! The report of `why`: a documented format (docs/reference/output.md), and text for people.

use std::fmt::Write as _;

use edgeward_decision::config::Config;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::sentences;
use edgeward_decision::placement::verdict::Verdict;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::scheduling_state::{Decided, SchedulingState, duration};
use crate::cli::installed::domain_option;
use crate::cli::review::report::{GroupItem, ProfileItem, SiteItem, harmless};
use crate::controllers::events::{bounds, in_words};
use crate::inspect::installation::Leaderless;

/// The whole report.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<GroupItem>,
    now: Now,
    changes: Vec<String>,
    causes: Vec<String>,
    notes: Vec<String>,
}

/// The pod to explain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'s> {
    pub(super) namespace: &'s str,
    pub(super) name: &'s str,
    pub(super) workload: &'s Workload<'s>,
    pub(super) snapshot: &'s Snapshot,
}

/// The place of a gated pod in the queue.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queue {
    /// Number of gated pods that get room before it; `None` if it has no place in the plan.
    pub(super) ahead: Option<usize>,
    /// Number of gated pods, including this one.
    pub(super) gated: usize,
    /// When its limit ended, if it is gated for longer.
    pub(super) limit_over: Option<Timestamp>,
    /// Why no replica leads, if none does. Only a leader releases pods.
    pub(super) leaderless: Option<Leaderless>,
}

impl Queue {
    /// Says what is wrong and what to do, if the pod is not merely waiting.
    fn stuck(&self, subject: &Subject<'_>, config: &Config) -> Option<String> {
        let Some(leaderless) = &self.leaderless else {
            let end = self.limit_over?;
            return Some(format!(
                "its limit ended at {end:.0}, and it is still gated; its Events and the log of the leader say why"
            ));
        };
        let Subject { namespace, name, .. } = subject;
        let domain = domain_option(&config.keys.domain);
        Some(format!(
            "it is not being released: {leaderless}; start a replica, or remove its gate: edgeward release {name} -n {namespace}{domain}"
        ))
    }
}

/// The decision that edgeward would make now.
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
    /// The choice of the learned scorer, as text for people.
    #[serde(skip)]
    learned: Option<String>,
    warnings: Vec<String>,
}

impl From<&Verdict<'_>> for Now {
    fn from(verdict: &Verdict<'_>) -> Self {
        Self {
            verdict: verdict.action.as_str(),
            site: verdict.site().map(|site| site.name().to_owned()),
            reason: verdict.reason.as_str(),
            wan_rtt_ms: verdict.rtt.map(Value::from),
            sites: SiteItem::all(verdict),
            profile: ProfileItem::of(verdict),
            learned: sentences::learned(verdict),
            warnings: verdict.warnings.clone(),
        }
    }
}

impl Explanation {
    pub(super) fn new(
        subject: Subject<'_>,
        mut state: SchedulingState,
        queue: Option<Queue>,
        now: Now,
        causes: Vec<String>,
        mut notes: Vec<String>,
        config: &Config,
    ) -> Self {
        let place = state.location(&config.keys);
        let stuck = queue.as_ref().filter(|_| state.is_gated());
        let stuck = stuck.and_then(|queue| queue.stuck(&subject, config));
        let decided = state.decided.take();
        let why = match (stuck, &decided) {
            (Some(stuck), _) => stuck,
            (None, Some(decided)) => format!("{} ({})", in_words(&decided.reason), decided.reason),
            (None, None) => {
                let cause = causes.first().map_or("the reason is unknown", |cause| cause);
                format!("edgeward did not decide it: {cause}")
            }
        };
        if let Some(written) = decided.as_ref().and_then(|decided| decided.site.as_ref())
            && state.site.as_ref() != Some(written)
        {
            let found = state.site.as_deref().unwrap_or("none");
            notes.push(format!(
                "its annotations say site {written}, its spec says site {found}: other users can write annotations, and labels of \
                 nodes change"
            ));
        }
        let Subject { namespace, name, .. } = subject;
        Self {
            api_version: "edgeward.io/v1alpha1",
            kind: "PodExplanation",
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            answer: format!("{namespace}/{name} {place}: {why}"),
            asks: asks(subject.workload),
            changes: decided.as_ref().map(|then| changes(then, &now)).unwrap_or_default(),
            decided,
            state,
            queue,
            group: GroupItem::of(subject.workload, subject.snapshot),
            now,
            causes,
            notes,
        }
    }

    /// Formats the report for people.
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
        let site = now.site.as_ref().map(|site| format!("site {site}"));
        let verdict = site.as_deref().unwrap_or(now.verdict);
        let mut lines = vec![format!("{verdict}: {} ({})", in_words(now.reason), now.reason)];
        lines.extend(now.sites.iter().map(SiteItem::line));
        lines.extend(now.profile.iter().map(|profile| profile.line.clone()));
        lines.extend(now.learned.clone());
        lines.extend(now.warnings.iter().map(|warning| format!("warning: {warning}")));
        say("now", &lines);
        if self.decided.is_some() && self.changes.is_empty() {
            say("changed", &["nothing that the decision names".to_owned()]);
        }
        say("changed", &self.changes);
        say("note", &self.notes);
        text
    }

    fn state_lines(&self) -> Vec<String> {
        let state = &self.state;
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let (node, site) = (or_none(&state.node), or_none(&state.site));
        let mut lines = vec![format!("{}, node {node}, site {site}", state.phase)];
        lines.extend(state.started.iter().map(|started| format!("started at {started}")));
        if let Some(queue) = &self.queue {
            lines.push(match queue.ahead {
                Some(ahead) => format!("{ahead} of {} gated pods are given room before it", queue.gated),
                None => {
                    "in no plan: its constraints are longer than 4 KiB; it is decided alone at its limit".to_owned()
                }
            });
        }
        lines.extend(self.group.iter().map(GroupItem::line));
        if !state.gates.is_empty() {
            lines.push(format!("gates: {}", state.gates.join(", ")));
        }
        lines.extend(state.scheduler.iter().map(|said| format!("kube-scheduler: {said}")));
        lines.extend(state.waiting.iter().cloned());
        lines.extend(state.events.iter().map(|event| format!("Event {event}")));
        lines
    }
}

/// Lists the pod's SLO and resource requests.
fn asks(workload: &Workload<'_>) -> Vec<String> {
    let mut asks = Vec::new();
    match &workload.intent {
        Some(intent) => {
            let slo = &intent.slo;
            let class = Some(slo.class.as_str()).filter(|_| intent.class_known);
            asks.push(class.unwrap_or("no class").to_owned());
            asks.extend(bounds(slo));
            asks.push(format!("priority {}", slo.priority));
            if !slo.offload_allowed {
                asks.push("no offload".to_owned());
            }
            asks.extend(intent.traits.iter().map(|traits| format!("traits {traits}")));
            let near = intent.membership.iter().flat_map(|membership| &membership.near);
            asks.extend(near.map(|near| format!("near {near}")));
            asks.extend(intent.spreads.then(|| "spread over sites".to_owned()));
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
        let site = self.site.as_ref().map(|site| format!("site {site}"));
        let verdict = site.as_deref().or(self.decision.as_deref()).unwrap_or("gate");
        let mut lines = vec![format!("{verdict}: {} ({})", in_words(&self.reason), self.reason)];
        let at = self.timestamp.map(|at| format!("at {at}"));
        let age = self.age.map(|age| format!("{} ago", duration(age)));
        let rtt = self.wan_rtt_ms.as_ref().map(|rtt| format!("RTT {rtt} ms"));
        let facts: Vec<_> = [at, age, rtt].into_iter().flatten().collect();
        lines.extend(Some(facts.join(", ")).filter(|facts| !facts.is_empty()));
        lines.extend(self.sites.iter().map(|site| site.line.clone()));
        lines
    }
}

/// Lists the differences between the decision on the pod and the current one.
fn changes(then: &Decided, now: &Now) -> Vec<String> {
    let mut changes = Vec::new();
    let mut compare = |what: &str, then: &Value, now: &Value| {
        let (then, now) = (in_text(then), in_text(now));
        if then != now {
            changes.push(format!("{what} {then} → {now}"));
        }
    };
    compare("site", &json!(then.site), &json!(now.site));
    compare("reason", &json!(then.reason), &json!(now.reason));
    // A held pod carries no decision.
    if then.decision.is_some() {
        compare("RTT in ms", &json!(then.wan_rtt_ms), &json!(now.wan_rtt_ms));
    }
    for site in &now.sites {
        let Some(before) = then.sites.iter().find(|before| before.name == site.name) else {
            continue;
        };
        let mut compare = |what: &str, then: &Value, now: &Value| compare(&format!("{}: {what}", site.name), then, now);
        compare("nodes that it fits", &before.fitting_nodes, &json!(site.fitting_nodes));
        compare("ETA in ms", &before.eta_ms, &site.times["etaMs"]);
        compare("score", &before.score, &json!(site.score));
        compare("refusals", &json!(before.refusals), &json!(site.codes()));
    }
    changes
}

fn in_text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        Value::Array(all) => all.iter().map(in_text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
