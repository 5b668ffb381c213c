//! Performance profiles rank good sites and change nothing else.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::Explain;
use crate::placement::explain::{SHORT_BYTES, explain};

/// The edge, a near cloud and a far one, with a profile's scores. Lower scores are better.
fn scored(preferred: Option<&str>, scores: &[(&str, f64)]) -> Value {
    let mut fleet = two_clouds();
    let scores = scores
        .iter()
        .map(|(site, score)| json!({"site": site, "score": score, "ageSeconds": 1}));
    fleet["profiles"] = json!([{
        "name": "greenness", "better": "lower", "margin": 0.05, "stalenessSeconds": 60,
        "preferred": preferred, "scores": scores.collect::<Value>(),
    }]);
    fleet
}

fn green(deadline: &str) -> Value {
    pod(json!({"deadlineMs": deadline, "profile": "greenness"}))
}

#[test]
fn profile_scores_are_in_the_explanation() {
    let fleet = scored(Some("near"), &[("edge", 0.412), ("near", 0.25)]);
    with_verdict(&fleet, &green("600"), &Config::default(), |verdict| {
        let (name, profile) = verdict.profile.unwrap();
        assert_eq!((name, profile.margin.to_string()), ("greenness", "0.05".to_owned()));
        let short: Value = serde_json::from_str(&explain(verdict, Explain::Short).unwrap()).unwrap();
        assert_eq!(short["near"], json!({"fit": 1, "eta": 310, "score": 0.25}));
        assert_eq!(short["edge"]["score"], json!(0.412));
        assert_eq!(short["far"].get("score"), None);
        assert!(short.to_string().len() <= SHORT_BYTES);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// A profile only chooses among good sites, whatever its scores are.
    #[test]
    fn profile_only_ranks_feasible_sites(fleet in testkit::fleet(), mut pod in testkit::pod()) {
        let read = |pod: &Value| with_verdict(&fleet, pod, &Config::default(), |verdict| {
            let feasible: Vec<_> = verdict.sites.iter().filter(|site| site.is_good()).map(|site| site.site.name().to_owned()).collect();
            (verdict.site().map(|site| site.name().to_owned()), verdict.action.as_str(), verdict.reason, feasible)
        });
        let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
            return Ok(());
        };
        annotations.insert("slo.example.io/profile".to_owned(), json!("greenness"));
        let with = read(&pod);
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove("slo.example.io/profile");
        let without = read(&pod);
        prop_assert_eq!(&with.3, &without.3);
        if with.0 == without.0 && with.1 == without.1 {
            return Ok(());
        }
        prop_assert!(with.0.as_ref().is_some_and(|site| with.3.contains(site)), "{:?} and not {:?}", with, without);
        // A pod that was gated or sent away for lack of room gets the same result with scores.
        prop_assert!(
            without.0.as_ref().is_none_or(|site| without.3.contains(site)) || without.2 == Reason::HeldNoCapacity,
            "{:?} and not {:?}", with, without
        );
    }
}
