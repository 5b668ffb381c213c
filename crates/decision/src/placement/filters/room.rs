//! Room: on the site's nodes, as measured for the whole site, and as schedulers tell of pods that are Pending.

use serde_json::{Map, Value};

use crate::model::remote_room::FullFrom;
use crate::model::workload::Workload;
use crate::placement::facts::is_class_gated;
use crate::placement::filters::Case;
use crate::placement::room::Taken;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode, Standing};

/// The most resources that a refusal names. A pod may request any number, and each costs a pass over the nodes.
pub(super) const MAX_NAMED_RESOURCES: usize = 16;

pub(super) fn no_room(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    if found.usable.is_empty() {
        return None;
    }
    if found.fitting.is_empty() {
        return Some(refuse_nodes(case, found));
    }
    refuse_measured(case, found)
}

/// The refusal of a site where no usable node fits the pod. Cost: a pass over the usable nodes for each requested resource.
fn refuse_nodes(case: &Case<'_, '_>, found: &Assessment<'_>) -> Refusal {
    let (workload, room) = (case.workload, case.room);
    let usable: Vec<_> = found.usable.iter().map(|node| (*node, room.taken(node))).collect();
    let largest_free = |name: &str| {
        let free = usable.iter().map(|(node, taken)| taken.free(name, node));
        free.max().unwrap_or(0)
    };
    let reserved = |name: &str| {
        let reserved = usable
            .iter()
            .map(|(node, taken): &(_, Taken<'_>)| taken.get(name).saturating_sub(room.used(node).get(name)));
        reserved.fold(0, i64::saturating_add)
    };
    let code = match room.is_claimed(&workload.request, found.usable.iter().copied()) {
        true => RefusalCode::Claimed,
        false => RefusalCode::NoRoom,
    };
    let refusal = Refusal::new(code)
        .with("usableNodes", usable.len())
        .with("request", asked(workload, |name| request(workload, name)))
        .with("largestFree", asked(workload, largest_free));
    let excluded = usable
        .iter()
        .filter(|(_, taken)| workload.request.is_kept_from(&taken.amounts));
    let refusal = match excluded.count() {
        0 => refusal,
        excluded => refusal.with("excludedNodes", excluded),
    };
    match reserved("pods") {
        0 => refusal,
        _ => refusal.with("reserved", asked(workload, reserved)),
    }
}

/// The refusal of a site whose measured free resources are less than the pod requests.
fn refuse_measured(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let free = case.room.free(found.site);
    let measured = ["cpu", "memory"]
        .into_iter()
        .filter_map(|name| Some((name, free.get(name)?)));
    let asked = |name: &str| case.workload.request.get(name);
    if !measured.clone().any(|(name, free)| asked(name) > free.max(0)) {
        return None;
    }
    let (requests, measured): (Map<_, _>, Map<_, _>) = measured
        .map(|(name, free)| ((name.to_owned(), asked(name).into()), (name.to_owned(), free.into())))
        .unzip();
    Some(
        Refusal::new(RefusalCode::NoRoom)
            .with("request", requests)
            .with("measuredFree", measured),
    )
}

/// The pod's request for one resource; `pods` is its pod slot.
pub(super) fn request(workload: &Workload<'_>, name: &str) -> i64 {
    match name {
        "pods" => 1,
        name => workload.request.get(name),
    }
}

/// Calls `number` for `pods`, the pod's slot, and for each resource that the pod requests, up to [`MAX_NAMED_RESOURCES`]
/// names.
pub(super) fn asked(workload: &Workload<'_>, number: impl Fn(&str) -> i64) -> Map<String, Value> {
    let resources = workload.request.named().map(|(name, _)| name);
    let names = std::iter::once("pods").chain(resources).take(MAX_NAMED_RESOURCES);
    names.map(|name| (name.to_owned(), number(name).into())).collect()
}

/// Refuses a site whose link the pod's traffic would fill beyond its bandwidth, with the traffic that is left in each direction.
/// Several replicas gate new pods with traffic. For a pod that may not be gated, there must be room for one of each replica.
pub(super) fn no_bandwidth(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let asked = case.workload.request.bandwidth;
    let left = case.room.bandwidth_left(asked, found.site);
    let both = [
        ("egress", asked.egress, left.egress),
        ("ingress", asked.ingress, left.ingress),
    ];
    let replicas = if is_surely_gated(case) { 1 } else { case.room.replicas() };
    let lacking = both
        .into_iter()
        .filter(|(_, asked, left)| asked.saturating_mul(replicas.into()) > *left);
    let numbers = lacking
        .flat_map(|(name, asked, left)| [(format!("{name}Bits"), asked), (format!("{name}LeftBits"), left.max(0))]);
    let refusal = numbers.fold(Refusal::new(RefusalCode::NoBandwidth), |refusal, (name, bits)| {
        refusal.with(&name, bits)
    });
    let is_refused = !refusal.numbers.is_empty();
    is_refused.then(|| match replicas {
        1 => refusal,
        several => refusal.with("replicas", several),
    })
}

/// Whether the pod may be gated, wherever it could be placed.
fn is_surely_gated(case: &Case<'_, '_>) -> bool {
    let mut sites = case.room.snapshot.sites.iter();
    let gets_class = !case.workload.runtime_class && sites.any(|site| site.definition.runtime_class.is_some());
    let may_evict = case.workload.may_preempt && case.workload.priority > 0;
    is_class_gated(case) && !gets_class && !may_evict
}

/// Refuses a site where a pod of the same controller is Pending for something that edgeward does not evaluate.
pub(super) fn closed_to_controller(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let controller = case.workload.controller.as_deref()?;
    let waiting = found.site.closed.get(&case.workload.namespace, controller)?;
    Some(Refusal::new(RefusalCode::ClosedByScheduler).with("waitingPods", *waiting))
}

/// Refuses a site that has room for the pod, although kube-scheduler finds none of its nodes feasible. It offers no node where
/// it must evict placeholders first.
pub(super) fn not_offered(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let has_room = found.fitting.len() > found.headroom;
    let is_refused = has_room && case.room.not_offered.contains(&found.site.name());
    is_refused.then(|| Refusal::new(RefusalCode::ClosedByScheduler))
}

/// Room in the cluster behind the site, from what its scheduler reports about pods that are Pending there.
pub(super) fn full_behind_nodes(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let refuses = |full: &&FullFrom| full.bound.refuses(&case.workload.request);
    let full = found.site.full.iter().find(refuses)?;
    let amounts = full.bound.amounts().take(MAX_NAMED_RESOURCES);
    let refused: Map<String, Value> = amounts.map(|(name, amount)| (name.to_owned(), amount.into())).collect();
    let refusal = Refusal::new(RefusalCode::RemoteFull).with("refused", refused);
    Some(refusal.with("waitingPods", full.pods))
}

/// Refuses a site whose cluster reports less room than the pod requests, less the pods that the report does not show.
pub(super) fn beyond_report(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    // A full site needs no other reason, and this one costs most.
    if found.standing() >= Standing::Full {
        return None;
    }
    let (left, source) = (case.room.reported(found.site)?, found.site.report.as_ref()?.source);
    if left.fits(&case.workload.request) {
        return None;
    }
    let reported = ["cpu", "memory", "pods"];
    let asked: Map<String, Value> = reported
        .map(|name| (name.to_owned(), request(case.workload, name).into()))
        .into_iter()
        .collect();
    let free = reported.map(|name| (name.to_owned(), left.largest(name).into()));
    let free: Map<String, Value> = free.into_iter().collect();
    let refusal = Refusal::new(RefusalCode::RemoteFull).with("request", asked);
    Some(refusal.with("largestFree", free).with("source", source.as_str()))
}
