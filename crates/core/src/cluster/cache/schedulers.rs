//! Which schedulers there are, and which of them say nothing ("Silent schedulers" in docs/live-view.md).
//!
//! A pod that no scheduler has spoken of takes room only if somebody is about to bind it. Anybody may write any name into
//! `spec.schedulerName`; that a scheduler has bound or refused a pod is what nobody else can write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::cache::entry::SchedulerKey;
use crate::model::pod_record::DEFAULT_SCHEDULER;
use crate::units::{Micros, Moment};

/// For how long a scheduler may say nothing while a pod waits for it that fits a node.
const SILENCE: Micros = Micros::from_secs(30);

/// How many schedulers are remembered. Beyond, the one that was heard of longest ago is forgotten.
const MAX_SCHEDULERS: usize = 32;

/// The schedulers that were heard of, and the pods that none has spoken of.
#[derive(Debug)]
pub(super) struct Schedulers {
    known: BTreeMap<Arc<str>, Scheduler>,
    /// Pods that fit a node and that no scheduler has spoken of, by the scheduler that is to take them.
    unreported: BTreeMap<Option<Arc<str>>, BTreeSet<SchedulerKey>>,
    /// Schedulers that are another case than at the last judgement.
    changed: BTreeSet<Arc<str>>,
}

#[derive(Debug, Clone)]
struct Scheduler {
    /// When it last bound or refused a pod.
    last_seen: Moment,
    /// Since when it says nothing while a pod waits for it that fits a node.
    quiet_since: Option<Moment>,
    /// When another first bound a pod since then. Until one has, the control plane may be down.
    outlived_since: Option<Moment>,
    /// Whether nobody expects it to bind a pod any more.
    is_silent: bool,
}

impl Scheduler {
    fn seen_at(at: Moment) -> Self {
        Self {
            last_seen: at,
            quiet_since: None,
            outlived_since: None,
            is_silent: false,
        }
    }
}

impl Default for Schedulers {
    /// The scheduler that every cluster comes with is there before it did anything.
    fn default() -> Self {
        let default = (Arc::from(DEFAULT_SCHEDULER), Scheduler::seen_at(Moment(i64::MIN)));
        Self {
            known: BTreeMap::from([default]),
            unreported: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }
}

impl Schedulers {
    /// What is known of schedulers, without any pods.
    pub(super) fn without_pods(&self) -> Self {
        let known = self.known.iter().map(|(name, scheduler)| {
            let scheduler = Scheduler {
                quiet_since: None,
                outlived_since: None,
                ..scheduler.clone()
            };
            (Arc::clone(name), scheduler)
        });
        Self {
            known: known.collect(),
            unreported: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    /// It has refused a pod; or a pod shows that it has bound it, who knows when.
    pub(super) fn observe(&mut self, name: &Arc<str>, now: Moment) {
        if !self.known.contains_key(name) {
            self.make_place();
            self.known.insert(Arc::clone(name), Scheduler::seen_at(now));
            self.changed.insert(Arc::clone(name));
        }
        let Some(scheduler) = self.known.get_mut(name) else {
            return;
        };
        scheduler.last_seen = scheduler.last_seen.max(now);
        scheduler.quiet_since = scheduler.quiet_since.map(|since| since.max(now));
        scheduler.outlived_since = None;
        if std::mem::take(&mut scheduler.is_silent) {
            self.changed.insert(Arc::clone(name));
        }
    }

    /// It has bound a pod.
    pub(super) fn bound(&mut self, name: &Arc<str>, now: Moment) {
        self.observe(name, now);
        let others = self.known.iter_mut().filter(|(other, _)| *other != name);
        for (_, other) in others.filter(|(_, other)| other.quiet_since.is_some()) {
            other.outlived_since.get_or_insert(now);
        }
    }

    fn make_place(&mut self) {
        if self.known.len() < MAX_SCHEDULERS {
            return;
        }
        let others = self.known.iter().filter(|(name, _)| &***name != DEFAULT_SCHEDULER);
        let oldest = others.min_by_key(|(name, scheduler)| (scheduler.last_seen, *name));
        if let Some(oldest) = oldest.map(|(name, _)| Arc::clone(name)) {
            self.known.remove(&oldest);
            self.changed.insert(oldest);
        }
    }

    /// Whether it is expected to bind the pods that name it.
    pub(super) fn is_expected(&self, name: Option<&Arc<str>>) -> bool {
        let scheduler = name.and_then(|name| self.known.get(name));
        scheduler.is_some_and(|scheduler| !scheduler.is_silent)
    }

    /// A pod that fits a node and that no scheduler has spoken of.
    pub(super) fn add_unreported(&mut self, scheduler: Option<&Arc<str>>, key: SchedulerKey) {
        self.unreported.entry(scheduler.cloned()).or_default().insert(key);
    }

    /// The reverse of [`Self::add_unreported`].
    pub(super) fn remove_unreported(&mut self, scheduler: Option<&Arc<str>>, key: &SchedulerKey) {
        let scheduler = scheduler.cloned();
        if let Some(keys) = self.unreported.get_mut(&scheduler) {
            keys.remove(key);
            if keys.is_empty() {
                self.unreported.remove(&scheduler);
            }
        }
    }

    /// When each that may be given up is: it has said nothing for so long, all of it while another went on.
    fn ends(&self) -> impl Iterator<Item = (&Arc<str>, Moment)> {
        self.known.iter().filter_map(|(name, scheduler)| {
            let since = scheduler.outlived_since.filter(|_| !scheduler.is_silent)?;
            Some((name, since.after(SILENCE)))
        })
    }

    /// When the next one is given up, as far as is known now.
    pub(super) fn next_change(&self) -> Option<Moment> {
        self.ends().map(|(_, end)| end).min()
    }

    /// Judges who is silent now. Returns the pods whose scheduler is another case than before.
    pub(super) fn judge(&mut self, now: Moment) -> Vec<SchedulerKey> {
        let ended = self.ends().filter(|(_, end)| *end <= now);
        let silent: Vec<_> = ended.map(|(name, _)| Arc::clone(name)).collect();
        for name in silent {
            if let Some(scheduler) = self.known.get_mut(&name) {
                scheduler.is_silent = true;
            }
            self.changed.insert(name);
        }
        let changed = std::mem::take(&mut self.changed).into_iter();
        let keys = changed.filter_map(|name| self.unreported.get(&Some(name)));
        keys.flatten().cloned().collect()
    }

    /// Every pod is in its state of now: from now on those count as quiet for which one waits.
    pub(super) fn settle(&mut self, now: Moment) {
        for (name, scheduler) in &mut self.known {
            let is_awaited = self.unreported.contains_key(&Some(Arc::clone(name)));
            scheduler.quiet_since = is_awaited.then(|| scheduler.quiet_since.unwrap_or(now));
            scheduler.outlived_since = scheduler.outlived_since.filter(|_| is_awaited);
        }
    }

    /// Schedulers for which pods wait in vain, `None` for all names that none has; whether each was ever heard of, and the number
    /// of pods.
    pub(super) fn silent(&self) -> impl Iterator<Item = (Option<&str>, bool, usize)> {
        let silent = self
            .unreported
            .iter()
            .filter(|(name, _)| !self.is_expected(name.as_ref()));
        silent.map(|(name, keys)| {
            let is_known = name.as_ref().is_some_and(|name| self.known.contains_key(name));
            (name.as_deref(), is_known, keys.len())
        })
    }
}
