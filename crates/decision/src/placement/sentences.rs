//! Describes in sentences what a site means for a pod, for tables and Events. Programs read the code and the numbers.

use serde_json::{Map, Value};

use crate::model::remote_room::listed;
use crate::model::scores::ProfileScores;
use crate::model::snapshot::Site;
use crate::placement::score::SCORED;
use crate::placement::verdict::{Assessment, RefusalCode, Verdict};
use edgeward_kube::excerpt::excerpt;

/// The most bytes that are shown of a text. Any user may have written it.
const SHOWN_BYTES: usize = 200;

/// A refusal as a sentence, its numbers and its code. If the refusal was read from an annotation, numbers may be missing or
/// replaced by anything. An unknown code is returned alone.
pub fn refusal(code: &str, numbers: &Map<String, Value>) -> String {
    let Some(known) = RefusalCode::of_word(code) else {
        return code.to_owned();
    };
    let details: Vec<String> = match known {
        RefusalCode::NotOffloadable => numbers.keys().cloned().collect(),
        _ => details(numbers),
    };
    let colon = if details.is_empty() { "" } else { ": " };
    format!("{}{colon}{} ({code})", sentence(known), details.join(", "))
}

/// The numbers of a refusal in words.
pub fn details(numbers: &Map<String, Value>) -> Vec<String> {
    let known = DETAILS.iter();
    known.filter_map(|(name, text)| detail(name, text, numbers)).collect()
}

/// The scores that a profile gives to sites, such as `profile=greenness edge=0.412 cloud=0.388 margin=0.05 lower is better,
/// cloud is preferred`. A site without a score shows `?`.
pub fn profile(name: &str, profile: &ProfileScores, sites: &[Assessment<'_>]) -> String {
    let score = |site: &Assessment<'_>| {
        let score = site.score.map_or_else(|| "?".to_owned(), |score| score.to_string());
        format!("{}={score} ", site.site.name())
    };
    let scores: String = sites.iter().map(score).collect();
    let (margin, better) = (profile.margin, profile.better.as_str());
    let preferred = profile.preferred.as_deref().unwrap_or("none");
    format!("profile={name} {scores}margin={margin}, {better} is better, {preferred} is preferred")
}

/// The scores and the choice of the learned scorer, such as `scorer=active near=0.412 far=0.388, chooses near; sitePolicy: far`.
/// `None` if it did not compare clouds.
pub fn learned(verdict: &Verdict<'_>) -> Option<String> {
    let learned = verdict.learned.as_ref()?;
    let score = |(site, _): &(&Site, i64)| Some(format!(" {}={}", site.name(), learned.score(site)?));
    let scores: String = learned.scores.iter().filter_map(score).collect();
    let mode = if learned.is_active { "active" } else { "shadow" };
    let choice = learned.choice.map_or("none by the margin", |site| site.name());
    Some(format!(
        "scorer={mode}{scores}, chooses {choice}; sitePolicy: {}",
        learned.rules.name()
    ))
}

/// Describes on how many nodes of a site the pod fits. More than [`SCORED`] are usually not counted.
pub fn fits(nodes: u64) -> String {
    match nodes {
        1 => "fits 1 node".to_owned(),
        nodes if nodes == SCORED as u64 => format!("fits {nodes} nodes or more"),
        nodes => format!("fits {nodes} nodes"),
    }
}

/// What a refusal says without its numbers.
const fn sentence(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::NotInSites => "the pod may run only at other sites",
        RefusalCode::MissingTrait => "no node there has the pod's traits",
        RefusalCode::NoMatchingNode => "the pod's constraints and tolerations allow no node",
        RefusalCode::DataElsewhere => "the pod's data is elsewhere",
        RefusalCode::PodsElsewhere => "pods that the pod must run with are at other sites",
        RefusalCode::TooLarge => "the pod is larger than every node",
        RefusalCode::NotOffloadable => "the pod may not leave the edge",
        RefusalCode::NamespaceNotOffloaded => "Liqo does not run pods of this namespace there",
        RefusalCode::NoNode => "it has no nodes",
        RefusalCode::NewNode => "a node younger than a minute lacks what the pod asks for",
        RefusalCode::NodeNotReady => "its matching nodes are not ready or are cordoned",
        RefusalCode::OffloadingInProgress => "Liqo is offloading the pod's namespace to it",
        RefusalCode::Unreachable => "nothing answers there",
        RefusalCode::Degraded => "its WAN is too slow or loses too much",
        RefusalCode::Stale => "its WAN was not measured lately",
        RefusalCode::LostTrait => "it does not have a trait of the pod now",
        RefusalCode::DistanceLimit => "its RTT is not below the pod's limit",
        RefusalCode::NotInNeighbourhood => "it does not belong to the neighbourhood of the pod's policy",
        RefusalCode::UnknownBandwidth => "the time that the pod's input takes to it is unknown",
        RefusalCode::GroupElsewhere => "the release plan places the pod with its group elsewhere",
        RefusalCode::TooFar => "a pod of its group that it must be near to is too far away",
        RefusalCode::NoRoom => "it has no room",
        RefusalCode::NoBandwidth => "its links have no bandwidth left for the pod",
        RefusalCode::Claimed => "gated pods ahead claim its room",
        RefusalCode::ClosedByScheduler => "pods of its controller were refused or not started there within ten minutes",
        RefusalCode::RemoteFull => "the cluster behind it has no room for pods like it",
        RefusalCode::Uneven => "another site has fewer pods of its controller",
        RefusalCode::Deadline => "the ETA is beyond the deadline",
        RefusalCode::LatencyTarget => "processing and WAN take longer than the latency target",
    }
}

