//! The view of a live cluster: watches and probes, put together.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::admit::Phase;
use crate::clock::Clock;
use crate::config::Config;
use crate::controllers::backstop::Backstop;
use crate::controllers::events::{Events, PodEvent, Recorder, looping};
use crate::controllers::executor::Executor;
use crate::controllers::lease::{Election, Leadership};
use crate::controllers::status::{self, Views};
use crate::engine::{Change, Effect, Engine, SharedState};
use crate::index::Kind;
use crate::metrics::Metrics;
use crate::model::link::Thresholds;
use crate::model::site::{SiteDefinition, SiteKind, are_same_places};
use crate::observe::configuration::Versions;
use crate::observe::probe::{Links, Prober, Probers};
use crate::observe::prometheus::Poller;
use crate::observe::{self, Changes, Cluster, Connection, Listing, Observer, Sites, SloPolicies};
use crate::policy::Policies;
use crate::runtime::{CERTIFICATE, Readiness, Requirement, Task};
use crate::telemetry::Telemetry;
use crate::waitlist::Plan;

/// When a Prometheus connection whose files were unusable is tried again.
const REOPEN: Duration = Duration::from_secs(15);

/// The view that decisions read, and the tasks that keep it up to date.
pub(super) struct View {
    pub(super) config: Arc<ArcSwap<Config>>,
    pub(super) shared: Arc<SharedState>,
    pub(super) policies: Arc<ArcSwap<Policies>>,
    /// The cluster that is watched, and who leads there; `None` of a fleet file.
    pub(super) cluster: Option<(Cluster, Leadership)>,
    pub(super) plans: watch::Receiver<Arc<Plan>>,
    pub(super) tasks: Vec<Task>,
}

