//! Pods are moved to a site that has become better for them.

use edgeward_harness::live::pod;
use edgeward_harness::prelude::*;

use super::fill;

const REPLICAS: u32 = 4;

fn slo(fixture: &Fixture<'_>) -> Value {
    fixture.in_its_domain(json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"}))
}

/// A configuration that moves pods after five seconds.
fn moving(nodes: &Nodes<'_>) -> Value {
    let mut config = nodes.config();
    config["moves"] = json!({"enabled": true, "dwell": "5s", "perMinute": 60});
    config
}

/// A Deployment whose pods stay on the test's nodes even if they are not decided.
fn deployment(fixture: &Fixture<'_>, nodes: &Nodes<'_>, name: &str, replicas: u32, slo: Value) -> Value {
    let mut deployment = workloads::deployment(name, replicas, slo);
    let spec = &mut deployment["spec"]["template"]["spec"];
    spec["affinity"] = nodes.affinity();
    spec["tolerations"] = json!([nodes.toleration()]);
    fixture.in_its_domain(deployment)
}

fn budget(name: &str, least: u32) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
    })
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready.next().is_some() && pod["metadata"]["deletionTimestamp"].is_null()
}

/// The pods of an application, if as many are Ready and all are at this site.
fn all_at(fixture: &Fixture<'_>, nodes: &Nodes<'_>, app: &str, replicas: u32, site: &str) -> Result<Vec<Value>> {
    let pods = fixture.kubectl.list("pods", &format!("app={app}"))?;
    let ready = pods
        .iter()
        .filter(|pod| is_ready(pod) && nodes.site_of(pod) == Some(site));
    let count = ready.count();
    ensure!(
        (count, pods.len()) == (replicas as usize, replicas as usize),
        "{count} of {} at {site}",
        pods.len()
    );
    Ok(pods)
}

fn uids(pods: &[Value]) -> BTreeSet<String> {
    pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
}

/// Number of evictions of this result.
fn evictions(edgeward: &Edgeward<'_>, why: &str, result: &str) -> Result<u64> {
    edgeward.count("edgeward_moves_total", &[("why", why), ("result", result)])
}

e2e! { "live::moved_pods_come_home_one_at_a_time", Domain, 70, moved_pods_come_home_one_at_a_time }
/// Two Deployments are in the cloud, because a filler holds the edge. When it is gone, the pods of one come home, and never are
/// two of them missing. The budget of the other lets none go.
fn moved_pods_come_home_one_at_a_time(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let (edgeward, _registered) = fixture.registered_live(&moving(&nodes))?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    fill(fixture, "filler", 3_900, "edge: edge_feasible_slo_met")?;
    for (name, least) in [("web", REPLICAS - 1), ("kept", REPLICAS)] {
        fixture.kubectl.create(&budget(name, least))?;
        let deployment = deployment(fixture, &nodes, name, REPLICAS, slo(fixture));
        fixture.kubectl.create(&deployment)?;
    }
    let in_cloud = |name: &str| {
        eventually("its pods are in the cloud", BOUND, || {
            all_at(fixture, &nodes, name, REPLICAS, "cloud")
        })
    };
    in_cloud("web")?;
    let kept = uids(&in_cloud("kept")?);
    eventually("the budgets count their pods", BOUND, || {
        for name in ["web", "kept"] {
            let status = fixture.kubectl.get("poddisruptionbudget", name)?["status"].take();
            ensure!(status["currentHealthy"] == REPLICAS, "{status}");
        }
        Ok(())
    })?;

    let begun = Instant::now();
    fixture.kubectl.run(&["delete", "pod", "filler", "--wait=false"], "")?;
    eventually("the command says why they will move", BOUND, || says_home(fixture))?;
    let mut fewest = REPLICAS as usize;
    eventually("all of web are at the edge", 4 * BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=web")?;
        fewest = pods.iter().filter(|pod| is_ready(pod)).count().min(fewest);
        all_at(fixture, &nodes, "web", REPLICAS, "edge")
    })?;
    println!(
        "moves: {:.1} s from room to the last pod Ready, dwell 5 s",
        begun.elapsed().as_secs_f64()
    );
    ensure!(fewest >= REPLICAS as usize - 1, "{fewest} were Ready");
    eventually("the other's budget refuses", BOUND, || {
        ensure!(evictions(&edgeward, "home", "budget")? > 0, "it was not asked");
        Ok(())
    })?;
    ensure!(uids(&in_cloud("kept")?) == kept, "a pod of the other was moved");
    ensure!(
        evictions(&edgeward, "home", "evicted")? == u64::from(REPLICAS),
        "more than one move for each pod"
    );
    eventually("each move is told", BOUND, || {
        let events = crate::leader::events::ours(fixture)?;
        let moved = events.iter().filter(|event| event["reason"] == "Moved").count();
        ensure!(moved == REPLICAS as usize, "{moved} Events");
        Ok(())
    })?;
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

