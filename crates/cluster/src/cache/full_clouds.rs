//! Clouds that are full according to their own scheduler (docs/design/room.md).
//!
//! A virtual node promises room. The status of a pod that is bound to it shows what the cluster behind it reports. A pod
//! that finds no room there is a witness for a bound. From that bound on, the site is full while it has a witness and for
//! some time longer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Cache;
use crate::cache::entry::PodEntry;
use edgeward_decision::model::remote_room::{Bound, FullFrom, MAX_BOUNDS};
use edgeward_kube::units::{Micros, Moment};

/// How long a site stays full after the last witness is gone.
const FULL_TIME: Micros = Micros::from_secs(60);

/// How long a bound pod may have no container status before it closes its site to its controller.
pub(super) const LONGEST_SILENCE: Micros = Micros::from_secs(15);

/// The bounds from which on a site is full.
#[derive(Debug, Default)]
pub(super) struct Bounds(BTreeMap<Arc<Bound>, Witnesses>);

#[derive(Debug, Default)]
struct Witnesses {
    pods: u64,
    /// When the site is no longer full, if there is no witness left. The next publication sets it.
    until: Option<Moment>,
}

impl Bounds {
    /// Adds a witness, or takes it back if `by` is -1.
    pub(super) fn change(&mut self, bound: &Arc<Bound>, by: i64) {
        let witnesses = self.0.entry(Arc::clone(bound)).or_default();
        witnesses.pods = witnesses.pods.saturating_add_signed(by);
        witnesses.until = None;
    }

    /// The bounds without their witnesses.
    pub(super) fn without_witnesses(mut self) -> Self {
        self.0.values_mut().for_each(|witnesses| witnesses.pods = 0);
        self
    }

    /// When the first bound without a witness ends.
    pub(super) fn next_end(&self) -> Option<Moment> {
        self.0.values().filter_map(|witnesses| witnesses.until).min()
    }

    /// The bounds as of now that decisions compare with. None covers another, because a bound comes before all bounds that
    /// it covers. Cost: a comparison of each bound with the returned ones.
    pub(super) fn as_of(&mut self, now: Moment) -> Vec<FullFrom> {
        self.0
            .retain(|_, witnesses| witnesses.until.is_none_or(|until| until > now));
        let mut full: Vec<FullFrom> = vec![];
        for (bound, witnesses) in &mut self.0 {
            let pods = witnesses.pods;
            if pods == 0 {
                witnesses.until.get_or_insert(now.after(FULL_TIME));
            }
            if let Some(known) = full.iter_mut().find(|known| known.bound.covers(bound)) {
                known.pods += pods;
            } else if full.len() < MAX_BOUNDS {
                let bound = Arc::clone(bound);
                full.push(FullFrom { bound, pods });
            }
        }
        full
    }
}

impl Cache {
    /// Handles a pod that has begun on its node: opens the site to its controller, and drops bounds without a witness that
    /// refuse its request.
    pub(super) fn observe_begun(&mut self, entry: &PodEntry) {
        let site = entry.node.and_then(|node| self.nodes.by_id.get(&node)?.site);
        if let Some(site) = site.map(|at| &mut self.sites[at]) {
            site.closed.runs(entry);
            let bounds = &mut site.full.0;
            bounds.retain(|bound, witnesses| witnesses.pods > 0 || !bound.refuses(&entry.request));
        }
    }
}
