//! Who writes the Events on pods: the holder of the Lease. The others keep what they would have written until it is sure
//! that a holder has.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use edgeward_core::units::{Micros, Moment};
use edgeward_core::wire::pod::ObservedDecision;
use kube::Client;
use tokio::sync::mpsc;

use super::create;
use super::decision::{PodEvent, events_of};
use crate::controllers::lease::Leadership;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::{EventResult, Metrics};
use crate::platform::clock::Clock;
use crate::platform::token_bucket::TokenBucket;

/// How long a replica that does not lead keeps an Event: twice as long as it takes until another leads.
const KEPT: Micros = Micros::from_secs(30);

/// How many Events may wait to be written, and how many may be told at once.
const WAITING: usize = 4096;

/// For how long an Event is tried that the API server puts off, and how long is waited each time before the next is written.
const LATEST: Micros = Micros::from_secs(300);
const MOMENT: Duration = Duration::from_millis(500);

/// How many Events are written at once, and after which time one more. A namespace has half of that.
const BURST: u64 = 200;
const INTERVAL: Micros = Micros::from_millis(50);

/// The most buckets: beyond, no Event is written until some are full again.
const BUCKETS: usize = 1_000;

/// Where it is told what is to be written. Clones tell the same recorder.
#[derive(Debug, Clone)]
pub struct Events {
    sender: mpsc::Sender<PodEvent>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Events {
    /// A decision was seen on a pod. Never blocks: what is too much is dropped and counted.
    pub fn decided(&self, observed: &ObservedDecision) {
        for event in events_of(observed, self.clock.wall()) {
            self.record(event);
        }
    }

    /// Something happened to a pod; every replica may tell of it, or the leader alone. Never blocks: what is too much is
    /// dropped and counted.
    pub fn record(&self, event: PodEvent) {
        if let Err(mpsc::error::TrySendError::Full(event)) = self.sender.try_send(event) {
            self.metrics
                .events
                .at([event.reason.as_str(), EventResult::Dropped.as_str()])
                .inc();
        }
    }
}

/// Writes Events.
pub struct Recorder {
    told: mpsc::Receiver<PodEvent>,
    /// With the moment at which it was told.
    waiting: VecDeque<(PodEvent, Moment)>,
    budget: Budget,
    client: Client,
    clock: Clock,
    metrics: Arc<Metrics>,
    log_limit: LogLimit,
}

/// How many Events may be written: in each namespace that had some lately, and in all, under the empty name.
#[derive(Default)]
struct Budget(HashMap<Box<str>, TokenBucket>);

impl Budget {
    /// Takes a token for an Event of this namespace, if there is one.
    fn take(&mut self, namespace: &str, now: Moment) -> bool {
        // A full bucket is as good as a new one.
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
    /// A recorder, and where it is told.
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

    /// Writes while the Lease is ours, and keeps what it is told otherwise, until nobody can tell it anything.
    pub async fn run(mut self, leadership: Leadership) {
        loop {
            let term = tokio::select! {
                term = leadership.acquired() => term,
                () = self.keep() => return,
            };
            self.forget(self.clock.moment());
            tokio::select! {
                biased;
                () = term.over() => {}
                () = self.write() => return,
            }
        }
    }

    /// Keeps what it is told, for a while.
    async fn keep(&mut self) {
        while let Some(event) = self.told.recv().await {
            self.take(event);
            self.forget(self.clock.moment());
        }
    }

    /// Writes what is there, and what it is told.
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
                // What is wrong with this one may not be with the next.
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

    /// What has waited so long was written by another.
    fn forget(&mut self, now: Moment) {
        while self
            .waiting
            .pop_front_if(|(_, since)| now.since(*since) > KEPT)
            .is_some()
        {}
    }
}

#[cfg(test)]
mod tests;
