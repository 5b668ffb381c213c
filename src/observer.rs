//! The way of every input to the engine. Watches, probes and queries send [`Change`]s. The [`Observer`] feeds them to
//! the engine and lets it publish.

use std::sync::Arc;

use edgeward_cluster::backstop::BackstopReport;
use edgeward_cluster::cache::Kind;
use edgeward_cluster::engine::{Change, Effect, Engine};
use edgeward_cluster::moves::MovesReport;
use edgeward_cluster::queue::Plan;
use edgeward_kube::units::{Micros, Now};
use tokio::sync::{mpsc, watch as channel};

use crate::instruments::metrics::{Metrics, count};
use crate::platform::blocking::blocking;
use crate::platform::clock::Clock;

/// The shortest time between two publications, so that a burst of events becomes one snapshot.
const COALESCE: Micros = Micros::from_millis(20);

/// How many changes may wait for the next publication. Each holds the kept parts of a pod and of its decision.
/// Watches wait while the channel is full; 12,800 changes per second pass.
const BACKLOG: usize = 256;

/// Sender of changes, each with the time at which it was observed.
#[derive(Debug, Clone)]
pub struct Changes {
    sender: mpsc::Sender<(Now, Change)>,
    /// The clock by which changes are observed.
    pub clock: Clock,
}

impl Changes {
    /// Changes that go to this channel.
    pub fn to(sender: mpsc::Sender<(Now, Change)>, clock: Clock) -> Self {
        Self { sender, clock }
    }

    /// Sends a change. Waits while the observer is behind.
    pub async fn send(&self, change: Change) {
        // Without an observer, the process is ending.
        let _ = self.sender.send((self.clock.now(), change)).await;
    }

    /// Sends a change that may be dropped while the observer is behind.
    pub fn hint(&self, change: Change) {
        let _ = self.sender.try_send((self.clock.now(), change));
    }
}

/// Feeds changes and the time to the engine.
#[derive(Debug)]
pub struct Observer {
    changes: mpsc::Receiver<(Now, Change)>,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// The latest plan for gated pods.
    pub plans: channel::Sender<Arc<Plan>>,
    /// The latest candidates of the backstop.
    pub backstop_reports: channel::Sender<Arc<BackstopReport>>,
    /// The latest pods that may be moved.
    pub moves_reports: channel::Sender<Arc<MovesReport>>,
}

impl Observer {
    /// Creates an observer and the sender of its changes.
    pub fn new(clock: Clock, metrics: Arc<Metrics>) -> (Self, Changes) {
        let (sender, changes) = mpsc::channel(BACKLOG);
        let observer = Self {
            changes,
            clock,
            metrics,
            plans: channel::Sender::default(),
            backstop_reports: channel::Sender::default(),
            moves_reports: channel::Sender::default(),
        };
        (observer, Changes::to(sender, clock))
    }

    /// Feeds this engine until all senders are gone. Calls `then` with each effect; it must not block.
    pub async fn run(mut self, mut engine: Engine, mut then: impl FnMut(Effect)) {
        let mut published = self.clock.moment();
        loop {
            tokio::select! {
                () = self.clock.reach(engine.next_change()) => {}
                received = self.changes.recv() => {
                    let Some((at, change)) = received else {
                        return;
                    };
                    engine.apply(&change, at);
                }
            }
            // More changes wait for the publication in the channel. They would otherwise wake this task one by one.
            self.clock.reach(Some(published.after(COALESCE))).await;
            for _ in 0..BACKLOG {
                let Ok((at, change)) = self.changes.try_recv() else {
                    break;
                };
                engine.apply(&change, at);
            }
            published = self.clock.moment();
            engine = self.publish(engine, &mut then).await;
        }
    }

    /// Publishes and returns the engine. A plan may take a second: changes wait meanwhile, but the runtime's workers
    /// do not.
    async fn publish(&self, mut engine: Engine, then: &mut impl FnMut(Effect)) -> Engine {
        let now = self.clock.now();
        let (engine, publication) = blocking(move || {
            let publication = engine.publish(now);
            (engine, publication)
        })
        .await;
        if let Some(plan) = publication.plan {
            let age = plan.oldest.map(|since| now.moment.since(since));
            self.metrics.gated_pods.set(count(plan.gated));
            self.metrics
                .groups
                .at(["incomplete"])
                .set(count(plan.groups.incomplete));
            self.metrics.groups.at(["waiting"]).set(count(plan.groups.waiting));
            let oldest = age.map_or(0, |age| seconds_before(now, age));
            self.metrics.gated_oldest.set(oldest);
            self.plans.send_replace(Arc::new(plan));
        }
        if let Some(report) = publication.report {
            self.backstop_reports.send_replace(Arc::new(report));
        }
        if let Some(report) = publication.moves {
            self.moves_reports.send_replace(Arc::new(report));
        }
        let cache = engine.cache();
        self.metrics.cached_pods.set(count(cache.pods()));
        for kind in Kind::REQUIRED {
            if let Some(at) = cache.last_event(kind) {
                let heard = seconds_before(now, now.moment.since(at));
                self.metrics.watch_heard.at([kind.as_str()]).set(heard);
            }
        }
        publication.effects.into_iter().for_each(then);
        engine
    }
}

/// The wall-clock time `age` ago, in whole seconds since the Unix epoch.
fn seconds_before(now: Now, age: Micros) -> i64 {
    now.wall.as_second() - i64::try_from(age.0 / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use edgeward_cluster::engine::SharedState;

    use super::*;
    use crate::testkit::gate_ledger;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn planning_does_not_block_the_only_worker() {
        let shared = Arc::<SharedState>::default();
        let had_turn = gate_ledger(&shared);
        let engine = Engine::new(Arc::default(), shared);
        let (observer, changes) = Observer::new(Clock::start(), Arc::default());
        // Tasks run on the worker, but this function does not.
        tokio::spawn(observer.run(engine, |_| {}));
        changes.send(Change::WatchAlive(Kind::Nodes)).await;
        assert!(had_turn.await.unwrap());
    }
}
