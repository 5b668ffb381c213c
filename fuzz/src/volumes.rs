//! Claims, volumes and classes as watches show them.

use std::fmt::Debug;
use std::sync::Arc;

use edgeward_core::cluster::volumes::{VolumeChange, VolumeKind};
use edgeward_core::config::Config;
use edgeward_core::engine::Change;
use edgeward_core::excerpt::LONGEST_NAME;
use edgeward_core::model::constraints::Term;
use edgeward_core::model::link::{Link, LinkState};
use edgeward_core::model::node::Node;
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::room::Room;
use edgeward_core::testkit::NOW;
use edgeward_core::units::{Micros, Permille};
use edgeward_core::wire::fleet_file;
use edgeward_core::wire::pod::Pod;
use edgeward_core::wire::volumes::{MAX_AFFINITY, read_affinity, read_claim, read_class};
use serde_json::{Value, json};

use super::documents;
use super::watched::{self, Watched};

/// The namespace of the pod.
const NAMESPACE: &str = "shop";

/// How many claims the pod has.
const FEW: usize = 3;

/// Of a list, each document is an object of the kind that it says.
///
/// # Panics
/// An object is not read alike however it is written; more is kept of one than is said; what is known is not written as it was read; or
/// a pod is placed where a volume of its cannot be.
pub fn check(data: &[u8]) {
    let documents = documents::several(data);
    let documents = documents.into_iter();
    let documents: Vec<_> = documents
        .filter(|document| document.is_object() && documents::is_of_objects(document))
        .collect();
    let config = config();
    let mut watched = Watched::listed(&config, watched::nodes(), vec![]);
    let healthy = Link {
        state: LinkState::Healthy,
        rtt: Some(Micros(5_000)),
        loss: Some(Permille(0)),
        as_of: NOW.moment,
    };
    let changes = documents.iter().filter_map(change);
    let changes = VolumeKind::ALL.map(VolumeChange::ListBegan).into_iter().chain(changes);
    for change in changes.chain(VolumeKind::ALL.map(VolumeChange::ListEnded)) {
        watched.engine.apply(&Change::Volumes(change), NOW);
    }
    watched
        .engine
        .apply(&Change::Link("cloud".to_owned(), Some(healthy)), NOW);
    watched.engine.publish(NOW);
    let snapshot = watched.snapshot();
    let written = fleet_file::write(&snapshot, NOW.moment);
    let again = fleet_file::read(&written, &config, NOW.moment).unwrap_or_else(|faults| panic!("{faults}: {written}"));
    assert_eq!(fleet_file::write(&again, NOW.moment), written);

    let known = snapshot.volumes.as_ref().expect("all was listed");
    let claims = known.claims.get(NAMESPACE).into_iter().flatten();
    for (name, claim) in claims.take(FEW) {
        let of_claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": &**name}}]);
        let container = json!({"resources": {"requests": {"cpu": "100m"}}});
        let annotations = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"containers": [container], "volumes": of_claim},
        });
        let pod = pod.to_string();
        let pod = Pod::from_json(&pod).unwrap();
        let workload = pod.workload(NAMESPACE.into(), &config.keys);
        let nodes = [&*snapshot, &again].map(|snapshot| {
            let verdict = decide(&workload, &Room::of(snapshot), &config, NOW);
            let id = verdict.node?;
            let mut nodes = verdict.site()?.nodes();
            nodes.find(|node| node.id == id).cloned()
        });
        let [node, again] = &nodes;
        let name = |node: &Option<Node>| node.as_ref().map(|node| node.name.clone());
        assert_eq!(name(node), name(again), "{written}");
        let Some((node, volume)) = node.as_ref().zip(claim.volume.as_deref()) else {
            continue;
        };
        if !claim.lost && known.volumes.contains_key(volume) {
            assert!(
                can_be_at(&documents, volume, node),
                "{volume} cannot be at {}",
                node.name
            );
        }
    }
}

/// The default sites, of which the cloud makes volumes.
fn config() -> Arc<Config> {
    let mut config = Config::default();
    for site in &mut config.sites {
        if site.name == "cloud" {
            Arc::make_mut(site).storage_classes = vec!["far".into()];
        }
    }
    Arc::new(config)
}

fn change(document: &Value) -> Option<VolumeChange> {
    let claim = alike(document, |json| read_claim(json).ok());
    let affinity = alike(document, |json| read_affinity(json).ok());
    let class = alike(document, |json| read_class(json).ok());
    let names = claim.iter().flat_map(|claim| [&claim.volume, &claim.class]);
    assert!(
        names
            .flatten()
            .all(|name| !name.is_empty() && name.len() <= LONGEST_NAME)
    );
    let terms = affinity
        .iter()
        .flatten()
        .all(|terms| Term::heap_bytes(terms) <= MAX_AFFINITY);
    assert!(terms, "{affinity:?}");

    let name = || documents::text(document, "/metadata/name").map(Box::from);
    match documents::text(document, "/kind")? {
        "PersistentVolumeClaim" => {
            let namespace = documents::text(document, "/metadata/namespace")?;
            Some(VolumeChange::Claim([namespace.into(), name()?], Some(claim?)))
        }
        "PersistentVolume" => Some(VolumeChange::Volume(name()?, affinity?)),
        "StorageClass" => Some(VolumeChange::Class(name()?, Some(class?))),
        _ => None,
    }
}

/// What is read of an object, which is the same however it is written.
fn alike<T: Debug + PartialEq>(document: &Value, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let found = read(&document.to_string());
    let others = [
        documents::escaped(document),
        documents::with_unknown_fields(document).to_string(),
    ];
    for other in others {
        assert_eq!(read(&other), found, "{other}");
    }
    found
}

/// Whether a term of this volume, the last of its name, is met by the node.
fn can_be_at(documents: &[Value], volume: &str, node: &Node) -> bool {
    let is_it = |document: &&Value| document["kind"] == "PersistentVolume" && document["metadata"]["name"] == volume;
    let mut all = documents.iter().filter(is_it);
    let last = all.next_back().expect("it is known");
    let required = &last["spec"]["nodeAffinity"]["required"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    list(&required["nodeSelectorTerms"]).iter().any(|term| {
        let expressions = list(&term["matchExpressions"]);
        let fields = list(&term["matchFields"]);
        let meets_label = |one: &Value| {
            let label = one["key"].as_str().and_then(|key| node.labels.get(key));
            meets(one, label)
        };
        let meets_field = |one: &Value| one["key"] == "metadata.name" && meets(one, Some(&node.name));
        // One that asks for nothing matches nothing.
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(meets_label)
            && fields.iter().all(meets_field)
    })
}

/// By the words of the API.
fn meets(requirement: &Value, found: Option<&str>) -> bool {
    let values = requirement["values"].as_array().into_iter().flatten();
    let values: Vec<_> = values.filter_map(Value::as_str).collect();
    let is_in = found.is_some_and(|found| values.contains(&found));
    let numbers = || Some((found?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement["operator"].as_str() {
        Some("In") => is_in,
        Some("NotIn") => !is_in,
        Some("Exists") => found.is_some(),
        Some("DoesNotExist") => found.is_none(),
        Some("Gt") => numbers().is_some_and(|(found, bound)| found > bound),
        Some("Lt") => numbers().is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}
