//! Writes the Events on pods. Only the holder of the Lease writes. The other replicas keep their Events until another
//! holder has certainly written them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::engine::ObservedDecision;
use edgeward_kube::units::{Micros, Moment};
use kube::Client;
use tokio::sync::mpsc;

use super::create;
use super::decision::{PodEvent, events_of};
use crate::controllers::lease::Leadership;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::{EventResult, Metrics};
use crate::platform::clock::Clock;
use crate::platform::token_bucket::TokenBucket;

/// How long a replica without the Lease keeps an Event: twice as long as a change of leader takes.
const KEPT: Micros = Micros::from_secs(30);

/// The most Events that wait to be written, and the capacity of the channel.
const WAITING: usize = 4096;

/// How long an Event is retried while the API server does not accept it, and the pause before the next attempt.
const LATEST: Micros = Micros::from_secs(300);
const MOMENT: Duration = Duration::from_millis(500);

/// How many Events may be written in a burst, and the interval after which one more is allowed. A namespace has half
/// of that.
const BURST: u64 = 200;
const INTERVAL: Micros = Micros::from_millis(50);

/// The most token buckets. With this many, no Event is written until some buckets are full again.
const BUCKETS: usize = 1_000;

/// Accepts Events to be written. Clones feed the same recorder.
#[derive(Debug, Clone)]
pub struct Events {
    sender: mpsc::Sender<PodEvent>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Events {
    /// Records the Events about a decision that was seen on a pod. Never blocks: excess Events are dropped and
    /// counted.
    pub fn decided(&self, observed: &ObservedDecision) {
        for event in events_of(observed, self.clock.wall()) {
            self.record(event);
        }
    }

    /// Records an Event on a pod. Either every replica or only the leader may call this. Never blocks: excess Events
    /// are dropped and counted.
    pub fn record(&self, event: PodEvent) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.sender.try_send(event) {
            let labels = [event.reason.as_str(), EventResult::Dropped.as_str()];
            self.metrics.events.at(labels).inc();
        }
    }
}

/// Writes Events to the API server.
pub struct Recorder {
    told: mpsc::Receiver<PodEvent>,
    /// Each Event with the moment at which it was recorded.
    waiting: VecDeque<(PodEvent, Moment)>,
    budget: Budget,
    client: Client,
    clock: Clock,
    metrics: Arc<Metrics>,
    log_limit: LogLimit,
}

/// Token buckets that limit Events: one per namespace with recent Events, and the total under the empty name.
#[derive(Default)]
struct Budget(HashMap<Box<str>, TokenBucket>);

impl Budget {
    /// Takes a token for an Event of this namespace, if one is left.
    fn take(&mut self, namespace: &str, now: Moment) -> bool {
        // Dropping a full bucket changes nothing, because a new one is full as well.
        self.0.retain(|_, bucket| !bucket.is_full(now));
        let is_bounded = self.0.len() < BUCKETS;
        let mut take = |name: &str, burst, interval| {
            let bucket = self.0.entry(name.into());
            bucket.or_insert_with(|| TokenBucket::new(burst, interval)).take(now)
        };
        is_bounded && take(namespace, BURST / 2, INTERVAL.times(2)) && take("", BURST, INTERVAL)
    }
}

impl Recorder {
    /// Creates a recorder and the handle that feeds it.
    pub fn new(client: Client, clock: Clock, metrics: Arc<Metrics>) -> (Self, Events) {
        let (sender, told) = mpsc::channel(WAITING);
        let events = Events {
            sender,
            clock,
            metrics: Arc::clone(&metrics),
        };
        let recorder = Self {
            told,
            waiting: VecDeque::new(),
            budget: Budget::default(),
            client,
            clock,
            metrics,
            log_limit: LogLimit::new(clock),
        };
        (recorder, events)
    }

    /// Writes Events while this replica holds the Lease, and keeps them otherwise. Returns when all senders are gone.
    pub async fn run(mut self, leadership: Leadership) {
        loop {
            tokio::select! {
                () = leadership.gained() => {}
                () = self.keep() => return,
            }
            self.forget(self.clock.moment());
            if leadership.during(self.write()).await.is_some() {
                return;
            }
        }
    }

    /// Keeps recorded Events for a limited time.
    async fn keep(&mut self) {
        while let Some(event) = self.told.recv().await {
            self.take(event);
            self.forget(self.clock.moment());
        }
    }

    /// Writes the Events that wait, and new ones as they arrive.
    async fn write(&mut self) {
        loop {
            while let Ok(event) = self.told.try_recv() {
                self.take(event);
            }
            let now = self.clock.moment();
            let Some((event, since)) = self.waiting.front() else {
                match self.told.recv().await {
                    Some(event) => self.take(event),
                    None => return,
                }
                continue;
            };
            let result = match self.budget.take(&event.namespace, now) {
                true => create(&self.client, &event.event(), &self.log_limit).await,
                false => Some(EventResult::Dropped),
            };
            let is_late = now.since(*since) > LATEST;
            if let Some(result) = result.or(is_late.then_some(EventResult::Dropped)) {
                self.finish_first(result);
            } else {
                // The next Event may still be accepted.
                self.waiting.rotate_left(1);
                tokio::time::sleep(MOMENT).await;
            }
        }
    }

    fn take(&mut self, event: PodEvent) {
        if self.waiting.len() >= WAITING {
            self.finish_first(EventResult::Dropped);
        }
        self.waiting.push_back((event, self.clock.moment()));
    }

    fn finish_first(&mut self, result: EventResult) {
        if let Some((event, _)) = self.waiting.pop_front() {
            self.metrics.events.at([event.reason.as_str(), result.as_str()]).inc();
        }
    }

    /// Forgets the Events that another leader must have written by now.
    fn forget(&mut self, now: Moment) {
        let is_old = |(_, since): &mut (_, Moment)| now.since(*since) > KEPT;
        while self.waiting.pop_front_if(is_old).is_some() {}
    }
}

#[cfg(test)]
mod tests;
