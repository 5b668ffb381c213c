//! The outcome of a decision: what to do, why, and the numbers.

use serde_json::{Map, Value};

use crate::model::link::LinkState;
use crate::model::liqo::OffloadingPhase;
use crate::model::node::{Node, NodeId};
use crate::model::scores::{ProfileScores, Score};
use crate::model::slo::SloFault;
use crate::model::snapshot::Site;
use crate::units::Micros;
use crate::words;

words! {
    /// Why a verdict is what it is. A closed set: the same string in annotation, metric label and log.
    pub enum Reason {
        /// The edge fits and meets the time.
        EdgeFeasibleSloMet = "edge_feasible_slo_met",
        /// The edge fits and the pod states no time.
        EdgeNoSloTarget = "edge_no_slo_target",
        /// The pod's own constraints leave only the edge.
        EdgePinnedByPod = "edge_pinned_by_pod",
        /// Several sites would do, and the pod's performance profile ranks the edge first.
        EdgeProfile = "edge_profile",
        /// The pod's data is at the edge.
        EdgeData = "edge_data",
        /// The SLO is invalid.
        EdgeInvalidSlo = "edge_invalid_slo",
        /// The view of the cluster is too old to send a pod away on.
        EdgeTelemetryStale = "edge_telemetry_stale",
        /// No site has room, so the pod waits behind our gate until one does.
        HeldNoCapacity = "held_no_capacity",
        /// The edge has room as soon as pods are gone that are terminating there, for which the pod waits behind our gate.
        HeldTerminating = "held_terminating",
        /// Only sites that are away could hold the pod, for which it waits behind our gate.
        HeldSiteAway = "held_site_away",
        /// Others hold the pod behind gates of theirs; it is decided when ours is the last.
        HeldForeignGate = "held_foreign_gate",
        /// Held, then placed on the edge.
        ReleasedEdge = "released_edge",
        /// Held, then placed in the cloud.
        ReleasedCloud = "released_cloud",
        /// Held for as long as its class may be, or until no cloud was likely to be back in time; placed where it is better
        /// off, though that is not good.
        ReleasedTimeout = "released_timeout",
        /// Larger than any node it could run on.
        EdgeTooLarge = "edge_too_large",
        /// Offload is switched off.
        EdgeOffloadDisabled = "edge_offload_disabled",
        /// The pod does not allow offload.
        EdgeOffloadNotAllowed = "edge_offload_not_allowed",
        /// The pod uses what exists only here.
        EdgeNotOffloadable = "edge_not_offloadable",
        /// No cloud site has a usable node.
        EdgeCloudSiteMissing = "edge_cloud_site_missing",
        /// No cloud site answers.
        EdgeWanUnreachable = "edge_wan_unreachable",
        /// The WAN is too slow, too lossy, or was not measured lately.
        EdgeWanDegraded = "edge_wan_degraded",
        /// The edge is full, but kube-scheduler could evict pods of lower priority for this one.
        EdgePreempts = "edge_preempts",
        /// The edge is full and no cloud would do.
        EdgeNoCapacity = "edge_no_capacity",
        /// The edge misses the time and no cloud does better, for a pod of high priority.
        EdgeBestEffort = "edge_best_effort",
        /// The edge misses the time, which a pod of this priority accepts.
        EdgeFailSoft = "edge_fail_soft",
        /// Several sites would do, and the pod's performance profile ranks the cloud first.
        CloudProfile = "cloud_profile",
        /// The edge is full and the cloud meets the time.
        CloudEdgeNoCapacity = "cloud_edge_no_capacity",
        /// The edge misses the time and the cloud meets it.
        CloudEdgeDeadlineMissed = "cloud_edge_deadline_missed",
        /// The pod's sites leave the edge out, or it has no node, or none with its traits, and the cloud meets the time.
        CloudEdgeNotInSites = "cloud_edge_not_in_sites",
        /// No site meets the time and the cloud comes closer, or only the cloud could ever hold the pod, which may not be held.
        CloudBestEffort = "cloud_best_effort",
        /// The pod's own constraints leave only the cloud.
        CloudPinnedByPod = "cloud_pinned_by_pod",
        /// The pod's data is in that cloud.
        CloudData = "cloud_data",
        /// The SLO is invalid, and such pods are refused.
        DeniedInvalidSlo = "denied_invalid_slo",
        /// States no SLO.
        NotManaged = "passthrough_not_managed",
        /// Labelled as not managed.
        OptedOut = "passthrough_opted_out",
        /// Already has a node.
        NodeName = "passthrough_node_name",
        /// Belongs to a DaemonSet.
        DaemonSet = "passthrough_daemonset",
        /// Mirror of a static pod.
        Mirror = "passthrough_mirror",
        /// Created here by Liqo for another cluster.
        ShadowPod = "passthrough_shadow_pod",
        /// In a namespace that is left alone.
        ExcludedNamespace = "passthrough_excluded_namespace",
        /// No node carries the edge site's selector.
        EdgeSiteMissing = "passthrough_edge_site_missing",
        /// No site can satisfy the pod's own constraints.
        NoSiteMatches = "passthrough_no_site_matches",
        /// Already carries a placement of ours, made a moment ago.
        Reinvocation = "passthrough_reinvocation",
        /// Not the creation of a pod, or not a pod that can be read.
        NotAPodCreate = "passthrough_not_a_pod_create",
        /// Has more in its lists and maps than is read of a pod.
        TooLarge = "passthrough_too_large",
        /// No view of the fleet yet.
        NotReady = "passthrough_not_ready",
        /// The decision would have come too late.
        Deadline = "passthrough_deadline",
        /// The review failed by a bug.
        Panic = "passthrough_panic",
    }
}

