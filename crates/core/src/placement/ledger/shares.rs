//! What namespaces keep from each other by reservations that nobody has confirmed.

use std::collections::BTreeMap;

use super::Reservation;
use crate::model::node::Share;

/// By site and namespace, the sum of the reservations within its share. None is of nothing. Equal after equal calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shares(BTreeMap<Box<str>, BTreeMap<Box<str>, Share>>);

impl Shares {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// What the namespace of this reservation would keep from others at its site if this were within its share, too: everything
    /// so many times over. Cost: two searches.
    pub(super) fn with(&self, reservation: &Reservation, times: u32) -> Share {
        let namespaces = self.0.get(&reservation.site);
        let sum = namespaces.and_then(|namespaces| namespaces.get(reservation.owner.namespace()));
        let mut with = Share::default();
        with.amounts.add(&reservation.amount, times);
        if let Some(sum) = sum {
            with.amounts.add(&sum.amounts, times);
        }
        with.pods = (1 + sum.map_or(0, |sum| sum.pods)).saturating_mul(times.into());
        with
    }

    /// This reservation is within the share of its namespace.
    pub(super) fn add(&mut self, reservation: &Reservation) {
        let (site, namespace) = (&reservation.site, reservation.owner.namespace());
        // Names are copied where they are new.
        let namespaces = match self.0.get_mut(site) {
            Some(namespaces) => namespaces,
            None => self.0.entry(site.clone()).or_default(),
        };
        let sum = match namespaces.get_mut(namespace) {
            Some(sum) => sum,
            None => namespaces.entry(namespace.into()).or_default(),
        };
        sum.amounts.add(&reservation.amount, 1);
        sum.pods += 1;
    }

    /// The reverse: it is confirmed, or came to nothing.
    pub(super) fn take(&mut self, reservation: &Reservation) {
        let Some(namespaces) = self.0.get_mut(&reservation.site) else {
            return;
        };
        let namespace = reservation.owner.namespace();
        if let Some(sum) = namespaces.get_mut(namespace) {
            sum.amounts = sum.amounts.less(&reservation.amount);
            sum.amounts.forget_zeros();
            sum.pods -= 1;
            if sum.pods == 0 {
                namespaces.remove(namespace);
            }
        }
        if namespaces.is_empty() {
            self.0.remove(&reservation.site);
        }
    }
}
