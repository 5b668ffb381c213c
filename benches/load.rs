//! Measures edgeward over loopback TLS as a client sees it: the throughput of `/mutate` and of a constant handler on the same
//! server, and the latency at 1,000 reviews a second (open loop). The view has 1,000 nodes and 10,000 pods and is live;
//! reservations are on. Run `cargo bench --bench load`; docs/design/performance.md has the result.
//!
//! Client and server share the machine. Read the throughput as a lower bound, and compare the ratio.

// A measurement that cannot be set up should stop.
#![allow(clippy::unwrap_used)]

#[path = "cluster/differences.rs"]
mod differences;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use edgeward::testkit::{
    Answer, Clock, LogLimit, Metrics, Readiness, Responder, Reviewer, Route, ServeOptions, Server, Service, Source,
    install_crypto_provider, tokio_runtime,
};
use edgeward_cluster::cache::{Cache, Kind};
use edgeward_cluster::engine::SharedState;
use edgeward_decision::config::Config;
use edgeward_decision::keys::Keys;
use edgeward_decision::model::link::{Link, LinkState};
use edgeward_decision::model::site::SiteDefinition;
use edgeward_decision::placement::verdict::Reason;
use edgeward_decision::pod::Pod;
use edgeward_kube::node;
use edgeward_kube::units::{Micros, Moment, Permille};
use reqwest::Certificate;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::differences::Median;

const POD: &str = include_str!("pod.json");
const CONNECTIONS: usize = 16;
const CLOSED_LOOP: Duration = Duration::from_secs(2);
const ROUNDS: usize = 15;
const RATE: u32 = 1_000;
const OPEN_LOOP: Duration = Duration::from_secs(10);

struct Constant;

impl Answer for Constant {
    fn review(&self, _body: &[u8], responder: &Responder) -> anyhow::Result<Vec<u8>> {
        responder.take();
        Ok(
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}"#
                .to_vec(),
        )
    }

    fn no_opinion(&self, body: &[u8], _why: Reason, _elapsed: Duration) -> anyhow::Result<Vec<u8>> {
        self.review(body, &Responder::start())
    }
}

fn main() {
    install_crypto_provider();
    tokio_runtime().unwrap().block_on(measure());
}

async fn measure() {
    let metrics = Arc::new(Metrics::new());
    let clock = Clock::start();
    let many_metrics = Arc::new(Metrics::new());
    let many = start(reviewer(clock, &many_metrics, 128), clock, &many_metrics).await;
    let reviewer = start(reviewer(clock, &metrics, 1), clock, &metrics).await;
    let constant = start(Constant, clock, &Arc::new(Metrics::new())).await;

    println!("Resident with the servers and both views: {} MiB\n", resident() >> 20);
    println!("| closed loop, {CONNECTIONS} connections | reviews a second |");
    println!("|---|---:|");
    // The two handlers alternate, so that a disturbance affects both.
    let mut rates = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for turn in [round % 2, (round + 1) % 2] {
            let server = [&reviewer, &constant][turn];
            rates[turn].push(throughput(server).await);
        }
    }
    for (name, rates) in ["`/mutate`", "constant"].into_iter().zip(&rates) {
        println!("| {name} | {:.0} |", Median::of(rates.iter().copied()));
    }
    let ratios = rates[0].iter().zip(&rates[1]).map(|(ours, theirs)| ours / theirs);
    println!("| ratio | {:.2} |\n", Median::of(ratios));

    println!("| open loop, {RATE} a second | p50 | p99 | p99.9 | server side, p99 | p99.9 |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, server, metrics, keep_alive) in [
        ("connections kept alive", &reviewer, &metrics, true),
        ("a connection for each", &reviewer, &metrics, false),
        ("connections kept alive, 128 clouds", &many, &many_metrics, true),
    ] {
        let before = durations(metrics);
        let mut times = latency(server, keep_alive).await;
        let after = durations(metrics);
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        let client = [0.5, 0.99, 0.999].map(|share| format!("{:.1?}", at(share))).join(" | ");
        let server = [0.99, 0.999].map(|share| below(share, &before, &after)).join(" | ");
        println!("| {name} | {client} | {server} |");
    }
}

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Cumulative review counts by the upper bound of their duration in seconds.
fn durations(metrics: &Metrics) -> Vec<(f64, f64)> {
    let page = metrics.encode();
    let buckets = page
        .lines()
        .filter_map(|line| line.strip_prefix("edgeward_review_duration_seconds_bucket{le=\""));
    let read = |line: &str| {
        let (bound, count) = line.split_once("\"} ").unwrap();
        (bound.parse().unwrap_or(f64::INFINITY), count.parse().unwrap())
    };
    buckets.map(read).collect()
}

