//! The fleet file: a [`Snapshot`] as a document, for `review`, `demo`, tests, and `serve` without a live view.
//!
//! Schema and defaults: `docs/fleet-file.md`.

mod liqo;
mod profiles;
mod volumes;
pub(super) mod write;

use std::sync::Arc;

use serde_json::Value;

use crate::config::site_definition::effect;
use crate::config::{Config, by_class, site_definition};
use crate::document;
use crate::document::{Faults, Field};
use crate::model::constraints::{Labels, Taint};
use crate::model::link::{Link, LinkState, Thresholds};
use crate::model::liqo::ApiServerStatus;
use crate::model::node::{Node, NodeId, Placeholder, PriorityUse, Share, Terminating, Termination, YOUNG};
use crate::model::remote_room::{Bound, FullFrom, MAX_BOUNDS};
use crate::model::site::{SiteDefinition, SiteKind, SiteSource};
use crate::model::slo::{Class, PerClass, Slo};
use crate::model::snapshot::{ByController, Free, QueueGroup, Site, Snapshot};
use crate::resources::{Amounts, ResourceList};
use crate::units::{Bytes, Micros, Millicores, Moment, Quantity};

pub use write::write;

/// Reads a fleet file as of `now`: the ages it states are ages at that moment. Links without a stated health are
/// judged by the thresholds of `config`. Reports every fault.
pub fn read(document: &Value, config: &Config, now: Moment) -> Result<Snapshot, Faults> {
    document::read(document, |root| snapshot(root, config, now))
}

fn snapshot(root: Field<'_>, config: &Config, now: Moment) -> Option<Snapshot> {
    let [
        age,
        sites_field,
        nodes_field,
        liqo_field,
        claims,
        volumes,
        classes,
        profiles_field,
    ] = root.object([
        "ageSeconds",
        "sites",
        "nodes",
        "liqo",
        "persistentVolumeClaims",
        "persistentVolumes",
        "storageClasses",
        "profiles",
    ])?;
    let mut sites = sites_field.clone().required().list().map(|sites| {
        let sites = sites.into_iter().map(|field| (field.clone(), site(field, config, now)));
        sites
            .filter_map(|(field, site)| Some((field, site?, vec![])))
            .collect::<Vec<(_, Site, Vec<Arc<Node>>)>>()
    })?;
    let definitions = sites.iter().map(|(field, site, _)| (field, &*site.definition));
    site_definition::check_fleet(&sites_field, definitions);

    let mut names = std::collections::HashSet::new();
    for field in nodes_field.list().into_iter().flatten() {
        let Some((node, stated_site)) = node(&field, NodeId(names.len() as u32), now) else {
            continue;
        };
        if !names.insert(node.name.clone()) {
            field.fault(format!("the name {:?} is taken by an earlier node", node.name));
            continue;
        }
        let mut owners: Vec<_> = sites
            .iter_mut()
            .map(|(_, site, nodes)| (site, nodes))
            .filter(|(site, _)| node.labels.contain(site.definition.selector()))
            .collect();
        if let Some(name) = stated_site {
            owners.retain(|(site, _)| site.name() == name);
            if owners.is_empty() {
                field.fault(format!(
                    "{:?} does not carry the selector of a site {name:?}",
                    node.name
                ));
            }
        }
        match &mut owners[..] {
            [] => {}
            [(_, nodes)] => nodes.push(Arc::new(node)),
            [(first, _), (second, _), ..] => field.fault(format!(
                "{:?} carries the selectors of two sites, {:?} and {:?}; `site` says to which it counts",
                node.name,
                first.name(),
                second.name()
            )),
        }
    }

    let with_nodes = |(_, site, mut nodes): (_, Site, Vec<Arc<Node>>)| {
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Site {
            nodes: Arc::new(nodes),
            ..site
        }
    };
    let mut sites: Vec<Site> = sites.into_iter().map(with_nodes).collect();
    sites.sort_by(|a, b| a.definition.order().cmp(&b.definition.order()));
    let names: Vec<_> = sites.iter().map(Site::name).collect();
    let profiles = profiles::read(&profiles_field, &names, now);
    let has_some = |site: &Site| site.nodes().any(|node| !node.placeholders.is_empty());
    let has_placeholders = sites.iter().any(has_some);
    Some(Snapshot {
        has_placeholders,
        revision: 1,
        kubernetes_as_of: now.before(seconds(&age)),
        sites,
        claims: Arc::default(),
        offloadings: liqo_field.is_present().then(|| Arc::new(liqo::read(&liqo_field))),
        volumes: volumes::read([&claims, &volumes, &classes]).map(Arc::new),
        awaits_volumes: false,
        profiles: Arc::new(profiles),
    })
}

