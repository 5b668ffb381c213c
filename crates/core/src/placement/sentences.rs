//! What a site means for a pod as sentences, for tables and Events. Other programs read the code and the numbers.

use serde_json::{Map, Value};

use crate::excerpt::{LONGEST_NAME, excerpt};
use crate::model::scores::ProfileScores;
use crate::placement::verdict::{Assessment, RefusalCode};
use crate::resources::quantity;

/// A refusal as a sentence with its numbers, as far as they are there, and its code. What was read from an annotation may have
/// no numbers, or anything in their place; a code that is not known is shown alone.
pub fn refusal(code: &str, numbers: &Map<String, Value>) -> String {
    let known = RefusalCode::BY_WORD.iter().find(|(word, _)| *word == code);
    match known {
        Some((_, known)) => format!("{} ({code})", sentence(*known, &Numbers(numbers))),
        None => code.to_owned(),
    }
}

/// What a profile says of the sites: `profile=greenness edge=0.412 cloud=0.388 margin=0.05 lower is better, cloud is preferred`. A site
/// without a score has `?`.
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

/// On how many nodes of a site the pod fits.
pub fn fits(nodes: u64) -> String {
    match nodes {
        1 => "fits 1 node".to_owned(),
        count => format!("fits {count} nodes"),
    }
}

/// The most that is shown of a word of Liqo's: an annotation may have anything in its place.
const LONGEST_PHASE: usize = 32;

