//! The changes that sources send to the engine.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cache::Kind;
use crate::pod_record::PodRecord;
use crate::telemetry::Telemetry;
use edgeward_decision::config::Config;
use edgeward_decision::model::link::Link;
use edgeward_decision::model::liqo::Liqo;
use edgeward_decision::model::report::Report;
use edgeward_decision::model::scorer::Ranker;
use edgeward_decision::model::scores::Profiles;
use edgeward_decision::model::snapshot::{ByNamespace, Neighbourhoods};
use edgeward_decision::model::volumes::{ClaimRecord, ClassRecord};
use edgeward_kube::constraints::VolumeAffinity;
use edgeward_kube::node::Node;

/// A change that a source has seen.
#[derive(Debug, Clone)]
pub enum Change {
    /// A node was added or changed.
    Node(Box<Node>),
    /// A node was deleted.
    NodeGone(Box<str>),
    /// A pod was added or changed.
    Pod(Box<PodRecord>),
    /// The pod of this uid was deleted.
    PodGone(Box<str>),
    /// A namespace, and whether it is opted in.
    Namespace(Box<str>, bool),
    /// The WAN towards a site, as probes measure it.
    Link(String, Option<Link>),
    /// The state of Liqo; `None` while it is not in use.
    Liqo(Option<Arc<Liqo>>),
    /// The extended resources that DeviceClasses serve.
    ByClaim(BTreeSet<Box<str>>),
    /// The sizes of the PodGroups of an API; `None` if it is not served, or may not be read.
    PodGroups(&'static str, Option<Arc<ByNamespace<u32>>>),
    /// The claim with this namespace and name; `None` if it is gone.
    Claim([Box<str>; 2], Option<ClaimRecord>),
    /// The affinity of the volume with this name; `None` if none is kept, or the volume is gone.
    Volume(Box<str>, Option<VolumeAffinity>),
    /// The storage class with this name; `None` if it is gone.
    StorageClass(Box<str>, Option<ClassRecord>),
    /// The scores of performance profiles.
    Profiles(Arc<Profiles>),
    /// The learned scorer; `None` while none is in use.
    Scorer(Option<Arc<dyn Ranker>>),
    /// The clouds of neighbourhoods.
    Neighbourhoods(Arc<Neighbourhoods>),
    /// The measurements of a Prometheus server.
    Telemetry(Box<Telemetry>),
    /// A new report of the cluster behind the site with this name; `None` if it was deleted.
    Report(String, Option<Arc<Report>>),
    /// A newer configuration.
    Settings(Arc<Config>),
    /// The number of ready replicas.
    Replicas(u32),
    /// A list of all objects of this kind begins.
    ListBegan(Kind),
    /// The list of this kind is complete.
    ListEnded(Kind),
    /// A watch of this kind is alive without an event, because the API server has opened it again.
    WatchAlive(Kind),
}

impl Change {
    /// The kind whose watch this change shows to be alive.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Some(match self {
            Change::Node(_) | Change::NodeGone(_) => Kind::Nodes,
            Change::Pod(_) | Change::PodGone(_) => Kind::Pods,
            Change::Namespace(..) => Kind::Namespaces,
            Change::Claim(..) => Kind::Claims,
            Change::Volume(..) => Kind::Volumes,
            Change::StorageClass(..) => Kind::Classes,
            Change::ListBegan(kind) | Change::ListEnded(kind) | Change::WatchAlive(kind) => *kind,
            _ => return None,
        })
    }
}