/// Our own Service.
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Watches the cluster that we run in, or that of the kubeconfig, and probes its cloud sites. Begins with the first good
/// configuration; ready when everything was listed once and the first round of probes is over.
pub(super) async fn view(
    versions: &Versions,
    config: &ArcSwap<Config>,
    service: Service,
    clock: Clock,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
) -> anyhow::Result<View> {
    let shared = Arc::<SharedState>::default();
    let (observer, changes) = Observer::new(clock, Arc::clone(metrics));
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
    let mut tasks = vec![watch(&cluster, versions.clone(), changes.clone(), metrics)];
    let replicas = count_replicas(versions.clone(), cluster.clone(), service, metrics, changes.clone());
    tasks.push(replicas);
    tasks.push(ask(versions.clone(), clock, metrics, changes.clone()));
    tasks.push(probe(versions.clone(), clock, metrics, readiness, changes));
    tasks.push(Task::endless("Events on pods", recorder.run(leadership.clone())));
    // Who has a whole view may lead: it is the leader who makes a certificate.
    let (viewing, draining) = (readiness.all_but(CERTIFICATE), enters(readiness, Phase::Draining));
    tasks.push(Task::that_takes_leave("Lease", election.run(viewing, draining)));
    let backstop = Backstop {
        client: client.clone(),
        surveys: observer.surveys(),
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
            Effect::Decided(sighting) => self.events.decided(*sighting),
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

/// Watches the cluster. Where sites change, everything is listed anew, to be counted by the new ones.
fn watch(cluster: &Cluster, mut versions: Versions, changes: Changes, metrics: &Arc<Metrics>) -> Task {
    let (cluster, metrics) = (cluster.clone(), Arc::clone(metrics));
    Task::endless("watches", async move {
        let mut config = versions.next().await;
        loop {
            changes.send(Change::Sites(Arc::clone(&config))).await;
            let cluster = cluster.anew();
            // A version with another domain is never in use after this one.
            let keys = &config.keys;
            let watches = async {
                tokio::join!(
                    cluster.clone().watch_nodes(&metrics),
                    cluster.clone().watch_pods(&metrics, keys.clone()),
                    cluster.clone().watch_namespaces(&metrics, keys.clone()),
                );
            };
            let others = async {
                loop {
                    let next = versions.next().await;
                    if !are_same_places(next.sites.iter(), &config.sites) {
                        return next;
                    }
                }
            };
            config = tokio::select! {
                next = others => next,
                () = watches => return,
            };
        }
    })
}

/// Tells the settings of the configuration in use, and how many replicas decide.
fn count_replicas(
    mut versions: Versions,
    cluster: Cluster,
    service: Service,
    metrics: &Arc<Metrics>,
    changes: Changes,
) -> Task {
    let metrics = Arc::clone(metrics);
    Task::endless("reservations", async move {
        let mut config = versions.next().await;
        loop {
            changes.send(Change::Settings(Arc::clone(&config))).await;
            let replicas = async {
                match config.replicas {
                    Some(replicas) => {
                        changes.send(Change::Replicas(replicas)).await;
                        std::future::pending().await
                    }
                    None => {
                        cluster
                            .watch_replicas(&service.namespace, &service.name, &metrics, &changes)
                            .await
                    }
                }
            };
            config = tokio::select! {
                next = versions.next() => next,
                () = replicas => return,
            };
        }
    })
}

/// Asks the Prometheus server of the configuration in use, if it names one, and tells the observer.
fn ask(mut versions: Versions, clock: Clock, metrics: &Arc<Metrics>, changes: Changes) -> Task {
    let metrics = Arc::clone(metrics);
    Task::endless("Prometheus", async move {
        let mut config = versions.next().await;
        loop {
            let Some(prometheus) = &config.prometheus else {
                changes.send(Change::Telemetry(Box::default())).await;
                config = versions.next().await;
                continue;
            };
            let asked = async {
                match Poller::open(prometheus, Arc::clone(&config), clock, Arc::clone(&metrics)).await {
                    Ok(poller) => {
                        let told = tell_telemetry(poller.telemetry(), &changes);
                        tokio::join!(told, poller.follow());
                    }
                    Err(error) => {
                        let nothing = Telemetry::new(prometheus.required_inputs());
                        changes.send(Change::Telemetry(Box::new(nothing))).await;
                        let error = format!("{error:#}");
                        tracing::error!(error, "Prometheus cannot be asked; tried again in a while");
                        tokio::time::sleep(REOPEN).await;
                    }
                }
            };
            tokio::select! {
                next = versions.next() => {
                    metrics.prometheus().forget();
                    config = next;
                }
                () = asked => {}
            }
        }
    })
}

async fn tell_telemetry(mut telemetry: watch::Receiver<Telemetry>, changes: &Changes) {
    loop {
        let now = telemetry.borrow_and_update().clone();
        changes.send(Change::Telemetry(Box::new(now))).await;
        if telemetry.changed().await.is_err() {
            return;
        }
    }
}

/// Probes every cloud site that has endpoints, as the configuration in use says, and tells the observer.
fn probe(
    mut versions: Versions,
    clock: Clock,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
    changes: Changes,
) -> Task {
    let metrics = Arc::clone(metrics);
    let mut first_round = Some(readiness.require("first round of WAN probes"));
    Task::endless("WAN probes", async move {
        let mut config = versions.next().await;
        let (thresholds, judged_by) = watch::channel(Thresholds::from(&*config));
        let probers = Probers::new(judged_by, clock, Arc::clone(&metrics));
        let mut links = probers.links();
        loop {
            metrics.wan().forget();
            let mut sites = probers_of(&config, &probers);
            // What an earlier version has found is told until this one's first round is over.
            futures::future::join_all(sites.iter_mut().map(Prober::first_round)).await;
            tell(&mut links, &config, &changes).await;
            changes.send(Change::FirstRound(Arc::clone(&config))).await;
            if let Some(first_round) = first_round.take() {
                first_round.met();
            }
            let tell_all = async {
                while links.changed().await.is_ok() {
                    tell(&mut links, &config, &changes).await;
                }
            };
            let others = async {
                loop {
                    let next = versions.next().await;
                    thresholds.send_replace(Thresholds::from(&*next));
                    if (&next.sites, next.probing) != (&config.sites, config.probing) {
                        return next;
                    }
                }
            };
            let run = futures::future::join_all(sites.into_iter().map(Prober::run));
            config = tokio::select! {
                next = others => next,
                _ = async { tokio::join!(tell_all, run) } => return,
            };
        }
    })
}

/// A cluster as it is now: listed once, and its cloud sites probed once.
///
/// # Errors
/// As [`observe::list`].
pub(super) async fn look(
    connection: &Connection,
    config: &Config,
    clock: Clock,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Listing> {
    let (mut listing, links) = tokio::try_join!(observe::list(connection, config, clock), async {
        Ok(first_round(config, clock, metrics).await)
    })?;
    for (site, known) in links {
        listing.index.set_link(&site, known.link);
    }
    Ok(listing)
}

/// What the first round of probes says of each cloud site. Takes 3 s at most.
async fn first_round(config: &Config, clock: Clock, metrics: &Arc<Metrics>) -> Links {
    let (_thresholds, judged_by) = watch::channel(Thresholds::from(config));
    let probers = Probers::new(judged_by, clock, Arc::clone(metrics));
    let links = probers.links();
    let mut sites = probers_of(config, &probers);
    futures::future::join_all(sites.iter_mut().map(Prober::first_round)).await;
    links.borrow().clone()
}

/// A prober for every cloud site that has endpoints.
fn probers_of(config: &Config, probers: &Probers) -> Vec<Prober> {
    let mut sites = Vec::new();
    for site in clouds(config) {
        if site.probes.is_empty() {
            tracing::warn!(
                site = site.name,
                "no probes: it counts as unreachable, and no pod is sent there"
            );
        } else {
            let prober = probers.prober(&site.name, site.probes.clone(), config.probing);
            sites.push(prober.judged_by(site.thresholds));
        }
    }
    sites
}

/// Tells what is known of the links; nothing is of one that is not probed any more.
async fn tell(links: &mut watch::Receiver<Links>, config: &Config, changes: &Changes) {
    let known = links.borrow_and_update().clone();
    for site in clouds(config) {
        let known = known.get(&site.name).filter(|_| !site.probes.is_empty());
        let link = known.and_then(|known| known.link);
        changes.send(Change::Link(site.name.clone(), link)).await;
    }
}

fn clouds(config: &Config) -> impl Iterator<Item = &SiteDefinition> {
    let sites = config.sites.iter().map(|site| &**site);
    sites.filter(|site| site.kind == SiteKind::Cloud)
}
