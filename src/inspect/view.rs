//! Reads and probes a live cluster once, as an edgeward would see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use edgeward_cluster::cache::{Kind, NodeFault};
use edgeward_cluster::engine::{Change, Engine, SharedState};
use edgeward_cluster::pod_record::GatedPod;
use edgeward_decision::config::Config;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::placement::policy::Policies;
use edgeward_kube::resources::ResourceNames;

use crate::inspect::Connection;
use crate::inspect::objects::{self, Liqo};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::profiles::scores_of;
use crate::prometheus;
use crate::wan;
use crate::watch::device_classes::served;
use crate::watch::raw::Gvr;
use crate::watch::volumes::{self, can_have_data};
use crate::watch::{read_namespace, read_node, read_pod};

/// A cluster as an edgeward with this configuration sees it.
#[derive(Debug, Default)]
pub struct View {
    /// The configuration, with the sites in use.
    pub config: Config,
    /// All objects, with the claims of a plan for the gated pods.
    pub snapshot: Arc<Snapshot>,
    /// Pods behind our gate.
    pub gated: Vec<Arc<GatedPod>>,
    /// Nodes that the selectors of several sites match.
    pub node_faults: Vec<NodeFault>,
    /// The SloPolicies.
    pub policies: Policies,
    /// State of Liqo.
    pub liqo: Liqo,
    /// Errors of the kinds that could not be read and therefore do not count.
    pub unread: Vec<anyhow::Error>,
}

impl View {
    /// Returns what was read. Turns an error into an entry of `unread` and `None`.
    fn read<T>(&mut self, read: anyhow::Result<T>) -> Option<T> {
        read.map_err(|error| self.unread.push(error)).ok()
    }
}

/// Lists a cluster, probes its cloud sites and queries Prometheus once. Also returns the engine that made the snapshot. An object that
/// cannot be parsed is logged and does not count, nor does the pod with the uid `without`.
///
/// # Errors
/// Nodes, pods or namespaces cannot be listed. The error names the server and the refused request.
pub async fn view(
    connection: &Connection,
    mut config: Config,
    without: Option<&str>,
) -> anyhow::Result<(View, Engine)> {
    let mut view = View::default();
    let sites = view.read(objects::sites(connection).await).flatten();
    config.sites = sites.unwrap_or(config.sites);
    view.liqo = objects::liqo(connection, &mut config).await;
    let unreadable = std::mem::take(&mut view.liqo.unreadable);
    view.unread.extend(unreadable.into_iter().map(|(_, error)| error));
    let (clock, metrics) = (connection.clock, Arc::new(Metrics::new()));
    let shared = Arc::<SharedState>::default();
    let mut engine = Engine::new(Arc::new(config.clone()), Arc::clone(&shared));
    let asked = clock.now();
    let probed = async { Ok(wan::first_round(&config, clock, &metrics).await) };
    let measured = async { Ok(prometheus::ask_once(&config, clock).await) };
    let (listed, links, measured) = tokio::try_join!(list(connection, &config, &mut view), probed, measured)?;
    let (telemetry, missing) = measured;
    view.unread.extend(missing);
    for change in &listed {
        if let Change::Pod(pod) = change {
            if Some(&*pod.uid) == without {
                continue;
            }
            view.gated.extend(pod.gated_pod.clone());
        }
        engine.apply(change, asked);
    }
    let now = clock.now();
    let facts = view.liqo.objects.as_ref().map(|objects| Arc::new(objects.facts(now)));
    let policies = view.read(objects::policies(connection).await).flatten();
    view.policies = Policies::of(policies.into_iter().flatten());
    let profiles = connection.installed(Gvr::PROFILES, |object| scores_of(object, now));
    let profiles = view.read(profiles.await).flatten().unwrap_or_default();
    let links = links.into_iter().map(|(site, link)| Change::Link(site, link));
    let others = [
        Change::Liqo(facts),
        Change::Profiles(Arc::new(profiles)),
        Change::Neighbourhoods(Arc::new(view.policies.neighbourhoods())),
        Change::Telemetry(Box::new(telemetry)),
    ];
    for change in links.chain(others) {
        engine.apply(&change, now);
    }
    engine.publish(now);
    view.snapshot = shared.snapshot();
    view.node_faults = engine.cache().faults().cloned().collect();
    view.config = config;
    Ok((view, engine))
}

/// Lists the objects that edgeward watches.
async fn list(connection: &Connection, config: &Config, view: &mut View) -> anyhow::Result<Vec<Change>> {
    let (keys, clock) = (&config.keys, connection.clock);
    let asked = clock.now();
    let limit = &LogLimit::new(clock);
    let nodes = connection.all(Gvr::NODES, |node| read_node(node, asked, limit)).await?;
    // For a bound pod, only resources that nodes have count.
    let mut names = ResourceNames::default();
    for node in &nodes {
        names.set(&node.name, &node.allocatable);
    }
    let (pods, namespaces) = tokio::try_join!(
        connection.all(Gvr::PODS, |pod| read_pod(
            pod,
            keys,
            &names,
            config.moves.enabled,
            limit
        )),
        connection.all(Gvr::NAMESPACES, |found| read_namespace(found, keys, limit)),
    )?;
    let classes = connection.installed::<_, BTreeSet<_>>(Gvr::DEVICE_CLASSES, served);
    let by_claim = view.read(classes.await).flatten().unwrap_or_default();
    let mut changes = vec![Change::ByClaim(by_claim)];
    let namespaces = namespaces.into_iter();
    changes.extend(namespaces.map(|(name, is_managed)| Change::Namespace(name, is_managed)));
    changes.extend(nodes.into_iter().map(|node| Change::Node(Box::new(node))));
    if can_have_data(config) {
        let volumes = view.read(volumes(connection, limit).await);
        changes.extend(volumes.into_iter().flatten());
    }
    changes.extend(pods.into_iter().map(|pod| Change::Pod(Box::new(pod))));
    changes.extend(Kind::REQUIRED.map(Change::ListEnded));
    Ok(changes)
}

/// Lists volume claims, volumes and storage classes.
async fn volumes(connection: &Connection, limit: &LogLimit) -> anyhow::Result<Vec<Change>> {
    let (claims, volumes, classes) = tokio::try_join!(
        connection.all(Gvr::CLAIMS, |object| volumes::claim(object, limit)),
        connection.all(Gvr::VOLUMES, |object| volumes::volume(object, limit)),
        connection.all(Gvr::CLASSES, |object| volumes::class(object, limit)),
    )?;
    let ends = Kind::OF_DATA.map(Change::ListEnded);
    Ok([claims, volumes, classes, ends.into()].concat())
}
