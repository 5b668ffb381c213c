//! What open reservations take together, on a node and at a site, so that a decision need not look at each.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::{Entry, Reservation};
use crate::model::node::{AssumedPods, NodeId, Share};
use crate::resources::Amounts;

/// By site and by whom it counts for, how many reservations ask for the same. None of nothing. Equal after equal calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sums(BTreeMap<Box<str>, BTreeMap<CountsFor, Requests>>);

type Requests = HashMap<Amounts, u32, BuildHasherDefault<DefaultHasher>>;

/// Which reviews a reservation counts for, and how many times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum CountsFor {
    /// Nobody has confirmed it: all, once for every replica.
    All,
    /// It releases a held pod: all, once.
    AllOnce,
    /// It is beyond the share of its namespace: those of this namespace, once for every replica.
    Namespace(Box<str>),
    /// It is confirmed: those that read a snapshot before this revision, once.
    Before(u64),
}

impl CountsFor {
    fn of(entry: &Entry) -> Self {
        match entry.shown_in {
            Some(revision) => Self::Before(revision),
            None if entry.is_beyond_share => Self::Namespace(entry.reservation.owner.namespace().into()),
            None if entry.reservation.releases.is_some() => Self::AllOnce,
            None => Self::All,
        }
    }

    /// How many times for a review by this namespace that reads the snapshot of `revision`.
    fn times(&self, revision: u64, namespace: &str, replicas: u32) -> u32 {
        match self {
            Self::All => replicas,
            Self::AllOnce => 1,
            Self::Namespace(own) if **own == *namespace => replicas,
            Self::Before(shown_in) if *shown_in > revision => 1,
            Self::Namespace(_) | Self::Before(_) => 0,
        }
    }
}

/// The open reservations on one node. Equal after equal calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OnNode {
    entries: Vec<Entry>,
    /// What those take together that count for all.
    all: Share,
    /// The same of the others; none of nothing.
    others: Vec<(CountsFor, Share)>,
}

impl OnNode {
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.add(&entry);
        self.entries.push(entry);
    }

    /// Takes out those that are not `kept`, and returns them. Cost: a pass.
    pub(super) fn retain(&mut self, kept: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let gone: Vec<Entry> = self.entries.extract_if(.., |entry| !kept(entry)).collect();
        gone.iter().for_each(|entry| self.subtract(entry));
        gone
    }

    /// Takes out the first one that `is_meant`.
    pub(super) fn take(&mut self, is_meant: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let at = self.entries.iter().position(is_meant)?;
        let entry = self.entries.swap_remove(at);
        self.subtract(&entry);
        Some(entry)
    }

    /// The node has another id from now on.
    pub(super) fn move_to(&mut self, node: NodeId) {
        self.entries.iter_mut().for_each(|entry| entry.reservation.node = node);
    }

    /// What is taken of it in a review by this namespace that reads the snapshot of `revision`: sums, each so many times over. Cost:
    /// as many as there are ways to count.
    pub(super) fn taken<'l>(
        &'l self,
        revision: u64,
        namespace: &'l str,
        replicas: u32,
    ) -> impl Iterator<Item = (&'l Share, u32)> {
        let all = (self.all.pods > 0).then_some((&self.all, replicas));
        let others = self.others.iter().filter_map(move |(key, share)| {
            let times = key.times(revision, namespace, replicas);
            (times > 0).then_some((share, times))
        });
        all.into_iter().chain(others)
    }

    fn add(&mut self, entry: &Entry) {
        let sum = match CountsFor::of(entry) {
            CountsFor::All => &mut self.all,
            key => {
                let found = self.others.iter().position(|(other, _)| *other == key);
                let at = found.unwrap_or_else(|| {
                    self.others.push((key, Share::default()));
                    self.others.len() - 1
                });
                &mut self.others[at].1
            }
        };
        sum.amounts.add(&entry.reservation.amount, 1);
        sum.pods += 1;
    }

    fn subtract(&mut self, entry: &Entry) {
        let key = CountsFor::of(entry);
        let other = self.others.iter_mut().find(|(other, _)| *other == key);
        let sum = match (&key, other) {
            (CountsFor::All, _) => &mut self.all,
            (_, Some((_, sum))) => sum,
            (_, None) => return,
        };
        sum.amounts = sum.amounts.less(&entry.reservation.amount);
        sum.amounts.forget_zeros();
        sum.pods -= 1;
        self.others.retain(|(_, sum)| sum.pods > 0);
    }
}

impl Sums {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Cost: a few searches.
    pub(super) fn add(&mut self, entry: &Entry) {
        let Reservation { site, amount, .. } = &entry.reservation;
        // Names and amounts are copied where they are new.
        let groups = match self.0.get_mut(site) {
            Some(groups) => groups,
            None => self.0.entry(site.clone()).or_default(),
        };
        let requests = groups.entry(CountsFor::of(entry)).or_default();
        match requests.get_mut(amount) {
            Some(count) => *count += 1,
            None => drop(requests.insert(amount.clone(), 1)),
        }
    }

    /// The reverse.
    pub(super) fn take(&mut self, entry: &Entry) {
        let Reservation { site, amount, .. } = &entry.reservation;
        let Some(groups) = self.0.get_mut(site) else { return };
        let key = CountsFor::of(entry);
        if let Some(requests) = groups.get_mut(&key) {
            if let Some(count) = requests.get_mut(amount) {
                *count -= 1;
                if *count == 0 {
                    requests.remove(amount);
                }
            }
            if requests.is_empty() {
                groups.remove(&key);
            }
        }
        if groups.is_empty() {
            self.0.remove(site);
        }
    }

    /// All that is left counts for whoever reads a snapshot of this revision.
    pub(super) fn published(&mut self, revision: u64) {
        self.0.retain(|_, groups| {
            groups.retain(|key, _| !matches!(key, CountsFor::Before(shown_in) if *shown_in <= revision));
            !groups.is_empty()
        });
    }

    /// The pods of these at a site, as a review finds them. Cost: a few additions for each different request.
    pub(super) fn assumed(&self, site: &str, revision: u64, namespace: &str, replicas: u32) -> AssumedPods {
        let mut pods = AssumedPods::default();
        for (key, requests) in self.0.get(site).into_iter().flatten() {
            let times = key.times(revision, namespace, replicas);
            if times > 0 {
                let all = requests.iter();
                all.for_each(|(request, count)| pods.add(request, times.saturating_mul(*count)));
            }
        }
        pods
    }
}
