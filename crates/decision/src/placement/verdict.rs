//! The outcome of a decision: the action, its reason and the numbers.

use serde_json::{Map, Value};

use crate::config::Confidence;
use crate::model::scorer::{ONE, WIDTH};
use crate::model::scores::{ProfileScores, Score};
use crate::model::slo::SloFault;
use crate::model::snapshot::Site;
use crate::placement::filters::group::Far;
use edgeward_kube::node::{Node, NodeId};
use edgeward_kube::units::Micros;
use edgeward_kube::words;

words! {
    /// The reason of a verdict. The set is closed, and annotations, metric labels and logs use the same string.
    pub enum Reason {
        /// The edge has room and meets the pod's time bounds.
        EdgeFeasibleSloMet = "edge_feasible_slo_met",
        /// The edge has room, and the pod states no time bounds.
        EdgeNoSloTarget = "edge_no_slo_target",
        /// The pod's own constraints, sites, traits or volume data leave only the edge.
        EdgePinnedByPod = "edge_pinned_by_pod",
        /// The SLO is invalid.
        EdgeInvalidSlo = "edge_invalid_slo",
        /// The view of the cluster is too old to choose between sites.
        EdgeTelemetryStale = "edge_telemetry_stale",
        /// No site is possible, and the edge refuses the pod only for its size.
        EdgeTooLarge = "edge_too_large",
        /// Offload is not allowed, by the pod or by `enableOffload`.
        EdgeOffloadNotAllowed = "edge_offload_not_allowed",
        /// The pod is tied to the edge, or Liqo does not offload its namespace.
        EdgeNotOffloadable = "edge_not_offloadable",
        /// No cloud has a usable node.
        EdgeCloudSiteMissing = "edge_cloud_site_missing",
        /// No cloud with a usable node answers.
        EdgeWanUnreachable = "edge_wan_unreachable",
        /// The WAN to every cloud that answers is too slow, too lossy, or was not measured lately.
        EdgeWanDegraded = "edge_wan_degraded",
        /// The edge is full, but kube-scheduler could evict pods of lower priority for this one.
        EdgePreempts = "edge_preempts",
        /// The edge is full, and no cloud is good.
        EdgeNoCapacity = "edge_no_capacity",
        /// The edge misses a time bound of an urgent pod, and no cloud is better.
        EdgeBestEffort = "edge_best_effort",
        /// The edge misses a time bound, which a pod of this priority accepts.
        EdgeFailSoft = "edge_fail_soft",
        /// Several sites are good, and the pod's performance profile ranks this cloud first.
        CloudProfile = "cloud_profile",
        /// Several clouds are good, and the learned scorer ranks this one first.
        CloudLearned = "cloud_learned",
        /// The edge has no room for the pod, and this cloud is good.
        CloudEdgeNoCapacity = "cloud_edge_no_capacity",
        /// The edge misses a time bound, and this cloud meets all.
        CloudEdgeDeadlineMissed = "cloud_edge_deadline_missed",
        /// No site is good, and this cloud comes closest.
        CloudBestEffort = "cloud_best_effort",
        /// The pod's own constraints, sites, traits or volume data leave only clouds.
        CloudPinnedByPod = "cloud_pinned_by_pod",
        /// No site is good now, so the pod is gated until one is, or until its limit.
        HeldNoCapacity = "held_no_capacity",
        /// No site can run the pod in its present state, so the pod is gated until one can.
        HeldSiteAway = "held_site_away",
        /// Pods of the pod's group are missing, or no site is near enough to those that run. The pod is gated until that changes, or until its limit.
        HeldGroup = "held_group",
        /// The pod carries gates of other controllers. It is decided once only edgeward's gate is left.
        HeldForeignGate = "held_foreign_gate",
        /// The pod was gated, and is placed although no site is good: its limit is over, or more waiting does not help.
        ReleasedTimeout = "released_timeout",
        /// The SLO is invalid, and the configuration denies such pods.
        DeniedInvalidSlo = "denied_invalid_slo",
        /// The pod states no SLO.
        NotManaged = "passthrough_not_managed",
        /// The pod is labelled as not managed.
        OptedOut = "passthrough_opted_out",
        /// The pod already has a node.
        NodeName = "passthrough_node_name",
        /// The pod belongs to a DaemonSet.
        DaemonSet = "passthrough_daemonset",
        /// The pod is the mirror of a static pod.
        Mirror = "passthrough_mirror",
        /// Liqo created the pod here for another cluster.
        ShadowPod = "passthrough_shadow_pod",
        /// The pod's namespace is excluded.
        ExcludedNamespace = "passthrough_excluded_namespace",
        /// No node carries the edge site's selector.
        EdgeSiteMissing = "passthrough_edge_site_missing",
        /// No site is possible.
        NoSiteMatches = "passthrough_no_site_matches",
        /// The pod already carries a recent placement by edgeward.
        Reinvocation = "passthrough_reinvocation",
        /// The request does not create a pod, or the pod cannot be read.
        NotAPodCreate = "passthrough_not_a_pod_create",
        /// The pod has longer lists and maps than edgeward reads.
        TooLarge = "passthrough_too_large",
        /// No snapshot of the sites exists yet.
        NotReady = "passthrough_not_ready",
        /// The decision came too late, or would take too long.
        Deadline = "passthrough_deadline",
        /// The review panicked because of a bug.
        Panic = "passthrough_panic",
    }
}