fn site(field: Field<'_>, config: &Config, now: Moment) -> Option<Site> {
    let own = [
        "source",
        "apiServerStatus",
        "wan",
        "queues",
        "observedProcMs",
        "observedControllerProcMs",
        "measuredFree",
        "closed",
        "full",
        "controllerPods",
    ];
    let (
        defined,
        [
            source,
            api_server,
            wan,
            queues,
            observed,
            observed_of,
            measured_free,
            closed,
            full,
            pods_of,
        ],
    ) = field.object_with(site_definition::FIELDS, own, &[])?;
    let definition = site_definition::read(defined, 0);
    let own = definition.as_ref().map(|definition| definition.thresholds);
    let thresholds = Thresholds::from(config).with(own.unwrap_or_default());
    let link = if wan.is_present() {
        link(&wan, thresholds, now)
    } else {
        None
    };
    let queues = queues
        .list()
        .into_iter()
        .flatten()
        .filter_map(|field| queue_group(&field))
        .collect();
    let observed = observed_times(&observed);
    let observed_of = observed_times_of_controllers(&observed_of);
    let free = free(&measured_free);
    let [closed, pods_of] = [closed, pods_of].map(|field| pods_by_controller(&field));
    let bounds = full.list().into_iter().flatten();
    let mut bounds: Vec<_> = bounds.filter_map(|field| full_from(&field)).collect();
    bounds.sort_by(|one, other| one.bound.cmp(&other.bound));
    if bounds.len() > MAX_BOUNDS {
        full.fault(format!("has more than {MAX_BOUNDS} entries"));
    }
    let source = source.word(&SiteSource::BY_WORD);
    let api_server = api_server.word(&ApiServerStatus::BY_WORD);
    let definition = SiteDefinition {
        source: source.unwrap_or(SiteSource::Config),
        ..definition?
    };
    if definition.kind == SiteKind::Edge && wan.is_present() {
        wan.fault("is not for the edge site, which no WAN leads to".into());
    }
    if definition.kind == SiteKind::Edge && full.is_present() {
        full.fault("is not for the edge site, whose nodes are no promises".into());
    }
    Some(Site {
        link,
        api_server,
        queues,
        observed,
        observed_of: Arc::new(observed_of),
        free,
        closed: Arc::new(closed),
        full: Arc::new(bounds),
        pods_of: Arc::new(pods_of),
        ..Site::new(Arc::new(definition))
    })
}

fn pods_by_controller(field: &Field<'_>) -> ByController<u64> {
    let mut counts = ByController::default();
    let pods = |pods: Field<'_>| Some(pods.integer(1..=1_000_000).unwrap_or(1) as u64);
    for (namespace, controller, pods) in by_controller(field, "pods", pods) {
        *counts.entry(namespace, controller).or_default() += pods;
    }
    counts
}

/// From where on a site is full.
fn full_from(field: &Field<'_>) -> Option<FullFrom> {
    let [refused, pods] = field.object(["refused", "pods"])?;
    let refused = refused.required();
    let (amounts, slots) = resources(&refused);
    let bound = Bound::of(&amounts, slots);
    if refused.is_present() && bound.is_none() {
        refused.fault("names no amount above zero".into());
    }
    Some(FullFrom {
        bound: Arc::new(bound?),
        pods: pods.integer(0..=1_000_000).unwrap_or(1) as u64,
    })
}

/// What a list says of controllers under `name`, by namespace and controller.
fn by_controller<'d, T>(
    list: &Field<'d>,
    name: &'d str,
    read: impl Fn(Field<'d>) -> Option<T>,
) -> impl Iterator<Item = (&'d str, &'d str, T)> {
    list.list().into_iter().flatten().filter_map(move |field| {
        let [namespace, controller, known] = field.object(["namespace", "controller", name])?;
        let namespace = namespace.required().non_empty_string();
        let controller = controller.required().non_empty_string();
        let known = read(known);
        Some((namespace?, controller?, known?))
    })
}

