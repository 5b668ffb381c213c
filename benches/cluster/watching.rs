//! Cost of a replica that receives no reviews: CPU time while pods change, memory, and time until it is ready.

use std::sync::atomic::{AtomicUsize, Ordering};

use edgeward_harness::clients;
use edgeward_harness::clusters::in_another;
use edgeward_harness::metrics;
use edgeward_harness::nodes::Wan;
use edgeward_harness::prelude::*;
use edgeward_harness::process::processor_time;
use http::Request;
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::contenders::config;
use crate::etcd::Etcd;
use crate::fleet::{self, edge_node};

const NODES: usize = 1_000;
const PODS: usize = 10_000;
const MANY_PODS: usize = 100_000;

/// Pod events per second, how long they last, and the number of pods that change.
const RATES: [u32; 3] = [0, 100, 1_000];
const LASTS: Duration = Duration::from_secs(30);
const CHANGED: usize = 1_000;

/// Number of clients that create and change pods at the same time.
const CLIENTS: usize = 32;

/// Batches of events per second.
const TICKS: u32 = 50;

e2e! { "watching::by_a_replica", Machine, by_a_replica }
/// Measures a replica with 10,000 and then with 100,000 pods in the cluster, all of them bound.
fn by_a_replica(fixture: &Fixture<'_>) -> Result<()> {
    in_another(fixture, "by_a_replica", true, measure)
}

fn measure(fixture: &Fixture<'_>) -> Result<()> {
    fleet::create(fixture, NODES)?;
    let pods = Arc::new(Pods {
        client: fixture.runtime.block_on(clients::client(fixture))?,
        path: format!("/api/v1/namespaces/{}/pods", fixture.namespace),
    });
    fixture.runtime.block_on(Arc::clone(&pods).create(0..PODS))?;
    eventually("kwok runs the pods", 4 * BOUND, || {
        let pending = fixture.runtime.block_on(pods.one("status.phase=Pending"))?;
        ensure!(pending.is_none(), "some are pending");
        Ok(())
    })?;

    let wan = Wan::open(fixture.runtime)?;
    let changes = Arc::new(fixture.runtime.block_on(Changes::of(
        &pods,
        &fixture.namespace,
        Etcd::at(fixture.etcd())?,
    ))?);
    let (edgeward, few) = started(fixture, &wan, PODS)?;
    // The paused processes take no CPU. Nodes stay Ready while nothing checks them, and no kubelet runs the pods that are
    // created later.
    let _paused = [fixture.pause("kube-controller-manager")?, fixture.pause("kwok")?];
    println!("\n| {NODES} nodes, {PODS} pods: events of pods, a second | CPU, ms a second | CPU, µs an event |");
    println!("|---:|---:|---:|");
    let mut known = PODS;
    for rate in RATES {
        let process = edgeward.id();
        let events_before = fixture.runtime.block_on(pods.events())?;
        let (before, begun) = (processor_time(process)?, Instant::now());
        fixture.runtime.block_on(Arc::clone(&changes).make(rate))?;
        let seconds = begun.elapsed().as_secs_f64();
        if rate > 0 {
            // The replica has processed all events once it shows this pod, so the measured CPU time covers them all.
            fixture.runtime.block_on(Arc::clone(&pods).create(known..known + 1))?;
            known += 1;
            eventually("the replica has read all events", BOUND, || {
                let cached = edgeward.metric("edgeward_cached_pods", &[])?;
                ensure!(cached as usize == known, "{cached} pods");
                Ok(())
            })?;
        }
        let took = processor_time(process)? - before;
        let events = fixture.runtime.block_on(pods.events())? - events_before;
        let of_each = match events {
            0 => "–".to_owned(),
            events => format!("{:.0}", took.as_secs_f64() * 1e6 / events as f64),
        };
        let a_second = took.as_secs_f64() * 1e3 / seconds;
        println!("| {:.0} | {a_second:.1} | {of_each} |", events as f64 / seconds);
    }

    drop(edgeward);

    fixture.runtime.block_on(Arc::clone(&pods).create(known..MANY_PODS))?;
    let (_, many) = started(fixture, &wan, MANY_PODS)?;
    println!("\n| {NODES} nodes: pods | ready after | resident then | at most until then |");
    println!("|---|---:|---:|---:|\n{few}\n{many}");
    Ok(())
}

/// Starts a replica in a cluster with `pods` pods, and prints a row of its cost until it was ready.
fn started<'run>(fixture: &Fixture<'run>, wan: &Wan<'_>, pods: usize) -> Result<(Edgeward<'run>, String)> {
    let begun = Instant::now();
    let edgeward = fixture.live_edgeward_as(&format!("beside-{pods}"), &config(wan))?;
    let ready_after = begun.elapsed().as_secs_f64();
    let [now, most] = ["VmRSS", "VmHWM"].map(|field| edgeward.memory_kib(field));
    let (now, most) = (now? / 1024, most? / 1024);
    let row = format!("| {pods} | {ready_after:.1} s | {now} MiB | {most} MiB |");
    Ok((edgeward, row))
}

