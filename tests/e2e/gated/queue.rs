//! The queue of gated pods while other pods arrive, and while edgeward restarts.

use edgeward_harness::balancer::Balancer;
use edgeward_harness::clients;
use edgeward_harness::prelude::*;
use jiff::Timestamp;

use crate::gated::history::History;
use crate::gated::{ends, have_run, pod};

/// Number of high-priority pods that are gated before others arrive.
const HELD: usize = 20;

const PACE: std::time::Duration = std::time::Duration::from_millis(50);

e2e! { "queue::lower_priority_waits_for_gated_pods", Domain, 86, lower_priority_waits_for_gated_pods }
/// Twenty pods of priority 8 are gated, and pods of priority 2 arrive all the time, through two replicas. Room appears step by
/// step, as pods are deleted and as the node grows. In the API server's order of writes, no later pod is placed while a pod of
/// priority 8 is gated. Afterwards they are placed.
fn lower_priority_waits_for_gated_pods(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, node) = Nodes::without_wan(fixture)?;
    let config = nodes.gating(&for_long());
    let replicas = ["first", "second"].map(|name| fixture.live_edgeward_as(name, &config));
    let replicas = replicas.into_iter().collect::<Result<Vec<_>>>()?;
    let (balancer, authorities) = Balancer::before(fixture, &replicas)?;
    let _registered = fixture.register(&balancer.url(), &authorities)?;

    let fillers = (0..10).map(|i| format!("filler-{i}")).collect::<Vec<_>>();
    for filler in &fillers {
        let mut filler = pod(fixture, filler, 100, 5);
        filler["metadata"]["labels"] = json!({"app": "filler"});
        ends(fixture, &nodes, &filler, "edge", "edge_feasible_slo_met")?;
    }
    let history = History::begin(fixture)?;
    for i in 0..HELD {
        fixture.kubectl.create(&pod(fixture, &format!("gated-{i}"), 100, 8))?;
    }
    eventually("every replica knows of all", BOUND, || {
        replicas.iter().try_for_each(|replica| {
            ensure!(replica.count("edgeward_gated_pods", &[])? == HELD as u64);
            Ok(())
        })
    })?;

    let mut later = pod(fixture, "later", 100, 2);
    later["metadata"]["labels"] = json!({"app": "later"});
    let coming = fixture.runtime.spawn(later_pods(
        fixture.runtime.block_on(clients::client(fixture))?,
        fixture.namespace.clone(),
        later,
    ));
    let stop = Stopping(coming.abort_handle());
    let delete = |fillers: &[String]| {
        let mut args = vec!["delete", "pod", "--wait=false"];
        args.extend(fillers.iter().map(String::as_str));
        fixture.kubectl.run(&args, "").map(drop)
    };
    let came = || fixture.kubectl.list("pods", "app=later").map(|pods| pods.len());
    let mut before = 0;
    for released in [0, 5, 10, 15, HELD] {
        match released {
            5 => delete(&fillers[..5])?,
            10 => nodes.resize(&node, "1500m")?,
            15 => delete(&fillers[5..])?,
            HELD => nodes.resize(&node, "2")?,
            _ => {}
        }
        let what = format!("{released} have run, and others have come since");
        before = eventually(&what, 2 * BOUND, || {
            ensure!(!coming.is_finished(), "nobody comes any more");
            if let Err(out_of_order) = placed_in_order(&history.so_far()) {
                return Ok(Err(out_of_order));
            }
            let pods = fixture.kubectl.list("pods", "app=gated")?;
            let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            let came = came()?;
            ensure!(running == released && came >= before + 10, "{running} run, {came} came");
            Ok(Ok(came))
        })??;
    }
    nodes.resize(&node, "4")?;
    eventually("later pods run as well", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=later")?;
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        ensure!(running >= 10, "{running}");
        Ok(())
    })?;
    drop(stop);
    let placed = placed_in_order(&history.whole()?)?;
    println!("queue: {placed} later pods were placed, each after all {HELD} that were gated");
    Ok(())
}

/// Creates later pods one after another. Every second one is smaller.
async fn later_pods(client: kube::Client, namespace: String, mut pod: Value) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let mut pace = tokio::time::interval(PACE);
    for i in 0.. {
        pace.tick().await;
        pod["metadata"]["name"] = json!(format!("later-{i}"));
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(["50m", "100m"][i % 2]);
        clients::post(&client, &path, &pod).await?;
    }
    Ok(())
}

struct Stopping(tokio::task::AbortHandle);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Number of later pods that were placed. Fails if one was placed while an earlier pod was gated.
fn placed_in_order(versions: &[Value]) -> Result<usize> {
    let (mut gated, mut placed) = (BTreeSet::new(), BTreeSet::new());
    for pod in versions {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        match (pod["metadata"]["labels"]["app"].as_str(), is_gated(pod)) {
            (Some("gated"), true) => drop(gated.insert(name)),
            (Some("gated"), false) => drop(gated.remove(name)),
            (Some("later"), false) => {
                ensure!(annotation(pod, "site") == Some("edge"), "{name} was passed over: {pod}");
                let is_new = placed.insert(name);
                ensure!(
                    !is_new || gated.is_empty(),
                    "{name} was placed while {gated:?} were gated: {pod}"
                );
            }
            _ => {}
        }
    }
    Ok(placed.len())
}