fn link(field: &Field<'_>, thresholds: Thresholds, now: Moment) -> Option<Link> {
    let [reachable, rtt, loss, age, health] =
        field.object(["reachable", "rttMs", "lossPct", "ageSeconds", "health"])?;
    let is_reachable = reachable.boolean().unwrap_or(true);
    let measured_rtt = rtt.thousandths(0..=60_000_000).map(|us| Micros(us as u64));
    let measured_loss = loss.percent(0);
    if is_reachable && !health.is_present() {
        rtt.required();
    }
    let judged = LinkState::judge(is_reachable, measured_rtt, measured_loss, thresholds);
    let stated = health.word(&[
        ("healthy", LinkState::Healthy),
        ("degraded", LinkState::Degraded),
        ("unreachable", LinkState::Unreachable),
    ]);
    if !is_reachable && stated.is_some_and(|state| state != LinkState::Unreachable) {
        health.fault("contradicts `reachable: false`".into());
    }
    Some(Link {
        state: stated.unwrap_or(judged),
        rtt: measured_rtt,
        loss: measured_loss,
        as_of: now.before(seconds(&age)),
    })
}

fn queue_group(field: &Field<'_>) -> Option<QueueGroup> {
    let [class, priority, slo_priority, waiting] = field.object(["class", "priority", "sloPriority", "waiting"])?;
    Some(QueueGroup {
        class: class.required().word(&Class::BY_WORD)?,
        priority: priority.integer(i64::from(i32::MIN)..=i64::from(i32::MAX)).unwrap_or(0) as i32,
        slo_priority: slo_priority
            .integer(0..=10)
            .map_or(Slo::DEFAULT_PRIORITY, |priority| priority as u8),
        waiting: waiting.integer(0..=1_000_000).unwrap_or(0) as u64,
    })
}

fn observed_times(field: &Field<'_>) -> PerClass<Option<Micros>> {
    let mut observed = PerClass::default();
    for (class, time) in by_class(field) {
        observed[class] = processing_time(&time);
    }
    observed
}

fn observed_times_of_controllers(field: &Field<'_>) -> ByController<Micros> {
    let mut observed = ByController::default();
    for (namespace, controller, time) in by_controller(field, "ms", |ms| processing_time(&ms.required())) {
        observed.entry(namespace, controller).insert_entry(time);
    }
    observed
}

fn processing_time(field: &Field<'_>) -> Option<Micros> {
    field.thousandths(1..=86_400_000_000).map(|us| Micros(us as u64))
}

fn free(field: &Field<'_>) -> Free {
    let Some([cpu, memory]) = field.object(["cpu", "memory"]) else {
        return Free::default();
    };
    let amount = |field: Field<'_>| {
        let quantity = field.quantity()?;
        if quantity < Quantity::default() {
            field.fault("must not be negative".into());
        }
        Some(quantity)
    };
    let (cpu, memory) = (amount(cpu), amount(memory));
    Free {
        cpu: cpu.map(|cpu| Millicores(cpu.millis())),
        memory: memory.map(|memory| Bytes(memory.units())),
    }
}

/// What a node has for pods, of which it must have slots.
fn capacity(allocatable: &Field<'_>) -> (Amounts, Option<i64>) {
    let (amounts, slots) = resources(allocatable);
    if allocatable.is_present() && slots.is_none() {
        allocatable.fault("has no `pods`: without pod slots nothing ever fits".into());
    }
    (amounts, slots)
}