impl Reason {
    /// Whether it is why a pod waits behind our gate.
    pub const fn is_hold(self) -> bool {
        matches!(
            self,
            Reason::HeldNoCapacity | Reason::HeldTerminating | Reason::HeldSiteAway | Reason::HeldForeignGate
        )
    }
}

words! {
    /// Why a site is refused.
    pub enum RefusalCode {
        /// No node there is allowed by the pod's constraints and tolerations.
        NoMatchingNode = "no_matching_node",
        /// The volumes of the pod's claims can be used on no node there.
        DataElsewhere = "data_elsewhere",
        /// The nodes that would do are cordoned or not ready.
        NodeNotReady = "node_not_ready",
        /// No node that would do has room, or the site as a whole has less by measurement.
        NoRoom = "no_room",
        /// Nodes have room, but not beside what held pods ahead claim.
        Claimed = "claimed",
        /// A pod of the same controller waits there: kube-scheduler cannot place it for a reason we do not evaluate, or the cluster
        /// behind the site does not start it for another than room.
        ClosedByScheduler = "closed_by_scheduler",
        /// The cluster behind it had no room for pods that ask for as much, or less.
        RemoteFull = "remote_full",
        /// The deadline is missed.
        Deadline = "deadline",
        /// The latency target is missed.
        LatencyTarget = "latency_target",
        /// Nothing answers there.
        Unreachable = "unreachable",
        /// RTT or loss is over its threshold.
        Degraded = "degraded",
        /// The measurements are too old.
        Stale = "stale",
        /// The pod may not leave the edge, or uses what this site does not have.
        NotOffloadable = "not_offloadable",
        /// Liqo does not offload the pod's namespace to this site, or not yet.
        NamespaceNotOffloaded = "namespace_not_offloaded",
        /// No node there has the traits that the pod requires.
        MissingTrait = "missing_trait",
        /// The RTT is not below what the pod states.
        DistanceLimit = "distance_limit",
        /// It is not among the sites at which the pod may run, by its own word or by that of its policy.
        NotInSites = "not_in_sites",
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
    /// Whether the pod's own nodeSelector and affinity allow a node there.
    pub allowed: bool,
    /// Nodes on which the pod fits now.
    pub fitting: Vec<&'s Node>,
    /// On how many of them only because placeholders make room.
    pub headroom: usize,
    /// How far Liqo has come with offloading its namespace there; `None` where that is nobody's matter.
    pub offloading: Option<OffloadingPhase>,
    /// Its time there.
    pub estimate: Estimate,
    /// How many of the pod's optional traits it has not.
    pub missing_optional: usize,
    /// How good it is by the pod's performance profile; `None` without one, and where it has no score.
    pub score: Option<Score>,
    /// Everything that speaks against the site; empty means feasible.
    pub refusals: Vec<Refusal>,
}

/// What passes when pods leave.
const ROOM: [RefusalCode; 2] = [RefusalCode::NoRoom, RefusalCode::Claimed];
const TIME: [RefusalCode; 2] = [RefusalCode::Deadline, RefusalCode::LatencyTarget];

impl Assessment<'_> {
    /// Whether it was refused for this reason.
    pub fn is_refused(&self, code: RefusalCode) -> bool {
        self.refusals.iter().any(|refusal| refusal.code == code)
    }

    /// Whether it is none of the pod's sites, or has not its traits: nothing else is said of it.
    pub fn is_out(&self) -> bool {
        self.is_refused(RefusalCode::NotInSites) || self.is_refused(RefusalCode::MissingTrait)
    }

    /// Whether the pod may not go there, and waiting does not help: it may not leave the edge for this site, or its namespace
    /// does not.
    pub fn is_barred(&self) -> bool {
        let is_refused = |phase: OffloadingPhase| phase != OffloadingPhase::Accepted && !phase.is_passing();
        self.is_refused(RefusalCode::NotOffloadable) || self.offloading.is_some_and(is_refused)
    }

    /// Whether nothing speaks against the site.
    pub fn is_feasible(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Whether nothing but time speaks against the site: it may be chosen as the lesser evil.
    pub fn is_usable(&self) -> bool {
        self.refusals.iter().all(|refusal| TIME.contains(&refusal.code))
    }

    /// Whether nothing but the want of room speaks against the site.
    pub fn lacks_only_room(&self) -> bool {
        !self.is_feasible() && self.refusals.iter().all(|refusal| ROOM.contains(&refusal.code))
    }

    /// Whether the pod might be sent here, for better or worse, if there were room.
    pub fn lacks_room(&self) -> bool {
        let is_minor = |refusal: &Refusal| ROOM.contains(&refusal.code) || TIME.contains(&refusal.code);
        self.refusals.iter().any(|refusal| ROOM.contains(&refusal.code)) && self.refusals.iter().all(is_minor)
    }

    /// Whether a node has room for the pod.
    pub fn fits(&self) -> bool {
        !self.fitting.is_empty()
    }

    /// Whether the site takes the pod as far as room goes: a node has it, no measurement contradicts that, and
    /// kube-scheduler would use it.
    pub fn takes(&self) -> bool {
        let room = [RefusalCode::NoRoom, RefusalCode::ClosedByScheduler];
        self.fits() && !room.iter().any(|code| self.is_refused(*code))
    }

    /// The RTT that the estimate rests on, where the site's link was alive.
    fn live_rtt(&self) -> Option<Micros> {
        let link = self.site.link.filter(|link| link.state != LinkState::Unreachable)?;
        link.rtt
            .filter(|_| !self.is_out() && !self.is_refused(RefusalCode::Stale))
    }
}

/// What to do with the pod.
#[derive(Debug, Clone, Copy)]
pub enum Action<'s> {
    /// Add this site's placement.
    Place(&'s Site),
    /// Add our gate, or keep it.
    Hold,
    /// Leave the pod as it is.
    PassThrough,
    /// Refuse the pod.
    Deny,
}

impl Action<'_> {
    /// Whether the pod is placed on this site.
    pub(super) fn is_placement_at(self, site: &Site) -> bool {
        matches!(self, Action::Place(chosen) if std::ptr::eq(chosen, site))
    }

    /// `edge`, `cloud`, `hold`, `passthrough` or `deny`.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Place(site) => site.kind().as_str(),
            Action::Hold => "hold",
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
            warnings: vec![],
            faults: vec![],
        }
    }

    /// The chosen site.
    pub fn site(&self) -> Option<&'s Site> {
        match self.action {
            Action::Place(site) => Some(site),
            Action::Hold | Action::PassThrough | Action::Deny => None,
        }
    }

    /// What the chosen site means for the pod.
    pub fn chosen(&self) -> Option<&Assessment<'s>> {
        let site = self.site()?;
        self.sites.iter().find(|assessment| std::ptr::eq(assessment.site, site))
    }

    /// The RTT behind the decision: the last one measured to the chosen cloud, or that of the nearest live cloud that
    /// the edge was held against.
    pub fn rtt(&self) -> Option<Micros> {
        match self.chosen().and_then(|chosen| chosen.site.link) {
            Some(link) => link.rtt,
            None => self.sites.iter().filter_map(Assessment::live_rtt).min(),
        }
    }
}
