//! Pod creation time with edgeward and with other webhooks. Dry runs go over one connection, one after another, in alternating
//! blocks.

use std::fmt;

use edgeward_harness::clients;
use edgeward_harness::prelude::*;
use edgeward_harness::process::{memory_kib, processor_time};
use http::Request;
use kube::Client;

use crate::contenders::Contender;
use crate::differences::Median;
use crate::peers;

const ROUNDS: usize = 10;

/// Turns that each contender takes in a round. The first creation of a turn does not count, because it sees the state that the
/// previous contender left.
const TURNS: usize = 15;
const TURN: usize = 21;
const COUNTED: usize = TURNS * (TURN - 1);

/// Creations in the block that compares processor time and memory.
const BLOCK: usize = 1_000;

struct Block {
    /// The webhook process's CPU time and peak memory in KiB; `None` without a process.
    process: Option<(Duration, u64)>,
    api_server: Duration,
    /// Mean duration of the webhook's calls in seconds, as the API server measures it.
    call: Option<f64>,
}

/// A small pod with an SLO. Every contender gets the same one.
fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "create-", "annotations": {
            "slo.example.io/class": "latency", "slo.example.io/latencyTargetMs": "200", "slo.example.io/priority": "8",
        }},
        "spec": {"containers": [{
            "name": "app", "image": "registry.example/app:1",
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
        }]},
    })
}

e2e! { "create::beside_others", Machine, beside_others }
/// Compares no webhook, a policy, constant webhooks, edgeward as installed, and the peers that the environment names. Each
/// sends the pods of its namespace to the edge.
fn beside_others(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = Contender::edgeward(fixture)?;
    let with_policies = edgeward.with_policies(fixture)?;
    let mut contenders = vec![
        Contender::none(fixture)?,
        Contender::policy(fixture)?,
        Contender::constant(fixture)?,
        Contender::annotating(fixture)?,
        edgeward,
        with_policies,
    ];
    for (start, dir) in peers::given() {
        contenders.push(start(fixture, &dir)?);
    }
    for contender in &contenders {
        contender.is_in_force(fixture, &pod())?;
    }
    let client = fixture.runtime.block_on(clients::client(fixture))?;
    let mut halves = vec![Vec::new(); contenders.len()];
    for round in 0..ROUNDS {
        for (halves, half) in halves.iter_mut().zip(round_of(fixture, &client, &contenders)?) {
            halves.push(half);
        }
        println!("round {} of {ROUNDS}", round + 1);
    }
    print_differences(&contenders, &halves)?;
    println!("\n| {BLOCK} dry runs | call of the webhook, mean | CPU | CPU of the API server | resident, at most |");
    println!("|---|---:|---:|---:|---:|");
    for contender in &contenders {
        println!("| {} | {} |", contender.name, block(fixture, &client, contender)?);
    }
    Ok(())
}

/// The median creation time of this round in milliseconds, for each contender.
fn round_of(fixture: &Fixture<'_>, client: &Client, contenders: &[Contender<'_>]) -> Result<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(COUNTED); contenders.len()];
    for turn in 0..TURNS {
        for place in 0..contenders.len() {
            // The order alternates in direction and starts with a different contender each time.
            let place = if turn.is_multiple_of(2) {
                place
            } else {
                contenders.len() - 1 - place
            };
            let at = (place + turn) % contenders.len();
            let created = create(client, &contenders[at].namespace, TURN);
            let created = fixture.runtime.block_on(created)?;
            times[at].extend_from_slice(&created[1..]);
        }
    }
    let half = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    Ok(times.into_iter().map(half).collect())
}

/// Creates many pods in a row to measure what processes use.
fn block(fixture: &Fixture<'_>, client: &Client, contender: &Contender<'_>) -> Result<Block> {
    let api_server = fixture.process_of("kube-apiserver")?;
    let calls_before = calls(fixture)?;
    let before = (
        processor_time(api_server)?,
        contender.pid.map(processor_time).transpose()?,
    );
    fixture.runtime.block_on(create(client, &contender.namespace, BLOCK))?;
    let process = match contender.pid.zip(before.1) {
        Some((pid, before)) => Some((processor_time(pid)? - before, memory_kib(pid, "VmHWM")?)),
        None => None,
    };
    let api_server = processor_time(api_server)? - before.0;
    let calls_after = calls(fixture)?;
    let call = contender.webhook.map(|webhook| {
        let sum = |calls: &BTreeMap<String, [f64; 2]>, at: usize| -> f64 {
            let of = calls.iter().filter(|(name, _)| name.contains(webhook));
            of.map(|(_, call)| call[at]).sum()
        };
        let [seconds, count] = [0, 1].map(|at| sum(&calls_after, at) - sum(&calls_before, at));
        seconds / count
    });
    Ok(Block {
        process,
        api_server,
        call,
    })
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = || "–".to_owned();
        let call = self
            .call
            .map_or_else(none, |seconds| format!("{:.2} ms", seconds * 1e3));
        let (time, memory) = match self.process {
            Some((time, kib)) => (format!("{:.2} s", time.as_secs_f64()), format!("{} MiB", kib / 1024)),
            None => (none(), none()),
        };
        write!(f, "{call} | {time} | {:.2} s | {memory}", self.api_server.as_secs_f64())
    }
}

/// Durations of `count` dry-run creations.
async fn create(client: &Client, namespace: &str, count: usize) -> Result<Vec<Duration>> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let pod = pod().to_string();
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let request = Request::post(&path).header("content-type", "application/json");
        let request = request.body(pod.clone().into_bytes())?;
        let begun = Instant::now();
        client.request_text(request).await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Total seconds and number of calls of each webhook so far, from the API server's metrics.
fn calls(fixture: &Fixture<'_>) -> Result<BTreeMap<String, [f64; 2]>> {
    const METRIC: &str = "apiserver_admission_webhook_admission_duration_seconds_";
    let page = fixture.kubectl.run(&["get", "--raw", "/metrics"], "")?.stdout;
    let mut calls: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for line in page.lines() {
        let Some(rest) = line.strip_prefix(METRIC) else {
            continue;
        };
        let at = match rest.split('{').next() {
            Some("sum") => 0,
            Some("count") => 1,
            _ => continue,
        };
        let name = rest.split_once("name=\"").and_then(|(_, rest)| rest.split('"').next());
        let value = rest.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        let (name, value) = name.zip(value).with_context(|| line.to_owned())?;
        calls.entry(name.to_owned()).or_default()[at] += value;
    }
    Ok(calls)
}

fn print_differences(contenders: &[Contender<'_>], halves: &[Vec<f64>]) -> Result<()> {
    let of = |name: &str| contenders.iter().position(|contender| contender.name == name);
    let (none, constant) = of("no webhook")
        .zip(of("constant webhook in Go"))
        .context("those that all are compared with")?;
    let over = |at: usize, other: usize| {
        let rounds = halves[at].iter().zip(&halves[other]);
        match at == other {
            true => String::new(),
            false => format!("{:+.2}", Median::of(rounds.map(|(one, other)| one - other))),
        }
    };
    println!("\n| {ROUNDS} rounds of {COUNTED} dry runs | p50, ms | over none | over the constant webhook |");
    println!("|---|---:|---:|---:|");
    for (at, contender) in contenders.iter().enumerate() {
        let half = Median::of(halves[at].iter().copied());
        let (none, constant) = (over(at, none), over(at, constant));
        println!("| {} | {half:.2} | {none} | {constant} |", contender.name);
    }
    Ok(())
}