/// One arm for each code.
fn sentence(code: RefusalCode, numbers: &Numbers<'_>) -> String {
    let count = |name: &str| numbers.0.get(name).and_then(Value::as_u64);
    let text = |name: &str| numbers.0.get(name).and_then(Value::as_str);
    match code {
        RefusalCode::NoMatchingNode => match (count("nodes"), count("selectedNodes")) {
            (Some(0), _) => "it has no nodes".to_owned(),
            (Some(1), Some(0)) => "the pod's constraints do not allow its only node".to_owned(),
            (Some(nodes), Some(0)) => format!("the pod's constraints allow none of its {nodes} nodes"),
            (Some(1), Some(_)) => "the pod does not tolerate the taints of its only node".to_owned(),
            (Some(nodes), Some(selected)) => {
                format!(
                    "the pod's constraints allow {selected} of its {nodes} nodes, whose taints it does not tolerate"
                )
            }
            _ => "the pod's constraints and tolerations allow no node".to_owned(),
        },
        RefusalCode::DataElsewhere => match numbers.0.get("claim").and_then(Value::as_str) {
            Some(claim) => format!("the data of claim {} is elsewhere", excerpt(claim, LONGEST_NAME)),
            None => "the pod's data is elsewhere".to_owned(),
        },
        RefusalCode::NoNode => "it has no nodes".to_owned(),
        RefusalCode::NewNode => "a node younger than a minute lacks what the pod asks for".to_owned(),
        RefusalCode::TooLarge => too_large(numbers),
        RefusalCode::OffloadingInProgress => "Liqo is offloading the pod's namespace to it".to_owned(),
        RefusalCode::NodeNotReady => match count("matchingNodes") {
            Some(1) => "the only node that would do is not ready or is cordoned".to_owned(),
            Some(nodes) => format!("all {nodes} nodes that would do are not ready or are cordoned"),
            None => "all nodes that would do are not ready or are cordoned".to_owned(),
        },
        RefusalCode::NoRoom => no_room(numbers),
        RefusalCode::Claimed => {
            let amounts = lacking(numbers, ["left at most", "claimed or reserved"]);
            format!("nodes have room, but held pods ahead claim it{amounts}")
        }
        RefusalCode::ClosedByScheduler => {
            let waiting = match count("waitingPods") {
                Some(1) | None => "a pod of its controller waits".to_owned(),
                Some(pods) => format!("{pods} pods of its controller wait"),
            };
            format!("{waiting} there, for which a scheduler finds no node or which is not started")
        }
        RefusalCode::RemoteFull => {
            let refused = numbers.amounts("refused");
            let whom = match refused.map(listed) {
                Some(amounts) if !amounts.is_empty() => format!("pods that ask for {amounts} or more"),
                _ => "pods like it".to_owned(),
            };
            match count("waitingPods") {
                Some(0) => format!("the cluster behind it had no room lately for {whom}"),
                Some(pods) => format!("the cluster behind it has no room for {whom}: {pods} wait there"),
                None => format!("the cluster behind it has no room for {whom}"),
            }
        }
        RefusalCode::Deadline => match (
            numbers.number("etaMs"),
            numbers.number("boundMs"),
            numbers.number("heldMs"),
        ) {
            (Some(eta), Some(bound), None) => format!("the ETA of {eta} ms is beyond the deadline of {bound} ms"),
            (Some(eta), Some(bound), Some(held)) => {
                format!("after {held} ms held, the ETA of {eta} ms is beyond the deadline of {bound} ms")
            }
            _ => "the ETA is beyond the deadline".to_owned(),
        },
        RefusalCode::LatencyTarget => match (numbers.number("latencyMs"), numbers.number("boundMs")) {
            (Some(latency), Some(bound)) => {
                format!("processing and WAN take {latency} ms, and the latency target is {bound} ms")
            }
            _ => "processing and WAN take longer than the latency target".to_owned(),
        },
        RefusalCode::Unreachable => match text("apiServerStatus") {
            Some(status) => {
                let status = excerpt(status, LONGEST_PHASE);
                format!("Liqo does not reach its API server: {status}")
            }
            None => "nothing answers there".to_owned(),
        },
        RefusalCode::Degraded => {
            let limits = numbers.number("rttThresholdMs").zip(numbers.number("lossThresholdPct"));
            let Some((rtt, loss)) = limits else {
                return "its WAN is too slow or loses too much".to_owned();
            };
            let known = |name: &str, unit: &str| {
                let number = numbers.number(name);
                number.map_or("unknown".to_owned(), |number| format!("{number} {unit}"))
            };
            let (measured_rtt, measured_loss) = (known("rttMs", "ms"), known("lossPct", "%"));
            format!("its WAN is degraded: RTT {measured_rtt}, loss {measured_loss}, thresholds {rtt} ms and {loss} %")
        }
        RefusalCode::Stale => {
            let seconds = |name: &str| {
                numbers
                    .0
                    .get(name)
                    .and_then(Value::as_f64)
                    .map(|ms| (ms / 1_000.0).floor())
            };
            match seconds("ageMs").zip(seconds("telemetryCacheTTLMs")) {
                Some((age, limit)) => format!("its WAN was last measured {age} s ago, and {limit} s is the limit"),
                None => "its WAN was not measured lately".to_owned(),
            }
        }
        RefusalCode::NamespaceNotOffloaded if text("strategy").is_some() => {
            "Liqo runs the pods of this namespace on virtual nodes only (strategy Remote)".to_owned()
        }
        RefusalCode::NamespaceNotOffloaded => match text("phase") {
            Some("None") | None => "Liqo does not offload the pod's namespace".to_owned(),
            Some("NotSelected") => "Liqo offloads the pod's namespace, but not to this cluster".to_owned(),
            Some("Unknown") => "it is not known whether Liqo offloads the pod's namespace".to_owned(),
            Some(phase) => {
                let phase = excerpt(phase, LONGEST_PHASE);
                format!("Liqo does not offload the pod's namespace to it now: {phase}")
            }
        },
        RefusalCode::NotOffloadable => {
            let ties: Vec<_> = numbers.0.keys().map(String::as_str).collect();
            match ties.is_empty() {
                true => "the pod may not leave the edge".to_owned(),
                false => format!("the pod may not leave the edge: {}", ties.join(", ")),
            }
        }
        RefusalCode::MissingTrait => match text("traits") {
            Some(traits) => format!("no node there has {}", excerpt(traits, SHOWN_BYTES)),
            None => "no node there has the pod's traits".to_owned(),
        },
        RefusalCode::DistanceLimit => match (numbers.number("rttMs"), numbers.number("boundMs")) {
            (Some(rtt), Some(bound)) => format!("its RTT of {rtt} ms is not below the pod's limit of {bound} ms"),
            (None, Some(bound)) => format!("its RTT is not known, and the pod's limit is {bound} ms"),
            _ => "its RTT is not below the pod's limit".to_owned(),
        },
        RefusalCode::NotInSites => match numbers.0.get("sites").and_then(Value::as_str) {
            Some(sites) => format!("the pod may run at {} alone", excerpt(sites, SHOWN_BYTES)),
            None => "it is not among the sites at which the pod may run".to_owned(),
        },
    }
}

/// No more is shown of what anybody may have written.
const SHOWN_BYTES: usize = 200;

fn too_large(numbers: &Numbers<'_>) -> String {
    let amounts = numbers.amounts("request").zip(numbers.amounts("largestNode"));
    let amounts = amounts
        .map(|(asked, largest)| format!(": asked for {}, nodes have at most {}", listed(asked), listed(largest)));
    format!("the pod is larger than every node{}", amounts.unwrap_or_default())
}

fn no_room(numbers: &Numbers<'_>) -> String {
    if let (Some(asked), Some(free)) = (numbers.amounts("request"), numbers.amounts("measuredFree")) {
        let (asked, free) = (listed(asked), listed(free));
        return format!("by measurement the site has less free: asked for {asked}, free {free}");
    }
    let what = match numbers.0.get("usableNodes").and_then(Value::as_u64) {
        Some(1) => "its only usable node has no room".to_owned(),
        Some(nodes) => format!("none of its {nodes} usable nodes has room"),
        None => "no node has room".to_owned(),
    };
    what + &lacking(numbers, ["free at most", "reserved"])
}