/// The bound below which this share of the reviews between two readings stayed.
fn below(share: f64, before: &[(f64, f64)], after: &[(f64, f64)]) -> String {
    let counts = before
        .iter()
        .zip(after)
        .map(|((bound, before), (_, after))| (bound, after - before));
    let all = counts.clone().next_back().unwrap().1;
    let (bound, _) = counts.clone().find(|(_, count)| *count >= share * all).unwrap();
    format!("≤ {} µs", bound * 1e6)
}

async fn start(answer: impl Answer, clock: Clock, metrics: &Arc<Metrics>) -> Server {
    Server::start(ServeOptions {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        health_listen: (Ipv4Addr::LOCALHOST, 0).into(),
        client_ca: None,
        tls: Source::SelfSigned {
            service: Service {
                name: "edgeward".into(),
                namespace: "edgeward-system".into(),
            },
            directory: None,
        },
        routes: vec![Route::of_reviews(Arc::new(answer))],
        pages: Default::default(),
        metrics: Arc::clone(metrics),
        readiness: Readiness::default(),
        clock,
        shutdown_delay: Duration::ZERO,
        tasks: vec![],
    })
    .await
    .unwrap()
}

/// A reviewer with a live view of 1,000 nodes and 10,000 pods, with free capacity at the edge, and with a node in each cloud.
/// Reservations expire after 0.1 s instead of being confirmed.
fn reviewer(clock: Clock, metrics: &Arc<Metrics>, clouds: usize) -> Reviewer {
    let names: Vec<_> = (0..clouds).map(|i| format!("cloud-{i}")).collect();
    let mut sites = vec![Arc::new(SiteDefinition::edge())];
    sites.extend(names.iter().map(|name| Arc::new(SiteDefinition::of_cluster(name))));
    let config = Config {
        sites,
        telemetry_ttl: Micros::from_secs(3_600),
        reservation_ttl: Micros::from_millis(100),
        ..Config::default()
    };
    let keys = Keys::new("example.io");
    let mut cache = Cache::new(Arc::new(config.clone()));
    let now = clock.moment();
    for i in 0..1_000 {
        let node = json!({
            "metadata": {"name": format!("edge-{i}"), "labels": {"node.role/edge": "true", "zone": format!("{}", i % 3)}},
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "400Gi", "pods": "500"},
                       "conditions": [{"type": "Ready", "status": "True"}]},
        });
        cache.apply_node(node::from_json(&node.to_string()).unwrap());
    }
    for name in &names {
        let labels = json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": name});
        let node = json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": "640", "memory": "2560Gi", "ephemeral-storage": "400Gi", "pods": "5000"},
                       "conditions": [{"type": "Ready", "status": "True"}]},
        });
        cache.apply_node(node::from_json(&node.to_string()).unwrap());
    }
    let template: Value = serde_json::from_str(POD).unwrap();
    for i in 0..10_000 {
        let mut pod = template.clone();
        pod["metadata"]["uid"] = format!("uid-{i}").into();
        pod["metadata"]["namespace"] = "shop".into();
        pod["spec"]["nodeName"] = format!("edge-{}", i % 1_000).into();
        let text = pod.to_string();
        let record = edgeward_cluster::pod_record::record(&Pod::from_json(&text).unwrap(), &keys)
            .unwrap()
            .unwrap();
        cache.apply_pod(&record, None, clock.now());
    }
    Kind::REQUIRED
        .into_iter()
        .for_each(|kind| cache.record_event(kind, now));
    for name in &names {
        let link = Link {
            state: LinkState::Healthy,
            rtt: Some(Micros(25_000)),
            loss: Some(Permille(0)),
            as_of: Moment(i64::MAX / 2),
            ..Link::default()
        };
        cache.apply_link(name, Some(link));
    }
    let shared = SharedState::new(Arc::new(cache.publish(now)), config.reservation_ttl);
    // The cache stays alive for the whole run, as it does in the watch task.
    std::mem::forget(cache);
    Reviewer {
        policies: Arc::default(),
        config: Arc::new(ArcSwap::from_pointee(config)),
        shared: Arc::new(shared),
        metrics: Arc::clone(metrics),
        clock,
        log_limit: LogLimit::new(clock),
    }
}

