//! The Events about a pod's decision, and their wording.

use std::fmt::Write as _;

use edgeward_cluster::engine::ObservedDecision;
use edgeward_cluster::pod_record::GatedPod;
use edgeward_decision::keys::Keys;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::slo::Slo;
use edgeward_decision::placement::{explain, sentences};
use edgeward_kube::excerpt::excerpt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Map, Number, Value};

use super::NOTE_BYTES;

edgeward_kube::words! {
    /// Reason of an Event on a pod.
    pub enum PodReason {
        /// The pod was sent to a cloud.
        PlacedCloud = "PlacedCloud",
        /// Our scheduling gate keeps the pod from kube-scheduler.
        Gated = "Gated",
        /// Our scheduling gate was removed.
        Released = "Released",
        /// The pod's SLO has faults.
        InvalidSlo = "InvalidSlo",
        /// The pod was placed where it is not expected to meet its SLO.
        SloAtRisk = "SloAtRisk",
        /// The pod was placed farther from pods of its group than it allows.
        FarFromGroup = "FarFromGroup",
        /// kube-scheduler finds no node for the pod, but another site would take it.
        Unschedulable = "Unschedulable",
        /// The API server refuses our change to the pod, so the gate stays.
        ReleaseRefused = "ReleaseRefused",
        /// The pod was evicted, because another site has become better for it.
        Moved = "Moved",
        /// The pod was created after an eviction, but not placed where the evicted pod was expected to go.
        MoveMissed = "MoveMissed",
        /// The pod's node or site does not meet a requirement of the pod any more, and no other site is good.
        TraitLost = "TraitLost",
    }
}

impl PodReason {
    /// Returns `type` and `action` of the Event.
    const fn type_and_action(self) -> [&'static str; 2] {
        match self {
            Self::PlacedCloud => ["Normal", "Place"],
            Self::Gated => ["Normal", "Gate"],
            Self::Released => ["Normal", "Release"],
            Self::InvalidSlo => ["Warning", "ReadSlo"],
            Self::SloAtRisk | Self::FarFromGroup => ["Warning", "Place"],
            Self::Unschedulable => ["Warning", "Recheck"],
            Self::ReleaseRefused => ["Warning", "Release"],
            Self::Moved => ["Normal", "Move"],
            Self::MoveMissed => ["Warning", "Move"],
            Self::TraitLost => ["Warning", "Recheck"],
        }
    }
}

/// An Event to write on a pod. There is one Event per uid, reason and decision.
#[derive(Debug, Clone, PartialEq)]
pub struct PodEvent {
    /// Namespace of the pod.
    pub namespace: Box<str>,
    /// Name of the pod.
    pub name: Box<str>,
    /// Uid of the pod.
    pub uid: Box<str>,
    /// Reason of the Event.
    pub reason: PodReason,
    /// The decision that the Event is about; `None` for a pod without one.
    pub decision: Option<DecisionId>,
    /// When it happened.
    pub at: Timestamp,
    /// Text for people; cut off after 1024 bytes.
    pub note: String,
}

impl PodEvent {
    /// An Event that says that the API server refuses to change a gated pod, with its message `words`. A pod has one
    /// such Event regardless of the number of attempts.
    pub fn release_refused(gated: &GatedPod, words: &str, keys: &Keys, at: Timestamp) -> Self {
        Self {
            namespace: gated.namespace.clone(),
            name: gated.name.clone(),
            uid: (*gated.uid).into(),
            reason: PodReason::ReleaseRefused,
            decision: None,
            at,
            note: format!(
                "its gate {} stays for now; the API server refuses the change: {words}",
                keys.gate
            ),
        }
    }

    /// Converts this into an Event of the Kubernetes API.
    pub(super) fn event(&self) -> Event {
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some((*self.namespace).into()),
            name: Some((*self.name).into()),
            uid: Some((*self.uid).into()),
            ..ObjectReference::default()
        };
        let [kind, action] = self.reason.type_and_action();
        let reason = self.reason.as_str();
        let what = (&self.uid, reason, self.decision.map(|id| id.0));
        let note = excerpt(&self.note, NOTE_BYTES);
        super::event(regarding, [kind, reason, action], note, self.at, what)
    }
}

