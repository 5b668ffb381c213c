//! Creates the load of a scenario on the control plane, at the same times.

use std::fmt;

use edgeward_harness::balancer::Balancer;
use edgeward_harness::clients;
use edgeward_harness::control_plane::{SLOW, SLOW_END, WORKS_ON};
use edgeward_harness::nodes::Wan;
use edgeward_harness::prelude::*;
use edgeward_kube::node;
use edgeward_kube::units::{Micros, Permille};
use edgeward_lab::load::{Load, Service, Task};
use edgeward_lab::outcome::Outcome;
use edgeward_lab::random::Distribution;
use edgeward_lab::scenario::{Scenario, Site, Workload, WorkloadKind};
use edgeward_lab::units::{Unit, Units, is_met, request_id};
use edgeward_lab::wan::{Path, round_trips};
use http::{Method, Request};
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::SEED;
use super::pods::{Pods, SERVICE, Seen, TASK};

/// Runs the load on the nodes of the control plane and returns the results. edgeward has as many replicas as in the
/// scenario. Among the units, only tasks are measured.
pub(super) fn outcome(
    fixture: &Fixture<'_>,
    scenario: &Scenario,
    load: &Load,
    paths: &[Option<Path>],
    units: &Units,
) -> Result<(Outcome, Lateness)> {
    has_the_nodes(fixture, scenario)?;
    let mut namespaces = Vec::new();
    for workload in &scenario.workloads {
        let (namespace, _) = fixture.another_namespace(&workload.name, json!({MANAGED: "true"}))?;
        namespaces.push(namespace);
    }
    let wan = Wan::open(fixture.runtime)?;
    let config = config(scenario, &wan);
    fixture.count_replicas(scenario.replicas as usize)?;
    let replicas = (0..scenario.replicas).map(|i| fixture.live_edgeward_as(&format!("replica-{i}"), &config));
    let replicas = replicas.collect::<Result<Vec<_>>>()?;
    let (balancer, authorities) = Balancer::before(fixture, &replicas)?;
    let names: Vec<&str> = namespaces.iter().map(String::as_str).collect();
    let _registered = fixture.register_as("zz-edgeward", &names, &balancer.url(), &authorities)?;
    eventually("one of them leads", BOUND, || {
        let leading = replicas.iter().filter(|replica| replica.leads().is_ok()).count();
        ensure!(leading == 1, "{leading}");
        Ok(())
    })?;

    let calls = calls(scenario, load, &namespaces)?;
    let client = fixture.runtime.block_on(clients::client(fixture))?;
    let pods = Pods::watch(fixture, client.clone())?;
    let calling = fixture.runtime.spawn(call(client, calls, pods.begun));
    fixture.runtime.block_on(calling)??;
    // A pod that is still without a node at the end of the run counts as never bound.
    let drain = Duration::from_micros((scenario.end + scenario.drain).0).saturating_sub(pods.begun.elapsed());
    let left = eventually("the work of every task is done", drain, || {
        let done = pods.so_far()?.iter().filter(|pod| pod.done.is_some()).count();
        ensure!(done == load.tasks.len(), "{done} of {}", load.tasks.len());
        Ok(())
    });
    if let Err(error) = left {
        println!("simulation: {error:#}");
    }
    let seen = pods.so_far()?;
    let outcome = measured(scenario, load, paths, units, &namespaces, &seen)?;
    Ok((outcome, Lateness::of(scenario, load, &seen)))
}

/// Fails unless the control plane has the nodes of the scenario, with equal resources.
fn has_the_nodes(fixture: &Fixture<'_>, scenario: &Scenario) -> Result<()> {
    for stated in scenario.sites.iter().flat_map(|site| &site.nodes) {
        let object = fixture.kubectl.get("node", &stated.name)?;
        let node = node::from_json(&object.to_string())?;
        let is_same = node.allocatable == stated.allocatable && node.slots == stated.slots;
        ensure!(is_same, "{stated:?} is {node:?}");
    }
    Ok(())
}

