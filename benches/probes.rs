//! How much longer than the link a WAN probe says it is: probes of loopback, whose own round trip is some tens of
//! microseconds, on an idle machine and beside busy threads. `cargo bench --bench probes`; docs/wan.md has the result.

#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use edgeward::instruments::metrics::Metrics;
use edgeward::platform::clock::Clock;
use edgeward::sources::probe::Probers;
use edgeward_core::cluster::wan::WINDOW;
use edgeward_core::config::{Config, Probing};
use edgeward_core::model::endpoint::Endpoint;
use edgeward_core::model::link::Thresholds;
use edgeward_core::units::Micros;
use tokio::net::TcpListener;
use tokio::sync::watch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cores = thread::available_parallelism()?.get();
    println!("µs over loopback, {WINDOW} probes 50 ms apart, {cores} cores\n");
    println!("| busy threads a core | endpoint | p50 | p95 | mean | jitter | lost |");
    println!("|---:|---|---:|---:|---:|---:|---:|");
    for busy in [0, 1, 4] {
        let stop = Arc::new(AtomicBool::new(false));
        let load: Vec<_> = (0..busy * cores).map(|_| spin(&stop)).collect();
        // As many workers as there are cores.
        tokio::runtime::Runtime::new()?.block_on(measure(busy))?;
        stop.store(true, Ordering::Relaxed);
        load.into_iter().for_each(|thread| drop(thread.join()));
    }
    Ok(())
}

fn spin(stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut count = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            count = black_box(count.wrapping_add(1));
        }
    })
}

async fn measure(busy: usize) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let tcp = format!("tcp://{}", listener.local_addr()?);
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });

    let thresholds = watch::Sender::new(Thresholds::from(&Config::default()));
    let probers = Probers::new(thresholds.subscribe(), Clock::start(), Arc::new(Metrics::new()));
    let endpoints = vec![Endpoint::parse("icmp://127.0.0.1")?, Endpoint::parse(&tcp)?];
    let probing = Probing {
        probes: 20,
        period: Micros::from_secs(1),
        ..Probing::default()
    };
    let probing = tokio::spawn(probers.prober("loopback", endpoints, probing).run());
    tokio::time::sleep(Duration::from_millis(50) * WINDOW as u32 + Duration::from_secs(1)).await;
    probing.abort();

    for (endpoint, statistics) in &probers.links().borrow()["loopback"].endpoints {
        let kind = if endpoint.port() == 0 { "icmp" } else { "tcp" };
        let lost = statistics.loss.unwrap_or_default().0;
        let Some(found) = statistics.round_trips else {
            println!("| {busy} | {kind} | – | – | – | – | {lost} ‰ |");
            continue;
        };
        let [p50, p95, mean, jitter] = [found.p50, found.p95, found.mean, found.jitter].map(|time| time.0);
        println!("| {busy} | {kind} | {p50} | {p95} | {mean} | {jitter} | {lost} ‰ |");
    }
    Ok(())
}
