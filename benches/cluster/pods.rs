//! Time from the creation of the first Job until kube-scheduler has bound all 10,000 pods. The contenders take turns: edgeward
//! as installed in both kinds of namespace, the constant webhooks, no webhook, and the peers that are given.

use edgeward_harness::clients;
use edgeward_harness::clusters::in_another;
use edgeward_harness::decision::is_decided;
use edgeward_harness::metrics;
use edgeward_harness::prelude::*;
use edgeward_harness::process::processor_time;
use http::Request;
use kube::Client;

use crate::contenders::Contender;
use crate::differences::Median;
use crate::{fleet, peers};

const ROUNDS: usize = 3;
const NODES: usize = 200;
const JOBS: usize = 100;
const PODS_OF_A_JOB: usize = 100;
const PODS: usize = JOBS * PODS_OF_A_JOB;

/// Query interval for the number of bound pods.
const PAUSE: Duration = Duration::from_millis(250);

/// Contenders besides the peers.
const OWN: usize = 5;

const REST: [&str; 3] = ["etcd", "kube-controller-manager", "kube-scheduler"];

/// Measurements of one turn, in seconds.
struct Turn {
    name: &'static str,
    until_bound: f64,
    /// CPU time of the API server, of the webhook, of [`REST`] together, and of kwok.
    processors: [f64; 4],
}

e2e! { "pods::of_jobs", Machine, of_jobs }
/// Fails if edgeward left a pod undecided. Each turn has a cluster of its own. Deleting 10,000 pods takes longer than creating
/// them, and an edgeward that is not called would still watch the pods of the other contenders.
fn of_jobs(fixture: &Fixture<'_>) -> Result<()> {
    let contenders = OWN + peers::given().len();
    let mut turns: Vec<Vec<Turn>> = (0..contenders).map(|_| vec![]).collect();
    for round in 0..ROUNDS {
        for place in 0..contenders {
            let number = (place + round) % contenders;
            // In a shared cluster, pods of earlier turns would be extra work for the slower contenders.
            let turn = in_another(fixture, "of_jobs", false, |fixture| turn(fixture, number))?;
            let Turn {
                name,
                until_bound,
                processors,
            } = &turn;
            println!(
                "round {} of {ROUNDS}: {name}: {until_bound:.1} s, {processors:.1?}",
                round + 1
            );
            turns[number].push(turn);
        }
    }
    print(&turns);
    Ok(())
}

fn turn(fixture: &Fixture<'_>, number: usize) -> Result<Turn> {
    fleet::create(fixture, NODES)?;
    let contender = match number {
        0 => Contender::none(fixture)?,
        1 => Contender::constant(fixture)?,
        2 => Contender::annotating(fixture)?,
        3 => Contender::edgeward(fixture)?,
        4 => Contender::edgeward(fixture)?.with_policies(fixture)?,
        peer => {
            let (start, dir) = &peers::given()[peer - OWN];
            start(fixture, dir)?
        }
    };
    contender.is_in_force(fixture, &workloads::pod("asked", workloads::latency()))?;
    fixture.runtime.block_on(async {
        let client = clients::client(fixture).await?;
        let before = processor_times(fixture, &contender)?;
        let took = until_bound(&client, &contender.namespace).await?;
        let after = processor_times(fixture, &contender)?;
        if contender.decides() {
            let undecided = undecided(&client, &contender.namespace).await?;
            let given_up = api_server_count(&client, "apiserver_admission_webhook_fail_open_count", &[]).await?;
            ensure!(
                undecided == 0,
                "{undecided} pods are undecided; the API server gave {given_up} calls up"
            );
        }
        Ok(Turn {
            name: contender.name,
            until_bound: took.as_secs_f64(),
            processors: std::array::from_fn(|of| (after[of] - before[of]).as_secs_f64()),
        })
    })
}

