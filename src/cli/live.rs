//! The view of a live cluster: watches and probes, put together.

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::Config;
use crate::fleet::{SiteKind, Snapshot};
use crate::index::{Index, Kind};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::observe::probe::{Links, Probers};
use crate::observe::{Change, Changes, Cluster, Observer};
use crate::runtime::{Readiness, Task};

/// The view that decisions read, and the tasks that keep it up to date.
pub(super) struct View {
    pub(super) fleet: Arc<ArcSwap<Snapshot>>,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) tasks: Vec<Task>,
}

/// Our own Service.
pub(super) struct Service {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Watches the cluster that we run in, or that of the kubeconfig, and probes its cloud sites. Ready when everything was
/// listed once and the first round of probes is over.
pub(super) async fn view(
    config: &Arc<Config>,
    service: Service,
    clock: Clock,
    metrics: &Arc<Metrics>,
    readiness: &Readiness,
) -> anyhow::Result<View> {
    let ledger = Arc::new(Mutex::new(Ledger::new(config.reservation_ttl)));
    let index = Index::new(&config.sites);
    let (mut observer, changes) = Observer::new(index, Arc::clone(&ledger), clock, Arc::clone(metrics));
    for kind in Kind::ALL {
        let listed = readiness.require(kind.as_str());
        observer.when_listed(kind, || listed.met());
    }
    let fleet = observer.fleet();
    let cluster = Cluster::infer(changes.clone()).await?;
    let mut tasks = Vec::from(Kind::ALL.map(|kind| watch(kind, &cluster, config, metrics)));
    tasks.push(count_replicas(config, cluster, service, changes.clone()));
    tasks.push(probe(config, clock, metrics, readiness, changes));
    tasks.push(Task::new("observer", async {
        observer.run().await;
        Ok(())
    }));
    Ok(View { fleet, ledger, tasks })
}

fn watch(kind: Kind, cluster: &Cluster, config: &Config, metrics: &Arc<Metrics>) -> Task {
    let (cluster, metrics, keys) = (cluster.clone(), Arc::clone(metrics), config.keys.clone());
    Task::new(kind.as_str(), async move {
        match kind {
            Kind::Nodes => cluster.watch_nodes(&metrics).await,
            Kind::Pods => cluster.watch_pods(&metrics, keys).await,
            Kind::Namespaces => cluster.watch_namespaces(&metrics, keys).await,
        }
        Ok(())
    })
}

/// Tells the observer how many replicas decide: as configured, else as our Service has it.
fn count_replicas(config: &Config, cluster: Cluster, service: Service, changes: Changes) -> Task {
    let configured = config.replicas;
    Task::new("replicas", async move {
        match configured {
            Some(replicas) => {
                changes.send(Change::Replicas(replicas)).await;
                std::future::pending::<()>().await;
            }
            None => cluster.watch_replicas(service.namespace, service.name, changes).await,
        }
        Ok(())
    })
}

/// Probes every cloud site that has endpoints, and tells the observer.
fn probe(config: &Config, clock: Clock, metrics: &Arc<Metrics>, readiness: &Readiness, changes: Changes) -> Task {
    let (_thresholds, thresholds) = watch::channel(config.into());
    let probers = Probers::new(thresholds, clock, Arc::clone(metrics));
    let mut links = probers.links();
    let clouds = config.sites.iter().filter(|site| site.kind == SiteKind::Cloud);
    let mut sites = Vec::new();
    for site in clouds {
        if site.probes.is_empty() {
            tracing::warn!(
                site = site.name,
                "no probes: it counts as unreachable, and no pod is sent there"
            );
        } else {
            sites.push(probers.prober(&site.name, site.probes.clone(), config.probing));
        }
    }
    let first_round = readiness.require("first round of WAN probes");
    Task::new("WAN probes", async move {
        let first = sites.iter_mut().map(|prober| prober.first_round());
        futures::future::join_all(first).await;
        let told = links.borrow_and_update().clone();
        tell(told, &changes).await;
        first_round.met();
        let tell_all = async {
            while links.changed().await.is_ok() {
                let now = links.borrow_and_update().clone();
                tell(now, &changes).await;
            }
            std::future::pending::<()>().await;
        };
        let run = futures::future::join_all(sites.into_iter().map(|prober| prober.run()));
        tokio::join!(tell_all, run);
        Ok(())
    })
}

async fn tell(links: Links, changes: &Changes) {
    for (site, known) in links {
        changes.send(Change::Link(site, known.link)).await;
    }
}
