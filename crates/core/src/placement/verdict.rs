//! The outcome of a decision: what to do, why, and the numbers.

use serde_json::{Map, Value};

use crate::model::node::{Node, NodeId};
use crate::model::scores::{ProfileScores, Score};
use crate::model::slo::SloFault;
use crate::model::snapshot::Site;
use crate::units::Micros;
use crate::words;

words! {
    /// Why a verdict is what it is. A closed set: the same string in annotation, metric label and log.
    pub enum Reason {
        /// The edge is good: it has room and meets the time.
        EdgeFeasibleSloMet = "edge_feasible_slo_met",
        /// The edge has room, and the pod states no time.
        EdgeNoSloTarget = "edge_no_slo_target",
        /// The pod's own constraints, sites, traits or volume data leave only the edge.
        EdgePinnedByPod = "edge_pinned_by_pod",
        /// The SLO is invalid.
        EdgeInvalidSlo = "edge_invalid_slo",
        /// The view of the cluster is too old to send a pod away.
        EdgeTelemetryStale = "edge_telemetry_stale",
        /// No site is possible, and only its size keeps the pod from the edge.
        EdgeTooLarge = "edge_too_large",
        /// Offload is not allowed, by the pod or by `enableOffload`.
        EdgeOffloadNotAllowed = "edge_offload_not_allowed",
        /// The pod uses what exists only here, or Liqo does not offload its namespace.
        EdgeNotOffloadable = "edge_not_offloadable",
        /// No cloud has a usable node.
        EdgeCloudSiteMissing = "edge_cloud_site_missing",
        /// No cloud with a usable node answers.
        EdgeWanUnreachable = "edge_wan_unreachable",
        /// The WAN to every cloud that answers is too slow, too lossy, or was not measured lately.
        EdgeWanDegraded = "edge_wan_degraded",
        /// The edge is full, but kube-scheduler could evict pods of lower priority for this one.
        EdgePreempts = "edge_preempts",
        /// The edge is full and no cloud is good.
        EdgeNoCapacity = "edge_no_capacity",
        /// The edge misses the time and no cloud is better, for a pod of high priority.
        EdgeBestEffort = "edge_best_effort",
        /// The edge misses the time, which a pod of this priority accepts.
        EdgeFailSoft = "edge_fail_soft",
        /// Several sites are good, and the pod's performance profile ranks this cloud first.
        CloudProfile = "cloud_profile",
        /// The edge has no room for the pod, and this cloud is good.
        CloudEdgeNoCapacity = "cloud_edge_no_capacity",
        /// The edge misses the time, and this cloud meets it.
        CloudEdgeDeadlineMissed = "cloud_edge_deadline_missed",
        /// No site is good, and this cloud comes closest.
        CloudBestEffort = "cloud_best_effort",
        /// The pod's own constraints, sites, traits or volume data leave only clouds.
        CloudPinnedByPod = "cloud_pinned_by_pod",
        /// No site is good now, so the pod is gated until one is, or until its limit.
        HeldNoCapacity = "held_no_capacity",
        /// No site can run the pod as they are now, so it is gated until one can.
        HeldSiteAway = "held_site_away",
        /// The pod carries gates of others, and is decided when only edgeward's gate is left.
        HeldForeignGate = "held_foreign_gate",
        /// The pod was gated, and placed although no site is good: its limit is over, or waiting longer does not help.
        ReleasedTimeout = "released_timeout",
        /// The SLO is invalid, and such pods are refused.
        DeniedInvalidSlo = "denied_invalid_slo",
        /// The pod states no SLO.
        NotManaged = "passthrough_not_managed",
        /// The pod is labelled as not managed.
        OptedOut = "passthrough_opted_out",
        /// The pod already has a node.
        NodeName = "passthrough_node_name",
        /// The pod belongs to a DaemonSet.
        DaemonSet = "passthrough_daemonset",
        /// Mirror of a static pod.
        Mirror = "passthrough_mirror",
        /// Created here by Liqo for another cluster.
        ShadowPod = "passthrough_shadow_pod",
        /// The pod's namespace is excluded.
        ExcludedNamespace = "passthrough_excluded_namespace",
        /// No node carries the edge site's selector.
        EdgeSiteMissing = "passthrough_edge_site_missing",
        /// No site is possible.
        NoSiteMatches = "passthrough_no_site_matches",
        /// The pod already carries a placement of ours, made a moment ago.
        Reinvocation = "passthrough_reinvocation",
        /// Not the creation of a pod, or not a pod that can be read.
        NotAPodCreate = "passthrough_not_a_pod_create",
        /// The pod has more in its lists and maps than is read of a pod.
        TooLarge = "passthrough_too_large",
        /// There is no view of the sites yet.
        NotReady = "passthrough_not_ready",
        /// The decision would have come too late.
        Deadline = "passthrough_deadline",
        /// The review failed by a bug.
        Panic = "passthrough_panic",
    }
}