/// A node, and the site to which it says it counts.
fn node<'d>(field: &Field<'d>, id: NodeId, now: Moment) -> Option<(Node, Option<&'d str>)> {
    let [
        name,
        site,
        labels,
        taints,
        allocatable,
        used,
        used_by_priority,
        placeholders,
        terminating,
        unschedulable,
        ready,
        young,
    ] = field.object([
        "name",
        "site",
        "labels",
        "taints",
        "allocatable",
        "used",
        "usedByPriority",
        "placeholders",
        "terminating",
        "unschedulable",
        "ready",
        "young",
    ])?;
    let node_name = name.required().non_empty_string();
    let (capacity, slots) = capacity(&allocatable.required());
    let (used, pods) = resources(&used);
    let by_priority = used_by_priority.list().into_iter().flatten().filter_map(|field| {
        let [priority, used] = field.object(["priority", "used"])?;
        let (used, pods) = resources(&used.required());
        let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
        let priority = priority.required().integer(range)? as i32;
        Some(PriorityUse {
            priority,
            used,
            pods: pods.unwrap_or(0),
        })
    });
    let by_priority: Vec<PriorityUse> = by_priority.collect();
    let pods = pods.unwrap_or(0);
    let is_beyond = |parts: &[(&Amounts, i64)]| {
        let total = |parts: &mut dyn Iterator<Item = i64>| parts.fold(0_i64, i64::saturating_add);
        let sum = |name: &str| total(&mut parts.iter().map(|(amounts, _)| amounts.get(name)));
        let mut named = parts.iter().flat_map(|(amounts, _)| amounts.named());
        named.any(|(name, _)| sum(name) > used.get(name)) || total(&mut parts.iter().map(|(_, pods)| *pods)) > pods
    };
    let parts: Vec<_> = by_priority.iter().map(|part| (&part.used, part.pods)).collect();
    if is_beyond(&parts) {
        used_by_priority.fault("adds up to more than `used`, of which it is a part".into());
    }
    let of_placeholders: Vec<_> = placeholders
        .list()
        .into_iter()
        .flatten()
        .filter_map(|field| placeholder(&field))
        .collect();
    let parts: Vec<_> = of_placeholders
        .iter()
        .map(|(_, share)| (&share.amounts, share.pods))
        .collect();
    if is_beyond(&parts) {
        placeholders.fault("adds up to more than `used`, of which it is a part".into());
    }
    let (terminating_use, terminating_pods) = resources(&terminating);
    let terminating_pods = terminating_pods.unwrap_or(0);
    if terminating_pods > pods || terminating_use.named().any(|(name, amount)| amount > used.get(name)) {
        terminating.fault("is more than `used`, of which it is a part".into());
    }
    let node = Node {
        id,
        labels: labels.string_map().into_iter().flatten().collect(),
        // Scores are stated.
        annotations: Labels::default(),
        addresses: vec![],
        taints: taints
            .list()
            .into_iter()
            .flatten()
            .filter_map(|field| taint(&field))
            .collect(),
        allocatable: capacity,
        slots: slots.unwrap_or(0),
        used,
        pods,
        terminating: match terminating_pods {
            0 => vec![],
            pods => vec![Terminating {
                termination: Termination::default(),
                share: Share {
                    amounts: terminating_use,
                    pods,
                },
            }],
        },
        placeholders: of_placeholders,
        by_priority,
        cordoned: unschedulable.boolean().unwrap_or(false),
        ready: ready.boolean().unwrap_or(true),
        young_until: young.boolean().filter(|is_young| *is_young).map(|_| now.after(YOUNG)),
        name: Arc::default(),
    };
    let site = site.non_empty_string();
    let node = Node {
        name: node_name?.into(),
        ..node
    };
    Some((node, site))
}

/// The longest grace that a fleet file states: a year.
const LONGEST_GRACE_SECONDS: i64 = 31_536_000;

/// What placeholders of one kind take.
fn placeholder(field: &Field<'_>) -> Option<(Placeholder, Share)> {
    let [priority, grace, used] = field.object(["priority", "graceSeconds", "used"])?;
    let (amounts, pods) = resources(&used.required());
    let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
    let kind = Placeholder {
        priority: priority.required().integer(range)? as i32,
        grace: Micros::from_secs(grace.required().integer(0..=LONGEST_GRACE_SECONDS)? as u64),
    };
    let pods = pods.unwrap_or(0);
    Some((kind, Share { amounts, pods }))
}

pub(super) fn taint(field: &Field<'_>) -> Option<Taint> {
    let [key, value, effect] = field.object(["key", "value", "effect"])?;
    let effect = self::effect(&effect.required());
    Some(Taint {
        key: key.required().non_empty_string()?.into(),
        value: value.string().unwrap_or_default().into(),
        effect: effect?.into(),
    })
}

