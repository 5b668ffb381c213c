//! Why no node of a site takes a pod, with the numbers that show how near it was. What a snapshot says of it is found before the
//! ledger's lock is taken; under it only nodes are looked at from which something is reserved.

use crate::model::node::Node;
use crate::model::node_set::NodeSet;
use crate::model::nodes::Nodes;
use crate::model::snapshot::Site;
use crate::model::workload::Workload;
use crate::placement::feasibility::{asked, asked_names, data_elsewhere, is_tolerated, request, usable_nodes};
use crate::placement::headroom::Headroom;
use crate::placement::room::{Room, Taken, beside};
use crate::placement::verdict::{Refusal, RefusalCode};

/// Why no node of a site takes a pod by a snapshot.
#[derive(Debug)]
pub(super) enum Shortage<'s> {
    /// Of another reason than room, whatever is reserved.
    OfNodes(Refusal),
    /// Those that would take it have no room.
    OfRoom(UsableNodes<'s>),
}

/// The nodes on which the pod may run.
#[derive(Debug)]
pub(super) struct UsableNodes<'s> {
    of_site: &'s Nodes,
    usable: NodeSet,
    count: usize,
    /// Of each resource that the pod asks for, those where most of it is free, and how much: the most first.
    roomiest: Vec<(String, Vec<(i64, usize)>)>,
}

/// How many of the roomiest nodes are kept: under the lock the first of them counts from which nothing is reserved.
const ROOMIEST: usize = 8;

impl<'s> Shortage<'s> {
    /// Cost: a pass over the site's nodes for each resource that the pod asks for; where it may run on none, two passes more.
    pub(super) fn of(workload: &Workload<'_>, site: &'s Site, headroom: Option<Headroom>) -> Self {
        let usable = usable_nodes(workload, site);
        if !usable.is_empty() {
            return Self::OfRoom(UsableNodes::new(workload, site, usable, headroom));
        }
        if let Some(claim) = data_elsewhere(workload, site) {
            return Self::OfNodes(Refusal::new(RefusalCode::DataElsewhere).with("claim", claim));
        }
        let selected = || {
            let nodes = site.nodes();
            nodes.filter(|node| workload.constraints.allow(&node.name, &node.labels))
        };
        let matching = selected().filter(|node| is_tolerated(workload, site, node)).count();
        if matching > 0 {
            return Self::OfNodes(Refusal::new(RefusalCode::NodeNotReady).with("matchingNodes", matching));
        }
        Self::OfNodes(
            Refusal::new(RefusalCode::NoMatchingNode)
                .with("nodes", site.nodes.len())
                .with("selectedNodes", selected().count()),
        )
    }

    /// The refusal beside what is reserved and claimed; `is_claimed` if the pod would fit but for claims. Cost: a search for each
    /// node from which something is reserved or claimed, for as many as the site has at most.
    pub(super) fn refusal(&self, workload: &Workload<'_>, room: &Room<'_, '_>, is_claimed: bool) -> Refusal {
        match self {
            Self::OfNodes(refusal) => refusal.clone(),
            Self::OfRoom(usable) => usable.refusal(workload, room, is_claimed),
        }
    }
}

impl<'s> UsableNodes<'s> {
    fn new(workload: &Workload<'_>, site: &'s Site, usable: NodeSet, headroom: Option<Headroom>) -> Self {
        let nodes = &site.nodes;
        let roomiest = |name: &str| {
            let by_charges = nodes.free(name);
            let is_headroom = |position| headroom.is_some() && nodes.with_placeholders().contains(position);
            let free = |position: usize| match is_headroom(position) {
                true => free(name, &nodes[position], &beside(headroom, &nodes[position])),
                false => by_charges(position),
            };
            let mut most = Vec::with_capacity(ROOMIEST + 1);
            // Of equals, those behind: it is the first that is reserved.
            let usable = (0..nodes.len()).rev().filter(|position| usable.contains(*position));
            for (free, position) in usable.map(|position| (free(position), position)) {
                if most.get(ROOMIEST - 1).is_none_or(|(least, _)| free > *least) {
                    let place = most.partition_point(|(more, _)| *more >= free);
                    most.insert(place, (free, position));
                    most.truncate(ROOMIEST);
                }
            }
            (name.to_owned(), most)
        };
        Self {
            roomiest: asked_names(workload).map(roomiest).collect(),
            of_site: nodes,
            count: usable.len(),
            usable,
        }
    }

    fn refusal(&self, workload: &Workload<'_>, room: &Room<'_, '_>, is_claimed: bool) -> Refusal {
        let charged = room.charged(self.of_site, &self.usable);
        let charged: Vec<(&Node, Taken<'_>)> = charged.map(|(_, node, taken)| (node, taken)).collect();
        let largest_free = |name: &str| {
            let beside = charged.iter().map(|(node, taken)| free(name, node, taken));
            beside.chain(self.largest_uncharged(name, room)).max().unwrap_or(0)
        };
        let all_reserved = |name: &str| {
            let reserved = charged.iter().map(|(node, taken)| match name {
                "pods" => taken.pods.saturating_sub(room.used(node).pods),
                name => taken
                    .amounts
                    .get(name)
                    .saturating_sub(room.used(node).amounts.get(name)),
            });
            reserved.fold(0, i64::saturating_add)
        };
        let code = match is_claimed {
            true => RefusalCode::Claimed,
            false => RefusalCode::NoRoom,
        };
        let refusal = Refusal::new(code)
            .with("usableNodes", self.count)
            .with("request", asked(workload, |name| request(workload, name)))
            .with("largestFree", asked(workload, largest_free));
        if charged.is_empty() {
            refusal
        } else {
            refusal.with("reserved", asked(workload, all_reserved))
        }
    }

    /// What is free on the roomiest node from which nothing is reserved or claimed.
    fn largest_uncharged(&self, name: &str, room: &Room<'_, '_>) -> Option<i64> {
        let (_, roomiest) = self.roomiest.iter().find(|(known, _)| known == name)?;
        let is_uncharged = |node: &Node| !room.is_charged(node);
        let known = roomiest
            .iter()
            .find(|(_, position)| is_uncharged(&self.of_site[*position]));
        if known.is_some() || roomiest.len() == self.count {
            return known.map(|(free, _)| *free);
        }
        let uncharged = self.of_site.of(&self.usable).filter(|node| is_uncharged(node));
        uncharged.map(|node| free(name, node, &room.used(node))).max()
    }
}

/// How much of a resource is free on the node beside so much; `pods` are slots.
fn free(name: &str, node: &Node, taken: &Taken<'_>) -> i64 {
    match name {
        "pods" => node.slots.saturating_sub(taken.pods),
        name => node.allocatable.get(name).saturating_sub(taken.amounts.get(name)),
    }
}
