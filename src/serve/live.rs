//! Assembles the tasks for a live cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use edgeward_cluster::cache::Kind;
use edgeward_cluster::engine::{Effect, Engine, SharedState};
use edgeward_decision::config::Config;
use edgeward_decision::placement::policy::Policies;
use tokio::sync::watch;

use crate::config::Versions;
use crate::controllers::events::Recorder;
use crate::controllers::lease::Election;
use crate::controllers::status::Statuses;
use crate::controllers::{Context, backstop, executor, moves, neighbourhoods, ocm, peers, report};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::karmada::{Clusters, estimator};
use crate::liqo::Liqo;
use crate::observer::Observer;
use crate::platform::clock::Clock;
use crate::platform::threads::Threads;
use crate::policies::SloPolicies;
use crate::profiles::PerformanceProfiles;
use crate::prometheus;
use crate::reports::Reports;
use crate::scorer::Scorers;
use crate::serve::{CERTIFICATE, Readiness, Task};
use crate::sites::Sites;
use crate::tls::Service;
use crate::wan;
use crate::watch::Cluster;
use crate::watch::pod_groups::PodGroupApi;

/// The view that decisions read, and the tasks that keep it up to date.
pub(super) struct View {
    pub(super) config: Arc<ArcSwap<Config>>,
    pub(super) shared: Arc<SharedState>,
    pub(super) policies: Arc<ArcSwap<Policies>>,
    /// What controllers of the watched cluster share; `None` with a fleet file.
    pub(super) controllers: Option<Context>,
    pub(super) tasks: Vec<Task>,
}