/// A Kubernetes resource map: the amounts, and apart from them the pods.
pub(super) fn resources(field: &Field<'_>) -> (Amounts, Option<i64>) {
    let mut list = ResourceList::default();
    for (name, field) in field.entries().into_iter().flatten() {
        match field.quantity() {
            Some(quantity) if quantity < Quantity::default() => field.fault("must not be negative".into()),
            Some(quantity) => list.set(name.into(), quantity),
            None => {}
        }
    }
    (list.amounts(), list.get("pods").map(Quantity::units))
}

fn seconds(field: &Field<'_>) -> Micros {
    field
        .thousandths(0..=31_536_000_000)
        .map_or(Micros(0), |ms| Micros::from_millis(ms as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Permille;
    use serde_json::json;

    fn load(document: Value) -> Result<Snapshot, Vec<String>> {
        read(&document, &Config::default(), Moment(100_000_000))
            .map_err(|faults| faults.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn nodes_belong_to_the_site_whose_selector_they_carry() {
        let snapshot = load(json!({
            "ageSeconds": 1.5,
            "sites": [
                {"name": "z", "kind": "cloud", "wan": {"rttMs": 25.5, "lossPct": 0.2, "ageSeconds": 2}},
                {"name": "l", "kind": "liqo", "speedFactor": 2, "supports": ["hostPort"], "wan": {"reachable": false}},
                {"name": "here", "kind": "edge", "queues": [{"class": "batch", "waiting": 3}],
                 "observedProcMs": {"batch": 7},
                 "observedControllerProcMs": [{"namespace": "shop", "controller": "u", "ms": 8.5}],
                 "measuredFree": {"cpu": "1500m", "memory": "1Gi"}},
            ],
            "nodes": [
                {"name": "e", "labels": {"node.role/edge": "true"},
                 "allocatable": {"cpu": "1500m", "memory": "1Gi", "pods": 10, "example.com/gpu": 1},
                 "used": {"cpu": 1, "pods": 2}, "taints": [{"key": "k", "effect": "NoSchedule"}]},
                {"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"pods": "5"}, "ready": false},
                {"name": "v", "labels": {"liqo.io/type": "virtual-node"}, "allocatable": {"pods": "5"}},
                {"name": "nobody's", "allocatable": {"pods": "5"}},
            ],
        }))
        .unwrap();
        let names: Vec<_> = snapshot.sites.iter().map(Site::name).collect();
        assert_eq!(names, ["here", "l", "z"]);
        assert_eq!(snapshot.kubernetes_as_of, Moment(98_500_000));
        let [edge, liqo, cloud] = &snapshot.sites[..] else {
            panic!()
        };
        assert_eq!(edge.nodes[0].allocatable.scalar("example.com/gpu"), 1);
        assert_eq!(
            (edge.nodes[0].slots, edge.nodes[0].pods, edge.nodes[0].used.cpu.0),
            (10, 2, 1000)
        );
        assert_eq!(edge.observed[Class::Batch], Some(Micros(7_000)));
        assert_eq!(edge.observed_of.get("shop", "u"), Some(&Micros(8_500)));
        assert_eq!(
            edge.free,
            Free {
                cpu: Some(Millicores(1_500)),
                memory: Some(Bytes(1 << 30))
            }
        );
        assert_eq!(cloud.free, Free::default());
        assert_eq!(liqo.link.unwrap().state, LinkState::Unreachable);
        assert_eq!(liqo.definition.speed, Permille(2_000));
        assert_eq!(liqo.definition.tolerations[0].key, "virtual-node.liqo.io/not-allowed");
        assert_eq!(
            cloud.link.unwrap(),
            Link {
                state: LinkState::Healthy,
                rtt: Some(Micros(25_500)),
                loss: Some(Permille(2)),
                as_of: Moment(98_000_000)
            }
        );
        assert!(!cloud.nodes[0].ready);
    }

    #[test]
    fn what_the_api_server_would_refuse_on_a_pod_is_refused_here() {
        let faults = load(json!({
            "sites": [
                {"name": "edge", "kind": "edge", "nodeSelector": {"a b": "x", "ok": "no spaces please"}},
                {"name": "north/1", "kind": "cloud", "tolerations": [{"key": "a b", "value": "c d"}]},
            ],
            "nodes": [{"name": "n", "labels": {}, "allocatable": {"pods": 1}, "used": {"cpu": 1, "pods": 1},
                       "usedByPriority": [{"priority": 0, "used": {"cpu": "600m"}},
                                          {"priority": 1, "used": {"cpu": "500m", "pods": 9223372036854775807_i64}},
                                          {"priority": 2, "used": {"pods": 9223372036854775807_i64}}]}],
        }))
        .unwrap_err();
        let rule = "letters, digits, `-`, `_` and `.`, at most 63";
        assert_eq!(
            faults,
            [
                "sites[0].nodeSelector[\"a b\"]: is not a label key: `[domain/]name`".to_owned(),
                format!("sites[0].nodeSelector.ok: \"no spaces please\" is not a label value: {rule}"),
                format!("sites[1].name: \"north/1\" is not a site name: {rule}"),
                format!("sites[1].tolerations[0].key: \"a b\" is not a taint key: {rule}"),
                format!("sites[1].tolerations[0].value: \"c d\" is not a taint value: {rule}"),
                "nodes[0].usedByPriority: adds up to more than `used`, of which it is a part".to_owned(),
            ]
        );
    }

    #[test]
    fn every_fault_with_its_path() {
        let faults = load(json!({
            "sites": [
                {"name": "a", "kind": "edge", "wan": {"rttMs": 1}},
                {"name": "a", "kind": "edge", "nodeSelector": {"x": "y"}},
                {"name": "", "kind": "moon", "nodeSelector": {}, "tolerations": [{"operator": "Equal"}],
                 "observedControllerProcMs": [{"namespace": "", "ms": 0}], "measuredFree": {"cpu": -1},
                 "supports": ["gpu"], "wan": {"reachable": true}, "queues": [{"waiting": 2}]},
            ],
            "nodes": [
                {"labels": {"node.role/edge": true}, "allocatable": {"cpu": "two"}},
                {"name": "n", "allocatable": {"cpu": -1, "pods": 1}, "taints": [{"key": "k", "effect": "Never"}]},
                {"name": "n", "allocatable": {"pods": 1}},
                {"name": "both", "labels": {"node.role/edge": "true", "x": "y"}, "allocatable": {"pods": 1}},
                {"name": "c", "site": "a", "allocatable": {"pods": 1}},
            ],
        }))
        .unwrap_err();
        assert_eq!(
            faults,
            [
                "sites[0].wan: is not for the edge site, which no WAN leads to",
                "sites[2].name: \"\" is not a site name: letters, digits, `-`, `_` and `.`, at most 63",
                "sites[2].kind: \"moon\" is not one of edge, cloud, liqo",
                "sites[2].nodeSelector: is empty, which every node would carry",
                "sites[2].tolerations[0].key: may be empty only with operator Exists",
                "sites[2].supports[0]: \"gpu\" is not one of persistentVolumeClaim, hostPath, hostNetwork, hostPID, \
                 hostIPC, hostPort, resourceClaims",
                "sites[2].wan.rttMs: is missing",
                "sites[2].queues[0].class: is missing",
                "sites[2].observedControllerProcMs[0].namespace: \"\" is not a non-empty string",
                "sites[2].observedControllerProcMs[0].controller: is missing",
                "sites[2].observedControllerProcMs[0].ms: 0 is not a number from 0.001 to 86400000 with at most three \
                 decimals",
                "sites[2].measuredFree.cpu: must not be negative",
                "sites[1]: the name \"a\" is taken by an earlier site",
                "sites: has 2 sites of kind edge; there must be exactly one",
                "nodes[0].name: is missing",
                "nodes[0].allocatable.cpu: `two` is not a quantity (a number such as 2, 0.5, 500m, 1.5Gi or 1e3)",
                "nodes[0].allocatable: has no `pods`: without pod slots nothing ever fits",
                "nodes[0].labels[\"node.role/edge\"]: true is not a string",
                "nodes[1].allocatable.cpu: must not be negative",
                "nodes[1].taints[0].effect: \"Never\" is not one of NoSchedule, PreferNoSchedule, NoExecute",
                "nodes[2]: the name \"n\" is taken by an earlier node",
                "nodes[3]: \"both\" carries the selectors of two sites, \"a\" and \"a\"; `site` says to which it counts",
                "nodes[4]: \"c\" does not carry the selector of a site \"a\"",
            ]
        );
    }
}
