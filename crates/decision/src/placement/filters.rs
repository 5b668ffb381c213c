//! Filters. Each looks at one site and may refuse it for the pod. A refusal gives the site a
//! [`Standing`](super::verdict::Standing), and the worst one counts.

pub(in crate::placement) mod group;
mod leaving;
pub(super) mod liqo;
pub(super) mod nodes;
mod pods;
mod room;
mod sites;
mod time;
pub(super) mod traits;
mod wan;

use crate::config::Config;
use crate::model::scores::ProfileScores;
use crate::model::slo::{Intent, Slo};
use crate::model::snapshot::Site;
use crate::model::workload::Workload;
use crate::placement::estimate::{self, Elsewhere};
use crate::placement::room::Room;
use crate::placement::score::SCORED;
use crate::placement::verdict::{Assessment, Refusal, Standing};
use edgeward_kube::units::{Micros, Now};

/// One decision: the pod, and everything that the filters read about it.
pub(super) struct Case<'c, 's> {
    pub(super) workload: &'c Workload<'c>,
    pub(super) intent: &'c Intent,
    pub(super) room: &'c Room<'s, 'c>,
    /// Sites with pods that the required pod affinity selects.
    pub(super) homes: Vec<&'s Site>,
    /// Live pods of the pod's group.
    pub(super) peers: Vec<group::Peer<'s>>,
    /// Processing times that were observed at any site.
    pub(super) elsewhere: Elsewhere<'s>,
    pub(super) config: &'c Config,
    pub(super) now: Now,
    /// Scores of the pod's performance profile.
    pub(super) profile: Option<&'s ProfileScores>,
}

type Filter = fn(&Case<'_, '_>, &Assessment<'_>) -> Option<Refusal>;

/// Every filter, in the order in which they run. None runs after a `Never` refusal.
const FILTERS: [Filter; 21] = [
    sites::not_in_sites,
    liqo::not_offloaded,
    nodes::no_usable_node,
    pods::pods_elsewhere,
    leaving::not_offloadable,
    traits::missing_trait,
    traits::lost_trait,
    traits::unreported_trait,
    wan::bad_link,
    wan::too_far,
    sites::not_in_neighbourhood,
    time::bandwidth_unknown,
    group::elsewhere,
    room::no_room,
    room::no_bandwidth,
    room::closed_to_controller,
    room::not_offered,
    room::full_behind_nodes,
    room::beyond_report,
    time::deadline_missed,
    time::latency_target_missed,
];

impl Case<'_, '_> {
    pub(super) fn slo(&self) -> &Slo {
        &self.intent.slo
    }

    /// Whether the view of the cluster is too old to send a pod to a cloud.
    pub(super) fn is_stale(&self) -> bool {
        self.room.snapshot.is_stale(self.config.telemetry_ttl, self.now.moment)
    }

    /// How long the pod has been gated; zero for a pod that is being created.
    pub(super) fn gated_for(&self) -> Micros {
        self.workload.gated_for.unwrap_or_default()
    }
}

/// Assesses every site for the pod, in the order of the snapshot. Cost: a pass over the nodes of each site, which ends at the
/// [`SCORED`]th that fits.
pub(super) fn assess<'s>(case: &Case<'_, 's>) -> Vec<Assessment<'s>> {
    let sites = &case.room.snapshot.sites;
    let mut found: Vec<_> = sites.iter().map(|site| assess_site(case, site)).collect();
    group::refuse(case, &mut found);
    found
}

fn assess_site<'s>(case: &Case<'_, 's>, site: &'s Site) -> Assessment<'s> {
    let mut assessment = unfiltered(case, site);
    for filter in FILTERS {
        let refusal = filter(case, &assessment);
        assessment.refusals.extend(refusal);
        if assessment.standing() == Standing::Never {
            break;
        }
    }
    assessment
}

/// The assessment that the filters read: the site's usable and fitting nodes, and the pod's time there.
fn unfiltered<'s>(case: &Case<'_, 's>, site: &'s Site) -> Assessment<'s> {
    let (workload, room) = (case.workload, case.room);
    // Optional traits and headroom depend on every node.
    let counts_all = workload.traits().is_some() || room.headroom.is_some();
    let most = if counts_all { usize::MAX } else { SCORED };
    let fitting: Vec<_> = nodes::fitting_nodes(workload, site, room).take(most).collect();
    // The other usable nodes are read only when the pod fits none.
    let usable = if fitting.is_empty() {
        nodes::usable_nodes(workload, site, room)
    } else {
        fitting.clone()
    };
    let by_headroom = fitting
        .iter()
        .filter(|node| room.needs_headroom(&workload.request, node));
    let missing_optional = traits::missing_optional(workload, site, &fitting);
    let profile = case.profile;
    let (far, missed_near) = group::distance(case, site);
    let siblings = if case.intent.spreads {
        room.pods_of_controller(workload, site)
    } else {
        0
    };
    let estimate = estimate::estimate(
        workload,
        case.slo(),
        site,
        !fitting.is_empty(),
        &case.elsewhere,
        case.config,
        case.now.moment,
    );
    Assessment {
        site,
        headroom: by_headroom.count(),
        is_trial: time::is_trial(case, site, &estimate),
        estimate,
        missing_optional,
        far,
        missed_near,
        siblings,
        score: profile.and_then(|profile| {
            let has_component = group::has_component(case, site);
            profile.score_of_pod(site.name(), missing_optional, has_component, case.now.moment)
        }),
        usable,
        fitting,
        refusals: vec![],
    }
}

#[cfg(test)]
mod tests;
