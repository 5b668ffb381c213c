//! Where volumes will be made that are not made yet: with the pods that were placed a moment ago.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::constraints::{Requirement, Term, VolumeAffinity};
use crate::model::site::SiteDefinition;
use crate::model::volumes::Whereabouts;
use crate::model::workload::Workload;
use crate::units::{Micros, Moment};

/// For how long a placement says where the volume of a claim will be. By then kube-scheduler has chosen a node, and the claim says so,
/// or no pod has followed.
const LASTS: Micros = Micros::from_secs(60);

/// The most claims that are kept. Pods with others are decided as if no other pod had their claim.
const MAX_CLAIMS: usize = 10_000;

/// Claims without a volume whose pods were placed, each with its site. Equal after equal calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::placement) struct AssumedVolumes {
    by_claim: BTreeMap<[Box<str>; 2], Assumed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Assumed {
    since: Moment,
    /// The nodes of the site.
    nodes: VolumeAffinity,
}

impl AssumedVolumes {
    /// Of nothing.
    pub(super) const fn new() -> Self {
        Self {
            by_claim: BTreeMap::new(),
        }
    }

    /// A pod was placed at this site: the volumes of its claims that have none will be made there. `located` has where its data is.
    /// Cost: a search for each such claim.
    pub(super) fn assume(&mut self, located: &Workload<'_>, site: &SiteDefinition, now: Moment) {
        let unbound = located
            .claims
            .iter()
            .filter(|claim| matches!(claim.data, Whereabouts::OfClass(_)));
        let names: Vec<_> = unbound.filter_map(|claim| claim.name.as_deref()).collect();
        if names.is_empty() || self.by_claim.len() + names.len() > MAX_CLAIMS {
            return;
        }
        let text = |text: &str| Cow::Owned(text.to_owned());
        let is = |(key, value): (&str, &str)| Requirement::on_label(text(key), Cow::Borrowed("In"), vec![text(value)]);
        let nodes = Arc::new(vec![Term {
            expressions: site.selector().map(is).collect(),
            fields: vec![],
        }]);
        for name in names {
            let key = [&*located.namespace, name].map(Box::from);
            let nodes = Arc::clone(&nodes);
            self.by_claim.insert(key, Assumed { since: now, nodes });
        }
    }

    /// The workload with the nodes on which the volumes of its claims will be that have none; `None` where nothing is known beside
    /// `located`. Cost: a search for each such claim, and a copy where something is.
    pub(in crate::placement) fn locate<'a>(&self, located: &Workload<'a>, now: Moment) -> Option<Workload<'a>> {
        if self.by_claim.is_empty() {
            return None;
        }
        let nodes_of = |claim: usize| {
            let claim = &located.claims[claim];
            let Whereabouts::OfClass(class) = &claim.data else {
                return None;
            };
            let key = [&*located.namespace, claim.name.as_deref()?].map(Box::from);
            let assumed = self.by_claim.get(&key).filter(|assumed| assumed.is_kept(now))?;
            Some((class.clone(), Arc::clone(&assumed.nodes)))
        };
        let mut assumed = None;
        for claim in 0..located.claims.len() {
            let Some((class, nodes)) = nodes_of(claim) else {
                continue;
            };
            let workload = assumed.get_or_insert_with(|| located.clone());
            workload.claims[claim].data = Whereabouts::AtVolume(Some(class));
            workload.constraints.volumes.push(nodes);
        }
        assumed
    }

    /// Forgets what is too old to count.
    pub(super) fn expire(&mut self, now: Moment) {
        self.by_claim.retain(|_, assumed| assumed.is_kept(now));
    }
}

impl Assumed {
    fn is_kept(&self, now: Moment) -> bool {
        now.since(self.since) <= LASTS
    }
}
