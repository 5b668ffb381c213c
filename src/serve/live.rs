//! The view of a live cluster: watches and probes, put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_core::cluster::cache::Kind;
use edgeward_core::config::Config;
use edgeward_core::engine::{Effect, Engine, Journal, SharedState};
use edgeward_core::placement::policy::Policies;
use edgeward_core::queue::Plan;
use tokio::sync::watch;

use crate::admission::Phase;
use crate::controllers::backstop::Backstop;
use crate::controllers::events::{Events, PodEvent, Recorder, looping};
use crate::controllers::executor::Executor;
use crate::controllers::lease::{Election, Leadership};
use crate::controllers::status::{self, Views};
use crate::instruments::metrics::Metrics;
use crate::instruments::recording::Recording;
use crate::platform::clock::Clock;
use crate::serve::{CERTIFICATE, Readiness, Requirement, Task};
use crate::sources::configuration::Versions;
use crate::sources::{Cluster, Observer, Service, Sites, SloPolicies, probe, prometheus};

/// The view that decisions read, and the tasks that keep it up to date.
pub(crate) struct View {
    pub(crate) config: Arc<ArcSwap<Config>>,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) policies: Arc<ArcSwap<Policies>>,
    /// The cluster that is watched, and who leads there; `None` of a fleet file.
    pub(crate) cluster: Option<(Cluster, Leadership)>,
    pub(crate) plans: watch::Receiver<Arc<Plan>>,
    pub(crate) tasks: Vec<Task>,
}

/// Watches the cluster that we run in, or that of the kubeconfig, and probes its cloud sites. Begins with the first good
/// configuration; ready when everything was listed once and the first round of probes is over.
pub(crate) async fn view(
    versions: &Versions,
    config: &ArcSwap<Config>,
    service: Service,
    clock: Clock,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
    recording: Option<Arc<Recording>>,
) -> anyhow::Result<View> {
    let journal = recording.clone().map(|recording| recording as Arc<dyn Journal>);
    let shared = Arc::new(SharedState::default().with_journal(journal));
    let (observer, changes) = Observer::new(clock, Arc::clone(metrics), recording);
    let listed = Kind::ALL.map(|kind| (kind, readiness.require(kind.as_str()))).into();
    let cluster = Cluster::infer(changes.clone()).await?;
    let sites = Sites::new(versions.clone(), config.load_full());
    let (config, versions, seen) = (sites.current(), sites.versions(), sites.seen());
    let known = readiness.require("sites");
    let client = cluster.client();
    let follow_sites = Task::endless(
        "sites",
        sites.follow(client.clone(), Arc::clone(metrics), || known.met()),
    );
    let (election, leadership) = Election::new(
        cluster.client(),
        &service.namespace,
        &service.name,
        clock,
        Arc::clone(metrics),
    );
    let (recorder, events) = Recorder::new(cluster.client(), Arc::clone(&config), clock, Arc::clone(metrics));
    let told = Told {
        listed,
        events: events.clone(),
        config: Arc::clone(&config),
        metrics: Arc::clone(metrics),
        clock,
    };
    let views = Views {
        seen,
        shared: Arc::clone(&shared),
        plans: observer.plans(),
    };
    let status_of_sites = status::of_sites(views, cluster.client(), clock, leadership.clone());
    let (policies, policy_tasks) = follow_policies(&cluster, leadership.clone(), metrics, readiness);
    let first_round = readiness.require("first round of WAN probes");
    let mut tasks = vec![
        Task::endless("watches", cluster.clone().follow(versions.clone(), Arc::clone(metrics))),
        Task::endless("settings", versions.clone().tell(changes.clone())),
        Task::endless(
            "replicas",
            cluster
                .clone()
                .follow_replicas(versions.clone(), service, Arc::clone(metrics)),
        ),
        Task::endless(
            "Prometheus",
            prometheus::follow(versions.clone(), clock, Arc::clone(metrics), changes.clone()),
        ),
        Task::endless(
            "WAN probes",
            probe::follow(versions.clone(), clock, Arc::clone(metrics), changes, || {
                first_round.met()
            }),
        ),
    ];
    tasks.push(Task::endless("Events on pods", recorder.run(leadership.clone())));
    // Who has a whole view may lead: it is the leader who makes a certificate.
    let (viewing, draining) = (readiness.all_but(CERTIFICATE), enters(readiness, Phase::Draining));
    tasks.push(Task::that_takes_leave("Lease", election.run(viewing, draining)));
    let backstop = Backstop {
        client: client.clone(),
        reports: observer.backstop_reports(),
        config: Arc::clone(&config),
        shared: Arc::clone(&shared),
        events: events.clone(),
        clock,
        metrics: Arc::clone(metrics),
    };
    tasks.push(Task::endless("backstop", backstop.run(leadership.clone())));
    let plans = observer.plans();
    let executor = Executor {
        client,
        plans: plans.clone(),
        config: Arc::clone(&config),
        shared: Arc::clone(&shared),
        clock,
        metrics: Arc::clone(metrics),
        events,
    };
    tasks.push(Task::endless("release of held pods", executor.run(leadership.clone())));
    let (mut versions, state) = (versions.clone(), Arc::clone(&shared));
    tasks.push(Task::endless("observer", async move {
        let engine = Engine::new(versions.next().await, state);
        observer.run(engine, told.carry_out()).await;
    }));
    tasks.extend(policy_tasks);
    tasks.extend([follow_sites, Task::endless("status of sites", status_of_sites)]);
    Ok(View {
        config,
        shared,
        policies,
        cluster: Some((cluster, leadership)),
        plans,
        tasks,
    })
}

