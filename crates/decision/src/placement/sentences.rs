//! Describes in sentences what a site means for a pod, for tables and Events. Programs read the code and the numbers.

use serde_json::{Map, Value};

use crate::model::scores::ProfileScores;
use crate::placement::verdict::{Assessment, RefusalCode};
use edgeward_kube::excerpt::excerpt;
use edgeward_kube::resources::quantity;

/// A refusal as a sentence with its numbers and its code. If the refusal was read from an annotation, numbers may be
/// missing or replaced by anything. An unknown code is returned alone.
pub fn refusal(code: &str, numbers: &Map<String, Value>) -> String {
    let Some(known) = RefusalCode::of_word(code) else {
        return code.to_owned();
    };
    let sentence = templates(known).iter().find_map(|template| fill(template, numbers));
    format!("{} ({code})", sentence.unwrap_or_default())
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

/// Describes on how many nodes of a site the pod fits.
pub fn fits(nodes: u64) -> String {
    let plural = if nodes == 1 { "" } else { "s" };
    format!("fits {nodes} node{plural}")
}

/// The sentences of a refusal. The first whose numbers are all present is used; the last needs none. It is one long table.
const fn templates(code: RefusalCode) -> &'static [&'static str] {
    match code {
        RefusalCode::NotInSites => &["the pod may run only at {sites}", "the pod may not run at this site"],
        RefusalCode::MissingTrait => &["no node there has {traits}", "no node there has the pod's traits"],
        RefusalCode::NoMatchingNode => &[
            "the pod's constraints allow {selectedNodes} of its {nodes} nodes, and it tolerates the taints of none of them, such as {taint}",
            "the pod's constraints allow {selectedNodes} of its {nodes} nodes, and it tolerates the taints of none of them",
            "the pod's constraints and tolerations allow no node",
        ],
        RefusalCode::DataElsewhere => &["the data of claim {claim} is elsewhere", "the pod's data is elsewhere"],
        RefusalCode::PodsElsewhere => &[
            "pods that the pod must run with are at {sites}",
            "pods that the pod must run with are elsewhere",
        ],
        RefusalCode::TooLarge => &[
            "the pod is larger than every node: asked for {request}, nodes have at most {largestNode}",
            "the pod is larger than every node",
        ],
        RefusalCode::NotOffloadable => &[
            "the pod may not leave the edge: {ties}",
            "the pod may not leave the edge",
        ],
        RefusalCode::NamespaceNotOffloaded => &[
            "Liqo runs the pods of this namespace on virtual nodes only (strategy {strategy})",
            "Liqo does not offload the pod's namespace to it (phase {phase})",
            "Liqo does not offload the pod's namespace to it",
        ],
        RefusalCode::NoNode => &["it has no nodes"],
        RefusalCode::NewNode => &["a node younger than a minute lacks what the pod asks for"],
        RefusalCode::NodeNotReady => &[
            "matching nodes that are not ready or are cordoned: {matchingNodes}",
            "its matching nodes are not ready or are cordoned",
        ],
        RefusalCode::OffloadingInProgress => &["Liqo is offloading the pod's namespace to it"],
        RefusalCode::Unreachable => &[
            "Liqo does not reach its API server: {apiServerStatus}",
            "nothing answers there",
        ],
        RefusalCode::Degraded => &[
            "its WAN is degraded: RTT {rttMs}, loss {lossPct}, thresholds {rttThresholdMs} and {lossThresholdPct}",
            "its WAN is too slow or loses too much",
        ],
        RefusalCode::Stale => &[
            "its WAN was last measured {ageMs} ago, and {telemetryCacheTTLMs} is the limit",
            "its WAN was not measured lately",
        ],
        RefusalCode::DistanceLimit => &[
            "its RTT ({rttMs}) is not below the pod's limit of {boundMs}",
            "its RTT is not below the pod's limit",
        ],
        RefusalCode::NoRoom => &[
            "by measurement the site has less free: asked for {request}, free {measuredFree}",
            "of its usable nodes ({usableNodes}), {excludedNodes} have pods that the pod keeps apart from, and no other has room",
            "none of its usable nodes ({usableNodes}) has room{lacking}",
            "no node has room",
        ],
        RefusalCode::Claimed => &["nodes have room, but gated pods ahead claim it{lacking}"],
        RefusalCode::ClosedByScheduler => &[
            "pods of its controller were refused or not started there within ten minutes; {waitingPods} wait",
            "pods of its controller were refused or not started there",
        ],
        RefusalCode::RemoteFull => &[
            "the cluster behind it has no room for pods that ask for {refused} or more; {waitingPods} wait there",
            "the cluster behind it has no room for pods like it",
        ],
        RefusalCode::Deadline => &[
            "after {gatedMs} behind the gate, the ETA of {etaMs} is beyond the deadline of {boundMs}",
            "the ETA of {etaMs} is beyond the deadline of {boundMs}",
            "the ETA is beyond the deadline",
        ],
        RefusalCode::LatencyTarget => &[
            "processing and WAN take {latencyMs}, and the latency target is {boundMs}",
            "processing and WAN take longer than the latency target",
        ],
    }
}

