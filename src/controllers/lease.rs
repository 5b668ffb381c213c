//! Leader election by a Lease in our own namespace. The holder does the work that only one replica may do.
//!
//! [`Election`] is the task that acquires and renews the Lease. Other tasks ask [`Leadership`]. See
//! `docs/design/leader.md`.

mod candidate;

use std::sync::Arc;
use std::time::Duration;

use edgeward_core::units::{Moment, Permille};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client, Error};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::platform::random;
use crate::sources::watcher;
use candidate::{Candidate, Step};

/// Timeout of one request. Two requests fit into the time for which the Lease is certainly ours.
const REQUEST: Duration = Duration::from_secs(3);

/// The most that pauses are stretched, in permille, so that replicas do not send requests at the same time.
const JITTER: u32 = 250;

/// How many requests handing over may take before the Lease is left to expire. It needs one write. If a request was
/// under way at the time, it also needs a read and a second write.
const RELEASES: u32 = 3;

/// Whether this replica holds the Lease. Clones share the state.
#[derive(Debug, Clone)]
pub struct Leadership {
    held_until: watch::Receiver<Option<Moment>>,
    terms: Arc<watch::Sender<()>>,
    clock: Clock,
}

impl Leadership {
    pub(crate) fn new(clock: Clock) -> (watch::Sender<Option<Moment>>, Self) {
        let (sender, held_until) = watch::channel(None);
        let terms = Arc::default();
        let leadership = Self {
            held_until,
            terms,
            clock,
        };
        (sender, leadership)
    }

    /// Whether the Lease is certainly ours, by the monotonic clock. No other replica takes it before this turns
    /// false, even if the network fails. Costs one clock reading. Call it before each write.
    pub fn is_held(&self) -> bool {
        self.remaining().is_some()
    }

    /// Waits until this replica holds the Lease. The Lease is not handed over while a [`Term`] exists, so drop the
    /// term as soon as the work has stopped. Cancel-safe.
    pub async fn acquired(&self) -> Term {
        let mut held_until = self.held_until.clone();
        loop {
            held_until.mark_unchanged();
            let _open = self.terms.subscribe();
            if self.is_held() {
                let leadership = self.clone();
                return Term { leadership, _open };
            }
            drop(_open);
            if held_until.changed().await.is_err() {
                // The election has ended, so the process is about to exit.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Runs `work` once this replica holds the Lease. Returns `None` if the Lease was lost before the work ended.
    pub async fn during(&self, work: impl Future<Output = ()>) -> Option<()> {
        let term = self.acquired().await;
        tokio::select! {
            () = work => Some(()),
            () = term.over() => None,
        }
    }

    /// How long the Lease is certainly ours.
    fn remaining(&self) -> Option<Duration> {
        let until = (*self.held_until.borrow())?;
        let remaining = until.since(self.clock.moment());
        Some(Duration::from_micros(remaining.0)).filter(|remaining| !remaining.is_zero())
    }
}

/// A period in which work that needs the Lease may go on.
#[derive(Debug)]
pub struct Term {
    leadership: Leadership,
    _open: watch::Receiver<()>,
}

impl Term {
    /// Whether the Lease is still certainly ours; see [`Leadership::is_held`].
    pub fn is_held(&self) -> bool {
        self.leadership.is_held()
    }

    /// Waits until the Lease is not certainly ours any more. It was lost, could not be renewed in time, or this
    /// process is about to end. Cancel-safe.
    pub async fn over(&self) {
        let mut held_until = self.leadership.held_until.clone();
        loop {
            held_until.mark_unchanged();
            let Some(remaining) = self.leadership.remaining() else {
                return;
            };
            // An election that has ended renews no more, and the Lease stays ours until it expires.
            let changed = async {
                if held_until.changed().await.is_err() {
                    std::future::pending().await
                }
            };
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(remaining) => {}
            }
        }
    }
}

/// Acquires the Lease and renews it.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    candidate: Candidate,
    held_until: watch::Sender<Option<Moment>>,
    leadership: Leadership,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// Leadership as logged last.
    is_leader: bool,
    /// Whether the last request failed. Only the first failure of a series is logged.
    is_failing: bool,
}

impl Election {
    /// Creates a candidate for the Lease of this name. Its identity is the pod's name with a random suffix, so a
    /// restarted container is another candidate.
    pub fn new(client: Client, namespace: &str, name: &str, clock: Clock, metrics: Arc<Metrics>) -> (Self, Leadership) {
        let (held_until, leadership) = Leadership::new(clock);
        let pod = std::env::var("HOSTNAME").unwrap_or_else(|_| name.to_owned());
        let identity = format!("{pod}_{}", uuid::Uuid::new_v4());
        let election = Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            candidate: Candidate::new(namespace.to_owned(), name.to_owned(), identity),
            held_until,
            leadership: leadership.clone(),
            clock,
            metrics,
            is_leader: false,
            is_failing: false,
        };
        (election, leadership)
    }