/// Watches the cluster of the kubeconfig or else of this pod, and probes its cloud sites. The engine starts with the first
/// valid configuration. The view is ready when every kind was listed once and the first round of probes has ended.
pub(super) async fn view(
    versions: &Versions,
    config: &ArcSwap<Config>,
    service: Service,
    clock: Clock,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
    (peers, estimator): (peers::Options, estimator::EstimatorOptions),
) -> anyhow::Result<View> {
    // State shared by the tasks.
    let metrics = || Arc::clone(metrics);
    let shared = Arc::new(SharedState::default());
    let (observer, changes) = Observer::new(clock, metrics());
    let client = Cluster::infer(changes.clone(), metrics()).await?.client;
    let thread = Arc::new(Threads::start("view", 1).context("the view has no thread")?);
    // The watches get their own connections, because the thread that opens a connection also serves it.
    let watched = Cluster::infer(changes.clone(), metrics());
    let watched = thread.handle.spawn(watched).await??;
    let liqo = Liqo::new(client.clone(), metrics(), clock, changes.clone());
    let (settings, discovered) = (versions.clone(), liqo.discovered.subscribe());
    let sites = Sites::new(versions.clone(), config.load_full());
    let (config, versions, sites_seen) = (
        Arc::clone(&sites.current),
        Versions::of(&sites.versions),
        sites.seen.subscribe(),
    );
    let policies = SloPolicies::default();
    let (policies_in_use, policy_versions) = (Arc::clone(&policies.current), policies.versions.subscribe());
    let profiles = PerformanceProfiles::new(Arc::clone(&shared), metrics(), clock, changes.clone());
    let profiles_evaluated = profiles.evaluated.subscribe();
    let (election, leadership) = Election::new(client.clone(), &service.namespace, &service.name, clock, metrics());
    let (recorder, events) = Recorder::new(client.clone(), clock, metrics());

    // Requirements before the first decision, as `/readyz` lists them.
    let listed = Kind::REQUIRED.map(|kind| (kind, readiness.require(kind.as_str())));
    let listed = BTreeMap::from(listed);
    let met = |name| {
        let requirement = readiness.require(name);
        move || requirement.met()
    };
    // A replica may lead once its view is complete. It cannot wait for the certificate, because the leader creates
    // it.
    let viewing = || readiness.reaches(|phase| phase.missing.iter().all(|missing| *missing == CERTIFICATE));
    let draining = readiness.reaches(|phase| phase.is_draining);

    let (told, log_limit) = (events.clone(), LogLimit::new(clock));
    // The engine waits for this closure, so nothing in it may block.
    let carry_out = move |effect| match effect {
        Effect::Listed(kind) => listed.get(&kind).into_iter().for_each(|listed| listed.met()),
        Effect::Decided(decision) => told.decided(&decision),
        Effect::NodeFault(fault) => {
            // A wrong node label can cause this again and again, so the lines are limited.
            if let Some(held_back) = log_limit.due("node fault") {
                tracing::warn!(node = &*fault.node, held_back, "{fault}");
            }
        }
    };
    let context = Context {
        client: client.clone(),
        config: Arc::clone(&config),
        shared: Arc::clone(&shared),
        events,
        leadership: leadership.clone(),
        clock,
        metrics: metrics(),
    };
    let (plans, reports) = (observer.plans.subscribe(), observer.backstop_reports.subscribe());
    let movable = observer.moves_reports.subscribe();
    let statuses = Statuses {
        context: context.clone(),
        sites: sites_seen,
        policies: policy_versions.clone(),
        profiles: profiles_evaluated,
        plans: plans.clone(),
    };
    let (newest_report, own_report) = watch::channel(None);
    let peers = peers::Peers {
        context: context.clone(),
        report: own_report,
        namespace: service.namespace.clone(),
        options: peers,
    };
    let neighbours = Reports {
        client: client.clone(),
        namespace: service.namespace.clone(),
        metrics: metrics(),
        changes: changes.clone(),
    };
    let scorers = Scorers {
        client: client.clone(),
        namespace: service.namespace.clone(),
        metrics: metrics(),
        changes: changes.clone(),
    };
    let clusters = Clusters {
        metrics: metrics(),
        changes: changes.clone(),
    };
    let estimator = estimator::Estimator {
        config: Arc::clone(&config),
        shared: Arc::clone(&shared),
        clock,
        metrics: metrics(),
        options: estimator,
    };
    let engine = {
        let (mut versions, shared) = (versions.clone(), Arc::clone(&shared));
        async move { Engine::new(versions.next().await, shared) }
    };

    let pod_groups = |api, known| watched.clone().follow_pod_groups(api, metrics(), known);
    let tasks = vec![
        // Sources send their observations.
        Task::endless("Liqo", liqo.follow(settings, met("liqo"))),
        Task::endless(
            "sites",
            sites.follow(client.clone(), metrics(), discovered, met("sites")),
        ),
        Task::endless(
            "policies",
            policies.follow(client.clone(), metrics(), clock, changes.clone(), met("policies")),
        ),
        Task::endless(
            "profiles",
            profiles.follow(client.clone(), versions.clone(), met("profiles")),
        ),
        Task::endless("settings", versions.clone().send_settings(changes.clone())),
        Task::endless("watches", watched.clone().follow(versions.clone(), metrics())).on(&thread),
        Task::endless("volumes", watched.clone().follow_volumes(versions.clone(), metrics())).on(&thread),
        Task::endless(
            "device classes",
            watched.clone().follow_device_classes(metrics(), met("device classes")),
        )
        .on(&thread),
        Task::endless("pod groups", pod_groups(PodGroupApi::Kubernetes, met("pod groups"))).on(&thread),
        Task::endless(
            "coscheduling",
            pod_groups(PodGroupApi::Coscheduling, met("coscheduling")),
        )
        .on(&thread),
        Task::endless(
            "replicas",
            watched.follow_replicas(service.namespace, service.name, metrics()),
        )
        .on(&thread),
        Task::endless("reports of neighbours", neighbours.follow(versions.clone())),
        Task::endless("learned scorer", scorers.follow(versions.clone())),
        Task::endless("Clusters of Karmada", clusters.follow(versions.clone())),
        Task::endless("estimator", estimator.run(viewing(), versions.clone())),
        Task::endless(
            "Prometheus",
            prometheus::follow(versions.clone(), clock, metrics(), changes.clone()),
        ),
        Task::endless(
            "WAN probes",
            wan::follow(
                versions.clone(),
                clock,
                metrics(),
                changes,
                met("first round of WAN probes"),
            ),
        ),
        // The engine computes the view and the release plan.
        Task::endless("observer", async move { observer.run(engine.await, carry_out).await }).on(&thread),
        // Controllers write to the API server while this replica leads.
        Task::graceful("Lease", election.run(viewing(), draining)),
        Task::endless("Events on pods", recorder.run(leadership)),
        Task::endless("release of gated pods", executor::run(context.clone(), plans.clone())),
        Task::endless("backstop", backstop::run(context.clone(), reports)),
        Task::endless("moves", moves::run(context.clone(), movable)),
        Task::endless("statuses", statuses.run()),
        Task::endless("neighbourhoods", neighbourhoods::run(context.clone(), policy_versions)),
        Task::endless(
            "report",
            report::run(context.clone(), versions.clone(), plans, newest_report),
        ),
        Task::endless("peers", peers.run(versions.clone())),
        Task::endless("OCM", ocm::run(context.clone(), versions)),
    ];
    Ok(View {
        config,
        shared,
        policies: policies_in_use,
        controllers: Some(context),
        tasks,
    })
}