/// How much of which resource is asked for, free and taken, in these words: of those that no node has enough of, or of all that
/// are asked for, where none has enough of all of them.
fn lacking(numbers: &Numbers<'_>, [free_word, taken_word]: [&str; 2]) -> String {
    let (Some(asked), Some(free)) = (numbers.amounts("request"), numbers.amounts("largestFree")) else {
        return String::new();
    };
    let of = |amounts: &Map<String, Value>, name: &str| amounts.get(name).and_then(Value::as_i64).unwrap_or(0);
    let is_lacking = |name: &&String| of(asked, name) > of(free, name);
    let names: Vec<&String> = asked.keys().filter(is_lacking).collect();
    if names.is_empty() {
        return format!(" for {} at once", listed(asked));
    }
    let part = |amounts: &Map<String, Value>| -> Map<String, Value> {
        let named = names.iter().map(|name| ((*name).clone(), of(amounts, name).into()));
        named.collect()
    };
    let mut text = format!(
        ": asked for {}, {free_word} {}",
        listed(&part(asked)),
        listed(&part(free))
    );
    let taken = numbers.amounts("reserved").map(part);
    if let Some(taken) = taken.filter(|taken| taken.values().any(|amount| *amount != 0)) {
        text += &format!(", {taken_word} {}", listed(&taken));
    }
    text
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

/// Numbers of a refusal by name.
struct Numbers<'n>(&'n Map<String, Value>);

