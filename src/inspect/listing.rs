//! Lists and probes a live cluster once.

use std::collections::BTreeSet;
use std::sync::Arc;

use edgeward_cluster::cache::Kind;
use edgeward_cluster::engine::{Change, Engine, SharedState};
use edgeward_cluster::liqo::LiqoObjects;
use edgeward_cluster::pod_record::GatedPod;
use edgeward_cluster::volumes::{VolumeChange, VolumeKind};
use edgeward_decision::config::{Config, sites};
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_kube::resources::ResourceNames;
use edgeward_kube::units::Now;

use crate::inspect::{Connection, objects};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::profiles::scores_of;
use crate::wan;
use crate::watch::device_classes::served;
use crate::watch::raw::Gvr;
use crate::watch::volumes::{self, can_have_data};
use crate::watch::{read_namespace, read_node, read_pod};

/// A cluster as listed.
#[derive(Debug)]
pub struct Listing {
    /// The engine, after all listed objects.
    pub engine: Engine,
    shared: Arc<SharedState>,
    /// Pods behind our gate.
    pub gated: Vec<Arc<GatedPod>>,
    /// Errors of the kinds that could not be read and therefore do not count.
    pub unread: Vec<anyhow::Error>,
}

impl Listing {
    /// Creates an empty listing.
    fn new(config: &Config) -> Self {
        let shared = Arc::<SharedState>::default();
        Self {
            engine: Engine::new(Arc::new(config.clone()), Arc::clone(&shared)),
            shared,
            gated: vec![],
            unread: vec![],
        }
    }

    /// Builds a snapshot of all listed objects, with the claims of a plan for the gated pods.
    pub fn snapshot(&mut self, now: Now) -> Arc<Snapshot> {
        self.engine.publish(now);
        self.shared.snapshot()
    }

    /// Returns what was read. Turns an error into an entry of `unread` and `None`.
    fn read<T>(&mut self, read: anyhow::Result<T>) -> Option<T> {
        read.map_err(|error| self.unread.push(error)).ok()
    }
}

/// Reads a cluster once, as an edgeward with this configuration would. Returns the configuration with the sites in
/// use. The pod with the uid `without` does not count.
///
/// # Errors
/// Nodes, pods or namespaces cannot be listed.
pub async fn view(
    connection: &Connection,
    mut config: Config,
    without: Option<&str>,
) -> anyhow::Result<(Config, Listing)> {
    let sites = async {
        let specs = objects::site_specs(connection).await?.filter(|specs| !specs.is_empty());
        anyhow::Ok(specs.map(|specs| sites::of_objects(&specs)).transpose()?)
    };
    let mut unread = Vec::new();
    match sites.await {
        Ok(sites) => config.sites = sites.unwrap_or(config.sites),
        Err(error) => unread.push(error),
    }
    let liqo = objects::liqo(connection, &mut config).await;
    unread.extend(liqo.unreadable.into_iter().map(|(_, error)| error));
    let mut listing = list_and_probe(connection, &config, liqo.objects.as_ref(), without).await?;
    listing.unread.extend(unread);
    let now = connection.clock.now();
    let profiles = connection.installed(Gvr::PROFILES, |object| scores_of(object, now));
    let profiles = listing.read(profiles.await).flatten().unwrap_or_default();
    listing.engine.apply(&Change::Profiles(Arc::new(profiles)), now);
    Ok((config, listing))
}

/// Lists nodes, pods and namespaces, probes the cloud sites once, and adds the facts from Liqo. An object that cannot be
/// parsed is logged and does not count, nor does the pod with the uid `without`.
///
/// # Errors
/// The API server cannot be reached or refuses a list. The error names the server and the refused request.
pub async fn list_and_probe(
    connection: &Connection,
    config: &Config,
    liqo: Option<&LiqoObjects>,
    without: Option<&str>,
) -> anyhow::Result<Listing> {
    let clock = connection.clock;
    let metrics = Arc::new(Metrics::new());
    let probed = async { Ok(wan::first_round(config, clock, &metrics).await) };
    let (mut listing, links) = tokio::try_join!(list(connection, config, without), probed)?;
    let now = clock.now();
    for (site, link) in links {
        listing.engine.apply(&Change::Link(site, link), now);
    }
    let facts = liqo.map(|objects| Arc::new(objects.facts(now)));
    listing.engine.apply(&Change::Liqo(facts), now);
    Ok(listing)
}

async fn list(connection: &Connection, config: &Config, without: Option<&str>) -> anyhow::Result<Listing> {
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
        connection.all(Gvr::PODS, |pod| read_pod(pod, keys, &names, limit)),
        connection.all(Gvr::NAMESPACES, |found| read_namespace(found, keys, limit)),
    )?;
    let mut listing = Listing::new(config);
    let classes = connection.installed::<_, BTreeSet<_>>(Gvr::DEVICE_CLASSES, served);
    let by_claim = listing.read(classes.await).flatten().unwrap_or_default();
    let mut changes = vec![Change::ByClaim(by_claim)];
    let namespaces = namespaces.into_iter();
    changes.extend(namespaces.map(|(name, is_managed)| Change::Namespace(name, is_managed)));
    changes.extend(nodes.into_iter().map(|node| Change::Node(Box::new(node))));
    if can_have_data(config) {
        let volumes = volumes(connection, limit).await;
        changes.extend(listing.read(volumes).into_iter().flatten().map(Change::Volumes));
    }
    for pod in pods.into_iter().filter(|pod| Some(&*pod.uid) != without) {
        listing.gated.extend(pod.gated_pod.clone());
        changes.push(Change::Pod(Box::new(pod)));
    }
    changes.extend(Kind::ALL.map(Change::ListEnded));
    changes.iter().for_each(|change| listing.engine.apply(change, asked));
    Ok(listing)
}

/// Lists volume claims, volumes and storage classes.
async fn volumes(connection: &Connection, limit: &LogLimit) -> anyhow::Result<Vec<VolumeChange>> {
    let (claims, volumes, classes) = tokio::try_join!(
        connection.all(Gvr::CLAIMS, |object| volumes::claim(object, limit)),
        connection.all(Gvr::VOLUMES, |object| volumes::volume(object, limit)),
        connection.all(Gvr::CLASSES, |object| volumes::class(object, limit)),
    )?;
    let ends = VolumeKind::ALL.map(VolumeChange::ListEnded);
    Ok([claims, volumes, classes, ends.into()].concat())
}