/// Fails unless `edgeward moves` lists a pod of `web` that comes home, and since when.
fn says_home(fixture: &Fixture<'_>) -> Result<()> {
    let (config, home) = (fixture.dir.join("config.yaml"), fixture.home()?);
    let config = config.display().to_string();
    let deployment = format!("--deployment={home}/edgeward");
    let said = fixture.command(&["moves", "--config", &config, &deployment, "--output=json"])?;
    let report: Value = serde_json::from_str(&said.stdout).with_context(|| said.stderr.clone())?;
    let pods = report["pods"].as_array().into_iter().flatten();
    let mut home = pods.filter(|pod| {
        let place = [&pod["from"], &pod["to"], &pod["why"]].map(Value::as_str);
        place == [Some("cloud"), Some("edge"), Some("home")] && pod["since"].is_string()
    });
    ensure!(home.next().is_some(), "{report:#}");
    Ok(())
}

e2e! { "live::moves_stop_when_a_successor_is_undecided", Domain, 40, moves_stop_when_a_successor_is_undecided }
/// The registration is gone when a pod is evicted, so the next pod is not decided. No other pod is evicted.
fn moves_stop_when_a_successor_is_undecided(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let (edgeward, registered) = fixture.registered_live(&moving(&nodes))?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    fill(fixture, "filler", 3_900, "edge: edge_feasible_slo_met")?;
    let deployment = deployment(fixture, &nodes, "web", REPLICAS, slo(fixture));
    fixture.kubectl.create(&deployment)?;
    eventually("its pods are in the cloud", BOUND, || {
        all_at(fixture, &nodes, "web", REPLICAS, "cloud")
    })?;
    drop(registered);
    fixture.kubectl.run(&["delete", "pod", "filler", "--wait=false"], "")?;
    eventually("moves are stopped", 2 * BOUND, || {
        ensure!(edgeward.count("edgeward_moves_stopped", &[])? == 1, "they are not");
        Ok(())
    })?;
    let age = |pod: &Value| pod["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    eventually("the next pod is as old as another could be moved", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=web")?;
        let newest = pods.iter().filter_map(age).max().context("no pods")?;
        let newest: jiff::Timestamp = newest.parse()?;
        ensure!(jiff::Timestamp::now().as_second() - newest.as_second() > 8, "not yet");
        Ok(())
    })?;
    let evicted = evictions(&edgeward, "home", "evicted")?;
    ensure!(evicted == 1, "{evicted} evictions");
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

