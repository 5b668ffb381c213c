//! The changes that sources send to the engine.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::cache::Kind;
use crate::cluster::telemetry::Telemetry;
use crate::cluster::volumes::VolumeChange;
use crate::config::Config;
use crate::model::link::Link;
use crate::model::liqo::Liqo;
use crate::model::node::Node;
use crate::model::pod_record::PodRecord;
use crate::model::scores::Profiles;

/// Something that a source has seen.
#[derive(Debug, Clone)]
pub enum Change {
    /// A node is there, or is another now.
    Node(Box<Node>),
    /// A node is gone.
    NodeGone(Box<str>),
    /// A pod is there, or is another now.
    Pod(Box<PodRecord>),
    /// The pod of this uid is gone.
    PodGone(Box<str>),
    /// A namespace is there, and whether it is opted in.
    Namespace(Box<str>, bool),
    /// The WAN towards a site, as probes have it.
    Link(String, Option<Link>),
    /// What Liqo says; nothing while it is not in use.
    Liqo(Option<Arc<Liqo>>),
    /// The extended resources that DeviceClasses serve.
    ByClaim(BTreeSet<Box<str>>),
    /// Something was seen of claims, volumes or classes.
    Volumes(VolumeChange),
    /// What performance profiles say of the sites.
    Profiles(Arc<Profiles>),
    /// What a Prometheus server says.
    Telemetry(Box<Telemetry>),
    /// A newer configuration.
    Settings(Arc<Config>),
    /// How many replicas of us are ready.
    Replicas(u32),
    /// A list of everything of this kind begins.
    ListBegan(Kind),
    /// That list is complete.
    ListEnded(Kind),
    /// A watch of this kind is alive, though there was no event: the API server opened it again.
    WatchAlive(Kind),
    /// A watch of this kind is interrupted.
    WatchLost(Kind),
}

impl From<VolumeChange> for Change {
    fn from(change: VolumeChange) -> Self {
        Change::Volumes(change)
    }
}

impl Change {
    /// The kind whose watch is alive by this.
    pub(super) fn kind(&self) -> Option<Kind> {
        Some(match self {
            Change::Node(_) | Change::NodeGone(_) => Kind::Nodes,
            Change::Pod(_) | Change::PodGone(_) => Kind::Pods,
            Change::Namespace(..) => Kind::Namespaces,
            Change::ListBegan(kind) | Change::ListEnded(kind) | Change::WatchAlive(kind) => *kind,
            _ => return None,
        })
    }
}
