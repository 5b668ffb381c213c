//! Pods that take as much memory as a user with the right to create pods can cause.

use futures::io::{copy, sink};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::Request;

use crate::clients::client;
use crate::control_plane::NOT_AUDITED;
use crate::live::{EDGE, pod as asking};
use crate::prelude::*;

const AT_ONCE: usize = 8;

const LARGEST: usize = 1_400_000;

const NAME: &str = "hostile-00000";

/// Placeholder of the same length for the pod's creation time.
const NOW: &str = "0000-00-00T00:00:00Z";

const LATER: &str = "2099-01-01T00:00:00Z";

#[derive(Clone)]
struct Template(String);

impl Template {
    fn of(pod: &Value) -> Self {
        Self(pod.to_string())
    }

    fn named(&self, number: usize) -> String {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let pod = self.0.replacen(NAME, &format!("hostile-{number:05}"), 1);
        pod.replacen(NOW, &now, 1)
    }
}

/// Pods of the largest size that the API server accepts, each through other fields. None is managed, and no node fits them.
fn largest() -> Vec<Template> {
    let pod = |fill: &dyn Fn(&mut Value)| {
        let mut pod = pod();
        pod["spec"]["nodeSelector"] = json!({"edgeward.test/nowhere": ""});
        fill(&mut pod);
        Template::of(&pod)
    };
    vec![
        pod(&|pod| pod["spec"]["affinity"] = affinity("In", &json!(vec!["0".repeat(63); 9_900]))),
        pod(&|pod| pod["spec"]["affinity"] = affinity("In", &json!(vec!["0"; 340_000]))),
        pod(&|pod| pod["spec"]["affinity"] = affinity("In", &json!(vec![""; 460_000]))),
        pod(&|pod| {
            let tolerations =
                (0..17_000).map(|number| json!({"key": format!("edgeward.test/{number}"), "operator": "Exists"}));
            pod["spec"]["tolerations"] = tolerations.collect();
        }),
        pod(&|pod| {
            let containers = (0..2_000).map(|number| json!({"name": format!("c{number}"), "image": "x"}));
            pod["spec"]["containers"] = containers.collect();
        }),
        pod(&|pod| {
            let variables = (0..9_000).map(|number| json!({"name": format!("V{number}"), "value": "0"}));
            pod["spec"]["containers"][0]["env"] = variables.collect();
        }),
        pod(&|pod| {
            // All annotations together may have 256 KiB.
            let annotations = (0..12_000).map(|number| (format!("edgeward.test/{number}"), json!("")));
            pod["metadata"]["annotations"] = Value::Object(annotations.collect());
            pod["spec"]["containers"][0]["env"] = json!([{"name": "V", "value": "0".repeat(600_000)}]);
        }),
        // The API server writes six characters for each.
        pod(&|pod| pod["spec"]["containers"][0]["env"] = json!([{"name": "V", "value": "<".repeat(LARGEST)}])),
    ]
}

/// A pod behind edgeward's gate with the lowest priority. Its class is gated for an hour, its constraints are kept, and `bytes`
/// more are added. It claims to be gated since `at`, for a reason that soon changes.
fn gated(fixture: &Fixture<'_>, bytes: usize, at: &str) -> Template {
    let mut pod = behind_our_gate("throughput");
    let sites = (0..120).map(|number| (format!("site-{number:03}"), json!({"fit": 1, "eta": 1})));
    let explain = Value::Object(sites.collect()).to_string();
    let annotations = &mut pod["metadata"]["annotations"];
    annotations["scheduling.example.io/reason"] = json!("held_site_away");
    annotations["scheduling.example.io/timestamp"] = json!(at);
    annotations["scheduling.example.io/explain"] = json!(explain);
    let hosts: Vec<_> = (0..20).map(|number| format!("node-{number:02}.example.com")).collect();
    pod["spec"]["affinity"] = affinity("NotIn", &json!(hosts));
    pod["spec"]["containers"][0]["env"] = json!([{"name": "V", "value": "0".repeat(bytes)}]);
    Template::of(&fixture.in_its_domain(pod))
}

/// Pods whose class is gated for seconds, with constraints that are too long to keep.
fn with_long_constraints(fixture: &Fixture<'_>) -> [Value; 2] {
    let pod = |name: &str, values: usize| {
        let mut pod = behind_our_gate("batch");
        pod["metadata"]["name"] = json!(name);
        let hosts: Vec<_> = (0..values)
            .map(|number| format!("node-{number:05}.of-a-long-name.example.com"))
            .collect();
        pod["spec"]["affinity"] = affinity("NotIn", &json!(hosts));
        fixture.in_its_domain(pod)
    };
    [pod("long", 150), pod("longest", 20_000)]
}

fn behind_our_gate(class: &str) -> Value {
    let mut pod = pod();
    pod["metadata"]["annotations"] = json!({
        "slo.example.io/class": class, "slo.example.io/deadlineMs": "7200000", "slo.example.io/priority": "0",
    });
    pod["spec"]["schedulingGates"] = json!([{"name": "scheduling.example.io/awaiting-capacity"}]);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "600m"}});
    pod
}

fn affinity(operator: &str, values: &Value) -> Value {
    let expressions = json!([{"key": "edgeward.test/nowhere", "operator": operator, "values": values}]);
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {"containers": [{"name": "app", "image": "x"}]},
    })
}

/// Creates `count` pods in this namespace, from each template in turn.
fn create(fixture: &Fixture<'_>, namespace: &str, templates: &[Template], count: usize) -> Result<()> {
    each(fixture, count, |number| {
        let request = Request::post(format!("/api/v1/namespaces/{namespace}/pods"));
        let pod = templates[number % templates.len()].named(number);
        Ok(request
            .header("content-type", "application/json")
            .body(pod.into_bytes())?)
    })
}