    /// Runs the election from `begin` to `resign`, then hands the Lease over. For that, [`Leadership::is_held`] turns
    /// false at once, every [`Term`] must end, and the Lease is written without a holder. If a term outlasts the
    /// Lease, there is no handover. Ends within 20 s after `resign`.
    pub async fn run(mut self, begin: impl Future<Output = ()>, resign: impl Future<Output = ()>) {
        let mut resign = std::pin::pin!(resign);
        tokio::select! {
            biased;
            () = &mut resign => return,
            () = begin => {}
        }
        tokio::select! {
            () = resign => {}
            () = self.campaign() => {}
        }
        self.hand_over().await;
    }

    async fn campaign(&mut self) {
        loop {
            let now = self.clock.now();
            match self.candidate.step(now) {
                Step::Wait(until) => {
                    let held_until = self.candidate.held_until().filter(|held| *held > now.moment);
                    let until = held_until.map_or(until, |held| held.min(until));
                    self.clock.reach(Some(until)).await;
                }
                step => self.make(step).await,
            }
            self.publish();
        }
    }

    /// Makes a request and records its result.
    async fn make(&mut self, step: Step) {
        let is_replacing = matches!(&step, Step::Write(lease) if lease.metadata.resource_version.is_some());
        let params = PostParams::default();
        let sent = self.clock.moment();
        let (candidate, jitter) = (&mut self.candidate, jitter());
        let request = async {
            match &step {
                Step::Wait(_) => Ok(()),
                Step::Read => {
                    let lease = self.leases.get_opt(&self.name).await?;
                    candidate.observe(lease, self.clock.moment(), jitter);
                    Ok(())
                }
                Step::Write(lease) => {
                    let lease = match is_replacing {
                        true => self.leases.replace(&self.name, &params, lease).await?,
                        false => self.leases.create(&params, lease).await?,
                    };
                    candidate.written(lease, sent, jitter);
                    Ok(())
                }
            }
        };
        let error = match timeout(REQUEST, request).await {
            Ok(Ok(())) => {
                self.is_failing = false;
                if let Some((before, now)) = self.candidate.went_back() {
                    tracing::warn!(
                        before,
                        now,
                        "the history of the API server went back; listing everything again"
                    );
                    watcher::list_again();
                }
                return;
            }
            Ok(Err(Error::Api(status))) if status.code == 409 || (status.code == 404 && is_replacing) => {
                self.candidate.conflict();
                return;
            }
            Ok(Err(error)) => format!("{:#}", anyhow::Error::from(error)),
            Err(_) => format!("no answer within {} s", REQUEST.as_secs()),
        };
        self.candidate.failed(self.clock.moment(), jitter);
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(
                lease = self.name,
                error,
                "the Lease cannot be read or written; retrying"
            );
        }
    }

    fn publish(&mut self) {
        self.held_until.send_replace(self.candidate.held_until());
        let is_held = self.leadership.is_held();
        if std::mem::replace(&mut self.is_leader, is_held) == is_held {
            return;
        }
        self.metrics.leader.set(is_held.into());
        let (lease, identity) = (&self.name, self.candidate.identity());
        match is_held {
            true => tracing::info!(lease, identity, "holds the Lease"),
            false => tracing::warn!(lease, identity, "does not hold the Lease any more"),
        }
    }

    async fn hand_over(&mut self) {
        let lapses = self.leadership.remaining();
        self.held_until.send_replace(None);
        self.metrics.leader.set(0);
        let Some(lapses) = lapses else { return };
        if timeout(lapses, self.leadership.terms.closed()).await.is_err() {
            tracing::warn!(lease = self.name, "work goes on, so the Lease is not handed over");
            return;
        }
        for _ in 0..RELEASES {
            let step = match self.candidate.released(self.clock.now()) {
                Some(lease) => Step::Write(Box::new(lease)),
                None if self.candidate.knows_nothing() => Step::Read,
                None => break,
            };
            self.make(step).await;
        }
        tracing::info!(lease = self.name, "released the Lease");
    }
}

fn jitter() -> Permille {
    Permille(random() as u32 % JITTER)
}

#[cfg(test)]
mod tests;