/// The Events about a decision. They must agree with the pod's spec: a placement that the spec does not carry
/// produces no Event, whatever the annotations say. `now` is an upper bound for the time of the decision.
pub(super) fn events_of(observed: &ObservedDecision, now: Timestamp) -> Vec<PodEvent> {
    let decided = &observed.decided;
    let reason = &*decided.reason;
    let site = observed.site.as_ref();
    let kind = site.map(|(_, kind)| *kind);
    let (family, _) = reason.split_once('_').unwrap_or_default();
    let mut events = Vec::new();
    let mut add = |reason, note: String| {
        events.push(PodEvent {
            namespace: observed.namespace.clone(),
            name: decided.name.clone(),
            uid: observed.uid.clone(),
            reason,
            decision: Some(decided.id),
            at: decided.at.min(now),
            note,
        });
    };
    let place = site.map(|(name, _)| format!("site {name}")).unwrap_or_default();
    let is_placed = match (family, kind) {
        ("held", _) if observed.gated => {
            add(PodReason::Gated, note(observed, "gated"));
            return events;
        }
        ("edge", Some(SiteKind::Edge)) | ("cloud", Some(SiteKind::Cloud)) => true,
        ("released", Some(_)) => !observed.gated,
        _ => false,
    };
    if !is_placed {
        return events;
    }
    if observed.was_gated && !observed.gated || family == "released" {
        add(PodReason::Released, note(observed, &format!("released to {place}")));
    } else if family == "cloud" {
        add(PodReason::PlacedCloud, note(observed, &format!("sent to {place}")));
    }
    if (reason == "edge_invalid_slo" || family == "released") && !decided.faults.is_empty() {
        let faults = decided.faults.iter().map(ToString::to_string);
        let faults = faults.collect::<Vec<_>>().join("; ");
        let consequence = "decided as if it had no time bound and might not leave the edge";
        add(PodReason::InvalidSlo, format!("{consequence}: {faults}"));
    }
    if let Some(far) = far_from_group(observed) {
        add(
            PodReason::FarFromGroup,
            format!("at {place}, farther from its group than it allows: {far}"),
        );
    }
    let is_at_risk = ["_best_effort", "_fail_soft"].iter().any(|end| reason.ends_with(end));
    if is_at_risk || reason == "released_timeout" {
        let what = format!("may miss its SLO at {place}");
        add(PodReason::SloAtRisk, note(observed, &what));
    }
    events
}

/// Text of the Event: what happened, the reason in words, the numbers of the pod, and those of each site that the
/// pod's annotations explain.
fn note(observed: &ObservedDecision, what: &str) -> String {
    let decided = &observed.decided;
    let explained = decided.explain.as_deref();
    let explained: Option<Map<String, Value>> = explained.and_then(|text| serde_json::from_str(text).ok());
    let mut text = format!("{what}: {} ({})", in_words(&decided.reason), decided.reason);
    let mut asked = vec![];
    asked.extend(decided.slo.iter().flat_map(bounds));
    asked.extend(observed.request.quantities());
    if !asked.is_empty() {
        let _ = write!(text, "; asks for {}", asked.join(", "));
    }
    if let Some(rtt) = &decided.rtt_ms {
        let _ = write!(text, "; RTT {rtt} ms");
    }
    for (site, entry) in explained.iter().flatten() {
        let _ = match entry {
            Value::String(pods) if site == explain::GROUP_PODS => write!(text, "; {pods} pods of its group exist"),
            entry => write!(text, "; {site}: {}", assessment(entry)),
        };
    }
    text
}