impl Reason {
    /// Whether a pod with this reason waits behind edgeward's gate.
    pub const fn is_gate(self) -> bool {
        matches!(
            self,
            Reason::HeldNoCapacity | Reason::HeldSiteAway | Reason::HeldGroup | Reason::HeldForeignGate
        )
    }
}

words! {
    /// The standing of a site for a pod, from best to worst. Each refusal gives one, and the worst counts.
    pub enum Standing {
        /// The site has no refusals.
        Good = "Good",
        /// The site has room, but the pod misses a time bound there.
        Late = "Late",
        /// The pod could run there, but there is no room now.
        Full = "Full",
        /// The pod could run there, but the site cannot be used now.
        Away = "Away",
        /// The pod can never run there while the pod and the site are defined as they are.
        Never = "Never",
    }
}

words! {
    /// Why a site is refused.
    pub enum RefusalCode {
        /// The pod or its policy does not let it run at this site.
        NotInSites = "not_in_sites",
        /// No node there has the traits that the pod requires.
        MissingTrait = "missing_trait",
        /// The pod's constraints and tolerations allow no node there.
        NoMatchingNode = "no_matching_node",
        /// No node there can use the volumes of the pod's claims.
        DataElsewhere = "data_elsewhere",
        /// Pods that the required pod affinity selects run at other sites.
        PodsElsewhere = "pods_elsewhere",
        /// The pod is larger than every node that it may use there.
        TooLarge = "too_large",
        /// Offloading is not allowed, or the pod uses something that the site does not support.
        NotOffloadable = "not_offloadable",
        /// Liqo does not offload the pod's namespace to this site.
        NamespaceNotOffloaded = "namespace_not_offloaded",
        /// The site has no node.
        NoNode = "no_node",
        /// A node lacks what the pod asks for, but is less than a minute old.
        NewNode = "new_node",
        /// The nodes that could run the pod are cordoned or not ready.
        NodeNotReady = "node_not_ready",
        /// Liqo has not offloaded the pod's namespace to this site yet.
        OffloadingInProgress = "offloading_in_progress",
        /// No endpoint there answers, or Liqo reports its API server as down.
        Unreachable = "unreachable",
        /// RTT or loss is at or above its threshold, or the RTT is unknown.
        Degraded = "degraded",
        /// The last measurement of the WAN is too old.
        Stale = "stale",
        /// The site lacks a trait that the pod requires: its measured value is unknown or beyond the bound, or was so lately, or
        /// the report of its cluster does not have the trait.
        LostTrait = "lost_trait",
        /// The RTT is not below the pod's distance limit.
        DistanceLimit = "distance_limit",
        /// The site does not belong to the neighbourhood of the pod's policy.
        NotInNeighbourhood = "not_in_neighbourhood",
        /// The bandwidth to the site is unknown, and with it the time that the pod's input takes.
        UnknownBandwidth = "unknown_bandwidth",
        /// The release plan places the pod's group as a whole, and this pod elsewhere.
        GroupElsewhere = "group_elsewhere",
        /// A pod of the group that the pod must be near to runs too far away.
        TooFar = "too_far",
        /// No node has room, or the measured free capacity of the site is too low.
        NoRoom = "no_room",
        /// The links of the site have less bandwidth left than the pod states.
        NoBandwidth = "no_bandwidth",
        /// Nodes have room, but gated pods ahead claim it.
        Claimed = "claimed",
        /// A pod of the same controller waits there for something that edgeward does not evaluate.
        ClosedByScheduler = "closed_by_scheduler",
        /// The cluster behind the site has no room for pods that ask for as much.
        RemoteFull = "remote_full",
        /// The pod's controller spreads its pods, and another site has fewer.
        Uneven = "uneven",
        /// The deadline is missed.
        Deadline = "deadline",
        /// The latency target is missed.
        LatencyTarget = "latency_target",
    }
}

