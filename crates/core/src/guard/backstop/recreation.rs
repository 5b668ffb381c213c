//! How often pods of one owner may be deleted to be created again.

use std::collections::HashMap;

use crate::guard::backstop::Candidate;
use crate::units::{Micros, Moment};

/// The time in which so many pods of an owner are deleted at most.
const WINDOW: Micros = Micros::from_secs(60);

/// As long as it becomes for an owner whose pods are placed no better.
const LONGEST: Micros = Micros::from_secs(3600);

/// Bounds, for each owner, how many of its pods are deleted in a time: a tenth of them, and one at least. When one is to be
/// deleted that came to be stuck since the time was last changed, it did not help, and the time doubles: an owner whose
/// pods never find a place loses a tenth of them in an hour in the end.
#[derive(Debug, Default)]
pub struct Recreation {
    owners: HashMap<(Box<str>, Box<str>), Owner>,
}

#[derive(Debug)]
struct Owner {
    window: Micros,
    /// When the first pod was deleted with this window. Not the last: of many that are stuck, some still wait from before
    /// while the successors of others are stuck again.
    begun: Moment,
    /// When pods of it were deleted, the newest last; never empty.
    deleted: Vec<Moment>,
}

impl Owner {
    fn last(&self) -> Moment {
        self.deleted.last().copied().unwrap_or(Moment(i64::MIN))
    }
}

impl Recreation {
    /// Whether this pod may be deleted: its owner creates another, and has not lost too many lately.
    pub fn allows(&self, candidate: &Candidate, now: Moment) -> bool {
        let most = usize::try_from(candidate.siblings / 10).unwrap_or(0).max(1);
        let lost = key(candidate).map(|owner| match self.owners.get(&owner) {
            Some(owner) => {
                let counts = |at: &&Moment| now.since(**at) < owner.window;
                owner.deleted.iter().filter(counts).count()
            }
            None => 0,
        });
        lost.is_some_and(|lost| lost < most)
    }

    /// This pod is deleted.
    pub fn record_deletion(&mut self, candidate: &Candidate, now: Moment) {
        // Whoever was left alone for so long begins again.
        self.owners
            .retain(|_, owner| now.since(owner.last()) < owner.window.times(2));
        let Some(key) = key(candidate) else { return };
        let owner = self.owners.entry(key).or_insert(Owner {
            window: WINDOW,
            begun: now,
            deleted: vec![],
        });
        if candidate.since > owner.begun {
            owner.window = owner.window.times(2).min(LONGEST);
            owner.begun = now;
        }
        let window = owner.window;
        owner.deleted.retain(|at| now.since(*at) < window);
        owner.deleted.push(now);
    }
}

fn key(candidate: &Candidate) -> Option<(Box<str>, Box<str>)> {
    let workload = &candidate.pod.workload;
    let uid = workload.controller.as_deref().filter(|_| candidate.pod.is_replaced)?;
    Some(((&*workload.namespace).into(), uid.into()))
}

#[cfg(test)]
mod tests;