/// How each number of a refusal is shown, in this order.
const DETAILS: [(&str, &str); 45] = [
    ("sites", "{text}"),
    ("traits", "{text}"),
    ("trait", "{text}"),
    ("policy", "{text}"),
    ("value", "value {}"),
    ("atMost", "at most {}"),
    ("atLeast", "at least {}"),
    ("component", "{text}"),
    ("at", "at {text}"),
    ("nodes", "nodes {}"),
    ("selectedNodes", "the constraints allow {}"),
    ("taint", "taint {text}"),
    ("claim", "claim {text}"),
    ("strategy", "strategy {text}"),
    ("phase", "phase {text}"),
    ("matchingNodes", "matching nodes {}"),
    ("apiServerStatus", "API server {text}"),
    ("usableNodes", "usable nodes {}"),
    ("excludedNodes", "{} have pods that the pod keeps apart from"),
    ("request", "asked for {amounts}"),
    ("largestFree", "free at most {amounts}"),
    ("measuredFree", "free by measurement {amounts}"),
    ("largestNode", "nodes have at most {amounts}"),
    ("reserved", "reserved {amounts}"),
    ("refused", "refused from {amounts}"),
    ("waitingPods", "{} wait"),
    ("source", "source {text}"),
    ("gatedMs", "gated for {}"),
    ("etaMs", "ETA {}"),
    ("latencyMs", "{}"),
    ("rttMs", "RTT {}"),
    ("rttThresholdMs", "threshold {}"),
    ("lossPct", "loss {}"),
    ("lossThresholdPct", "threshold {}"),
    ("ageMs", "{} ago"),
    ("telemetryCacheTTLMs", "limit {}"),
    ("boundMs", "limit {}"),
    ("limitMs", "limit {}"),
    ("inputBytes", "{} bytes"),
    ("egressBits", "egress {} bit/s"),
    ("egressLeftBits", "{} left"),
    ("ingressBits", "ingress {} bit/s"),
    ("ingressLeftBits", "{} left"),
    ("pods", "{} here"),
    ("fewestPods", "{} there"),
];

/// Fills a number into its text; `None` if it is missing or cannot belong to this name. The name tells the unit.
fn detail(name: &str, text: &str, numbers: &Map<String, Value>) -> Option<String> {
    let (is_time, is_share) = (name.ends_with("Ms"), name.ends_with("Pct"));
    let (place, shown) = match numbers.get(name)? {
        Value::String(text) => ("{text}", excerpt(text, SHOWN_BYTES)),
        Value::Object(amounts) => ("{amounts}", listed(lacking(amounts, numbers))),
        Value::Null if is_time || is_share || name == "value" => ("{}", "unknown".to_owned()),
        Value::Number(number) => match number.as_f64() {
            Some(ms) if is_time && ms >= 10_000.0 => ("{}", format!("{} s", (ms / 1_000.0).floor())),
            _ if is_time => ("{}", format!("{number} ms")),
            _ if is_share => ("{}", format!("{number} %")),
            _ => ("{}", number.to_string()),
        },
        _ => return None,
    };
    text.contains(place).then(|| text.replace(place, &shown))
}

/// The amounts of the resources that no node has enough of. All amounts if some node has enough of each resource alone.
fn lacking<'n>(amounts: &'n Map<String, Value>, numbers: &Map<String, Value>) -> impl Iterator<Item = (&'n str, i64)> {
    let number = |of: &str, name: &str| numbers.get(of).and_then(|amounts| amounts[name].as_i64());
    let is_lacking = |name: &str| number("largestFree", name).is_some_and(|free| number("request", name) > Some(free));
    let all = amounts
        .iter()
        .filter_map(|(name, amount)| Some((&**name, amount.as_i64()?)));
    let (lacking, others): (Vec<_>, Vec<_>) = all.partition(|(name, _)| is_lacking(name));
    if lacking.is_empty() { others } else { lacking }.into_iter()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn said(code: &str, numbers: &Value) -> String {
        refusal(code, numbers.as_object().unwrap())
    }

    #[test]
    fn every_refusal_is_a_sentence_with_its_numbers() {
        let lines: Vec<_> = include_str!("sentences/refusals.txt").lines().collect();
        let mut covered = BTreeSet::new();
        for case in lines.chunks_exact(2) {
            let (code, numbers) = case[0].split_once(' ').unwrap();
            let numbers = serde_json::from_str(numbers).unwrap();
            assert_eq!(said(code, &numbers), format!("{} ({code})", case[1].trim()));
            covered.insert(code);
        }
        assert_eq!(covered, BTreeSet::from(RefusalCode::WORDS));
    }

    #[test]
    fn refusal_without_known_numbers_is_still_a_sentence() {
        let numbers = [
            "nodes",
            "usableNodes",
            "request",
            "largestFree",
            "reserved",
            "etaMs",
            "ageMs",
        ];
        let wrong: Map<String, Value> = numbers
            .map(|name| (name.to_owned(), json!("many")))
            .into_iter()
            .collect();
        for code in RefusalCode::WORDS {
            let sentence = said(code, &json!({}));
            assert!(
                sentence.contains(' ') && sentence.ends_with(&format!(" ({code})")),
                "{sentence}"
            );
            if code != "not_offloadable" {
                assert_eq!(refusal(code, &wrong), sentence);
            }
        }
        assert_eq!(said("not_known", &json!({"n": 1})), "not_known");
    }
}