impl RefusalCode {
    /// The standing of a site with this refusal.
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
            | Self::LostTrait
            | Self::DistanceLimit
            | Self::NotInNeighbourhood
            | Self::GroupElsewhere
            | Self::TooFar => Standing::Away,
            Self::NoRoom
            | Self::NoBandwidth
            | Self::UnknownBandwidth
            | Self::Claimed
            | Self::ClosedByScheduler
            | Self::RemoteFull
            | Self::Uneven => Standing::Full,
            Self::Deadline | Self::LatencyTarget => Standing::Late,
        }
    }
}

/// Why one site is refused, with the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The code of the refusal.
    pub code: RefusalCode,
    /// The numbers by name. The name has the unit: `…Ms`, `…Pct`, counts without one. Resources are objects by Kubernetes
    /// name, with CPU in millicores and others in bytes or units.
    pub numbers: Map<String, Value>,
}

impl Refusal {
    /// A refusal without numbers.
    pub fn new(code: RefusalCode) -> Self {
        Self {
            code,
            numbers: Map::new(),
        }
    }

    /// Adds a number, or an object of numbers.
    pub fn with(mut self, name: &str, number: impl Into<Value>) -> Self {
        self.numbers.insert(name.to_owned(), number.into());
        self
    }
}

/// The parts of a pod's estimated time at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Time in the queue behind the pods ahead.
    pub queue: Micros,
    /// Mean processing time.
    pub processing: Micros,
    /// Whether the processing time is that of the model, because none is stated or was observed.
    pub is_guess: bool,
    /// Processing time that 19 of 20 pods or requests do not exceed.
    pub processing_p95: Micros,
    /// How much shorter the processing time may have become since it was observed. Zero if it was not observed on Jobs.
    pub aged: Micros,
    /// Time on the WAN; `None` if the RTT is unknown.
    pub wan: Option<Micros>,
    /// Time on the WAN that 19 of 20 requests do not exceed; `None` if the RTT is unknown.
    pub wan_p95: Option<Micros>,
}

impl Estimate {
    /// The sum of all parts.
    pub fn eta(&self) -> Option<Micros> {
        Some(self.queue + self.processing + self.wan?)
    }

    /// This estimate, if the processing time has become as short as it may have since it was observed.
    pub(super) fn at_best(&self) -> Self {
        Self {
            processing: self.processing - self.aged,
            processing_p95: self.processing_p95 - self.aged,
            ..*self
        }
    }

    /// The ETA that this share of the pods keeps, which is compared with a deadline.
    pub fn eta_at(&self, confidence: Confidence) -> Option<Micros> {
        let wan = confidence.between(self.wan?, self.wan_p95?);
        Some(self.queue + self.processing_at(confidence) + wan)
    }

