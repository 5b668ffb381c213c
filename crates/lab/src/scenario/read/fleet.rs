//! Takes the cluster from a fleet file instead of the scenario: sites, nodes, and their used resources.

use std::sync::Arc;

use edgeward_decision::config::Config;
use edgeward_decision::document::{Checks, Faults};
use edgeward_decision::fleet_file;
use edgeward_decision::model::link::LinkState;
use edgeward_decision::model::snapshot::Site as SeenSite;
use edgeward_kube::node::{Node, NodeState, Placeholder, Share};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Moment};
use serde_json::{Map, Value, json};

use super::{Fleet, Load, StatedSite, config, part};
use crate::random::Distribution;
use crate::scenario::{Site, Wan, Workload, WorkloadKind};

const NAMESPACE: &str = "initial";

/// `spec.priority` of pods whose priority the file does not state: system-node-critical. Preemption must not free their
/// resources.
const NEVER_EVICTED: i32 = 2_000_001_000;

/// Returns the configuration with the file's sites, the sites themselves, and the pods on their nodes. A site of the
/// same name in the scenario adds its properties to the file's site.
pub(super) fn sites(
    fleet: Fleet<'_>,
    list: Vec<StatedSite>,
    settings: Map<String, Value>,
    checks: &mut Checks<'_>,
    load: Load<'_>,
) -> Option<(Arc<Config>, Vec<Site>, Vec<Workload>)> {
    let mut config = config(settings, checks)?;
    let in_fleet = |path: &str| format!("{}: {path}", fleet.name);
    let snapshot = match fleet_file::read(fleet.document, &config, Moment(0)) {
        Ok(snapshot) => snapshot,
        Err(Faults(faults)) => {
            for fault in faults {
                checks.fault(in_fleet(&fault.path), fault.message);
            }
            return None;
        }
    };
    config.sites = snapshot.sites.iter().map(|site| Arc::clone(&site.definition)).collect();
    let mut sites: Vec<_> = snapshot.sites.iter().map(seen).collect();
    for (at, stated) in list.into_iter().enumerate() {
        let overlay = |checks: &mut Checks<'_>| overlay(stated, &mut sites, fleet.name, checks, load);
        part(checks, &format!("sites[{at}]"), overlay);
    }
    for (site, seen) in sites
        .iter_mut()
        .zip(&snapshot.sites)
        .filter(|(site, _)| !site.is_edge())
    {
        site.wan = site.wan.take().or_else(|| seen_wan(seen));
        if site.wan.is_none() {
            let name = seen.name();
            let message = format!("states no RTT of {name:?}, and the scenario states no wan for that site");
            checks.fault(in_fleet("sites"), message);
        }
    }
    let nodes = snapshot.sites.iter().flat_map(SeenSite::nodes);
    let initial = nodes.enumerate().flat_map(|(number, node)| initial(node, number));
    Some((Arc::new(config), sites, initial.collect()))
}

fn seen(site: &SeenSite) -> Site {
    let empty = |node: &Node| Node {
        name: Arc::clone(&node.name),
        labels: node.labels.clone(),
        allocatable: node.allocatable.clone(),
        slots: node.slots,
        state: NodeState {
            young_until: None,
            ..node.state.clone()
        },
        ..Node::default()
    };
    Site {
        definition: Arc::clone(&site.definition),
        speed: site.definition.speed,
        cost: 0.0,
        nodes: site.nodes().map(empty).collect(),
        wan: None,
        slow: vec![],
    }
}

fn overlay(stated: StatedSite, sites: &mut [Site], fleet: &str, checks: &mut Checks<'_>, load: Load<'_>) -> Option<()> {
    let names: Vec<_> = sites.iter().map(|site| site.definition.name.clone()).collect();
    let Some(site) = sites.iter_mut().find(|site| site.definition.name == stated.name) else {
        let message = format!(
            "{:?} is not a site of {fleet}, which has {}",
            stated.name,
            names.join(", ")
        );
        checks.fault("name", message);
        return None;
    };
    site.speed = stated.speed.map_or(site.speed, super::permille);
    site.cost = stated.cost_per_cpu_hour;
    site.slow = stated.slow;
    if let Some(wan) = stated.wan {
        match site.is_edge() {
            true => checks.fault("wan", "is not for the edge site, which no WAN leads to"),
            false => site.wan = part(checks, "wan", |checks| wan.read(checks, load)),
        }
    }
    Some(())
}