impl Reason {
    /// Whether it is why a pod waits behind our gate.
    pub const fn is_gate(self) -> bool {
        matches!(
            self,
            Reason::HeldNoCapacity | Reason::HeldSiteAway | Reason::HeldForeignGate
        )
    }
}

words! {
    /// What a site is to a pod, from best to worst. Each refusal gives one; the worst counts.
    pub enum Standing {
        /// Nothing speaks against the site.
        Good = "Good",
        /// The site has room, but the pod misses its time there.
        Late = "Late",
        /// The pod could run there, but there is no room now.
        Full = "Full",
        /// The pod could run there, but the site cannot be used now.
        Away = "Away",
        /// The pod can never run there as the pod and the site are defined.
        Never = "Never",
    }
}

words! {
    /// Why a site is refused.
    pub enum RefusalCode {
        /// The site is not among those at which the pod, or its policy, lets it run.
        NotInSites = "not_in_sites",
        /// No node there has the traits that the pod requires.
        MissingTrait = "missing_trait",
        /// The pod's constraints and tolerations allow no node there.
        NoMatchingNode = "no_matching_node",
        /// The volumes of the pod's claims can be used on no node there.
        DataElsewhere = "data_elsewhere",
        /// Pods that the pod must run with are at other sites.
        PodsElsewhere = "pods_elsewhere",
        /// The pod is larger than every node there that it may use.
        TooLarge = "too_large",
        /// Offload is not allowed, or the pod uses what the site does not support.
        NotOffloadable = "not_offloadable",
        /// Liqo does not offload the pod's namespace to this site.
        NamespaceNotOffloaded = "namespace_not_offloaded",
        /// The site has no node.
        NoNode = "no_node",
        /// A node was created less than a minute ago and lacks what the pod asks for.
        NewNode = "new_node",
        /// The nodes that could run the pod are cordoned or not ready.
        NodeNotReady = "node_not_ready",
        /// Liqo has not offloaded the pod's namespace to this site yet.
        OffloadingInProgress = "offloading_in_progress",
        /// Nothing answers there.
        Unreachable = "unreachable",
        /// RTT or loss is at its threshold or above.
        Degraded = "degraded",
        /// The WAN was not measured lately.
        Stale = "stale",
        /// The RTT is not below the pod's distance limit.
        DistanceLimit = "distance_limit",
        /// No node has room, or the site as a whole has less by measurement.
        NoRoom = "no_room",
        /// Nodes have room, but gated pods ahead claim it.
        Claimed = "claimed",
        /// A pod of the same controller waits there for something that edgeward does not evaluate.
        ClosedByScheduler = "closed_by_scheduler",
        /// The cluster behind the site has no room for pods that ask for as much.
        RemoteFull = "remote_full",
        /// The deadline is missed.
        Deadline = "deadline",
        /// The latency target is missed.
        LatencyTarget = "latency_target",
    }
}

impl RefusalCode {
    /// What a site refused for this is to the pod.
    pub const fn standing(self) -> Standing {
        match self {
            Self::NotInSites
            | Self::MissingTrait
            | Self::NoMatchingNode
            | Self::DataElsewhere
            | Self::PodsElsewhere
            | Self::TooLarge
            | Self::NotOffloadable
            | Self::NamespaceNotOffloaded => Standing::Never,
            Self::NoNode
            | Self::NewNode
            | Self::NodeNotReady
            | Self::OffloadingInProgress
            | Self::Unreachable
            | Self::Degraded
            | Self::Stale
            | Self::DistanceLimit => Standing::Away,
            Self::NoRoom | Self::Claimed | Self::ClosedByScheduler | Self::RemoteFull => Standing::Full,
            Self::Deadline | Self::LatencyTarget => Standing::Late,
        }
    }
}

/// A refusal of one site, with the numbers that made it one.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Why.
    pub code: RefusalCode,
    /// The numbers by name, which carries the unit: `…Ms`, `…Pct`, counts without; resources in objects by
    /// Kubernetes name, CPU in millicores and the rest in bytes or units.
    pub numbers: Map<String, Value>,
}

impl Refusal {
    /// A refusal without numbers yet.
    pub fn new(code: RefusalCode) -> Self {
        Self {
            code,
            numbers: Map::new(),
        }
    }

    /// Adds a number, or an object of them.
    pub fn with(mut self, name: &str, number: impl Into<Value>) -> Self {
        self.numbers.insert(name.to_owned(), number.into());
        self
    }
}

/// The parts of a pod's estimated time at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Waiting behind the pods ahead.
    pub queue: Micros,
    /// Processing.
    pub processing: Micros,
    /// Crossing the WAN; `None` where the RTT is not known.
    pub wan: Option<Micros>,
}

impl Estimate {
    /// The sum of all parts: what a deadline is held against.
    pub fn eta(&self) -> Option<Micros> {
        Some(self.queue + self.latency()?)
    }

