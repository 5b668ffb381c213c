//! Time from the creation of the first pod of 10 applications until kube-scheduler has bound all 150 pods: alone, near each
//! other, and started together.

use std::pin::pin;

use edgeward_harness::clients;
use edgeward_harness::prelude::*;
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};

use crate::contenders::Contender;
use crate::differences::Median;
use crate::fleet;

const ROUNDS: usize = 40;
const NODES: usize = 50;
const APPLICATIONS: usize = 10;

/// The components of an application, with those that each is near. Three pods of each.
const COMPONENTS: [(&str, &str); 5] = [
    ("web", "api=10ms"),
    ("api", "db=10ms, cache=10ms?"),
    ("cache", "db=10ms"),
    ("db", "logs=100ms"),
    ("logs", "db=100ms"),
];
const PODS_OF_A_COMPONENT: usize = 3;
const PODS_OF_AN_APPLICATION: usize = COMPONENTS.len() * PODS_OF_A_COMPONENT;
const PODS: usize = APPLICATIONS * PODS_OF_AN_APPLICATION;

/// How the pods belong together, with the names of the annotations that say so.
const WAYS: [(&str, &[&str]); 2] = [
    ("near each other", &["group", "near"]),
    ("near, started together", &["group", "near", "groupSize"]),
];

e2e! { "groups::of_applications", Machine, of_applications }
fn of_applications(fixture: &Fixture<'_>) -> Result<()> {
    fleet::create(fixture, NODES)?;
    let edgeward = Contender::edgeward(fixture)?;
    edgeward.is_in_force(fixture, &workloads::pod("asked", workloads::latency()))?;
    let client = fixture.runtime.block_on(clients::client(fixture))?;
    let kubectl = fixture.kubectl_in(&edgeward.namespace);
    let delete = || {
        let all = ["delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false"];
        kubectl.run(&all, "")?;
        eventually("no pod is left", BOUND, || {
            ensure!(kubectl.list("pods", "")?.is_empty());
            Ok(())
        })
    };
    println!(
        "\n| {PODS} pods of {APPLICATIONS} applications, {ROUNDS} rounds | bound after, s | alone, s | over alone, % |"
    );
    println!("|---|---:|---:|---:|");
    for (name, annotations) in WAYS {
        let mut times = [vec![], vec![]];
        // The first round warms up. A run leaves the API server in another state, so each way is first in every other round.
        for round in 0..=ROUNDS {
            for place in 0..2 {
                let is_alone = (place + round) % 2 == 0;
                let annotations = if is_alone { &[] } else { annotations };
                let bound = until_bound(&client, &edgeward.namespace, annotations);
                let took = fixture.runtime.block_on(bound)?;
                if round > 0 {
                    times[usize::from(is_alone)].push(took.as_secs_f64());
                }
                delete()?;
            }
        }
        let [of_way, alone] = &times;
        let over = Median::of(of_way.iter().zip(alone).map(|(one, alone)| 100.0 * (one / alone - 1.0)));
        let [of_way, alone] = [of_way, alone].map(|times| Median::of(times.iter().copied()));
        println!("| {name} | {of_way:.2} | {alone:.2} | {over:+.1} |");
    }
    Ok(())
}

/// Creates the pods of all applications at once, and waits until all are bound.
async fn until_bound(client: &Client, namespace: &str, annotations: &[&str]) -> Result<Duration> {
    let pods = Api::<PartialObjectMeta<Pod>>::namespaced(client.clone(), namespace);
    let mut bound = pin!(watcher(pods, Config::default().fields("spec.nodeName!=")));
    while !matches!(bound.try_next().await?, Some(Event::InitDone)) {}
    let begun = Instant::now();
    let created = try_join_all((0..APPLICATIONS).map(|number| create(client, namespace, number, annotations)));
    let mut names = BTreeSet::new();
    let seen = async {
        while names.len() < PODS {
            if let Some(Event::Apply(pod)) = bound.try_next().await? {
                names.insert(pod.metadata.name);
            }
        }
        anyhow::Ok(begun.elapsed())
    };
    let (_, took) = tokio::time::timeout(BOUND, async { tokio::try_join!(created, seen) }).await??;
    Ok(took)
}

/// Creates the pods of one application, one after another.
async fn create(client: &Client, namespace: &str, application: usize, annotations: &[&str]) -> Result<()> {
    for number in 0..PODS_OF_AN_APPLICATION {
        let (component, near) = COMPONENTS[number % COMPONENTS.len()];
        let size = PODS_OF_AN_APPLICATION.to_string();
        let all = [
            ("group", &*format!("app-{application}")),
            ("near", near),
            ("groupSize", &size),
        ];
        let mut pod = workloads::pod(&format!("{component}-{application}-{number}"), workloads::latency());
        pod["metadata"]["labels"] = json!({"app.kubernetes.io/component": component});
        for (name, value) in all.into_iter().filter(|(name, _)| annotations.contains(name)) {
            pod["metadata"]["annotations"][format!("slo.example.io/{name}")] = json!(value);
        }
        clients::post(client, &format!("/api/v1/namespaces/{namespace}/pods"), &pod).await?;
    }
    Ok(())
}