/// Those who are told of the engine's effects.
struct Told {
    /// Met when everything of a kind is listed and published.
    listed: BTreeMap<Kind, Requirement>,
    events: Events,
    config: Arc<ArcSwap<Config>>,
    metrics: Arc<Metrics>,
    clock: Clock,
}

impl Told {
    fn carry_out(mut self) -> impl FnMut(Effect) {
        move |effect| self.tell(effect)
    }

    fn tell(&mut self, effect: Effect) {
        let now = || self.clock.wall();
        match effect {
            Effect::Listed(kind) => {
                if let Some(listed) = self.listed.remove(&kind) {
                    listed.met();
                }
            }
            Effect::Decided(observed) => self.events.decided(*observed),
            Effect::Paused(closed) => {
                tracing::warn!(
                    namespace = &*closed.namespace,
                    controller = &*closed.controller,
                    failures = closed.failures,
                    pause_s = closed.pause.0 / 1_000_000,
                    "pods of a controller fail over and over; they are left as they are for a while"
                );
                self.metrics.aftermath().paused();
                self.events.tell(looping(&closed, now()));
            }
            Effect::HeldByAnotherDomain(pod) => {
                let keys = &self.config.load().keys;
                self.events.tell(PodEvent::another_domain(*pod, keys, now()));
            }
            Effect::OtherDomains { any, new } => {
                self.metrics.configuration().other_domains(any);
                let domain = &*self.config.load().keys.domain;
                for (gate_domain, pods) in new {
                    tracing::error!(
                        domain,
                        gate_domain = &*gate_domain,
                        pods,
                        "pods are behind the gate of another domain, and nobody releases them; was the domain changed?"
                    );
                }
            }
            Effect::SitesInUse(sites) => tracing::info!(sites = sites.join(" "), "other sites are in use"),
            Effect::NodeFault(fault) => tracing::warn!(
                node = &*fault.node,
                sites = fault.sites.join(" "),
                "carries the selectors of several sites; it counts to the first cloud of them"
            ),
        }
    }
}

/// Watches SloPolicies where there are any, and writes how they stand.
fn follow_policies(
    cluster: &Cluster,
    leadership: Leadership,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
) -> (Arc<ArcSwap<Policies>>, [Task; 2]) {
    let policies = SloPolicies::default();
    let (current, versions) = (policies.current(), policies.versions());
    let listed = readiness.require("policies");
    let (client, metrics) = (cluster.client(), Arc::clone(metrics));
    let status = status::of_policies(versions, client.clone(), leadership);
    let tasks = [
        Task::endless("policies", policies.follow(client, metrics, || listed.met())),
        Task::endless("status of policies", status),
    ];
    (current, tasks)
}

/// Waits until the server is in this phase.
fn enters(readiness: &Readiness, phase: Phase) -> impl Future<Output = ()> + use<> {
    let mut now = readiness.phase();
    async move {
        if now.wait_for(|now| *now == phase).await.is_err() {
            std::future::pending().await
        }
    }
}
