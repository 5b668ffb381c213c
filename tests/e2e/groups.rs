//! Pods that belong together: near each other, started together, in one gang, or spread over sites.
//!
//! Three sites: the edge with four cores, `near` 12 ms away and `far` 60 ms away, as a Prometheus server says.

use edgeward_harness::fixture::Registration;
use edgeward_harness::nodes::Wan;
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};

use crate::gated::gate::{forbid_removal, forbids};
use crate::gated::history::History;
use crate::leader::events;

const EDGE: &str = "edge-0";

/// The three sites, and a configuration that gates pods for these seconds.
fn sites<'run>(fixture: &Fixture<'run>, limit: &str) -> Result<(Nodes<'run>, Server, Value)> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    exporter.says(&[r#"rtt{site="near"} 0.012"#, r#"rtt{site="far"} 0.06"#]);
    let server = Server::start(&program()?, &exporter)?;
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node(EDGE, "4")?;
    let mut config = nodes.gating(&json!({"latency": limit, "throughput": limit, "batch": limit}));
    nodes.put_clouds(&mut config, &["near", "far"])?;
    config["prometheus"] = json!({
        "url": format!("http://{}", server.address), "period": "1s", "queries": {"wanRttSeconds": "max by (site) (rtt)"},
    });
    Ok((nodes, server, config))
}

/// An edgeward that decides the test's pods and knows how far the clouds are.
fn registered<'run>(fixture: &Fixture<'run>, config: &Value) -> Result<(Edgeward<'run>, Registration)> {
    let (edgeward, registration) = fixture.registered_live(config)?;
    knows_distances(&edgeward)?;
    Ok((edgeward, registration))
}

fn knows_distances(edgeward: &Edgeward<'_>) -> Result<()> {
    eventually("the distances are known", BOUND, || {
        for (site, seconds) in [("near", 0.012), ("far", 0.06)] {
            let rtt = edgeward.metric("edgeward_wan_rtt_seconds", &[("site", site)])?;
            ensure!(rtt >= seconds, "{site}: {rtt}");
        }
        Ok(())
    })
}

/// A pod of class batch with these other annotations.
fn pod(fixture: &Fixture<'_>, name: &str, cpu: &str, others: Value) -> Value {
    let mut annotations = json!({"slo.example.io/class": "batch"});
    for (key, value) in others.as_object().into_iter().flatten() {
        annotations[format!("slo.example.io/{key}")] = value.clone();
    }
    let mut pod = workloads::pod_of(name, annotations, cpu);
    pod["metadata"]["labels"] = json!({"test": "groups", "app": name});
    fixture.in_its_domain(pod)
}

