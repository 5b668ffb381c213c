//! Changes between two snapshots that matter to waiting pods, such as new room.

use std::collections::BTreeSet;
use std::sync::Arc;

use edgeward_decision::config::Config;
use edgeward_decision::model::link::Bandwidth;
use edgeward_decision::model::remote_room::FullFrom;
use edgeward_decision::model::report::Shapes;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_kube::node::{Node, NodeId};
use edgeward_kube::units::{Micros, Moment};

/// Changes that matter to waiting pods.
#[derive(Debug, Default)]
pub struct RoomDelta {
    /// Nodes that gained room, or where something that keeps pods away changed.
    pub gained: BTreeSet<NodeId>,
    /// Nodes that lost room.
    pub lost: BTreeSet<NodeId>,
    /// Whether other sites may be possible for a pod, because nodes or Liqo's offloadings changed.
    pub sites: bool,
    /// Whether pods came to a site or left it.
    pub pods: bool,
    /// Whether pods of groups came to a site or left it.
    pub members: bool,
    /// Whether the RTT of a link changed.
    pub distances: bool,
}

fn rtts(snapshot: &Snapshot) -> impl Iterator<Item = (&str, &str, Micros)> {
    let links = snapshot.links.iter();
    links.filter_map(|(source, target, figures)| Some((source, target, figures.rtt?)))
}

/// Room and traits of a report.
fn reports(site: &Site) -> Option<(&Shapes, &[String])> {
    site.report.as_ref().map(|report| (&report.room, &*report.traits))
}

fn traits(site: &Site) -> impl Iterator<Item = (&str, bool)> {
    let measured = site.definition.measured.iter();
    measured.map(|measured| (&*measured.name, measured.holds))
}

/// Whether two states of a node differ at most in the pods on it, in what placement does not depend on, and in its youth.
pub(super) fn is_same_node(one: &Node, other: &Node) -> bool {
    one.labels == other.labels
        && one.state.taints == other.state.taints
        && one.allocatable == other.allocatable
        && (one.slots, one.state.cordoned, one.state.ready) == (other.slots, other.state.cordoned, other.state.ready)
}

impl RoomDelta {
    /// Compares two publications as of now. Cost: a comparison of pointers
    /// for each node of a site in which something changed, and a few comparisons for each changed node.
    pub fn between(old: &Snapshot, new: &Snapshot, config: &Config, now: Moment) -> Self {
        let mut delta = Self {
            sites: old.offloadings != new.offloadings,
            distances: !Arc::ptr_eq(&old.links, &new.links) && rtts(old).ne(rtts(new)),
            ..Self::default()
        };
        for (at, site) in new.sites.iter().enumerate() {
            let unknown = Site::new(Arc::clone(&site.definition));
            let known = old.sites.get(at).filter(|known| known.name() == site.name());
            delta.compare_sites(known.unwrap_or(&unknown), site, config, now);
        }
        delta
    }

    /// Compares two states of a site. A change of the whole site concerns all of its nodes. Longer processing times or
    /// another RTT are no change.
    fn compare_sites(&mut self, old: &Site, new: &Site, config: &Config, now: Moment) {
        if !Arc::ptr_eq(&old.nodes, &new.nodes) {
            self.compare_nodes(&old.nodes, &new.nodes);
        }
        self.pods |= old.labelled != new.labelled;
        self.members |= old.members != new.members || old.succeeded_members != new.succeeded_members;
        self.distances |= old.link.map(|link| link.rtt) != new.link.map(|link| link.rtt);
        let link = |site: &Site| {
            let fresh = site.fresh_link(config.telemetry_ttl, now);
            fresh.map(|link| (link.state, link.rtt.is_some(), config.can_use(&link)))
        };
        let is_other_link = link(old) != link(new);
        let is_closed_to_others = old.closed != new.closed;
        let mut was_closed = old.closed.iter();
        let is_opened =
            is_closed_to_others && was_closed.any(|(namespace, uid, _)| new.closed.get(namespace, uid).is_none());
        let is_beyond = |one: &FullFrom, site: &Site| !site.full.iter().any(|other| other.bound.covers(&one.bound));
        let has_emptied = old.full.iter().any(|one| is_beyond(one, new));
        let has_filled = new.full.iter().any(|one| is_beyond(one, old));
        let ids = || new.nodes().map(|node| node.id);
        let are_other_traits = traits(old).ne(traits(new));
        // An unknown bandwidth limits no traffic, and a known one allows inputs.
        let rose = |old: Option<Bandwidth>, new: Option<Bandwidth>| new > old || old.is_some() && new.is_none();
        let has_more_bandwidth = rose(old.uplink, new.uplink) || rose(old.downlink, new.downlink);
        let reports_more = match (&old.report, &new.report) {
            (Some(old), Some(new)) => new.room.has_more_than(&old.room) || old.traits != new.traits,
            (old, new) => old.is_some() && new.is_none(),
        };
        if are_other_traits
            || reports_more
            || has_more_bandwidth
            || is_other_link
            || is_opened
            || has_emptied
            || new.free.has_more_than(&old.free)
        {
            self.gained.extend(ids());
        }
        if is_closed_to_others && !is_opened
            || reports(old) != reports(new)
            || has_filled
            || old.free.has_more_than(&new.free)
        {
            self.lost.extend(ids());
        }
    }

    /// Compares the nodes of a site, which are sorted by name.
    fn compare_nodes(&mut self, old: &[Arc<Node>], new: &[Arc<Node>]) {
        let mut old = old.iter().peekable();
        for node in new {
            if old.next_if(|before| Arc::ptr_eq(before, node)).is_some() {
                continue;
            }
            while old.next_if(|gone| gone.name < node.name).is_some() {
                self.sites = true;
            }
            match old.next_if(|before| before.name == node.name) {
                Some(before) => self.compare(before, node),
                None => {
                    self.sites = true;
                    self.gained.insert(node.id);
                }
            }
        }
        self.sites |= old.next().is_some();
    }

    /// Compares two states of a node.
    fn compare(&mut self, before: &Node, now: &Node) {
        let is_other = before.id != now.id || !is_same_node(before, now);
        self.sites |= is_other || before.state.young_until != now.state.young_until;
        // Placeholders that replace other pods are headroom. Other pods that replace placeholders are not.
        let is_headroom_other = before.charges.placeholders != now.charges.placeholders;
        // A waiting pod may be waiting for pods that terminate.
        let are_others_leaving = before.charges.terminating != now.charges.terminating;
        if is_other || before.has_less_than(now) || are_others_leaving || is_headroom_other {
            self.gained.insert(now.id);
        }
        if now.has_less_than(before) || is_headroom_other {
            self.lost.insert(now.id);
        }
    }
}