struct Pods {
    client: Client,
    path: String,
}

impl Pods {
    /// Creates the pods with these numbers, already bound.
    async fn create(self: Arc<Self>, numbers: std::ops::Range<usize>) -> Result<()> {
        let template = template()?;
        let next = Arc::new(AtomicUsize::new(numbers.start));
        let mut creations = JoinSet::new();
        for _ in 0..CLIENTS {
            let (pods, next, mut pod) = (Arc::clone(&self), Arc::clone(&next), template.clone());
            creations.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return anyhow::Ok(());
                    }
                    pod["metadata"]["name"] = json!(name(number));
                    pod["spec"]["nodeName"] = json!(edge_node(number % NODES));
                    let request = Request::post(&pods.path).header("content-type", "application/json");
                    pods.client
                        .request_text(request.body(pod.to_string().into_bytes())?)
                        .await?;
                }
            });
        }
        while let Some(created) = creations.join_next().await {
            created??;
        }
        Ok(())
    }

    async fn change(&self, number: usize) -> Result<()> {
        let patch = json!({"status": {"message": "changed"}});
        let request = Request::patch(format!("{}/{}/status", self.path, name(number)));
        let request = request.header("content-type", "application/merge-patch+json");
        self.client
            .request_text(request.body(patch.to_string().into_bytes())?)
            .await?;
        Ok(())
    }

    /// Number of pod events that the API server has passed on so far.
    async fn events(&self) -> Result<u64> {
        let page = self
            .client
            .request_text(Request::get("/metrics").body(Vec::new())?)
            .await?;
        let labels = [("group", ""), ("resource", "pods")];
        let count = metrics::sum(&page, "apiserver_watch_cache_events_received_total", &labels);
        ensure!(count > 0.0, "the API server counts no events of pods");
        // The count stays far below 2^53.
        Ok(count as u64)
    }

    async fn one(&self, fields: &str) -> Result<Option<Value>> {
        let request = Request::get(format!("{}?limit=1&fieldSelector={fields}", self.path));
        let mut list: Value = self.client.request(request.body(Vec::new())?).await?;
        let items = list["items"].as_array_mut().context("items")?;
        Ok(items.pop())
    }
}

/// Status changes of pods, written directly to etcd. The API server can pass on more events than it could create by itself.
struct Changes {
    etcd: Etcd,
    /// Each pod's key, and its stored value before and after a status change.
    versions: Vec<(String, [String; 2])>,
    made: AtomicUsize,
}

impl Changes {
    /// Prepares changes of the first [`CHANGED`] pods of this namespace.
    async fn of(pods: &Pods, namespace: &str, etcd: Etcd) -> Result<Self> {
        let mut versions = Vec::with_capacity(CHANGED);
        for number in 0..CHANGED {
            let key = format!("/registry/pods/{namespace}/{}", name(number));
            let before = etcd.get(&key).await?;
            pods.change(number).await?;
            let after = etcd.get(&key).await?;
            ensure!(before != after, "{key} is as before");
            versions.push((key, [before, after]));
        }
        Ok(Self {
            etcd,
            versions,
            made: AtomicUsize::new(0),
        })
    }

    /// Makes `rate` changes a second for [`LASTS`], going round all pods.
    async fn make(self: Arc<Self>, rate: u32) -> Result<()> {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / TICKS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let begun = Instant::now();
        let mut puts = JoinSet::new();
        while begun.elapsed() < LASTS {
            ticks.tick().await;
            for _ in 0..rate / TICKS {
                while puts.len() >= CLIENTS {
                    puts.join_next().await.context("a change")???;
                }
                let (changes, count) = (Arc::clone(&self), self.made.fetch_add(1, Ordering::Relaxed));
                puts.spawn(async move {
                    let (key, versions) = &changes.versions[count % CHANGED];
                    changes.etcd.put(key, &versions[count / CHANGED % 2]).await
                });
            }
        }
        while let Some(put) = puts.join_next().await {
            put??;
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("pod-{number}")
}

/// A pod of 4 KB that no controller owns and no node lifecycle evicts.
fn template() -> Result<Value> {
    let mut pod: Value = serde_json::from_str(include_str!("../pod.json"))?;
    for (part, field) in [
        ("metadata", "generateName"),
        ("metadata", "ownerReferences"),
        ("metadata", "creationTimestamp"),
        ("spec", "serviceAccount"),
        ("spec", "serviceAccountName"),
    ] {
        pod[part].as_object_mut().context("an object")?.remove(field);
    }
    pod["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    Ok(pod)
}