fn config(scenario: &Scenario, wan: &Wan<'_>) -> Value {
    let sites = scenario.sites.iter().map(|site| {
        let name = &site.definition.name;
        let kind = if site.is_edge() { "edge" } else { "cloud" };
        let speed = f64::from(site.speed.0) / 1_000.0;
        let mut stated = json!({"name": name, "kind": kind, "speedFactor": speed});
        if !site.is_edge() {
            stated["probes"] = json!([wan.probe()]);
        }
        stated
    });
    json!({"sites": sites.collect::<Vec<_>>()})
}

struct Call {
    at: Micros,
    method: Method,
    path: String,
    body: Value,
}

fn calls(scenario: &Scenario, load: &Load, namespaces: &[String]) -> Result<Vec<Call>> {
    let jobs = load.tasks.iter().enumerate().map(|(number, task)| Call {
        at: task.at,
        method: Method::POST,
        path: format!("/apis/batch/v1/namespaces/{}/jobs", namespaces[task.workload]),
        body: job(scenario, number, task),
    });
    let mut calls: Vec<_> = jobs.collect();
    for service in &load.services {
        let workload = &scenario.workloads[service.workload];
        let path = format!("/apis/apps/v1/namespaces/{}/deployments", namespaces[service.workload]);
        calls.extend(calls_for(workload, service, &path)?);
    }
    calls.sort_by_key(|call| call.at);
    Ok(calls)
}

fn calls_for(workload: &Workload, service: &Service, path: &str) -> Result<Vec<Call>> {
    let patch = |at: Micros, spec: Value| Call {
        at,
        method: Method::PATCH,
        path: format!("{path}/{}", workload.name),
        body: json!({"spec": spec}),
    };
    let [(first, replicas), later @ ..] = &*service.replicas else {
        bail!("{} has no replicas", workload.name);
    };
    let mut calls = vec![Call {
        at: *first,
        method: Method::POST,
        path: path.to_owned(),
        body: deployment(workload, *replicas)?,
    }];
    calls.extend(
        later
            .iter()
            .map(|(at, replicas)| patch(*at, json!({"replicas": replicas}))),
    );
    calls.extend(service.rollouts.iter().enumerate().map(|(number, at)| {
        let annotations = json!({"edgeward.test/rollout": number.to_string()});
        patch(*at, json!({"template": {"metadata": {"annotations": annotations}}}))
    }));
    Ok(calls)
}

/// Returns a Job whose pod works as long as the task does at the site of its node.
fn job(scenario: &Scenario, number: usize, task: &Task) -> Value {
    let mut template = template(&scenario.workloads[task.workload], &number.to_string());
    for site in &scenario.sites {
        let works = task.service.rescaled(Permille::ONE, site.speed);
        for node in &site.nodes {
            template["metadata"]["annotations"][format!("{WORKS_ON}{}", node.name)] = json!(format!("{}us", works.0));
        }
    }
    template["spec"]["restartPolicy"] = json!("Never");
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": format!("task-{number}")},
        "spec": {"backoffLimit": 0, "template": template},
    })
}

fn deployment(workload: &Workload, replicas: u32) -> Result<Value> {
    let WorkloadKind::Service { surge, unavailable, .. } = workload.kind else {
        bail!("{} is no service", workload.name);
    };
    let takes = Distribution::Constant(SLOW_END.as_millis() as f64);
    ensure!(
        workload.termination == takes,
        "pods of {} end otherwise here",
        workload.name
    );
    let mut template = template(workload, SERVICE);
    template["metadata"]["labels"][SLOW] = json!("true");
    let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": workload.name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {TASK: SERVICE}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": template,
        },
    }))
}

/// Returns the simulated pod as a template. The API server also requires an image.
fn template(workload: &Workload, task: &str) -> Value {
    let mut pod = workload.manifest.clone();
    pod["metadata"]["labels"] = json!({TASK: task});
    pod["spec"]["containers"][0]["image"] = json!("registry.example/app:1");
    json!({"metadata": pod["metadata"], "spec": pod["spec"]})
}

