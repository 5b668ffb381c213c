//! Decides about a pod again, as if it did not exist.

use std::sync::Arc;

use super::{Kind, Seen, UNSCHEDULABLE_FOR, View, Why};
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_decision::model::workload::{QueueKey, Workload};
use edgeward_decision::placement::decide::decide_with_scores;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Assessment, RefusalCode, Standing};
use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;

/// Why a pod should be elsewhere, and the site that is good for it.
pub(super) type Better = (Why, Option<Arc<str>>);

/// The kind of this pod.
pub(super) fn kind(pod: &Seen, view: &View<'_>) -> Kind {
    let (namespace, controller) = (Arc::clone(&pod.namespace), pod.controller.clone());
    let size = [pod.request.cpu.0, pod.request.memory.0];
    let node = [pod.node.is_some(), lacks_trait(pod, view)];
    (namespace, controller, pod.site.clone(), size, node)
}

/// Whether the pod's node lacks a trait that the pod requires and its site does not have as a whole.
fn lacks_trait(pod: &Seen, view: &View<'_>) -> bool {
    let workload = pod.member.workload.as_deref();
    let Some(traits) = workload.and_then(Workload::traits) else {
        return false;
    };
    let place = view.site(pod.site.as_ref()).zip(node(pod, view));
    place.is_some_and(|(site, node)| !traits.are_at(node, &site.definition))
}

/// The pod's node. Cost: a pass over the nodes of its site.
fn node<'v>(pod: &Seen, view: &View<'v>) -> Option<&'v Node> {
    let mut nodes = view.site(pod.site.as_ref())?.nodes();
    nodes.find(|node| Some(node.id) == pod.node)
}

/// Whether the pod's node is Ready, and pods may use the WAN to its site.
pub(super) fn is_reachable(pod: &Seen, view: &View<'_>) -> bool {
    let Some(site) = view.site(pod.site.as_ref()) else {
        return false;
    };
    let link = site.fresh_link(view.config.telemetry_ttl, view.now.moment);
    let has_link = link.is_some_and(|link| view.config.can_use(&link));
    (site.kind() == SiteKind::Edge || has_link) && node(pod, view).is_some_and(|node| node.state.ready)
}

/// Whether this pod of the kind can be decided about.
pub(super) fn is_judged(pod: &Seen, kind: &Kind, view: &View<'_>) -> bool {
    let [has_node, _] = kind.4;
    let is_stuck = || {
        let stuck = pod.stuck.as_ref();
        stuck.is_some_and(|stuck| view.is_over(stuck.since, UNSCHEDULABLE_FOR))
    };
    if has_node {
        pod.member.workload.is_some()
    } else {
        is_stuck()
    }
}

/// Why and where a pod of this kind should be instead, as decided now.
pub(super) fn better(pod: &Seen, kind: &Kind, view: &View<'_>) -> Option<Better> {
    let [has_node, lacks_trait] = kind.4;
    match has_node {
        true => better_running(pod, lacks_trait, view),
        false => better_unschedulable(pod, view),
    }
}

fn better_running(pod: &Seen, lacks_trait: bool, view: &View<'_>) -> Option<Better> {
    let (member, moves) = (&pod.member, &view.config.moves);
    let site = view.site(pod.site.as_ref())?;
    let decided = member.decision.map(|_| member.reason.as_deref().unwrap_or_default());
    let workload = Workload::clone(member.workload.as_deref()?);
    let workload = workload.without_placement(decided, Some(&site.definition));
    let snapshot = without(pod, &workload, view.snapshot);
    let queue_key = workload.queue_key(&view.config.priority_caps, None);
    let room = Room::new(&snapshot, view.ledger, queue_key, &workload.namespace);
    let verdict = decide_with_scores(&workload, &room, view.config, view.now);
    let here = verdict.sites.iter().find(|found| found.site.name() == site.name())?;
    let target = verdict.chosen().filter(|chosen| chosen.is_good());
    let name = |found: &Assessment<'_>| Arc::<str>::from(found.site.name());
    let elsewhere = target.filter(|target| target.site.name() != site.name());

    if lacks_trait {
        return Some((Why::Trait, target.map(name)));
    }
    if here.is_refused(RefusalCode::DistanceLimit) {
        return Some((Why::Distance, elsewhere.map(name)));
    }
    let target = elsewhere?;
    let gain = verdict.profile.zip(target.score.zip(here.score));
    let is_preferred = gain.is_some_and(|((_, profile), (there, here))| profile.is_better(there, here));
    let names_profile = workload.intent.as_ref().is_some_and(|intent| intent.profile.is_some());
    let why = if is_preferred && moves.profiles {
        Why::Profile
    } else if target.site.kind() == SiteKind::Edge && moves.home && (gain.is_some() || !names_profile) {
        Why::Home
    } else {
        return None;
    };
    Some((why, Some(name(target))))
}

fn better_unschedulable(pod: &Seen, view: &View<'_>) -> Option<Better> {
    let stuck = pod.stuck.as_ref()?;
    let found = stuck.evaluate(view.snapshot, view.ledger, view.config, view.now)?;
    let site = Arc::from(found.site);
    (found.standing == Standing::Good).then_some((Why::Unschedulable, Some(site)))
}

/// Whether `coming` leaves `keepFree` of the site's allocatable resources free. Reservations and queue claims count as taken.
/// Cost: a pass over the site's nodes.
pub(super) fn stays_free(site: &Site, coming: &Amounts, view: &View<'_>) -> bool {
    let room = Room::new(view.snapshot, view.ledger, QueueKey::LAST, "");
    let kept = i128::from(view.config.moves.keep_free.0);
    coming.named().all(|(name, coming)| {
        let sums = site.usable_nodes().map(|node| {
            let all = node.allocatable.capacity(name);
            let free = all.saturating_sub(room.taken(node).amounts.get(name));
            (i128::from(all), i128::from(free.max(0)))
        });
        let (all, free) = sums.fold((0, 0), |(all, free), node| (all + node.0, free + node.1));
        (free - i128::from(coming)) * 100 >= all * kept
    })
}

/// The snapshot without the pod: its charge, and its part of the counts by controller, labels and group. Cost: a copy of the list
/// of the site's nodes.
fn without(pod: &Seen, workload: &Workload<'_>, snapshot: &Snapshot) -> Snapshot {
    let mut snapshot = snapshot.clone();
    let is_its = |site: &&mut Site| pod.site.as_deref() == Some(site.name());
    let Some(site) = snapshot.sites.iter_mut().find(is_its) else {
        return snapshot;
    };
    if let Some(node) = pod.node {
        site.uncharge(node, &pod.request);
    }
    // The reported room does not have the pod's own.
    site.report = None;
    if let Some(membership) = workload.membership() {
        Arc::make_mut(&mut site.members).leave_out(&pod.namespace, membership);
    }
    let counted = [
        (&mut site.pods_of, pod.controller.as_deref()),
        (&mut site.owned, pod.controller.as_deref()),
        (&mut site.labelled, Some(&*workload.labels)),
    ];
    for (counts, key) in counted {
        let key = key.filter(|key| counts.get(&pod.namespace, key).is_some());
        key.into_iter()
            .for_each(|key| Arc::make_mut(counts).change(&pod.namespace, key, -1));
    }
    snapshot
}
