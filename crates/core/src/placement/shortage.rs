//! Why no node of a site takes a pod, with the numbers that show how near it was.

use crate::model::node::Node;
use crate::model::snapshot::Site;
use crate::model::workload::Workload;
use crate::placement::feasibility::{asked, data_elsewhere, is_tolerated, request, usable_nodes};
use crate::placement::room::{Room, Taken};
use crate::placement::verdict::{Refusal, RefusalCode};

/// The refusal of a site on whose nodes the pod does not fit. Cost: a pass over its nodes for each resource that the pod asks for.
pub(super) fn refuse_room(workload: &Workload<'_>, site: &Site, room: &Room<'_, '_>) -> Refusal {
    let usable: Vec<(&Node, Taken<'_>)> = usable_nodes(workload, site)
        .map(|node| (node, room.taken(node)))
        .collect();
    if usable.is_empty() {
        return refuse_nodes(workload, site);
    }
    let largest_free = |name: &str| {
        let free = usable.iter().map(|(node, taken)| taken.free(name, node));
        free.max().unwrap_or(0)
    };
    let reserved = |name: &str| {
        let reserved = usable
            .iter()
            .map(|(node, taken)| taken.get(name).saturating_sub(room.used(node).get(name)));
        reserved.fold(0, i64::saturating_add)
    };
    let code = match room.is_claimed(&workload.request, usable.iter().map(|(node, _)| *node)) {
        true => RefusalCode::Claimed,
        false => RefusalCode::NoRoom,
    };
    let refusal = Refusal::new(code)
        .with("usableNodes", usable.len())
        .with("request", asked(workload, |name| request(workload, name)))
        .with("largestFree", asked(workload, largest_free));
    match reserved("pods") {
        0 => refusal,
        _ => refusal.with("reserved", asked(workload, reserved)),
    }
}

/// The refusal of a site on none of whose nodes the pod may run, whatever room there is.
fn refuse_nodes(workload: &Workload<'_>, site: &Site) -> Refusal {
    if let Some(claim) = data_elsewhere(workload, site) {
        return Refusal::new(RefusalCode::DataElsewhere).with("claim", claim);
    }
    let allows = |node: &&Node| workload.constraints.allow(&node.name, &node.labels);
    let selected: Vec<&Node> = site.nodes().filter(allows).collect();
    let matching = selected
        .iter()
        .filter(|node| is_tolerated(workload, site, node))
        .count();
    if matching > 0 {
        return Refusal::new(RefusalCode::NodeNotReady).with("matchingNodes", matching);
    }
    Refusal::new(RefusalCode::NoMatchingNode)
        .with("nodes", site.nodes.len())
        .with("selectedNodes", selected.len())
}