fn seen_wan(site: &SeenSite) -> Option<Wan> {
    let link = site.link?;
    let loss = link.loss.map_or(0.0, |loss| f64::from(loss.0) / 1_000.0);
    let rtt = match link.state {
        LinkState::Unreachable => None,
        _ => Some(link.rtt?.as_millis_f64()),
    };
    Some(Wan::Trace(vec![(Micros(0), rtt, loss)]))
}

/// Returns the pods that use the used resources of a node. The file states their number for each priority; the pods of
/// one priority are alike.
fn initial(node: &Node, number: usize) -> Vec<Workload> {
    let mut found = vec![];
    let mut rest = Share {
        amounts: node.charges.used.clone(),
        pods: node.charges.pods,
    };
    for (priority, share) in &node.charges.by_priority {
        take(&mut rest, share);
        let mut share = share.clone();
        for (placeholder, kept) in node
            .charges
            .placeholders
            .iter()
            .filter(|(of, _)| of.priority == *priority)
        {
            take(&mut share, kept);
            found.extend(alike(number, *priority, Some(*placeholder), kept));
        }
        found.extend(alike(number, *priority, None, &share));
    }
    found.extend(alike(number, NEVER_EVICTED, None, &rest));
    found
}

fn take(from: &mut Share, part: &Share) {
    from.amounts = from.amounts.less(&part.amounts);
    from.pods -= part.pods;
}

/// Returns pods that together use this share. The first pod takes the remainder of the division.
fn alike(node: usize, priority: i32, placeholder: Option<Placeholder>, share: &Share) -> Vec<Workload> {
    let is_used = share.amounts.named().any(|(_, amount)| amount > 0);
    let pods = u32::try_from(share.pods).unwrap_or(0).max(u32::from(is_used));
    let count = i64::from(pods.max(1));
    let each = |part: fn(i64, i64) -> i64| {
        let mut amounts = share.amounts.clone();
        let scalars = amounts.scalars.iter_mut().map(|(_, amount)| amount);
        let amounts_of = [
            &mut amounts.cpu.0,
            &mut amounts.memory.0,
            &mut amounts.ephemeral_storage.0,
        ];
        amounts_of
            .into_iter()
            .chain(scalars)
            .for_each(|amount| *amount = part((*amount).max(0), count));
        amounts
    };
    let first = each(|all, count| all / count + all % count);
    let groups = [
        (first, pods.min(1)),
        (each(|all, count| all / count), pods.saturating_sub(1)),
    ];
    let groups = groups.into_iter().filter(|(_, pods)| *pods > 0);
    groups
        .map(|(request, pods)| workload(node, priority, placeholder, request, pods))
        .collect()
}

fn workload(node: usize, priority: i32, placeholder: Option<Placeholder>, request: Amounts, pods: u32) -> Workload {
    let quantities = request.named().map(|(name, amount)| {
        let text = if name == "cpu" {
            format!("{amount}m")
        } else {
            amount.to_string()
        };
        (name.to_owned(), Value::from(text))
    });
    let mut manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"annotations": {}},
        "spec": {
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": quantities.collect::<Map<_, _>>()}}],
        },
    });
    match placeholder {
        Some(Placeholder { grace, .. }) => {
            manifest["spec"]["terminationGracePeriodSeconds"] = (grace.0 / 1_000_000).into()
        }
        // Without a class, a pod of low priority would count as a placeholder.
        None => manifest["metadata"]["annotations"]["slo.example.io/class"] = "batch".into(),
    }
    let kind = WorkloadKind::Initial { node, pods };
    Workload {
        request,
        priority,
        may_preempt: false,
        ..Workload::new(NAMESPACE, manifest, Distribution::Constant(1.0), kind)
    }
}
