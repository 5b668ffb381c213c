//! Clouds that could hold a pod when empty, and why one takes none now: it has no usable node, or the WAN towards it is not good
//! ("For a site that is away" in docs/decision.md).

use std::cmp::Reverse;
use std::fmt;

use super::feasibility;
use crate::config::Config;
use crate::excerpt::{LONGEST_NAME, excerpt};
use crate::model::liqo::OffloadingPhase;
use crate::model::node::Node;
use crate::model::site::SiteKind;
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::located::located;
use crate::placement::verdict::RefusalCode;
use crate::units::Moment;
use crate::words;

words! {
    /// Why a cloud that could hold a pod takes none now.
    pub enum Absence {
        /// The cloud has no node, so nothing is known of what it could hold.
        NoNode = "no node",
        /// A node was created less than a minute ago and lacks what the pod asks for.
        NewNode = "new node",
        /// Nodes that could hold the pod are not Ready.
        NotReady = "node NotReady",
        /// Nodes that could hold the pod are cordoned.
        Cordoned = "node cordoned",
        /// Nothing answers there.
        Unreachable = "WAN unreachable",
        /// RTT or loss is over its threshold.
        Degraded = "WAN degraded",
        /// The WAN was not measured lately.
        Stale = "WAN not measured lately",
        /// Liqo has not offloaded the pod's namespace there yet.
        NotOffloaded = "namespace not offloaded yet",
    }
}

/// A cloud that could hold a pod when empty.
#[derive(Debug, Clone, Copy)]
pub struct Holder<'s> {
    /// The cloud.
    pub site: &'s Site,
    /// Why it takes none now, if it is away.
    pub absence: Option<Absence>,
}

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.site.name())?;
        match self.absence {
            Some(absence) => write!(f, " ({})", absence.as_str()),
            None => Ok(()),
        }
    }
}

/// The cloud as a holder of the pod, if it could hold it when empty and the pod's namespace is offloaded there, or may be soon.
/// Cost: a pass over its nodes.
pub(super) fn holder<'s>(
    workload: &Workload<'_>,
    cloud: &'s Site,
    offloading: Option<OffloadingPhase>,
    config: &Config,
    now: Moment,
) -> Option<Holder<'s>> {
    let is_offloaded = offloading.is_none_or(|phase| phase == OffloadingPhase::Accepted);
    if !is_offloaded && !offloading.is_some_and(OffloadingPhase::is_passing) {
        return None;
    }
    let of_node = |node: &Node| {
        if !feasibility::is_holder(workload, cloud, node) {
            return feasibility::may_change(cloud, node).then_some(Some(Absence::NewNode));
        }
        Some(match feasibility::may_run(workload, cloud, node) {
            true => None,
            false if node.ready && node.cordoned => Some(Absence::Cordoned),
            false => Some(Absence::NotReady),
        })
    };
    let of_nodes = if !cloud.nodes.is_empty() {
        // A node that takes it, else the reason that passes most easily.
        cloud
            .nodes()
            .filter_map(of_node)
            .min_by_key(|absence| absence.map(Reverse))?
    } else if workload.constraints.volumes.is_empty() {
        Some(Absence::NoNode)
    } else {
        return None;
    };
    let of_wan = || {
        let refusal = feasibility::refuse_link(cloud, config, now)?;
        Some(match refusal.code {
            RefusalCode::Unreachable => Absence::Unreachable,
            RefusalCode::Stale => Absence::Stale,
            _ => Absence::Degraded,
        })
    };
    Some(Holder {
        site: cloud,
        absence: (!is_offloaded)
            .then_some(Absence::NotOffloaded)
            .or(of_nodes)
            .or_else(of_wan),
    })
}

/// Whether a node of the site could hold the pod when empty.
pub(super) fn could_hold(workload: &Workload<'_>, site: &Site) -> bool {
    feasibility::holds_when_empty(workload, site).any(|holds| holds)
}

/// What a pod waits for that is held for a site that is away, in words: each cloud that could hold it, and why it takes none;
/// the sites that it asks for where none could, and `None` without. Cost: a pass over the nodes of all clouds.
pub fn awaited(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config, now: Moment) -> Option<String> {
    let workload = &*located(workload, snapshot);
    let slo = &workload.intent.as_ref()?.slo;
    let offload = config.may_offload(slo);
    let clouds = snapshot.sites.iter().filter(|site| site.kind() == SiteKind::Cloud);
    let clouds = clouds.filter(|site| feasibility::refuse_offload(workload, offload, site).is_none());
    let holders = clouds
        .filter(|site| workload.may_be_at(&site.definition))
        .filter_map(|cloud| {
            let offloading = snapshot.offloading(&workload.namespace, cloud);
            holder(workload, cloud, offloading, config, now)
        });
    let listed = listed(holders);
    if !listed.is_empty() {
        return Some(listed);
    }
    let data = feasibility::data_nowhere(workload, snapshot).map(data_of);
    let in_sites = |sites| format!("{}, where it can run on no node now", excerpt(sites, LONGEST_NAME));
    data.or_else(|| workload.sites().map(in_sites))
}

/// The traits that a pod requires, where no site has them. Cost: a pass over the nodes.
pub fn awaited_traits(workload: &Workload<'_>, snapshot: &Snapshot) -> Option<String> {
    let is_missed = |site: &Site| feasibility::refuse_traits(workload, site).is_some();
    let names: Vec<_> = workload.traits()?.names().collect();
    let is_nowhere = snapshot.sites.iter().all(is_missed);
    is_nowhere.then(|| excerpt(names.join(", "), LONGEST_NAME))
}

/// What a pod waits for whose data is on no node that is known.
pub(super) fn data_of(claim: &str) -> String {
    format!("a node with the data of claim {}", excerpt(claim, LONGEST_NAME))
}

/// `cloud-a (node gone), cloud-b (WAN unreachable)`.
pub(super) fn listed<'s>(holders: impl Iterator<Item = Holder<'s>>) -> String {
    let holders: Vec<_> = holders.map(|holder| holder.to_string()).collect();
    holders.join(", ")
}