/// The distance from the pod's site to its group that is exceeded, by the explanation.
fn far_from_group(observed: &ObservedDecision) -> Option<String> {
    let (site, _) = observed.site.as_ref()?;
    let explained: Value = serde_json::from_str(observed.decided.explain.as_deref()?).ok()?;
    let far = explained[site]["far"].as_object()?;
    Some(sentences::details(far).join(", "))
}

/// Summarizes one site's outcome for the pod. Reads the short and the full form of the explanation.
pub fn assessment(entry: &Value) -> String {
    let number = |names: [&str; 2]| names.iter().find_map(|name| entry[*name].as_number());
    let mut parts = vec![];
    parts.extend(
        number(["fit", "fittingNodes"])
            .and_then(Number::as_u64)
            .map(sentences::fits),
    );
    if let Some(eta) = number(["eta", "etaMs"]) {
        parts.push(format!("ETA {eta} ms"));
    }
    if let Some(far) = entry["far"].as_object() {
        parts.push(format!("far from its group: {}", sentences::details(far).join(", ")));
    }
    let refusals: Vec<_> = explain::refusals(entry)
        .map(|(code, numbers)| sentences::refusal(code, &numbers))
        .collect();
    if !refusals.is_empty() {
        parts.push(format!("refused: {}", refusals.join(", ")));
    }
    parts.join(", ")
}

/// The time bounds of an SLO as text: `deadline 500 ms`, `latency target 200 ms`.
pub fn bounds(slo: &Slo) -> impl Iterator<Item = String> + use<> {
    let bounds = [("deadline", slo.deadline), ("latency target", slo.latency_target)];
    let stated = bounds.into_iter().filter_map(|(name, bound)| Some((name, bound?)));
    stated.map(|(name, bound)| format!("{name} {bound} ms"))
}

/// Explains a reason code in words. An unknown code is returned with spaces for its underscores.
pub fn in_words(reason: &str) -> String {
    let words = match reason {
        "edge_feasible_slo_met" => "it fits and meets its SLO",
        "edge_no_slo_target" => "it fits and its SLO has no time bound",
        "edge_pinned_by_pod" => "its own constraints, sites, traits or data leave only the edge",
        "edge_invalid_slo" => "its SLO has faults",
        "edge_telemetry_stale" => "the view of the cluster is too old to send it away",
        "edge_too_large" => "it is larger than any node it could run on",
        "edge_offload_not_allowed" => "offload is not allowed, by its SLO or by the configuration",
        "edge_not_offloadable" => "it or its namespace is tied to the edge",
        "edge_cloud_site_missing" => "no cloud has a usable node",
        "edge_wan_unreachable" => "no cloud answers",
        "edge_wan_degraded" => "the WAN is too slow, too lossy, or was not measured lately",
        "edge_preempts" => "the edge is full, but kube-scheduler may evict pods of lower priority",
        "edge_no_capacity" => "the edge is full and no cloud is suitable",
        "edge_best_effort" => "the edge misses its time and no cloud does better",
        "edge_fail_soft" => "the edge misses its time, which its priority accepts",
        "cloud_profile" => "several sites are good, and its performance profile or its group prefers this cloud",
        "cloud_learned" => "several clouds are good, and the learned scorer prefers this one",
        "cloud_edge_no_capacity" => "the edge has no room, and this cloud meets its time",
        "cloud_edge_deadline_missed" => "the edge misses its time, and this cloud meets it",
        "cloud_best_effort" => "no site meets its time, and this cloud comes closer",
        "cloud_pinned_by_pod" => "its own constraints, sites, traits or data leave only the cloud",
        "held_no_capacity" => "no site can be chosen for it yet; it waits behind edgeward's scheduling gate",
        "held_site_away" => "no site can run it at present; it waits behind edgeward's scheduling gate",
        "held_group" => {
            "pods of its group are missing, or no site suits the group now; it waits behind edgeward's scheduling gate"
        }
        "held_foreign_gate" => "it is decided when the other scheduling gates are gone",
        "released_timeout" => "it was gated for as long as it may be, and no site was good",
        _ => return reason.replace('_', " "),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests;
