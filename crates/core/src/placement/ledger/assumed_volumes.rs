//! Where volumes will be made that are not made yet: with the pods that were placed a moment ago.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::constraints::{Requirement, Term, VolumeAffinity};
use crate::model::site::SiteDefinition;
use crate::model::volumes::{VolumeClaim, Volumes, Whereabouts};
use crate::model::workload::Workload;
use crate::recent::Recent;
use crate::units::Moment;

/// Volume claims without a volume whose pods were placed, by namespace and name, each with the nodes of its site. After a minute
/// kube-scheduler has chosen a node, and the claim says so, or no pod has followed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AssumedVolumes(Recent<[Arc<str>; 2], VolumeAffinity, 60, 10_000>);

impl AssumedVolumes {
    /// A pod was placed at this site: the volumes of its claims that have none will be made there. One that is made for its pod alone
    /// goes with it, and says nothing to another. Cost: a few searches for each claim.
    pub(crate) fn assume(&mut self, workload: &Workload<'_>, volumes: &Volumes, site: &SiteDefinition, now: Moment) {
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

    /// The workload with the nodes on which the volumes of its claims will be that have none; `None` where nothing is known beside
    /// `located`. Cost: a search for each such claim, and a copy where something is.
    pub(in crate::placement) fn locate<'a>(&self, located: &Workload<'a>, now: Moment) -> Option<Workload<'a>> {
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
                // In the order of the claims, by which a volume is known again.
                workload.constraints.volumes.insert(volumes_before, nodes);
            }
            let claim = assumed.as_ref().map_or(claim, |workload| &workload.volume_claims[at]);
            volumes_before += usize::from(matches!(claim.data, Whereabouts::AtVolume(_)));
        }
        assumed
    }

    /// Forgets what is too old to count; whether there was any.
    pub(super) fn expire(&mut self, now: Moment) -> bool {
        std::iter::from_fn(|| self.0.take_ended(now)).count() > 0
    }

    /// When the next is too old.
    pub(super) fn next_expiry(&self) -> Option<Moment> {
        self.0.next_end()
    }

    fn nodes(&self, namespace: &str, claim: &VolumeClaim<'_>, now: Moment) -> Option<VolumeAffinity> {
        let key = [namespace, claim.name.as_deref()?].map(Arc::<str>::from);
        self.0.get(&key, now).cloned()
    }
}

/// What the nodes of the site carry.
fn nodes_of(site: &SiteDefinition) -> VolumeAffinity {
    let text = |text: &str| Cow::Owned(text.to_owned());
    let is = |(key, value): (&str, &str)| Requirement::on_label(text(key), Cow::Borrowed("In"), vec![text(value)]);
    Arc::new(vec![Term {
        expressions: site.selector().map(is).collect(),
        fields: vec![],
    }])
}