e2e! { "queue::restarts_release_each_pod_once_in_order", Domain, 96, restarts_release_each_pod_once_in_order }
/// edgeward is killed while 30 pods are gated, and again during their release. There are no unnecessary writes. Each pod is
/// released once, in order and not too early, and in the end all run.
fn restarts_release_each_pod_once_in_order(fixture: &Fixture<'_>) -> Result<()> {
    const PODS: usize = 30;
    // At the pod's creation the WAN has been bad for less than this. After a longer time the pod would not wait for it.
    const LIMIT_SECONDS: i64 = 60;
    let (nodes, node) = Nodes::without_wan(fixture)?;
    let limits = json!({"latency": "1h", "throughput": format!("{LIMIT_SECONDS}s"), "batch": "1h"});
    let mut edgeward = fixture.live_edgeward(&nodes.gating(&limits))?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let mut filler = pod(fixture, "filler", 1000, 5);
    filler["metadata"]["labels"] = json!({"app": "filler"});
    ends(fixture, &nodes, &filler, "edge", "edge_feasible_slo_met")?;

    let history = History::begin(fixture)?;
    for i in 0..PODS {
        fixture
            .kubectl
            .create(&pod(fixture, &format!("gated-{i}"), 100, i as u32 * 7 % 11))?;
    }
    let mut timed = pod(fixture, "timed", 100, 5);
    timed["metadata"]["labels"] = json!({"app": "timed"});
    timed["metadata"]["annotations"][fixture.key("slo.example.io/class")] = json!("throughput");
    fixture.kubectl.create(&timed)?;
    let versions = || -> Result<BTreeMap<String, Value>> {
        let pods = fixture.kubectl.list("pods", "app=gated")?;
        ensure!(pods.len() == PODS && pods.iter().all(is_gated), "{pods:?}");
        let version = |pod: Value| {
            (
                pod["metadata"]["name"].to_string(),
                pod["metadata"]["resourceVersion"].clone(),
            )
        };
        Ok(pods.into_iter().map(version).collect())
    };
    let knows_all = |edgeward: &Edgeward<'_>, pods: usize| {
        eventually("it knows of all", BOUND, || {
            ensure!(edgeward.count("edgeward_gated_pods", &[])? == pods as u64);
            Ok(())
        })
    };
    knows_all(&edgeward, PODS + 1)?;
    eventually("kube-scheduler has looked at all", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=gated")?;
        let conditions = pods.iter().map(|pod| &pod["status"]["conditions"][0]["reason"]);
        let seen = conditions.filter(|reason| **reason == "SchedulingGated").count();
        ensure!(seen == PODS, "{seen}");
        Ok(())
    })?;
    let before = versions()?;

    edgeward.kill()?;
    edgeward.start_again()?;
    eventually("it releases, so it has looked at the others", 2 * BOUND, || {
        let pod = fixture.kubectl.get("pod", "timed")?;
        ensure!(annotation(&pod, "reason") == Some("released_timeout"), "{pod}");
        Ok(())
    })?;
    ensure!(versions()? == before, "gated pods were written to");
    fixture.kubectl.run(&["delete", "pod", "timed"], "")?;
    knows_all(&edgeward, PODS)?;

    // Room appears while edgeward is down.
    edgeward.kill()?;
    nodes.resize(&node, "2")?;
    edgeward.start_again()?;
    let released = |count: usize| eventually(&format!("{count} run"), 2 * BOUND, || have_run(fixture, count));
    released(10)?;

    // edgeward is killed at its first visible release, while other pods are due or have no room yet.
    nodes.resize(&node, "3")?;
    eventually("one more is released", BOUND, || {
        ensure!(freed(&history.so_far())?.len() > 11);
        Ok(())
    })?;
    edgeward.kill()?;
    let left = fixture
        .kubectl
        .list("pods", "app=gated")?
        .iter()
        .filter(|pod| is_gated(pod))
        .count();
    println!("queue: killed with {left} of {PODS} gated");
    ensure!(left >= 10, "there was no room for them: {left}");
    nodes.resize(&node, "4")?;
    edgeward.start_again()?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    released(PODS)?;

    let freed = freed(&history.whole()?)?;
    ensure!(freed.len() == PODS + 1, "{freed:?}");
    let gated_for = freed["timed"];
    ensure!(gated_for >= LIMIT_SECONDS, "released after {gated_for} s");
    println!("queue: gated {gated_for} s of {LIMIT_SECONDS} s, over a restart");
    Ok(())
}

/// The pods that lost edgeward's gate, with the seconds for which they carried it by their annotations. Fails if a pod got the
/// gate back, was decided again afterwards, or restarted its waiting time.
fn freed(versions: &[Value]) -> Result<BTreeMap<String, i64>> {
    let at = |pod: &Value| -> Result<Timestamp> { Ok(annotation(pod, "timestamp").context("a time")?.parse()?) };
    let mut since = BTreeMap::new();
    let mut decided = BTreeMap::new();
    let mut freed = BTreeMap::new();
    for pod in versions {
        let name = pod["metadata"]["name"].as_str().context("a name")?;
        if pod["metadata"]["labels"]["app"] == "filler" {
            continue;
        }
        if is_gated(pod) {
            ensure!(!freed.contains_key(name), "{name} is gated again");
            ensure!(
                *since.entry(name.to_owned()).or_insert(at(pod)?) == at(pod)?,
                "{name} begins again: {pod}"
            );
            continue;
        }
        let id = annotation(pod, "decision-id").context("a decision")?.to_owned();
        ensure!(
            *decided.entry(name.to_owned()).or_insert_with(|| id.clone()) == id,
            "{name} is decided again: {pod}"
        );
        let gated = at(pod)?.duration_since(*since.get(name).context("gated first")?);
        freed.insert(name.to_owned(), gated.as_secs());
    }
    Ok(freed)
}