    /// The processing time that this share of the pods keeps.
    pub fn processing_at(&self, confidence: Confidence) -> Micros {
        confidence.between(self.processing, self.processing_p95)
    }

    /// Processing and WAN time of a request, which is compared with a latency target.
    pub fn latency(&self) -> Option<Micros> {
        Some(self.processing_p95 + self.wan_p95?)
    }
}

/// The assessment of one site for the pod.
#[derive(Debug, Clone)]
pub struct Assessment<'s> {
    /// The site.
    pub site: &'s Site,
    /// Nodes that can run the pod once they have room. If the pod fits some nodes, only these.
    pub usable: Vec<&'s Node>,
    /// Nodes on which the pod fits now.
    pub fitting: Vec<&'s Node>,
    /// The number of fitting nodes that fit only because placeholders make room.
    pub headroom: usize,
    /// The pod's estimated time there.
    pub estimate: Estimate,
    /// Whether the pod only meets its time there if the site has become faster since its time was observed. One pod finds out.
    pub is_trial: bool,
    /// The number of the pod's optional traits that the site lacks.
    pub missing_optional: usize,
    /// The most exceeded of the distances that the pod and its group must keep.
    pub far: Option<Far>,
    /// The number of optional distances in the group that are exceeded.
    pub missed_near: usize,
    /// Pods of the controller at the site. Zero unless the controller spreads its pods.
    pub siblings: u64,
    /// The score by the pod's performance profile; `None` without a profile or a score.
    pub score: Option<Score>,
    /// All refusals, up to the first that is `Never`.
    pub refusals: Vec<Refusal>,
}

impl Assessment<'_> {
    /// The worst standing of any refusal; `Good` without refusals.
    pub fn standing(&self) -> Standing {
        let standings = self.refusals.iter().map(|refusal| refusal.code.standing());
        standings.max().unwrap_or(Standing::Good)
    }

    /// Whether the site is refused with this code.
    pub fn is_refused(&self, code: RefusalCode) -> bool {
        self.refusals.iter().any(|refusal| refusal.code == code)
    }

    /// Whether the pod can run here, now or later.
    pub fn is_possible(&self) -> bool {
        self.standing() != Standing::Never
    }

    /// Whether the site has no refusals.
    pub fn is_good(&self) -> bool {
        self.refusals.is_empty()
    }

    /// Whether the site is `Full` only because its nodes lack free resources, and not because a scheduler refuses the pod.
    pub fn lacks_room(&self) -> bool {
        let is_room_or_time = |refusal: &Refusal| {
            matches!(
                refusal.code,
                RefusalCode::NoRoom | RefusalCode::NoBandwidth | RefusalCode::Claimed
            ) || refusal.code.standing() == Standing::Late
        };
        self.standing() == Standing::Full && self.refusals.iter().all(is_room_or_time)
    }

    /// The site's rank for the pod's group; lower is better. Equal for all sites if the pod has no group and its controller
    /// does not spread its pods.
    pub fn group_rank(&self) -> (Micros, usize, u64) {
        let excess = self.far.as_ref().map(Far::excess).unwrap_or_default();
        (excess, self.missed_near, self.siblings)
    }

    /// Whether a node has room for the pod.
    pub fn fits(&self) -> bool {
        !self.fitting.is_empty()
    }
}