/// A pod of 1 CPU in Kueue's group `train` of four.
fn of_gang(fixture: &Fixture<'_>, name: &str, gang: &str) -> Value {
    let mut pod = pod(fixture, name, "1", json!({}));
    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!(gang);
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!("4");
    pod["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
    pod
}

/// The site of the pod's node.
fn site_of(fixture: &Fixture<'_>, pod: &Value) -> Option<String> {
    let node = pod["spec"]["nodeName"].as_str()?;
    let suffix = node.strip_prefix(&*fixture.namespace)?.strip_prefix('-')?;
    Some(suffix.strip_suffix("-0")?.to_owned())
}

/// Waits until these pods run, and returns the site of each.
fn run(fixture: &Fixture<'_>, names: &[&str]) -> Result<Vec<String>> {
    eventually(&format!("{names:?} run"), BOUND, || {
        let site = |name: &&str| {
            let pod = fixture.kubectl.get("pod", name)?;
            let site = site_of(fixture, &pod).filter(|_| pod["status"]["phase"] == "Running");
            site.with_context(|| format!("{name}: {} {}", pod["metadata"]["annotations"], pod["status"]))
        };
        names.iter().map(site).collect()
    })
}

/// Waits until these pods are gated for their group.
fn are_gated(fixture: &Fixture<'_>, names: &[&str]) -> Result<()> {
    eventually(&format!("{names:?} are gated"), BOUND, || {
        for name in names {
            let pod = fixture.kubectl.get("pod", name)?;
            ensure!(
                is_gated(&pod) && annotation(&pod, "reason") == Some("held_group"),
                "{pod}"
            );
        }
        Ok(())
    })
}

e2e! { "groups::distant_member_waits_until_its_limit", Domain, distant_member_waits_until_its_limit }
/// `db` does not fit the edge, where `web` runs, and the nearest cloud is farther than `web` allows. At its limit it goes there,
/// and an Event says so.
fn distant_member_waits_until_its_limit(fixture: &Fixture<'_>) -> Result<()> {
    let (_nodes, _server, config) = sites(fixture, "4s")?;
    let (_edgeward, _registered) = registered(fixture, &config)?;
    let web = pod(fixture, "web", "1", json!({"group": "shop", "near": "db=10ms"}));
    fixture.kubectl.create(&web)?;
    ensure!(run(fixture, &["web"])? == ["edge"]);
    fixture
        .kubectl
        .create(&pod(fixture, "db", "6", json!({"group": "shop"})))?;
    are_gated(fixture, &["db"])?;
    ensure!(run(fixture, &["db"])? == ["near"]);
    let db = fixture.kubectl.get("pod", "db")?;
    ensure!(annotation(&db, "reason") == Some("released_timeout"), "{db}");
    let event = eventually("the distance is told", BOUND, || {
        events::one(fixture, "db", "FarFromGroup")
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(note.contains("web, at edge") && note.contains("limit 10 ms"), "{note}");
    Ok(())
}

e2e! { "groups::group_starts_whole", Domain, group_starts_whole }
/// With a size, the components go where all of them fit. Two of three members start nothing, and the third starts all.
fn group_starts_whole(fixture: &Fixture<'_>) -> Result<()> {
    let (_nodes, _server, config) = sites(fixture, "1h")?;
    let (edgeward, _registered) = registered(fixture, &config)?;
    let history = History::begin(fixture)?;
    let web = json!({"group": "shop", "groupSize": "2", "near": "db=10ms"});
    fixture.kubectl.create(&pod(fixture, "web", "1", web))?;
    are_gated(fixture, &["web"])?;
    let gated = fixture.kubectl.get("pod", "web")?;
    let explain = annotation(&gated, "explain").unwrap_or_default();
    ensure!(explain.contains(r#""groupPods":"1 of 2""#), "{gated}");
    fixture
        .kubectl
        .create(&pod(fixture, "db", "6", json!({"group": "shop", "groupSize": "2"})))?;
    ensure!(run(fixture, &["web", "db"])? == ["near", "near"]);
    let versions = history.whole()?;
    let first = |is: &dyn Fn(&Value) -> bool| versions.iter().position(is).context("no such version");
    let bound = first(&|pod| pod["metadata"]["name"] == "web" && pod["spec"]["nodeName"].is_string())?;
    let both = first(&|pod| pod["metadata"]["name"] == "db")?;
    ensure!(both < bound, "web was bound alone");

    let member = |name: &str| pod(fixture, name, "1", json!({"group": "trio", "groupSize": "3"}));
    fixture.kubectl.create(&member("one"))?;
    fixture.kubectl.create(&member("two"))?;
    are_gated(fixture, &["one", "two"])?;
    eventually("it is counted", BOUND, || {
        ensure!(edgeward.count("edgeward_groups", &[("state", "incomplete")])? == 1);
        Ok(())
    })?;
    are_gated(fixture, &["one", "two"])?;
    let begun = Instant::now();
    fixture.kubectl.create(&member("three"))?;
    ensure!(run(fixture, &["one", "two", "three"])? == ["edge", "edge", "edge"]);
    println!(
        "groups: all run {:.2} s after the last was created",
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

e2e! { "groups::rest_joins_the_first", Domain, 70, rest_joins_the_first }
/// Two pods start together in a cloud, but a policy keeps the gate of one. Then the leader is killed, the policy goes, and the
/// edge has room. The next leader sends the pod to the site of the first.
fn rest_joins_the_first(fixture: &Fixture<'_>) -> Result<()> {
    const WORDS: &str = "db stays gated";
    let (_nodes, _server, config) = sites(fixture, "1h")?;
    let start = |name: &str| fixture.live_edgeward_as(name, &config);
    let mut replicas = [start("one")?, start("two")?];
    let _registered = fixture.register(&replicas[0].url, &replicas[0].ca)?;
    replicas.iter().try_for_each(knows_distances)?;
    let leader = eventually("one leads", BOUND, || {
        let leader = replicas.iter().position(|replica| replica.leads().is_ok());
        leader.context("none does")
    })?;
    fixture.kubectl.create(&pod(fixture, "filler", "4", json!({})))?;
    ensure!(run(fixture, &["filler"])? == ["edge"]);

    let member = json!({"group": "shop", "groupSize": "2", "near": "db=site"});
    fixture.kubectl.create(&pod(fixture, "db", "1", member.clone()))?;
    are_gated(fixture, &["db"])?;
    let policy = forbid_removal(fixture, WORDS, "object.metadata.name == 'db'")?;
    forbids(fixture, "db", WORDS)?;
    fixture.kubectl.create(&pod(fixture, "web", "1", member))?;
    ensure!(run(fixture, &["web"])? == ["near"]);
    eventually("the refusal is told", BOUND, || {
        events::one(fixture, "db", "ReleaseRefused")
    })?;
    replicas[leader].kill()?;
    fixture.kubectl.run(&["delete", "pod", "filler", "--wait"], "")?;
    drop(policy);
    ensure!(run(fixture, &["db"])? == ["near"]);
    Ok(())
}

e2e! { "groups::gang_goes_to_one_site_or_waits", Domain, 40, gang_goes_to_one_site_or_waits }
/// A gang of four with Kueue's marks, and room for two at the edge: all go to one cloud, once Kueue's gates are gone. With the
/// WAN down, the next gang waits whole, and another pod gets the room. When the edge has room for four, all start there.
fn gang_goes_to_one_site_or_waits(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, _server, config) = sites(fixture, "5s")?;
    let (_edgeward, _registered) = registered(fixture, &config)?;
    fixture.kubectl.create(&pod(fixture, "filler", "2", json!({})))?;
    ensure!(run(fixture, &["filler"])? == ["edge"]);
    let gang = |gang: &str| -> Result<Vec<String>> {
        let names: Vec<_> = (0..4).map(|i| format!("{gang}-{i}")).collect();
        for name in &names {
            fixture.kubectl.create(&of_gang(fixture, name, gang))?;
        }
        for name in &names {
            admit(fixture, name)?;
        }
        Ok(names)
    };
    let first = gang("first")?;
    let first: Vec<_> = first.iter().map(|name| &**name).collect();
    let sites: BTreeSet<_> = run(fixture, &first)?.into_iter().collect();
    ensure!(sites.len() == 1 && !sites.contains("edge"), "{sites:?}");

    nodes.wan.close();
    eventually("no cloud answers", BOUND, || {
        let asking = fixture.kubectl.dry_run(&pod(fixture, "asking", "3", json!({})))?;
        ensure!(is_gated(&asking), "{asking}");
        Ok(())
    })?;
    let second = gang("second")?;
    let second: Vec<_> = second.iter().map(|name| &**name).collect();
    are_gated(fixture, &second)?;
    fixture.kubectl.create(&pod(fixture, "rival", "1", json!({})))?;
    ensure!(run(fixture, &["rival"])? == ["edge"]);
    are_gated(fixture, &second)?;
    nodes.resize(&format!("{}-{EDGE}", fixture.namespace), "7")?;
    ensure!(run(fixture, &second)? == ["edge"; 4]);
    Ok(())
}

/// Removes Kueue's gate, as Kueue does once it admits the group.
fn admit(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    eventually(&format!("{name} is admitted"), BOUND, || {
        let pod = fixture.kubectl.get("pod", name)?;
        let gates = pod["spec"]["schedulingGates"].as_array().context("no gates")?;
        let ours = gates.iter().filter(|gate| gate["name"] != "kueue.x-k8s.io/admission");
        let version = &pod["metadata"]["resourceVersion"];
        let patch = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "replace", "path": "/spec/schedulingGates", "value": ours.collect::<Vec<_>>()},
        ]);
        fixture.kubectl.patch("pod", name, &patch, &["--type=json"])
    })
}

e2e! { "groups::replicas_spread_over_sites", Domain, replicas_spread_over_sites }
/// Four replicas that spread over sites run on all three. When a cloud loses its only one, the next goes there, if need be once
/// the cloud answers again.
fn replicas_spread_over_sites(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, _server, mut config) = sites(fixture, "1h")?;
    let far = Wan::open(fixture.runtime)?;
    config["sites"][2]["probes"] = json!([far.probe()]);
    let (edgeward, _registered) = registered(fixture, &config)?;
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/spread": "sites"});
    let mut deployment = workloads::deployment("web", 4, slo);
    let spec = &mut deployment["spec"]["template"]["spec"];
    spec["tolerations"] = json!([nodes.toleration()]);
    let deployment = fixture.in_its_domain(deployment);
    fixture.kubectl.create(&deployment)?;
    let spread = || -> Result<BTreeMap<String, Vec<String>>> {
        let mut sites = BTreeMap::<_, Vec<String>>::new();
        for pod in fixture.kubectl.list("pods", "app=web")? {
            let site = site_of(fixture, &pod).with_context(|| pod.to_string())?;
            let name = pod["metadata"]["name"].as_str().context("a name")?;
            ensure!(pod["metadata"]["deletionTimestamp"].is_null(), "{name} terminates");
            ensure!(pod["status"]["phase"] == "Running", "{name} does not run");
            sites.entry(site).or_default().push(name.to_owned());
        }
        let counts: Vec<_> = sites.iter().map(|(site, pods)| (&**site, pods.len())).collect();
        ensure!(counts == [("edge", 2), ("far", 1), ("near", 1)], "{counts:?}");
        Ok(sites)
    };
    let sites = eventually("they spread", BOUND, spread)?;
    // Until edgeward has seen that a pod is gone, it counts it, and the next pod may go elsewhere.
    let next_is = |placement: &dyn Fn(&Value) -> bool| {
        let mut next = deployment["spec"]["template"].clone();
        next["kind"] = json!("Pod");
        next["apiVersion"] = json!("v1");
        next["metadata"]["name"] = json!("next");
        eventually("edgeward has seen it", BOUND, || {
            let pods = fixture.kubectl.list("pods", "app=web")?;
            ensure!(pods.len() == 3, "{}", pods.len());
            next["metadata"]["ownerReferences"] = pods[0]["metadata"]["ownerReferences"].clone();
            let next = fixture.kubectl.dry_run(&next)?;
            ensure!(placement(&next), "{next}");
            Ok(())
        })
    };
    let scale = |replicas: usize| {
        let replicas = format!("--replicas={replicas}");
        fixture.kubectl.run(&["scale", "deployment", "web", &replicas], "")
    };
    // Of running pods, a ReplicaSet deletes the one of the lowest cost. edgeward gives -100 to those in a cloud.
    let without = |pod: &str| {
        let cheapest = "controller.kubernetes.io/pod-deletion-cost=-200";
        let args = ["annotate", "--overwrite", "pod", pod, cheapest];
        fixture.kubectl.run(&args, "")?;
        scale(3)
    };
    without(&sites["far"][0])?;
    next_is(&|pod| annotation(pod, "site") == Some("far"))?;
    scale(4)?;
    let sites = eventually("the next goes to the site with the fewest", BOUND, spread)?;

    far.close();
    eventually("the loss is seen", BOUND, || {
        let unreachable = [("site", "far"), ("state", "unreachable")];
        ensure!(edgeward.count("edgeward_wan_state", &unreachable)? == 1);
        Ok(())
    })?;
    let waits = |pod: &Value| is_gated(pod) && annotation(pod, "reason") == Some("held_no_capacity");
    without(&sites["far"][0])?;
    next_is(&waits)?;
    scale(4)?;
    eventually("the next waits for the cloud that is lost", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=web")?;
        let gated = pods.iter().filter(|pod| waits(pod));
        ensure!(gated.count() == 1, "{pods:?}");
        Ok(())
    })?;
    far.reopen()?;
    eventually("it goes there once the cloud is back", BOUND, spread)?;
    fixture.kubectl.run(&["delete", "deployment", "web"], "").map(drop)
}
