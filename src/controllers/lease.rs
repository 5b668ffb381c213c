//! Leader election by a Lease in our own namespace. The holder does the work that only one replica may do.
//!
//! [`Election`] is the task that acquires and renews the Lease. Other tasks ask [`Leadership`]. See
//! `docs/design/leader.md`.

mod candidate;

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use arc_swap::ArcSwap;
use edgeward_kube::units::Moment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::api::entry::CommitError;
use kube::{Api, Client, Error};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::watch::watcher;
use candidate::Candidate;

/// Annotation of the Lease: what the leader knows of pods that are better elsewhere, as JSON. `edgeward moves` reads it.
pub const MOVES: &str = "edgeward.io/moves";

/// Timeout of one request, and of one attempt to hand over. Two requests fit into the time for which the Lease is
/// certainly ours.
const REQUESTS: Duration = Duration::from_secs(3);

/// Pause between renewals, and after a failed request or the read of a Lease with another holder.
const RENEWAL: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_secs(1);

/// How often handing over is tried before the Lease is left to expire. A renewal that was under way may fail the first
/// attempt.
const RELEASES: u32 = 3;

/// Whether this replica holds the Lease. Clones share the state.
#[derive(Debug, Clone)]
pub struct Leadership {
    held_until: watch::Receiver<Option<Moment>>,
    /// Each work that needs the Lease has a receiver.
    work: Arc<watch::Sender<()>>,
    /// What the leader's Lease says about moves.
    moves: Arc<ArcSwap<String>>,
    clock: Clock,
}

impl Leadership {
    pub(crate) fn new(clock: Clock) -> (watch::Sender<Option<Moment>>, Self) {
        let (sender, held_until) = watch::channel(None);
        let leadership = Self {
            held_until,
            work: Arc::default(),
            moves: Arc::default(),
            clock,
        };
        (sender, leadership)
    }

    /// Whether the Lease is certainly ours, by the monotonic clock. No other replica takes it before this turns
    /// false, even if the network fails. Costs one clock reading. Call it before each write.
    pub fn is_held(&self) -> bool {
        self.remaining().is_some()
    }

    /// Writes this text to the annotation [`MOVES`] of the Lease at the next renewal.
    pub fn note_moves(&self, text: String) {
        self.moves.store(Arc::new(text));
    }

    /// Waits until this replica holds the Lease. Cancel-safe.
    pub async fn gained(&self) {
        let is_held = |until: &Option<Moment>| until.is_some_and(|until| until > self.clock.moment());
        if self.held_until.clone().wait_for(is_held).await.is_err() {
            // The election has ended, so the process is about to exit.
            std::future::pending().await
        }
    }

    /// Runs `work` once this replica holds the Lease. Returns `None` if the Lease was lost before the work ended. The
    /// Lease is not handed over before the work has stopped.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.gained().await;
        let _at_work = self.work.subscribe();
        tokio::select! {
            biased;
            () = self.lost() => None,
            done = work => Some(done),
        }
    }

    /// Waits until the Lease is not certainly ours any more. It was lost, could not be renewed in time, or this
    /// process is about to end.
    async fn lost(&self) {
        let mut held_until = self.held_until.clone();
        while let Some(remaining) = self.remaining() {
            tokio::select! {
                Ok(()) = held_until.changed() => {}
                () = tokio::time::sleep(remaining) => {}
            }
        }
    }

    /// How long the Lease is certainly ours.
    fn remaining(&self) -> Option<Duration> {
        let until = (*self.held_until.borrow())?;
        let remaining = until.since(self.clock.moment());
        Some(Duration::from_micros(remaining.0)).filter(|remaining| !remaining.is_zero())
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
        let election = Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            candidate: Candidate::new(format!("{pod}_{}", uuid::Uuid::new_v4())),
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
    /// false at once, all work [during](Leadership::during) leadership must stop, and the Lease is written without a
    /// holder. If work outlasts the Lease, there is no handover. Ends within 20 s after `resign`.
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
            let acquired = self.acquire().await;
            if let (Err(error), false) = (&acquired, self.is_failing) {
                let (lease, error) = (&self.name, format!("{error:#}"));
                tracing::warn!(lease, error, "the Lease cannot be read or written; retrying");
            }
            self.is_failing = acquired.is_err();
            self.publish();
            tokio::time::sleep(acquired.unwrap_or(RETRY)).await;
        }
    }

    /// Reads the Lease, and writes it if it is or may become ours. Returns the pause before the next time.
    async fn acquire(&mut self) -> anyhow::Result<Duration> {
        let mut lease = in_time(self.leases.entry(&self.name)).await??.or_insert(Lease::default);
        let has_existed = lease.get().metadata.resource_version.is_some();
        if let Some((before, now)) = self.candidate.went_back(lease.get()) {
            tracing::warn!(
                before,
                now,
                "the history of the API server went back; listing everything again"
            );
            watcher::list_again();
        }
        let now = self.clock.now();
        if let Some(lapses_in) = self.candidate.acquire(lease.get_mut(), now) {
            return Ok(RETRY.min(Duration::from_micros(lapses_in.0)));
        }
        let moves = self.leadership.moves.load_full();
        if !moves.is_empty() || lease.get().metadata.annotations.is_some() {
            let annotations = lease.get_mut().metadata.annotations.get_or_insert_default();
            annotations.insert(MOVES.to_owned(), moves.to_string());
        }
        let sent = self.clock.moment();
        match in_time(lease.commit(&PostParams::default())).await? {
            Ok(()) => self.candidate.acquired(sent),
            // Somebody else wrote or deleted the Lease in between. A create that finds nothing misses its namespace.
            Err(CommitError::Save(Error::Api(status))) if status.code == 409 || (status.code == 404 && has_existed) => {
                return Ok(RETRY);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(RENEWAL)
    }

    fn publish(&mut self) {
        self.held_until.send_replace(self.candidate.held_until);
        let is_held = self.leadership.is_held();
        if std::mem::replace(&mut self.is_leader, is_held) == is_held {
            return;
        }
        self.metrics.leader.set(is_held.into());
        let (lease, identity) = (&self.name, &self.candidate.identity);
        match is_held {
            true => tracing::info!(lease, identity, "holds the Lease"),
            false => tracing::warn!(lease, identity, "does not hold the Lease any more"),
        }
    }

    async fn hand_over(&self) {
        let lapses = self.leadership.remaining();
        self.held_until.send_replace(None);
        self.metrics.leader.set(0);
        let Some(lapses) = lapses else { return };
        if timeout(lapses, self.leadership.work.closed()).await.is_err() {
            tracing::warn!(lease = self.name, "work goes on, so the Lease is not handed over");
            return;
        }
        for _ in 0..RELEASES {
            if let Ok(Ok(())) = in_time(self.release()).await {
                return tracing::info!(lease = self.name, "released the Lease");
            }
        }
    }

    async fn release(&self) -> anyhow::Result<()> {
        let mut lease = self.leases.entry(&self.name).await?.or_insert(Lease::default);
        if self.candidate.release(lease.get_mut(), self.clock.now()) {
            lease.commit(&PostParams::default()).await?;
        }
        Ok(())
    }
}

/// Awaits the answer to a request for as long as [`REQUESTS`].
async fn in_time<T>(request: impl Future<Output = T>) -> anyhow::Result<T> {
    let answer = timeout(REQUESTS, request).await;
    answer.map_err(|_| anyhow!("no answer within {} s", REQUESTS.as_secs()))
}

#[cfg(test)]
mod tests;