/// The action for the pod.
#[derive(Debug, Clone, Copy)]
pub enum Action<'s> {
    /// Add this site's placement.
    Place(&'s Site),
    /// Add edgeward's gate, or keep it.
    Gate,
    /// Leave the pod as it is.
    PassThrough,
    /// Deny the pod.
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

/// The choice of the learned scorer among several good clouds.
#[derive(Debug, Clone)]
pub struct Learned<'s> {
    /// Whether its mode is `active`.
    pub is_active: bool,
    /// The clouds that it compares, each with its score in units of 1/[`ONE`].
    pub scores: Vec<(&'s Site, i64)>,
    /// The cloud that it ranks first. `None` if no cloud is better than all others by the margin; then `sitePolicy` decides.
    pub choice: Option<&'s Site>,
    /// The cloud that `sitePolicy` ranks first.
    pub rules: &'s Site,
    /// For each feature, whether one of these clouds has a value beyond the trained range.
    pub outside: [bool; WIDTH],
}

words! {
    /// How the choice of the learned scorer compares with that of `sitePolicy`.
    pub enum Agreement {
        /// Both choose the same cloud.
        Agrees = "agrees",
        /// They choose different clouds.
        Differs = "differs",
        /// No cloud is better by the margin.
        Undecided = "undecided",
    }
}

impl Learned<'_> {
    /// Whether the scorer and not `sitePolicy` chooses the cloud.
    pub fn decides(&self) -> bool {
        self.is_active && self.choice.is_some()
    }

    /// The name of the cloud that a scorer in shadow would choose, if it is not that of `sitePolicy`.
    pub fn other_choice(&self) -> Option<&str> {
        let choice = self
            .choice
            .filter(|_| !self.is_active && self.agreement() == Agreement::Differs);
        choice.map(Site::name)
    }

    /// The score of this site as a number; `None` if it is not compared.
    pub fn score(&self, site: &Site) -> Option<Score> {
        let (_, score) = self.scores.iter().find(|(compared, _)| std::ptr::eq(*compared, site))?;
        Score::of(*score as f64 / ONE as f64)
    }

    /// How the choice compares with that of `sitePolicy`.
    pub fn agreement(&self) -> Agreement {
        match self.choice {
            None => Agreement::Undecided,
            Some(choice) if std::ptr::eq(choice, self.rules) => Agreement::Agrees,
            Some(_) => Agreement::Differs,
        }
    }
}

/// The outcome of a decision. It is never an error, and the numbers explain it.
#[derive(Debug, Clone)]
pub struct Verdict<'s> {
    /// The action for the pod.
    pub action: Action<'s>,
    /// The reason code.
    pub reason: Reason,
    /// The node that kube-scheduler would pick at the chosen site, or the node whose terminating pods the pod waits for.
    /// `None` if there is neither.
    pub node: Option<NodeId>,
    /// The assessments of all sites, in the order of the snapshot. Empty if edgeward does not decide about the pod.
    pub sites: Vec<Assessment<'s>>,
    /// The good sites, best first. Only for a pod whose group starts together.
    pub places: Vec<&'s Site>,
    /// Trait labels that a placement adds to the pod's nodeSelector, each with the value `true`. Only some nodes of the
    /// site may carry them.
    pub trait_labels: Vec<Box<str>>,
    /// The pod's performance profile and its scores; `None` if the pod names none, or none with this name is in use.
    pub profile: Option<(&'s str, &'s ProfileScores)>,
    /// The choice of the learned scorer. `None` while none is in use, or unless several clouds are good.
    pub learned: Option<Learned<'s>>,
    /// The last RTT measured to the chosen cloud. Otherwise, the lowest recent RTT of a reachable cloud.
    pub rtt: Option<Micros>,
    /// Warnings for the user who creates the pod.
    pub warnings: Vec<String>,
    /// The number of pods of the pod's group that exist, and the number that start together. Set if the pod waits for the
    /// others.
    pub members: Option<(u32, u32)>,
    /// The faults of the SLO.
    pub faults: Vec<SloFault>,
}

impl<'s> Verdict<'s> {
    /// A verdict that leaves the pod unchanged.
    pub fn pass_through(reason: Reason) -> Self {
        Self {
            action: Action::PassThrough,
            reason,
            node: None,
            sites: vec![],
            places: vec![],
            trait_labels: vec![],
            profile: None,
            learned: None,
            rtt: None,
            warnings: vec![],
            members: None,
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

    /// The assessment of the chosen site.
    pub fn chosen(&self) -> Option<&Assessment<'s>> {
        let site = self.site()?;
        self.sites.iter().find(|assessment| std::ptr::eq(assessment.site, site))
    }
}
