//! Pods that were created while the webhook was away, and a pod that was sent where it cannot run.

use edgeward_harness::prelude::*;
use jiff::Timestamp;

use crate::leader::events::ours;

/// Owners that create two pods each while the webhook is away, and pods without an owner.
const OWNERS: usize = 10;
const BARE: usize = 5;

const AT_THE_EDGE: usize = 4;

/// Pods that are stuck and would go elsewhere: the owners' pods that do not fit, those without an owner, and a Job's pod.
const STUCK: usize = 2 * OWNERS - AT_THE_EDGE + BARE + 1;

/// A stuck pod is found after 30 s.
const LONG: Duration = Duration::from_secs(120);

fn slo(fixture: &Fixture<'_>) -> Value {
    fixture.in_its_domain(json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"}))
}

/// The workload with this request, restricted to these nodes even if it is not decided.
fn on_stage(mut workload: Value, nodes: &Nodes<'_>, millicores: u32) -> Value {
    let spec = match workload["kind"] == "Pod" {
        true => &mut workload["spec"],
        false => &mut workload["spec"]["template"]["spec"],
    };
    spec["affinity"] = nodes.affinity();
    spec["tolerations"] = json!([nodes.toleration()]);
    spec["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
    workload
}

e2e! { "backstop::finds_stuck_pods", Domain, 98, finds_stuck_pods }
/// Twenty owned pods, five bare ones and a Job's pod are created while the webhook is away. The edge has room for four of them.
/// Earlier, one pod was sent to the edge because there was no cloud. The backstop finds and reports all stuck pods and changes
/// none.
fn finds_stuck_pods(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "2")?;
    nodes.wan.close();
    let config = nodes.config();
    let mut edgeward = fixture.live_edgeward_as("one", &config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    eventually("it leads", BOUND, || edgeward.leads())?;

    let filler = fixture
        .kubectl
        .create(&on_stage(workloads::pod("filler", slo(fixture)), &nodes, 1600))?;
    eventually("the filler runs", BOUND, || {
        let pod = fixture.kubectl.get("pod", "filler")?;
        ensure!(nodes.site_of(&pod) == Some("edge"), "{}", pod["status"]);
        Ok(())
    })?;
    fixture
        .kubectl
        .create(&on_stage(workloads::deployment("sent", 1, slo(fixture)), &nodes, 500))?;
    eventually("one is sent to an edge that is full", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=sent")?;
        let pod = pods.first().context("there is none")?;
        let reason = annotation(pod, "reason");
        ensure!(
            reason == Some("edge_wan_unreachable") && is_unschedulable(pod),
            "{pod:#}"
        );
        Ok(())
    })?;

    edgeward.kill()?;
    nodes.wan.reopen()?;
    // Creation times have a resolution of one second.
    let decided: Timestamp = filler["metadata"]["creationTimestamp"]
        .as_str()
        .context("a time")?
        .parse()?;
    eventually("it is later", BOUND, || {
        ensure!(Timestamp::now().as_second() > decided.as_second() + 1, "it is not");
        Ok(())
    })?;
    for i in 0..OWNERS {
        let deployment = workloads::deployment(&format!("owner-{i}"), 2, slo(fixture));
        fixture.kubectl.create(&on_stage(deployment, &nodes, 100))?;
    }
    let settled = |pods: &[Value], bound: usize, stuck: usize| {
        let found = pods.iter().filter(|pod| nodes.site_of(pod).is_some()).count();
        let refused = pods.iter().filter(|pod| is_unschedulable(pod)).count();
        ensure!(
            (found, refused) == (bound, stuck),
            "{found} bound, {refused} Unschedulable"
        );
        Ok(())
    };
    eventually("the edge is full", BOUND, || {
        let owned = 2 * OWNERS;
        settled(
            &fixture.kubectl.list("pods", "")?,
            1 + AT_THE_EDGE,
            1 + owned - AT_THE_EDGE,
        )
    })?;
    for i in 0..BARE {
        fixture.kubectl.create(&on_stage(
            workloads::pod(&format!("bare-{i}"), slo(fixture)),
            &nodes,
            100,
        ))?;
    }
    let mut job = on_stage(workloads::job("job", slo(fixture)), &nodes, 100);
    job["spec"]["backoffLimit"] = json!(0);
    fixture.kubectl.create(&job)?;
    let before = eventually("the others have no place", BOUND, || {
        let pods = fixture.kubectl.list("pods", "")?;
        settled(&pods, 1 + AT_THE_EDGE, 1 + STUCK)?;
        Ok(pods)
    })?;

    edgeward.start_again()?;
    let shows = |name: &str, label: (&str, &str), expected: usize| {
        let count = edgeward.count(name, &[label])?;
        ensure!(count == expected as u64, "{name}{label:?}: {count}");
        Ok(())
    };
    let found = |finding: &str, pods: usize| shows("edgeward_backstop_pods", ("finding", finding), pods);
    eventually("all of them are found", LONG, || {
        found("undecided", STUCK)?;
        found("misplaced", 1)?;
        found("bound", AT_THE_EDGE)
    })?;
    let told = eventually("all of them are told of", BOUND, || {
        let events = ours(fixture)?
            .into_iter()
            .filter(|event| event["reason"] == "Unschedulable");
        let events: BTreeMap<String, Value> = events
            .map(|event| {
                (
                    event["regarding"]["name"].as_str().unwrap_or_default().to_owned(),
                    event,
                )
            })
            .collect();
        ensure!(events.len() == STUCK + 1, "{:?}", events.keys());
        Ok(events)
    })?;
    let stuck: BTreeSet<String> = before.iter().filter(|pod| is_unschedulable(pod)).map(name).collect();
    ensure!(
        told.keys().cloned().collect::<BTreeSet<_>>() == stuck,
        "{:?}",
        told.keys()
    );
    let note = told["bare-0"]["note"].as_str().unwrap_or_default();
    for part in ["created without a decision", "site cloud", "cloud_edge_no_capacity"] {
        ensure!(note.contains(part), "no {part}: {note}");
    }
    let after = fixture.kubectl.list("pods", "")?;
    ensure!(uids(&after) == uids(&before), "something was deleted");

    // Otherwise its pods would be created again on other tests' nodes after this test's nodes are gone.
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn uids(pods: &[Value]) -> BTreeMap<String, Value> {
    pods.iter()
        .map(|pod| (name(pod), pod["metadata"]["uid"].clone()))
        .collect()
}