    /// Processing and WAN: what a latency target is held against.
    pub fn latency(&self) -> Option<Micros> {
        Some(self.processing + self.wan?)
    }
}

/// What one site would mean for the pod.
#[derive(Debug, Clone)]
pub struct Assessment<'s> {
    /// The site.
    pub site: &'s Site,
    /// Nodes that may run the pod if they have room: where it fits some, these alone.
    pub usable: Vec<&'s Node>,
    /// Those on which the pod fits now.
    pub fitting: Vec<&'s Node>,
    /// On how many of them only because placeholders make room.
    pub headroom: usize,
    /// Its time there.
    pub estimate: Estimate,
    /// How many of the pod's optional traits it has not.
    pub missing_optional: usize,
    /// How good it is by the pod's performance profile; `None` without one, and where it has no score.
    pub score: Option<Score>,
    /// Everything that speaks against the site, up to the first refusal for good.
    pub refusals: Vec<Refusal>,
}

impl Assessment<'_> {
    /// The worst standing that a refusal gives.
    pub fn standing(&self) -> Standing {
        let standings = self.refusals.iter().map(|refusal| refusal.code.standing());
        standings.max().unwrap_or(Standing::Good)
    }

    /// Whether it was refused for this reason.
    pub fn is_refused(&self, code: RefusalCode) -> bool {
        self.refusals.iter().any(|refusal| refusal.code == code)
    }

    /// Whether the pod can run here, now or later.
    pub fn is_possible(&self) -> bool {
        self.standing() != Standing::Never
    }

    /// Whether nothing speaks against the site.
    pub fn is_good(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Whether it is full, and only for want of free resources on its nodes: not because a scheduler refuses the pod.
    pub fn lacks_room(&self) -> bool {
        let is_room_or_time = |refusal: &Refusal| {
            matches!(refusal.code, RefusalCode::NoRoom | RefusalCode::Claimed)
                || refusal.code.standing() == Standing::Late
        };
        self.standing() == Standing::Full && self.refusals.iter().all(is_room_or_time)
    }

    /// Whether a node has room for the pod.
    pub fn fits(&self) -> bool {
        !self.fitting.is_empty()
    }
}

/// What to do with the pod.
#[derive(Debug, Clone, Copy)]
pub enum Action<'s> {
    /// Add this site's placement.
    Place(&'s Site),
    /// Add our gate, or keep it.
    Gate,
    /// Leave the pod as it is.
    PassThrough,
    /// Refuse the pod.
    Deny,
}

impl Action<'_> {
    /// `edge`, `cloud`, `gate`, `passthrough` or `deny`.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Place(site) => site.kind().as_str(),
            Action::Gate => "gate",
            Action::PassThrough => "passthrough",
            Action::Deny => "deny",
        }
    }
}

/// The outcome of a decision. Never an error, always explainable.
#[derive(Debug, Clone)]
pub struct Verdict<'s> {
    /// What to do.
    pub action: Action<'s>,
    /// Why.
    pub reason: Reason,
    /// The node that kube-scheduler would take at the chosen site, or that is waited for while pods terminate there; `None`
    /// if the pod fits on none, or goes nowhere.
    pub node: Option<NodeId>,
    /// Every site in the order of the snapshot; empty for a pod that is not ours.
    pub sites: Vec<Assessment<'s>>,
    /// Labels of traits that a placement adds to the pod's nodeSelector, each with the value `true`: some nodes of the site have
    /// them, and perhaps not all.
    pub trait_labels: Vec<Box<str>>,
    /// The pod's performance profile, by which the sites have scores; `None` without one, or where there is none of this name.
    pub profile: Option<(&'s str, &'s ProfileScores)>,
    /// The last RTT measured to the chosen cloud; at the edge the lowest of a cloud that was reached lately.
    pub rtt: Option<Micros>,
    /// For the person who created the pod.
    pub warnings: Vec<String>,
    /// What is wrong with the SLO.
    pub faults: Vec<SloFault>,
}

impl<'s> Verdict<'s> {
    /// A verdict that leaves the pod alone.
    pub fn pass_through(reason: Reason) -> Self {
        Self {
            action: Action::PassThrough,
            reason,
            node: None,
            sites: vec![],
            trait_labels: vec![],
            profile: None,
            rtt: None,
            warnings: vec![],
            faults: vec![],
        }
    }

    /// The chosen site.
    pub fn site(&self) -> Option<&'s Site> {
        match self.action {
            Action::Place(site) => Some(site),
            Action::Gate | Action::PassThrough | Action::Deny => None,
        }
    }

    /// What the chosen site means for the pod.
    pub fn chosen(&self) -> Option<&Assessment<'s>> {
        let site = self.site()?;
        self.sites.iter().find(|assessment| std::ptr::eq(assessment.site, site))
    }
}
