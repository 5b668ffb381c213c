//! Where volumes that do not exist yet will be made: at the sites of the pods that were just placed.

use std::sync::Arc;

use crate::model::site::SiteDefinition;
use crate::model::volumes::{VolumeClaim, Volumes, Whereabouts};
use crate::model::workload::Workload;
use crate::recent::Recent;
use edgeward_kube::constraints::{Requirement, Term, VolumeAffinity};
use edgeward_kube::units::Moment;

/// Unbound volume claims of placed pods, by namespace and name, with the nodes of the pod's site. An entry lasts a minute.
/// By then, kube-scheduler has chosen a node, which the claim names, or no pod has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssumedVolumes(Recent<[Arc<str>; 2], VolumeAffinity, 60, 10_000>);

impl AssumedVolumes {
    /// Records that a pod is placed at this site, where the volumes of its unbound claims will be made. Skips ephemeral
    /// claims, because no other pod can use them. Cost: a few searches for each claim.
    pub fn assume(&mut self, workload: &Workload<'_>, volumes: &Volumes, site: &SiteDefinition, now: Moment) {
        let is_unbound = |claim: &&VolumeClaim<'_>| {
            let (data, _) = volumes.locate(&workload.namespace, claim);
            !claim.is_ephemeral && matches!(data, Whereabouts::OfClass(_))
        };
        let mut nodes = None;
        for name in workload
            .volume_claims
            .iter()
            .filter(is_unbound)
            .filter_map(|claim| claim.name.as_deref())
        {
            let nodes = Arc::clone(nodes.get_or_insert_with(|| nodes_of(site)));
            let key = [&*workload.namespace, name].map(Arc::<str>::from);
            self.0.insert(key, nodes, now);
        }
    }

    /// The workload with the nodes where the volumes of its unbound claims will be made; `None` if nothing is recorded
    /// about them. Cost: a search for each such claim, and a copy if anything is recorded.
    pub(crate) fn locate<'a>(&self, located: &Workload<'a>, now: Moment) -> Option<Workload<'a>> {
        let mut assumed: Option<Workload<'a>> = None;
        let mut volumes_before = 0;
        for (at, claim) in located.volume_claims.iter().enumerate() {
            let nodes = match &claim.data {
                Whereabouts::OfClass(class) if !claim.is_ephemeral => {
                    self.nodes(&located.namespace, claim, now).map(|nodes| (class, nodes))
                }
                _ => None,
            };
            if let Some((class, nodes)) = nodes {
                let workload = assumed.get_or_insert_with(|| located.clone());
                workload.volume_claims[at].data = Whereabouts::AtVolume(Some(class.clone()));
                // Volumes have the order of the claims, which tells which is which.
                workload.constraints.volumes.insert(volumes_before, nodes);
            }
            let claim = assumed.as_ref().map_or(claim, |workload| &workload.volume_claims[at]);
            volumes_before += usize::from(matches!(claim.data, Whereabouts::AtVolume(_)));
        }
        assumed
    }

    /// Drops entries that have expired, and returns whether there were any.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        self.0.expire(now)
    }

    /// When the next entry expires.
    pub(super) fn next_expiry(&self) -> Option<Moment> {
        self.0.next_end()
    }

    fn nodes(&self, namespace: &str, claim: &VolumeClaim<'_>, now: Moment) -> Option<VolumeAffinity> {
        let key = [namespace, claim.name.as_deref()?].map(Arc::<str>::from);
        self.0.get(&key, now).cloned()
    }
}

/// Matches the nodes of the site by its selector.
fn nodes_of(site: &SiteDefinition) -> VolumeAffinity {
    Arc::new(vec![Term {
        expressions: site
            .selector()
            .map(|(key, value)| Requirement::is(key, value))
            .collect(),
        fields: vec![],
    }])
}
