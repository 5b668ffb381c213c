//! A [`Snapshot`] to the fleet file that says the same.

use serde_json::{Map, Value, json};

use crate::model::constraints::Taint;
use crate::model::link::Link;
use crate::model::node::{Node, Share};
use crate::model::site::SiteDefinition;
use crate::model::slo::Class;
use crate::model::snapshot::{ByController, QueueGroup};
use crate::resources::Amounts;
use crate::units::{Micros, Moment};
use crate::wire::fleet_file::{LinkState, Site, SiteKind, Snapshot};
use crate::wire::{stated, toleration};

/// The oldest that a fleet file calls anything: a year, in milliseconds.
const OLDEST_MS: u64 = 31_536_000_000;

/// The longest round trip that a fleet file states; no threshold is above it.
const LONGEST_RTT: Micros = Micros::from_secs(60);

/// The fleet file that reads as this snapshot, its ages as of `now`, rounded up to milliseconds: in such steps a decision
/// compares them. What a file does not say is left out: the revision, ids of nodes, what the WAN is probed by, and until when
/// terminating pods have time.
pub fn write(snapshot: &Snapshot, now: Moment) -> Value {
    let nodes = snapshot
        .sites
        .iter()
        .flat_map(|site| site.nodes().map(|node| self::node(node, site, snapshot)));
    json!({
        "ageSeconds": age(snapshot.kubernetes_as_of, now),
        "sites": snapshot.sites.iter().map(|site| self::site(site, now)).collect::<Value>(),
        "nodes": nodes.collect::<Value>(),
    })
}

fn site(site: &Site, now: Moment) -> Value {
    let SiteDefinition {
        name,
        kind,
        selector,
        tolerations,
        speed,
        supports,
        runtime_class,
        thresholds,
        probes: _,
    } = &*site.definition;
    let mut fields = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("kind".to_owned(), json!(kind.as_str())),
        (
            "nodeSelector".to_owned(),
            selector
                .iter()
                .map(|(key, value)| (key.clone(), json!(value)))
                .collect(),
        ),
        ("tolerations".to_owned(), tolerations.iter().map(toleration).collect()),
        ("speedFactor".to_owned(), thousandths(speed.0.into())),
    ]);
    let mut set = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    if !supports.is_empty() {
        set("supports", supports.iter().map(|tie| tie.as_str()).collect());
    }
    if let Some(class) = runtime_class {
        set("runtimeClassName", json!(class));
    }
    if let Some(rtt) = thresholds.rtt {
        set("rttThresholdMs", rtt.into());
    }
    if let Some(loss) = thresholds.loss {
        set("lossThresholdPct", loss.into());
    }
    if let Some(link) = site.link.filter(|_| *kind == SiteKind::Cloud) {
        set("wan", self::link(&link, now));
    }
    if !site.queues.is_empty() {
        set("queues", site.queues.iter().map(queue_group).collect());
    }
    let observed = Class::ALL.map(|class| Some((class.as_str().to_owned(), site.observed[class]?.into())));
    let observed: Map<String, Value> = observed.into_iter().flatten().collect();
    if !observed.is_empty() {
        set("observedProcMs", observed.into());
    }
    if !site.observed_of.is_empty() {
        let observed = by_controller(&site.observed_of, "ms", |time| (*time).into());
        set("observedControllerProcMs", observed);
    }
    // What is promised may be more than what was measured.
    let cpu = site
        .free
        .cpu
        .map(|cpu| ("cpu".to_owned(), json!(format!("{}m", cpu.0.max(0)))));
    let memory = site
        .free
        .memory
        .map(|memory| ("memory".to_owned(), json!(memory.0.max(0))));
    let free: Map<String, Value> = cpu.into_iter().chain(memory).collect();
    if !free.is_empty() {
        set("measuredFree", free.into());
    }
    if !site.closed.is_empty() {
        set("closed", by_controller(&site.closed, "pods", |pods| (*pods).into()));
    }
    fields.into()
}

fn taint(taint: &Taint) -> Value {
    stated([("key", &*taint.key), ("value", &taint.value), ("effect", &taint.effect)])
}

fn link(link: &Link, now: Moment) -> Value {
    let mut fields = Map::from_iter([
        ("health".to_owned(), json!(link.state.as_str())),
        ("ageSeconds".to_owned(), age(link.as_of, now)),
    ]);
    if let Some(rtt) = link.rtt {
        fields.insert("rttMs".to_owned(), rtt.min(LONGEST_RTT).into());
    }
    if let Some(loss) = link.loss {
        fields.insert("lossPct".to_owned(), loss.into());
    }
    if link.state == LinkState::Unreachable {
        fields.insert("reachable".to_owned(), false.into());
    }
    fields.into()
}

fn queue_group(group: &QueueGroup) -> Value {
    json!({
        "class": group.class.as_str(),
        "priority": group.priority,
        "sloPriority": group.slo_priority,
        "waiting": group.waiting,
        "pending": group.pending,
    })
}

/// One entry for each controller, what is known of it under `name`.
fn by_controller<T>(known: &ByController<T>, name: &str, value: impl Fn(&T) -> Value) -> Value {
    let entries = known.iter().map(|(namespace, controller, known)| {
        let mut entry = stated([("namespace", namespace), ("controller", controller)]);
        entry[name] = value(known);
        entry
    });
    entries.collect()
}

fn node(node: &Node, site: &Site, snapshot: &Snapshot) -> Value {
    let mut fields = json!({
        "name": &*node.name,
        "labels": node.labels.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect::<Value>(),
        "allocatable": resources(&node.allocatable, node.slots),
        "used": resources(&node.used, node.pods),
        "ready": node.ready,
        "unschedulable": node.cordoned,
    });
    if !node.taints.is_empty() {
        fields["taints"] = node.taints.iter().map(taint).collect();
    }
    if !node.by_priority.is_empty() {
        let parts = node
            .by_priority
            .iter()
            .map(|part| json!({"priority": part.priority, "used": resources(&part.used, part.pods)}));
        fields["usedByPriority"] = parts.collect();
    }
    if !node.terminating.is_empty() {
        let mut all = Share::default();
        for terminating in &node.terminating {
            all.amounts.add(&terminating.share.amounts, 1);
            all.pods += terminating.share.pods;
        }
        fields["terminating"] = resources(&all.amounts, all.pods);
    }
    let claims = |other: &&Site| node.labels.contain(other.definition.selector());
    if snapshot.sites.iter().filter(claims).count() > 1 {
        fields["site"] = site.name().into();
    }
    fields
}

fn resources(amounts: &Amounts, pods: i64) -> Value {
    let mut resources = Map::from_iter([("cpu".to_owned(), json!(format!("{}m", amounts.cpu.0)))]);
    let others = [
        ("memory", amounts.memory.0),
        ("ephemeral-storage", amounts.ephemeral_storage.0),
    ];
    let scalars = amounts.scalars.iter().map(|(name, amount)| (&**name, *amount));
    for (name, amount) in others.into_iter().chain([("pods", pods)]).chain(scalars) {
        resources.insert(name.to_owned(), amount.into());
    }
    resources.into()
}

fn age(as_of: Moment, now: Moment) -> Value {
    thousandths(now.since(as_of).0.div_ceil(1_000).min(OLDEST_MS))
}

/// A number that is an integer where it is whole.
fn thousandths(number: u64) -> Value {
    if number.is_multiple_of(1_000) {
        (number / 1_000).into()
    } else {
        (number as f64 / 1_000.0).into()
    }
}

#[cfg(test)]
mod tests;