fn delete(fixture: &Fixture<'_>, namespace: &str, count: usize) -> Result<()> {
    each(fixture, count, |number| {
        let path = format!("/api/v1/namespaces/{namespace}/pods/hostile-{number:05}?gracePeriodSeconds=0");
        Ok(Request::delete(path).body(vec![])?)
    })
}

fn each(fixture: &Fixture<'_>, count: usize, request: impl Fn(usize) -> Result<Request<Vec<u8>>>) -> Result<()> {
    fixture.runtime.block_on(async {
        let client = client(fixture).await?;
        let sent = (0..count).map(|number| {
            let (client, request) = (client.clone(), request(number));
            async move {
                let answer = client.request_stream(request?).await;
                copy(answer.with_context(|| format!("pod {number}"))?, &mut sink()).await?;
                anyhow::Ok(())
            }
        });
        stream::iter(sent).buffer_unordered(AT_ONCE).try_collect().await
    })
}

#[derive(Debug, Clone, Copy)]
pub struct Amounts {
    /// Number of the largest pods, in a namespace that has not opted in.
    pub largest: usize,
    /// Number of pods behind edgeward's gate, in a namespace that has not opted in.
    pub gated: usize,
    pub managed: usize,
    pub gated_bytes: usize,
}

/// Growth of a replica's resident memory, in KiB.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    pub most: u64,
    pub kept: u64,
}

/// Creates these pods and measures their cost in memory. One replica watches the pods kind by kind, the second lists them
/// all as a stream, and the third lists them in pages. Verdicts in the test's own namespace must not change.
pub fn watched(fixture: &Fixture<'_>, amounts: Amounts) -> Result<Vec<(&'static str, Growth)>> {
    let nodes = Nodes::new(fixture)?;
    let node = nodes.edge_node("edge-0", "1")?;
    let mut limits = for_long();
    limits["batch"] = json!("5s");
    let config = nodes.gating(&limits);
    let mut filler = asking(fixture, "filler", 500);
    filler["spec"]["nodeName"] = json!(node);
    fixture.kubectl.create(&filler)?;

    let early = fixture.live_edgeward_as("early", &config)?;
    let _registered = fixture.register(&early.url, &early.ca)?;
    let verdicts_are_the_same = || is_now(fixture, &asking(fixture, "asking", 400), EDGE);
    eventually("it leads, and sees the node", BOUND, || {
        early.leads()?;
        verdicts_are_the_same()
    })?;
    let at_start = early.memory_kib("VmHWM")?;

    let gated = |at| vec![gated(fixture, amounts.gated_bytes, at)];
    let kinds = [
        ("largest", json!({}), largest(), amounts.largest),
        ("gated", json!({}), gated(LATER), amounts.gated),
        (
            "managed",
            json!({fixture.key(MANAGED): "true"}),
            gated(NOW),
            amounts.managed,
        ),
    ];
    let (mut found, mut created) = (vec![], vec![]);
    let mut known = early.count("edgeward_cached_pods", &[])?;
    for (kind, labels, templates, count) in kinds {
        let (namespace, kubectl) = fixture.another_namespace(kind, labels)?;
        ensure!(NOT_AUDITED.contains(&&*namespace), "{namespace}");
        early.forget_most_memory()?;
        let before = early.memory_kib("VmRSS")?;
        create(fixture, &namespace, &templates, count)?;
        known += count as u64;
        if kind == "managed" {
            verdicts_are_the_same()?;
            with_long_constraints(fixture)
                .iter()
                .try_for_each(|pod| kubectl.create(pod).map(drop))?;
            known += 2;
            eventually("they are released", BOUND, || {
                let changes = "edgeward_gated_pod_changes_total";
                ensure!(early.count(changes, &[("reason", "released_timeout"), ("result", "changed")])? == 2);
                Ok(())
            })?;
            for name in ["long", "longest"] {
                let pod = kubectl.get("pod", name)?;
                ensure!(pod["spec"]["schedulingGates"].is_null(), "{name} is gated");
                ensure!(annotation(&pod, "reason") == Some("released_timeout"));
            }
        }
        verdicts_are_the_same()?;
        seen(&early, known)?;
        found.push((kind, grown(&early, before)?));
        created.push((namespace, count));
    }

    let late = fixture.live_edgeward_as("late", &config)?;
    seen(&late, known)?;
    found.push(("listed as a stream", grown(&late, at_start)?));
    let proxy = fixture.proxy()?;
    proxy.refuse_streams();
    let old_fashioned = fixture.live_edgeward_behind(&proxy, &config)?;
    seen(&old_fashioned, known)?;
    found.push(("listed in pages", grown(&old_fashioned, at_start)?));
    verdicts_are_the_same()?;
    for (namespace, count) in created {
        delete(fixture, &namespace, count)?;
    }
    Ok(found)
}

fn seen(edgeward: &Edgeward<'_>, pods: u64) -> Result<()> {
    eventually("every pod is seen", 4 * BOUND, || {
        let cached = edgeward.count("edgeward_cached_pods", &[])?;
        ensure!(cached >= pods, "{cached} of {pods}");
        Ok(())
    })
}

fn grown(edgeward: &Edgeward<'_>, before: u64) -> Result<Growth> {
    Ok(Growth {
        most: edgeward.memory_kib("VmHWM")?.saturating_sub(before),
        kept: edgeward.memory_kib("VmRSS")?.saturating_sub(before),
    })
}