impl<'n> Numbers<'n> {
    fn number(&self, name: &str) -> Option<&'n serde_json::Number> {
        self.0.get(name)?.as_number()
    }

    fn amounts(&self, name: &str) -> Option<&'n Map<String, Value>> {
        self.0.get(name)?.as_object()
    }
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
        let sentences = [
            (
                "no_matching_node",
                json!({"nodes": 0, "selectedNodes": 0}),
                "it has no nodes",
            ),
            (
                "no_matching_node",
                json!({"nodes": 3, "selectedNodes": 0}),
                "the pod's constraints allow none of its 3 nodes",
            ),
            (
                "no_matching_node",
                json!({"nodes": 3, "selectedNodes": 2}),
                "the pod's constraints allow 2 of its 3 nodes, whose taints it does not tolerate",
            ),
            (
                "no_matching_node",
                json!({"nodes": 1, "selectedNodes": 0}),
                "the pod's constraints do not allow its only node",
            ),
            (
                "no_matching_node",
                json!({"nodes": 1, "selectedNodes": 1}),
                "the pod does not tolerate the taints of its only node",
            ),
            (
                "namespace_not_offloaded",
                json!({"strategy": "Remote"}),
                "Liqo runs the pods of this namespace on virtual nodes only (strategy Remote)",
            ),
            (
                "data_elsewhere",
                json!({"claim": "data-db-0"}),
                "the data of claim data-db-0 is elsewhere",
            ),
            (
                "node_not_ready",
                json!({"matchingNodes": 2}),
                "all 2 nodes that would do are not ready or are cordoned",
            ),
            (
                "node_not_ready",
                json!({"matchingNodes": 1}),
                "the only node that would do is not ready or is cordoned",
            ),
            (
                "no_room",
                json!({
                    "usableNodes": 2,
                    "request": {"cpu": 500, "memory": 67_108_864, "pods": 1},
                    "largestFree": {"cpu": 100, "memory": 6_442_450_944_i64, "pods": 101},
                }),
                "none of its 2 usable nodes has room: asked for cpu 500m, free at most cpu 100m",
            ),
            (
                "no_room",
                json!({
                    "usableNodes": 1,
                    "request": {"cpu": 5000, "example.com/gpu": 1, "pods": 1},
                    "largestFree": {"cpu": 100, "example.com/gpu": 0, "pods": 0},
                    "reserved": {"cpu": 2000, "example.com/gpu": 0, "pods": 3},
                }),
                "its only usable node has no room: asked for cpu 5 and example.com/gpu 1 and a pod slot, free at most cpu 100m and \
                 example.com/gpu 0 and 0 pod slots, reserved cpu 2 and example.com/gpu 0 and 3 pod slots",
            ),
            (
                "no_room",
                json!({
                    "usableNodes": 2,
                    "request": {"cpu": 500, "memory": 1024, "pods": 1},
                    "largestFree": {"cpu": 500, "memory": 1024, "pods": 9},
                }),
                "none of its 2 usable nodes has room for cpu 500m and memory 1Ki and a pod slot at once",
            ),
            (
                "no_room",
                json!({"request": {"cpu": 500, "memory": 1024}, "measuredFree": {"cpu": 300, "memory": 2048}}),
                "by measurement the site has less free: asked for cpu 500m and memory 1Ki, free cpu 300m and memory 2Ki",
            ),
            (
                "claimed",
                json!({
                    "usableNodes": 1,
                    "request": {"cpu": 500, "pods": 1},
                    "largestFree": {"cpu": 100, "pods": 9},
                    "reserved": {"cpu": 600, "pods": 1},
                }),
                "nodes have room, but held pods ahead claim it: asked for cpu 500m, left at most cpu 100m, claimed or \
                 reserved cpu 600m",
            ),
            ("no_node", json!({}), "it has no nodes"),
            (
                "new_node",
                json!({}),
                "a node younger than a minute lacks what the pod asks for",
            ),
            (
                "too_large",
                json!({"request": {"cpu": 5000, "pods": 1}, "largestNode": {"cpu": 4000, "pods": 110}}),
                "the pod is larger than every node: asked for cpu 5 and a pod slot, nodes have at most cpu 4 and 110 pod slots",
            ),
            (
                "offloading_in_progress",
                json!({"phase": "InProgress"}),
                "Liqo is offloading the pod's namespace to it",
            ),
            (
                "closed_by_scheduler",
                json!({"waitingPods": 1}),
                "a pod of its controller waits there, for which a scheduler finds no node or which is not started",
            ),
            (
                "closed_by_scheduler",
                json!({"waitingPods": 2}),
                "2 pods of its controller wait there, for which a scheduler finds no node or which is not started",
            ),
            (
                "remote_full",
                json!({"refused": {"cpu": 500, "memory": 67_108_864}, "waitingPods": 3}),
                "the cluster behind it has no room for pods that ask for cpu 500m and memory 64Mi or more: 3 wait there",
            ),
            (
                "remote_full",
                json!({"refused": {"pods": 1}, "waitingPods": 0}),
                "the cluster behind it had no room lately for pods that ask for a pod slot or more",
            ),
            (
                "deadline",
                json!({"etaMs": 840.5, "boundMs": 600}),
                "the ETA of 840.5 ms is beyond the deadline of 600 ms",
            ),
            (
                "latency_target",
                json!({"latencyMs": 150, "boundMs": 100}),
                "processing and WAN take 150 ms, and the latency target is 100 ms",
            ),
            ("unreachable", json!({}), "nothing answers there"),
            (
                "degraded",
                json!({"rttMs": 120, "rttThresholdMs": 100, "lossPct": null, "lossThresholdPct": 2}),
                "its WAN is degraded: RTT 120 ms, loss unknown, thresholds 100 ms and 2 %",
            ),
            (
                "stale",
                json!({"ageMs": 75_000.5, "telemetryCacheTTLMs": 60_000}),
                "its WAN was last measured 75 s ago, and 60 s is the limit",
            ),
            (
                "unreachable",
                json!({"apiServerStatus": "Error"}),
                "Liqo does not reach its API server: Error",
            ),
            (
                "namespace_not_offloaded",
                json!({"phase": "None"}),
                "Liqo does not offload the pod's namespace",
            ),
            (
                "namespace_not_offloaded",
                json!({"phase": "NotSelected"}),
                "Liqo offloads the pod's namespace, but not to this cluster",
            ),
            (
                "namespace_not_offloaded",
                json!({"phase": "Unknown"}),
                "it is not known whether Liqo offloads the pod's namespace",
            ),
            (
                "namespace_not_offloaded",
                json!({"phase": "InProgress"}),
                "Liqo does not offload the pod's namespace to it now: InProgress",
            ),
            ("not_offloadable", json!({}), "the pod may not leave the edge"),
            (
                "missing_trait",
                json!({"traits": "Secure, Green"}),
                "no node there has Secure, Green",
            ),
            (
                "distance_limit",
                json!({"rttMs": 25.5, "boundMs": 20}),
                "its RTT of 25.5 ms is not below the pod's limit of 20 ms",
            ),
            (
                "distance_limit",
                json!({"rttMs": null, "boundMs": 20}),
                "its RTT is not known, and the pod's limit is 20 ms",
            ),
            (
                "not_in_sites",
                json!({"sites": "region in (eu)"}),
                "the pod may run at region in (eu) alone",
            ),
            (
                "not_offloadable",
                json!({"hostPort": 1, "persistentVolumeClaim": 1}),
                "the pod may not leave the edge: hostPort, persistentVolumeClaim",
            ),
        ];
        for (code, numbers, sentence) in &sentences {
            assert_eq!(said(code, numbers), format!("{sentence} ({code})"));
        }
        let covered: BTreeSet<_> = sentences.iter().map(|(code, ..)| *code).collect();
        assert_eq!(covered, BTreeSet::from(RefusalCode::WORDS));
    }

    #[test]
    fn a_refusal_whose_numbers_are_not_known_is_a_sentence_all_the_same() {
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
