//! A [`Snapshot`] to the fleet file that says the same.

use serde_json::{Map, Value, json};

use crate::model::constraints::Taint;
use crate::model::link::Link;
use crate::model::liqo::ApiServerStatus;
use crate::model::node::{Node, Placeholder, PriorityUse, Share};
use crate::model::remote_room::FullFrom;
use crate::model::scores::{ProfileScores, SiteScore};
use crate::model::site::{SiteDefinition, SiteSource};
use crate::model::slo::Class;
use crate::model::snapshot::{ByController, QueueGroup};
use crate::resources::Amounts;
use crate::units::{Micros, Moment};
use crate::wire::fleet_file::{LONGEST_GRACE_SECONDS, LinkState, Site, SiteKind, Snapshot, liqo, volumes};
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
    let mut file = object(json!({
        "ageSeconds": age(snapshot.kubernetes_as_of, now),
        "sites": snapshot.sites.iter().map(|site| self::site(site, now)).collect::<Value>(),
        "nodes": nodes.collect::<Value>(),
        "liqo": snapshot.offloadings.as_ref().map(|offloadings| liqo::write(offloadings)),
        "profiles": unless_empty(profiles(snapshot, now)),
    }));
    // Watches that are behind decide about no pod that arrives.
    let volumes = snapshot.volumes.iter().filter(|volumes| !volumes.is_stale);
    for (name, list) in volumes.flat_map(|volumes| volumes::write(volumes)) {
        file[name] = list;
    }
    file
}

fn site(site: &Site, now: Moment) -> Value {
    let SiteDefinition {
        name,
        kind,
        labels,
        cost,
        order,
        selector,
        tolerations,
        speed,
        supports,
        traits,
        storage_classes,
        runtime_class,
        thresholds,
        probes: _,
        source,
    } = &*site.definition;
    let is_of_liqo = site.definition.is_of_liqo();
    let observed = Class::ALL.map(|class| Some((class.as_str().to_owned(), site.observed[class]?.into())));
    // What is promised may be more than what was measured.
    let free = object(json!({
        "cpu": site.free.cpu.map(|cpu| format!("{}m", cpu.0.max(0))),
        "memory": site.free.memory.map(|memory| memory.0.max(0)),
    }));
    object(json!({
        "name": name,
        "kind": if is_of_liqo { "liqo" } else { kind.as_str() },
        "labels": unless_empty(labels.iter().map(|(key, value)| (key.to_string(), json!(value))).collect()),
        "costPerHour": cost.map(Value::from),
        "order": Some(order).filter(|order| **order > 0),
        "nodeSelector": selector.iter().map(|(key, value)| (key.clone(), json!(value))).collect::<Value>(),
        "tolerations": tolerations.iter().map(toleration).collect::<Value>(),
        "speedFactor": thousandths(speed.0.into()),
        "supports": unless_empty(supports.iter().map(|tie| tie.as_str()).collect()),
        "traits": unless_empty(traits.iter().map(String::as_str).collect()),
        "storageClasses": (is_of_liqo || !storage_classes.is_empty()).then_some(storage_classes),
        "runtimeClassName": runtime_class,
        "rttThresholdMs": thresholds.rtt.map(Value::from),
        "lossThresholdPct": thresholds.loss.map(Value::from),
        "source": (*source != SiteSource::Config).then(|| source.as_str()),
        "apiServerStatus": site.api_server.map(ApiServerStatus::as_str),
        "wan": site.link.filter(|_| *kind == SiteKind::Cloud).map(|link| self::link(&link, now)),
        "queues": unless_empty(site.queues.iter().map(queue_group).collect()),
        "observedProcMs": unless_empty(observed.into_iter().flatten().collect::<Map<_, _>>().into()),
        "observedControllerProcMs": unless_empty(by_controller(&site.observed_of, "ms", |time| (*time).into())),
        "measuredFree": unless_empty(free),
        "closed": unless_empty(by_controller(&site.closed, "pods", |pods| (*pods).into())),
        "full": unless_empty(site.full.iter().map(full_from).collect()),
        "controllerPods": unless_empty(by_controller(&site.pods_of, "pods", |pods| (*pods).into())),
    }))
}