/// The controller's uid in the pod. Each pod gets another uid, because a controller whose reservations expire gets no more of
/// them.
const CONTROLLER: &str = "ce9c2f2b-6a2b-4a36-a1f6-5a3e5d2b8f10";

fn body() -> String {
    let pod: Value = serde_json::from_str(POD).unwrap();
    assert_eq!(POD.matches(CONTROLLER).count(), 1);
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "shop",
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "object": pod,
        },
    })
    .to_string()
}

fn client(server: &Server, keep_alive: bool) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().http1_only();
    let authority = Certificate::from_pem(server.ca_bundle.as_deref().unwrap().as_bytes()).unwrap();
    let idle = if keep_alive { CONNECTIONS } else { 0 };
    builder
        .tls_certs_only([authority])
        .pool_max_idle_per_host(idle)
        .build()
        .unwrap()
}

async fn post(client: &reqwest::Client, url: &str, body: &str, number: u32) {
    let request = client
        .post(url)
        .header("content-type", "application/json")
        .body(body.replace(CONTROLLER, &format!("ce9c2f2b-6a2b-4a36-a1f6-{number:012x}")));
    let response = request.send().await.unwrap().error_for_status().unwrap();
    response.bytes().await.unwrap();
}

fn url(server: &Server) -> Arc<str> {
    format!("https://{}/mutate?timeout=1s", server.admission).into()
}

/// Reviews per second with one review in flight on every connection.
async fn throughput(server: &Server) -> f64 {
    let (url, body): (_, Arc<str>) = (url(server), body().into());
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for connection in 0..CONNECTIONS as u32 {
        let (client, url, body) = (client(server, true), Arc::clone(&url), Arc::clone(&body));
        tasks.spawn(async move {
            let mut count = 0_u32;
            while start.elapsed() < CLOSED_LOOP {
                post(&client, &url, &body, connection << 24 | count).await;
                count += 1;
            }
            count
        });
    }
    let counts = tasks.join_all().await;
    f64::from(counts.into_iter().sum::<u32>()) / start.elapsed().as_secs_f64()
}

/// Latency of each review. Each one starts when it is due, whether or not earlier reviews are answered.
async fn latency(server: &Server, keep_alive: bool) -> Vec<Duration> {
    let (url, body): (_, Arc<str>) = (url(server), body().into());
    let client = client(server, keep_alive);
    let mut tasks = JoinSet::new();
    let start = tokio::time::Instant::now();
    let step = Duration::from_secs(1) / RATE;
    for i in 0..RATE * OPEN_LOOP.as_secs() as u32 {
        let due = start + step * i;
        let (client, url, body) = (client.clone(), Arc::clone(&url), Arc::clone(&body));
        tasks.spawn(async move {
            // The timer wakes within a millisecond. Its delay is not the server's.
            tokio::time::sleep_until(due).await;
            let begun = Instant::now();
            post(&client, &url, &body, i).await;
            begun.elapsed()
        });
    }
    tasks.join_all().await
}