e2e! { "live::moved_pod_follows_its_trait", Domain, 50, moved_pod_follows_its_trait }
/// A trait's label is taken off a node while another node has it. Both replicas follow.
fn moved_pod_follows_its_trait(fixture: &Fixture<'_>) -> Result<()> {
    const LABEL: &str = "traits.edgeward.io/Gpu";
    let nodes = Nodes::new(fixture)?;
    let [first, second] = [nodes.edge_node("edge-0", "4")?, nodes.edge_node("edge-1", "4")?];
    nodes.cloud_node("cloud-0")?;
    let label = |node: &str, change: &str| {
        let change = format!("{LABEL}{change}");
        fixture.kubectl.run(&["label", "node", node, &change], "").map(drop)
    };
    label(&first, "=true")?;
    let (edgeward, _registered) = fixture.registered_live(&moving(&nodes))?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    let asked = pod(fixture, "asked", 100);
    let mut slo = slo(fixture);
    slo[fixture.key("slo.example.io/traits")] = json!("Gpu");
    eventually("pods without the trait fit too", BOUND, || {
        is_now(fixture, &asked, "edge: edge_feasible_slo_met")
    })?;
    let deployment = deployment(fixture, &nodes, "web", 2, slo);
    fixture.kubectl.create(&deployment)?;
    let run_on = |node: &str, bound: Duration| {
        eventually(&format!("both run on {node}"), bound, || {
            let pods = all_at(fixture, &nodes, "web", 2, "edge")?;
            ensure!(pods.iter().all(|pod| pod["spec"]["nodeName"] == node), "not all");
            Ok(())
        })
    };
    run_on(&first, BOUND)?;
    label(&second, "=true")?;
    // A label that comes and goes moves nothing.
    for _ in 0..5 {
        label(&first, "-")?;
        label(&first, "=true")?;
    }
    run_on(&first, BOUND)?;
    ensure!(
        evictions(&edgeward, "trait", "evicted")? == 0,
        "a flapping label evicts"
    );
    label(&first, "-")?;
    let begun = Instant::now();
    run_on(&second, 2 * BOUND)?;
    println!(
        "moves: {:.1} s until both pods have their trait, dwell 5 s",
        begun.elapsed().as_secs_f64()
    );
    ensure!(evictions(&edgeward, "trait", "evicted")? == 2, "not two evictions");
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

e2e! { "live::moves_keep_replicas_apart", Domain, 45, moves_keep_replicas_apart }
/// Two replicas share no node, and the edge has one. The one in the cloud stays there, however much room the edge has.
fn moves_keep_replicas_apart(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let (edgeward, _registered) = fixture.registered_live(&moving(&nodes))?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    let mut deployment = deployment(fixture, &nodes, "web", 2, slo(fixture));
    let apart = json!([{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]);
    deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"] =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": apart});
    fixture.kubectl.create(&deployment)?;
    let run_apart = || {
        let pods = fixture.kubectl.list("pods", "app=web")?;
        let sites: BTreeSet<_> = pods
            .iter()
            .filter(|pod| is_ready(pod))
            .map(|pod| nodes.site_of(pod))
            .collect();
        ensure!(sites == BTreeSet::from([Some("cloud"), Some("edge")]), "{sites:?}");
        Ok(uids(&pods))
    };
    let before = eventually("both run, at both sites", BOUND, run_apart)?;
    let created = |pod: &Value| {
        pod["metadata"]["creationTimestamp"]
            .as_str()?
            .parse::<jiff::Timestamp>()
            .ok()
    };
    eventually("they are old enough to be moved", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=web")?;
        let newest = pods.iter().filter_map(created).max().context("no pods")?;
        ensure!(jiff::Timestamp::now().as_second() - newest.as_second() > 12, "not yet");
        Ok(())
    })?;
    ensure!(run_apart()? == before, "a pod was moved");
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

e2e! { "live::pods_that_must_stay_are_not_moved", Domain, 45, pods_that_must_stay_are_not_moved }
/// When the edge gets room, the replicas of one Deployment come home. A bare pod, a single replica, a StatefulSet and pods with
/// annotations against it stay in the cloud, each under its blocker.
fn pods_that_must_stay_are_not_moved(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let (edgeward, _registered) = fixture.registered_live(&moving(&nodes))?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    fill(fixture, "filler", 3_900, "edge: edge_feasible_slo_met")?;
    let with = |key: &str| {
        let mut slo = slo(fixture);
        slo[fixture.key(key)] = json!("false");
        slo
    };
    let mut set = deployment(fixture, &nodes, "set", 2, slo(fixture));
    set["kind"] = json!("StatefulSet");
    for (name, object) in [
        ("web", deployment(fixture, &nodes, "web", 2, slo(fixture))),
        ("one", deployment(fixture, &nodes, "one", 1, slo(fixture))),
        (
            "kept",
            deployment(fixture, &nodes, "kept", 2, with("slo.example.io/movable")),
        ),
        (
            "safe",
            deployment(
                fixture,
                &nodes,
                "safe",
                2,
                with("cluster-autoscaler.kubernetes.io/safe-to-evict"),
            ),
        ),
        ("set", set),
    ] {
        fixture.kubectl.create(&object).with_context(|| name.to_owned())?;
    }
    fixture.kubectl.create(&pod(fixture, "bare", 200))?;
    let pods = || fixture.kubectl.list("pods", "");
    let stay = |pods: &[Value]| {
        let stays = |pod: &&Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            !name.starts_with("web") && name != "filler"
        };
        uids(&pods.iter().filter(stays).cloned().collect::<Vec<_>>())
    };
    let before = eventually("all are in the cloud", 2 * BOUND, || {
        let pods = pods()?;
        let there = pods
            .iter()
            .filter(|pod| is_ready(pod) && nodes.site_of(pod) == Some("cloud"));
        let there = there.count();
        ensure!(there == 10, "{there} of {}", pods.len());
        Ok(stay(&pods))
    })?;
    fixture.kubectl.run(&["delete", "pod", "filler", "--wait=false"], "")?;
    eventually("web is at the edge", 2 * BOUND, || {
        all_at(fixture, &nodes, "web", 2, "edge")
    })?;
    ensure!(stay(&pods()?) == before, "a pod was moved that must stay");
    let evicted = evictions(&edgeward, "home", "evicted")?;
    ensure!(evicted == 2, "{evicted} evictions");
    fixture
        .kubectl
        .run(&["delete", "deployment,statefulset", "--all"], "")
        .map(drop)
}