/// CPU times since the processes began, in the order of [`Turn`].
fn processor_times(fixture: &Fixture<'_>, contender: &Contender<'_>) -> Result<[Duration; 4]> {
    let of = |program: &str| processor_time(fixture.process_of(program)?);
    let rest: Result<Duration> = REST.iter().map(|program| of(program)).sum();
    let own = contender.pid.map_or(Ok(Duration::ZERO), processor_time)?;
    Ok([of("kube-apiserver")?, own, rest?, of("kwok")?])
}

fn print(turns: &[Vec<Turn>]) {
    let over = |at: usize, other: usize| {
        let rounds = turns[at].iter().zip(&turns[other]);
        match at == other {
            true => String::new(),
            false => format!(
                "{:+.0}",
                Median::of(rounds.map(|(one, other)| 100.0 * (one.until_bound / other.until_bound - 1.0)))
            ),
        }
    };
    println!(
        "\n| {PODS} pods of {JOBS} Jobs, {ROUNDS} rounds | bound after, s | over none, % | over the constant webhook, % | \
         over that with annotations, % |"
    );
    println!("|---|---:|---:|---:|---:|");
    for (at, of) in turns.iter().enumerate() {
        let median = Median::of(of.iter().map(|turn| turn.until_bound));
        let [none, constant, annotating] = [0, 1, 2].map(|other| over(at, other));
        println!("| {} | {median:.1} | {none} | {constant} | {annotating} |", of[0].name);
    }
    println!(
        "\n| processor time, s | API server | webhook | rest of the control plane | kwok |\n|---|---:|---:|---:|---:|"
    );
    for of in turns {
        let [api_server, own, rest, kwok] =
            std::array::from_fn(|at| Median::of(of.iter().map(|turn| turn.processors[at])));
        println!(
            "| {} | {api_server:.1} | {own:.1} | {rest:.1} | {kwok:.1} |",
            of[0].name
        );
    }
}

/// Creates the Jobs and waits until all of their pods are bound.
async fn until_bound(client: &Client, namespace: &str) -> Result<Duration> {
    let before = bindings(client).await?;
    let begun = Instant::now();
    create(client, namespace).await?;
    while bindings(client).await? < before + PODS as u64 {
        ensure!(begun.elapsed() < 10 * BOUND, "not all pods are bound");
        tokio::time::sleep(PAUSE).await;
    }
    Ok(begun.elapsed())
}

async fn create(client: &Client, namespace: &str) -> Result<()> {
    for number in 0..JOBS {
        let mut job = workloads::job(&format!("job-{number}"), workloads::latency());
        for field in ["parallelism", "completions"] {
            job["spec"][field] = json!(PODS_OF_A_JOB);
        }
        let template = &mut job["spec"]["template"];
        template["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "1m", "memory": "1Mi"});
        clients::post(client, &format!("/apis/batch/v1/namespaces/{namespace}/jobs"), &job).await?;
    }
    Ok(())
}

/// Number of pods bound so far, from the API server's count of requests.
async fn bindings(client: &Client) -> Result<u64> {
    let labels = [("code", "201"), ("subresource", "binding")];
    api_server_count(client, "apiserver_request_total", &labels).await
}

async fn api_server_count(client: &Client, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
    let page = client.request_text(Request::get("/metrics").body(Vec::new())?).await?;
    // The count stays far below 2^53.
    Ok(metrics::sum(&page, name, labels) as u64)
}

/// Number of pods without a decision.
async fn undecided(client: &Client, namespace: &str) -> Result<usize> {
    let (mut seen, mut undecided, mut from) = (0, 0, String::new());
    loop {
        let path = format!("/api/v1/namespaces/{namespace}/pods?limit=500&continue={from}");
        let page: Value = client.request(Request::get(path).body(Vec::new())?).await?;
        let pods = page["items"].as_array().context("items")?;
        seen += pods.len();
        undecided += pods.iter().filter(|pod| !is_decided(pod)).count();
        match page["metadata"]["continue"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut from),
            _ => break,
        }
    }
    ensure!(seen == PODS, "{seen} pods");
    Ok(undecided)
}
