//! Lists and probes a live cluster once.

use std::collections::BTreeSet;
use std::sync::Arc;

use edgeward_core::cluster::cache::{Cache, Kind};
use edgeward_core::cluster::volumes::{VolumeCache, VolumeChange, VolumeKind};
use edgeward_core::config::{Config, sites};
use edgeward_core::guard::backstop::{Backstop, Finding};
use edgeward_core::model::pod_record::{GatedPod, PodRecord};
use edgeward_core::model::scores::Profiles;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::model::volumes::Volumes;
use edgeward_core::placement::ledger::Ledger;
use edgeward_core::resources::ResourceNames;
use edgeward_core::units::{Micros, Moment, Now};
use edgeward_core::wire::liqo_objects::LiqoObjects;

use crate::inspect::{Connection, objects};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::sources::device_classes::served;
use crate::sources::probe;
use crate::sources::profiles::scores_of;
use crate::sources::raw::Gvr;
use crate::sources::volumes::{self, can_have_data};
use crate::sources::watch::{read_namespace, read_node, read_pod};

/// A cluster as listed.
#[derive(Debug)]
pub struct Listing {
    /// All listed nodes, pods and namespaces.
    pub cache: Cache,
    /// Pods behind our gate.
    pub gated: Vec<Arc<GatedPod>>,
    /// Where the data of pods is; `None` if no cloud can have volume data, or volumes may not be listed.
    pub volumes: Option<Arc<Volumes>>,
    /// Scores that performance profiles give to sites.
    profiles: Arc<Profiles>,
    /// Errors of the kinds that could not be read and therefore do not count.
    pub unread: Vec<anyhow::Error>,
    /// Pods that find no node.
    backstop: Backstop,
}

impl Listing {
    /// Creates an empty listing.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            cache: Cache::new(config),
            gated: vec![],
            volumes: None,
            profiles: Arc::default(),
            unread: vec![],
            backstop: Backstop::default(),
        }
    }

    /// Adds a pod, listed at the moment `asked`.
    pub(crate) fn add(&mut self, pod: PodRecord, asked: Now) {
        self.cache.apply_pod(&pod, None, asked);
        // A pod does not state since when it finds no node. This cannot be before its creation or its decision.
        let since = pod.decided.as_ref().map(|decided| decided.at).max(pod.created);
        let age = since.map_or(0, |since| asked.wall.duration_since(since).as_micros());
        let age = i64::try_from(age).unwrap_or_default();
        self.backstop.apply(&pod, Moment(asked.moment.0.saturating_sub(age)));
        self.gated.extend(pod.gated_pod);
    }

    /// Builds a snapshot of all listed objects.
    pub fn snapshot(&mut self, now: Moment) -> Snapshot {
        Snapshot {
            volumes: self.volumes.clone(),
            profiles: Arc::clone(&self.profiles),
            ..self.cache.publish(now)
        }
    }

    /// Pods that find no node where they were sent, although another site of this snapshot would take them.
    pub fn misplaced(&mut self, snapshot: &Snapshot, config: &Config, now: Now) -> Vec<Finding> {
        let report = self.backstop.report(&self.cache, now.moment).unwrap_or_default();
        report.evaluate(snapshot, &Ledger::default(), config, now)
    }
}

/// Reads a cluster once, as an edgeward with this configuration would. Returns the configuration with the sites in
/// use.
///
/// # Errors
/// Nodes, pods or namespaces cannot be listed.
pub async fn view(connection: &Connection, mut config: Config) -> anyhow::Result<(Config, Listing)> {
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
    let mut listing = list_and_probe(connection, &config, liqo.objects.as_ref()).await?;
    listing.unread.extend(unread);
    listing
        .unread
        .extend(liqo.unreadable.into_iter().map(|(_, error)| error));
    let now = connection.clock.now();
    let profiles = connection.installed(Gvr::PROFILES, |object| scores_of(object, now));
    match profiles.await {
        Ok(profiles) => listing.profiles = Arc::new(profiles.unwrap_or_default()),
        Err(error) => listing.unread.push(error),
    }
    Ok((config, listing))
}

/// Lists nodes, pods and namespaces into a cache of the configured sites, probes the cloud sites once, and adds the
/// facts from Liqo. An object that cannot be parsed is logged and does not count.
///
/// # Errors
/// The API server cannot be reached or refuses a list. The error names the server and the refused request.
pub async fn list_and_probe(
    connection: &Connection,
    config: &Config,
    liqo: Option<&LiqoObjects>,
) -> anyhow::Result<Listing> {
    let clock = connection.clock;
    let metrics = Arc::new(Metrics::new());
    let probed = async { Ok(probe::first_round(config, clock, &metrics).await) };
    let (mut listing, links) = tokio::try_join!(list(connection, config), probed)?;
    for (site, link) in links {
        listing.cache.set_link(&site, link);
    }
    let facts = liqo.map(|objects| Arc::new(objects.facts(clock.now())));
    listing.cache.set_liqo(facts);
    Ok(listing)
}

async fn list(connection: &Connection, config: &Config) -> anyhow::Result<Listing> {
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
    match connection
        .installed::<_, BTreeSet<_>>(Gvr::DEVICE_CLASSES, served)
        .await
    {
        Ok(names) => listing.cache.set_by_claim(&names.unwrap_or_default()),
        Err(error) => listing.unread.push(error),
    }
    for (name, is_managed) in namespaces {
        listing.cache.apply_namespace(&name, is_managed);
    }
    for node in nodes {
        listing.cache.apply_node(node);
    }
    pods.into_iter().for_each(|pod| listing.add(pod, asked));
    for kind in Kind::ALL {
        listing.cache.record_event(kind, asked.moment);
    }
    if can_have_data(config) {
        match volumes(connection, limit, asked.moment).await {
            Ok(volumes) => listing.volumes = volumes,
            Err(error) => listing.unread.push(error),
        }
    }
    Ok(listing)
}

async fn volumes(connection: &Connection, limit: &LogLimit, now: Moment) -> anyhow::Result<Option<Arc<Volumes>>> {
    let (claims, volumes, classes) = tokio::try_join!(
        connection.all(Gvr::CLAIMS, |object| volumes::claim(object, limit)),
        connection.all(Gvr::VOLUMES, |object| volumes::volume(object, limit)),
        connection.all(Gvr::CLASSES, |object| volumes::class(object, limit)),
    )?;
    let mut cache = VolumeCache::default();
    for change in claims.into_iter().chain(volumes).chain(classes) {
        cache.apply(&change, now);
    }
    for kind in VolumeKind::ALL {
        cache.apply(&VolumeChange::ListEnded(kind), now);
    }
    Ok(cache.publish(Micros(u64::MAX), now).0)
}
