use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::*;
use crate::controllers::events::PodReason;
use crate::testkit::{api_server, failure};

/// Generous enough for a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// An API server that keeps the names of its Events.
#[derive(Clone, Default)]
struct Server {
    names: Arc<Mutex<HashSet<String>>>,
    /// The status code of every answer; `None` accepts requests.
    code: Arc<Mutex<Option<u16>>>,
}

impl Server {
    fn answer(&self, event: Value) -> (u16, Value) {
        let name = event["metadata"]["name"].as_str().unwrap().to_owned();
        match *self.code.lock().unwrap() {
            Some(code) => failure(code, ""),
            None if self.names.lock().unwrap().insert(name) => (201, event),
            None => failure(409, ""),
        }
    }

    fn names(&self) -> usize {
        self.names.lock().unwrap().len()
    }
}

/// A replica, the handle that feeds it, and whether it leads.
struct Replica {
    events: Events,
    metrics: Arc<Metrics>,
    leads: watch::Sender<Option<Moment>>,
}

impl Replica {
    fn start(server: &Server) -> Self {
        let server = server.clone();
        let client = api_server(move |_, _, event| std::future::ready(server.answer(event)));
        let (clock, metrics) = (Clock::start(), Arc::<Metrics>::default());
        let (recorder, events) = Recorder::new(client, clock, Arc::clone(&metrics));
        let (leads, leadership) = Leadership::new(clock);
        tokio::spawn(recorder.run(leadership));
        Self { events, metrics, leads }
    }

    fn lead(&self, leads: bool) {
        self.leads.send_replace(leads.then_some(Moment(i64::MAX)));
    }

    /// Waits until the metric counts this many Events with this result.
    async fn counts(&self, result: EventResult, expected: usize) {
        let sum = || {
            let page = self.metrics.encode();
            let label = format!("result=\"{}\"", result.as_str());
            let ours = page
                .lines()
                .filter(|line| line.starts_with("edgeward_events_total{") && line.contains(&label));
            ours.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
                .sum::<usize>()
        };
        let counted = async {
            while sum() < expected {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let within = timeout(BOUND, counted).await;
        assert_eq!((within.is_ok(), sum()), (true, expected), "{}", result.as_str());
    }
}

fn event(uid: &str) -> PodEvent {
    PodEvent {
        namespace: "shop".into(),
        name: "camera".into(),
        uid: uid.into(),
        reason: PodReason::PlacedCloud,
        decision: None,
        at: Timestamp::UNIX_EPOCH,
        note: "sent".to_owned(),
    }
}

#[tokio::test]
async fn next_leader_writes_events_missed_by_the_last() {
    let server = Server::default();
    let replicas = [Replica::start(&server), Replica::start(&server)];
    let tell = |uid: &str| replicas.iter().for_each(|replica| replica.events.record(event(uid)));
    replicas[0].lead(true);
    tell("first");
    replicas[0].counts(EventResult::Written, 1).await;
    replicas[0].lead(false);
    // There is no leader now.
    tell("second");
    replicas[1].lead(true);
    replicas[1].counts(EventResult::Written, 1).await;
    replicas[1].counts(EventResult::Duplicate, 1).await;
    assert_eq!(server.names(), 2);
}

#[tokio::test]
async fn refused_event_is_counted_and_later_events_are_written() {
    let server = Server::default();
    let replica = Replica::start(&server);
    *server.code.lock().unwrap() = Some(403);
    replica.lead(true);
    replica.events.record(event("refused"));
    replica.counts(EventResult::Refused, 1).await;
    *server.code.lock().unwrap() = None;
    replica.events.record(event("written"));
    replica.counts(EventResult::Written, 1).await;
}

#[tokio::test]
async fn events_beyond_the_burst_are_dropped_and_counted() {
    let server = Server::default();
    let replica = Replica::start(&server);
    let told = 10 * usize::try_from(BURST).unwrap();
    (0..told).for_each(|i| replica.events.record(event(&i.to_string())));
    replica.lead(true);
    let done = async {
        let all = || replica.metrics.encode().matches("edgeward_events_total{").count() == 2;
        while !all() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(BOUND, done).await.unwrap();
    let written = server.names();
    assert!(
        written >= usize::try_from(BURST / 2).unwrap() && written < told / 2,
        "{written}"
    );
}

#[test]
fn one_namespace_uses_at_most_half_of_the_event_budget() {
    let mut budget = Budget::default();
    let at = |seconds| Moment(0).after(Micros::from_secs(seconds));
    let mut taken = |namespace: &str, seconds| (0..10 * BURST).filter(|_| budget.take(namespace, at(seconds))).count();
    assert_eq!([taken("noisy", 0), taken("shop", 0)], [100, 100]);
    assert_eq!([taken("noisy", 1), taken("shop", 1)], [10, 10]);
    for namespace in 0..2 * BUCKETS {
        budget.take(&namespace.to_string(), at(2));
    }
    assert!(budget.0.len() <= BUCKETS + 1);
    assert!(!budget.take("shop", at(2)) && budget.take("shop", at(60)));
    assert_eq!(budget.0.len(), 2);
}

#[tokio::test]
async fn full_event_queue_drops_new_events() {
    let client = api_server(|_, _, _| std::future::pending());
    let metrics = Arc::<Metrics>::default();
    let (recorder, events) = Recorder::new(client, Clock::start(), Arc::clone(&metrics));
    (0..WAITING + 3).for_each(|i| events.record(event(&i.to_string())));
    let counted = r#"edgeward_events_total{reason="PlacedCloud",result="dropped"} 3"#;
    assert!(metrics.encode().contains(counted), "{}", metrics.encode());
    drop(recorder);
}

#[tokio::test]
async fn event_waiting_too_long_is_dropped() {
    let client = api_server(|_, _, _| std::future::pending());
    let (mut recorder, _events) = Recorder::new(client, Clock::start(), Arc::default());
    recorder.take(event("old"));
    let now = recorder.clock.moment();
    recorder.forget(now);
    assert_eq!(recorder.waiting.len(), 1);
    recorder.forget(now.after(KEPT).after(Micros(1)));
    assert_eq!(recorder.waiting.len(), 0);
}
