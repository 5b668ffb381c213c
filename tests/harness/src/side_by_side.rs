//! Decides which tests run at the same time, by what each needs.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// At most nodes. The test shares a cluster and the default domain with others.
    Nodes,
    /// Nodes and a domain of its own. The leader of a domain releases every pod behind its gate and counts all undecided ones.
    Domain,
    /// A cluster. The test installs edgeward or its custom resources, which affect every edgeward there.
    Cluster,
    Peering,
    Machine,
}

const SHARING: usize = 8;

pub(crate) const CLUSTERS: usize = 3;

/// Starts tests as soon as no running test conflicts, in the order of their rows.
pub(crate) struct SideBySide {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    waiting: Vec<(&'static str, Needs)>,
    running: Vec<Needs>,
    clusters: Vec<usize>,
}

pub(crate) struct Turn<'s> {
    all: &'s SideBySide,
    needs: Needs,
    pub(crate) cluster: Option<usize>,
}

impl SideBySide {
    pub(crate) fn of(waiting: Vec<(&'static str, Needs)>) -> Self {
        let state = State {
            waiting,
            running: Vec::new(),
            clusters: (0..CLUSTERS).rev().collect(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn turn(&self, name: &str, needs: Needs) -> Turn<'_> {
        let is_late = |state: &mut State| !state.lets(name, needs);
        let state = self.changed.wait_while(self.state(), is_late);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.waiting.retain(|(waiting, _)| *waiting != name);
        state.running.push(needs);
        let cluster = match needs.lane() {
            Lane::Cluster => state.clusters.pop(),
            Lane::Shared | Lane::Peered | Lane::Alone => None,
        };
        drop(state);
        // The next test may start as well.
        self.changed.notify_all();
        Turn {
            all: self,
            needs,
            cluster,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lets(&self, name: &str, needs: Needs) -> bool {
        let mut equals = self.waiting.iter().filter(|(_, other)| other.lane() == needs.lane());
        let is_first = equals.next().is_some_and(|(first, _)| *first == name);
        let running = |lane: Lane| self.running.iter().filter(|other| other.lane() == lane).count();
        is_first
            && match needs.lane() {
                Lane::Shared => running(Lane::Shared) < SHARING && running(Lane::Alone) == 0,
                Lane::Cluster => !self.clusters.is_empty() && running(Lane::Alone) == 0,
                // The programs between the clusters would distort the figures of tests that run alone.
                Lane::Peered => {
                    running(Lane::Peered) + running(Lane::Alone) == 0 && self.wait_only(|other| other != Lane::Alone)
                }
                Lane::Alone => {
                    self.running.is_empty() && self.wait_only(|other| matches!(other, Lane::Alone | Lane::Peered))
                }
            }
    }

    fn wait_only(&self, are: impl Fn(Lane) -> bool) -> bool {
        self.waiting.iter().all(|(_, other)| are(other.lane()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    Shared,
    Cluster,
    Peered,
    Alone,
}

impl Needs {
    fn lane(self) -> Lane {
        match self {
            Self::Nodes | Self::Domain => Lane::Shared,
            Self::Cluster => Lane::Cluster,
            Self::Peering => Lane::Peered,
            Self::Machine => Lane::Alone,
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.all.state();
        if let Some(at) = state.running.iter().position(|needs| *needs == self.needs) {
            state.running.swap_remove(at);
        }
        state.clusters.extend(self.cluster);
        drop(state);
        self.all.changed.notify_all();
    }
}