/// Makes each call at its time, independent of earlier calls. Waits until all are answered.
async fn call(client: Client, calls: Vec<Call>, begun: Instant) -> Result<()> {
    let mut answers = JoinSet::new();
    for call in calls {
        sleep_until((begun + Duration::from_micros(call.at.0)).into()).await;
        let client = client.clone();
        answers.spawn(async move {
            let content = match call.method {
                Method::PATCH => "application/merge-patch+json",
                _ => "application/json",
            };
            let request = Request::builder().method(call.method).uri(&call.path);
            let request = request
                .header("content-type", content)
                .body(call.body.to_string().into_bytes())?;
            client.request::<Value>(request).await.context(call.path).map(drop)
        });
    }
    while let Some(answer) = answers.join_next().await {
        answer??;
    }
    Ok(())
}

fn measured(
    scenario: &Scenario,
    load: &Load,
    paths: &[Option<Path>],
    units: &Units,
    namespaces: &[String],
    seen: &[Seen],
) -> Result<Outcome> {
    let mut outcome = Outcome {
        bound: vec![Default::default(); scenario.sites.len()],
        units: vec![false; units.list.len()],
        ..Outcome::default()
    };
    for pod in seen {
        let asked = pod.task.map_or(pod.created, |task| load.tasks[task].at);
        if asked < scenario.warmup {
            continue;
        }
        let number = namespaces.iter().position(|namespace| *namespace == pod.namespace);
        let workload = &scenario.workloads[number.context("a namespace of the load")?];
        let slo = workload.slo.context("a managed pod")?;
        outcome.gated += u64::from(pod.gated);
        let Some((at, node)) = &pod.bound else { continue };
        // Like the simulation, count an unschedulable pod when it gets its node.
        outcome.unschedulable += u64::from(pod.unschedulable);
        let site = site_of(scenario, node).with_context(|| format!("{node} is of no site"))?;
        outcome.bound[site][slo.class] += 1;
        let waited = *at - asked;
        outcome.waits.push(waited.0 as f64 / 1e6);
        let Some(task) = pod.task else { continue };
        let Some(place) = units.place(Unit::Task(task)) else {
            continue;
        };
        let service = load.tasks[task]
            .service
            .rescaled(Permille::ONE, scenario.sites[site].speed);
        let crossing = match &paths[site] {
            None => Some(Micros(0)),
            Some(path) => path.crossing(*at, round_trips(slo.class), SEED, request_id(Unit::Task(task))),
        };
        outcome.units[place] = is_met(&slo, waited, service, crossing);
    }
    Ok(outcome)
}

fn site_of(scenario: &Scenario, node: &str) -> Option<usize> {
    let is_here = |site: &Site| site.nodes.iter().any(|of_site| *of_site.name == *node);
    scenario.sites.iter().position(is_here)
}

/// Mean delays of the control plane and kwok, in milliseconds.
pub(super) struct Lateness {
    created: f64,
    started: f64,
    worked: f64,
}

impl Lateness {
    fn of(scenario: &Scenario, load: &Load, seen: &[Seen]) -> Self {
        let mean = |of: &dyn Fn(&Seen) -> Option<Micros>| {
            let found: Vec<f64> = seen.iter().filter_map(of).map(Micros::as_millis_f64).collect();
            found.iter().sum::<f64>() / found.len().max(1) as f64
        };
        Self {
            created: mean(&|pod| Some(pod.created - load.tasks[pod.task?].at)),
            started: mean(&|pod| Some(pod.running? - pod.bound.as_ref()?.0)),
            worked: mean(&|pod| {
                let site = site_of(scenario, &pod.bound.as_ref()?.1)?;
                let service = load.tasks[pod.task?]
                    .service
                    .rescaled(Permille::ONE, scenario.sites[site].speed);
                Some(pod.done? - pod.running? - service)
            }),
        }
    }

    /// Whether the delays are too large for a comparison. Starting containers 200 ms late changes the result by more
    /// than a point.
    pub(super) fn is_too_much(&self) -> bool {
        self.created.max(self.started).max(self.worked) > 100.0
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            created,
            started,
            worked,
        } = self;
        write!(
            f,
            "a Job's pod was there after {created:.0} ms, ran {started:.0} ms after its binding and worked {worked:.0} ms too long"
        )
    }
}