/// What profiles say of the sites that there are.
fn profiles(snapshot: &Snapshot, now: Moment) -> Value {
    let is_there = |name: &str| snapshot.sites.iter().any(|site| site.name() == name);
    let of_site = |name: &str, site: &SiteScore| {
        let score = match &*site.by_missing {
            [score] => (*score).into(),
            scores => scores.iter().copied().collect::<Value>(),
        };
        json!({"site": name, "score": score, "ageSeconds": age(site.as_of, now)})
    };
    let of_profile = |name: &str, profile: &ProfileScores| {
        let scores = profile.sites.iter().filter(|(site, _)| is_there(site));
        object(json!({
            "name": name,
            "better": profile.better.as_str(),
            "margin": Value::from(profile.margin),
            "stalenessSeconds": thousandths(profile.staleness.0.div_ceil(1_000)),
            "preferred": profile.preferred.as_ref().filter(|site| is_there(site)),
            "scores": unless_empty(scores.map(|(name, site)| of_site(name, site)).collect()),
        }))
    };
    let profiles = snapshot.profiles.iter();
    profiles.map(|(name, profile)| of_profile(name, profile)).collect()
}

fn full_from(full: &FullFrom) -> Value {
    let amount = |(name, amount): (&str, i64)| match name {
        "cpu" => (name.to_owned(), json!(format!("{amount}m"))),
        name => (name.to_owned(), amount.into()),
    };
    json!({
        "refused": full.bound.amounts().map(amount).collect::<Value>(),
        "pods": full.pods,
    })
}

/// The object without the fields that are null.
pub(in crate::wire) fn object(mut fields: Value) -> Value {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    fields
}

/// Null in place of a list or an object that is empty.
pub(in crate::wire) fn unless_empty(value: Value) -> Value {
    match &value {
        Value::Array(list) if list.is_empty() => Value::Null,
        Value::Object(fields) if fields.is_empty() => Value::Null,
        _ => value,
    }
}

pub(in crate::wire) fn taint(taint: &Taint) -> Value {
    stated([("key", &*taint.key), ("value", &taint.value), ("effect", &taint.effect)])
}

fn link(link: &Link, now: Moment) -> Value {
    object(json!({
        "health": link.state.as_str(),
        "ageSeconds": age(link.as_of, now),
        "rttMs": link.rtt.map(|rtt| Value::from(rtt.min(LONGEST_RTT))),
        "lossPct": link.loss.map(Value::from),
        "reachable": (link.state == LinkState::Unreachable).then_some(false),
    }))
}

fn queue_group(group: &QueueGroup) -> Value {
    json!({
        "class": group.class.as_str(),
        "priority": group.priority,
        "sloPriority": group.slo_priority,
        "waiting": group.waiting,
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
    let part = |part: &PriorityUse| json!({"priority": part.priority, "used": resources(&part.used, part.pods)});
    let placeholder = |(kind, share): &(Placeholder, Share)| {
        json!({
            "priority": kind.priority,
            "graceSeconds": (kind.grace.0 / 1_000_000).min(LONGEST_GRACE_SECONDS as u64),
            "used": resources(&share.amounts, share.pods),
        })
    };
    // What is headroom must not count as what leaves as well.
    let leaving = node
        .terminating
        .iter()
        .filter(|part| part.termination.placeholder.is_none());
    let mut terminating = Share::default();
    leaving.for_each(|part| terminating.add(&part.share));
    let claims = |other: &&Site| node.labels.contain(other.definition.selector());
    let is_claimed_twice = snapshot.sites.iter().filter(claims).count() > 1;
    object(json!({
        "name": &*node.name,
        "labels": node.labels.iter().map(|(key, value)| (key.to_owned(), json!(value))).collect::<Value>(),
        "allocatable": resources(&node.allocatable, node.slots),
        "used": resources(&node.used, node.pods),
        "ready": node.ready,
        "unschedulable": node.cordoned,
        "young": node.young_until.map(|_| true),
        "taints": unless_empty(node.taints.iter().map(taint).collect()),
        "usedByPriority": unless_empty(node.by_priority.iter().map(part).collect()),
        "placeholders": unless_empty(node.placeholders.iter().map(placeholder).collect()),
        "terminating": (terminating.pods > 0).then(|| resources(&terminating.amounts, terminating.pods)),
        "site": is_claimed_twice.then(|| site.name()),
    }))
}

pub(in crate::wire) fn resources(amounts: &Amounts, pods: i64) -> Value {
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
