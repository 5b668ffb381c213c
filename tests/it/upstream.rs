//! `tests/golden/upstream/`: answers from Kubernetes' own code about quantities, pod requests, and the nodes a pod fits. The
//! README there says how they were made.

use edgeward_decision::config::Config;
use edgeward_decision::fleet_file;
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::room::Room;
use edgeward_decision::pod::Pod;
use edgeward_harness::prelude::*;
use edgeward_kube::units::{Moment, Now, Quantity};
use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
#[serde(untagged)]
enum Notation {
    /// `None` stands for a value that does not fit an i64.
    Accepted {
        text: String,
        millis: Option<i64>,
        units: Option<i64>,
        stored: String,
    },
    Refused {
        text: String,
        refused: bool,
    },
}

#[derive(Deserialize)]
struct Asking {
    rule: String,
    spec: Value,
    admitted: Value,
    request: BTreeMap<String, i64>,
}

#[derive(Deserialize)]
struct Topic {
    topic: String,
    fleet: Value,
    cases: Vec<Fitting>,
}

#[derive(Deserialize)]
struct Fitting {
    rule: String,
    spec: Value,
    fitting: BTreeMap<String, usize>,
}

fn golden<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let root = workspace().join("tests/golden/upstream");
    serde_json::from_str(&fs::read_to_string(root.join(name)).unwrap()).unwrap()
}

/// A pod that states an SLO, so that every site is assessed.
fn pod(spec: &Value) -> String {
    json!({"metadata": {"annotations": {"slo.example.io/class": "batch"}}, "spec": spec}).to_string()
}

fn request(pod: &Pod<'_>) -> BTreeMap<String, i64> {
    let amounts = pod.request().amounts();
    amounts
        .named()
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect()
}

#[test]
fn quantities_parse_like_upstream() {
    for notation in golden::<Notation>("quantities.json") {
        match notation {
            Notation::Refused { text, refused } => assert_eq!(Quantity::parse(&text).is_err(), refused, "{text:?}"),
            Notation::Accepted {
                text,
                millis,
                units,
                stored,
            } => {
                let quantity = Quantity::parse(&text).unwrap();
                assert_eq!(quantity.millis(), millis.unwrap_or(i64::MAX), "{text} in thousandths");
                assert_eq!(quantity.units(), units.unwrap_or(i64::MAX), "{text}");
                let stored = Quantity::parse(&stored).unwrap();
                assert_eq!(quantity.round_to_millis(), stored, "{text} once it is stored");
            }
        }
    }
}

#[test]
fn pod_requests_match_upstream() {
    for case in golden::<Asking>("requests.json") {
        let written = pod(&case.spec);
        let mut written = Pod::from_json(&written).unwrap();
        written.apply_api_defaults();
        assert_eq!(request(&written), case.request, "{}", case.rule);

        let admitted = pod(&case.admitted);
        let admitted = Pod::from_json(&admitted).unwrap();
        assert_eq!(
            request(&admitted),
            case.request,
            "{}, as the API server sends it",
            case.rule
        );
    }
}

#[test]
fn fitting_nodes_match_upstream_scheduler() {
    let config = Config::default();
    let now = Now {
        moment: Moment(0),
        wall: jiff::Timestamp::UNIX_EPOCH,
    };
    for Topic { topic, fleet, cases } in golden("fit.json") {
        let snapshot = fleet_file::read(&fleet, &config, now.moment).unwrap();
        let room = Room::of(&snapshot);
        for case in cases {
            let text = pod(&case.spec);
            let mut pod = Pod::from_json(&text).unwrap();
            pod.apply_api_defaults();
            let workload = pod.workload("default".into(), &config.keys);
            let verdict = decide(&workload, &room, &config, now);
            let sites = verdict.sites.iter();
            let fitting: BTreeMap<_, _> = sites
                .map(|site| (site.site.name().to_owned(), site.fitting.len()))
                .collect();
            assert_eq!(fitting, case.fitting, "{topic}: {}", case.rule);
        }
    }
}