/// Fills the numbers into a template; `None` if one is missing.
fn fill(template: &str, numbers: &Map<String, Value>) -> Option<String> {
    let Some((before, rest)) = template.split_once('{') else {
        return Some(template.to_owned());
    };
    let (name, after) = rest.split_once('}')?;
    let shown = match name {
        "lacking" => lacking(numbers).unwrap_or_default(),
        "ties" if numbers.is_empty() => return None,
        "ties" => numbers.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        name => shown(name, numbers.get(name)?)?,
    };
    Some(format!("{before}{shown}{}", fill(after, numbers)?))
}

/// The most bytes that are shown of a text. Any user may have written it.
const SHOWN_BYTES: usize = 200;

/// A number with the unit that its name implies; `None` if the value cannot belong to this name.
fn shown(name: &str, value: &Value) -> Option<String> {
    let is_text = matches!(
        name,
        "claim" | "traits" | "taint" | "sites" | "strategy" | "phase" | "apiServerStatus"
    );
    let unit = match name {
        name if name.ends_with("Ms") => " ms",
        name if name.ends_with("Pct") => " %",
        _ => "",
    };
    match value {
        Value::Null if !unit.is_empty() => Some("unknown".to_owned()),
        Value::Number(number) => match number.as_f64() {
            Some(ms) if unit == " ms" && ms >= 10_000.0 => Some(format!("{} s", (ms / 1_000.0).floor())),
            _ => Some(format!("{number}{unit}")),
        },
        Value::String(text) if is_text => Some(excerpt(text, SHOWN_BYTES)),
        Value::Object(amounts) => Some(listed(amounts)),
        _ => None,
    }
}

/// The requested, free and reserved amounts of the resources that no node has enough of. If some node has enough of each
/// resource alone, the amounts of the whole request.
fn lacking(numbers: &Map<String, Value>) -> Option<String> {
    let amounts = |name: &str| numbers.get(name).and_then(Value::as_object);
    let (asked, free) = (amounts("request")?, amounts("largestFree")?);
    let of = |amounts: &Map<String, Value>, name: &str| amounts.get(name).and_then(Value::as_i64).unwrap_or(0);
    let names: Vec<&String> = asked.keys().filter(|name| of(asked, name) > of(free, name)).collect();
    if names.is_empty() {
        return Some(format!(" for {} at once", listed(asked)));
    }
    let part = |amounts: &Map<String, Value>| -> Map<String, Value> {
        let named = names.iter().map(|name| ((*name).clone(), of(amounts, name).into()));
        named.collect()
    };
    let is_some = |amounts: &Map<String, Value>| amounts.values().any(|amount| *amount != 0);
    let reserved = amounts("reserved").map(part).filter(is_some);
    let reserved = reserved.map(|reserved| format!(", reserved {}", listed(&reserved)));
    let (asked, free) = (listed(&part(asked)), listed(&part(free)));
    let reserved = reserved.unwrap_or_default();
    Some(format!(": asked for {asked}, free at most {free}{reserved}"))
}

/// Amounts by resource, in Kubernetes notation: `cpu 500m and memory 2Gi`.
fn listed(amounts: &Map<String, Value>) -> String {
    let amounts = amounts
        .iter()
        .filter_map(|(name, amount)| Some((&**name, amount.as_i64()?)));
    let amounts = amounts.map(|(name, amount)| match (name, amount) {
        ("pods", 1) => "a pod slot".to_owned(),
        ("pods", slots) => format!("{slots} pod slots"),
        (name, amount) => format!("{name} {}", quantity(name, amount)),
    });
    amounts.collect::<Vec<_>>().join(" and ")
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
