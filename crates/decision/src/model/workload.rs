//! The [`Workload`]: one pod as a decision reads it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::keys::Keys;
use crate::model::decision_id::DecisionId;
use crate::model::group::Membership;
use crate::model::priority_caps::PriorityCaps;
use crate::model::site::SiteDefinition;
use crate::model::site_restriction::SiteRestriction;
use crate::model::slo::{Intent, Management, Slo};
use crate::model::traits::Traits;
use crate::model::volumes::{VolumeClaim, Whereabouts};
use edgeward_kube::constraints::{NodeConstraints, Toleration, owned};
use edgeward_kube::pod_affinity::AffinityTerm;
use edgeward_kube::resources::Amounts;
use edgeward_kube::ties::{Leftover, Ties};
use edgeward_kube::units::Micros;

/// A pod, reduced to the fields that a decision reads. Equal workloads get equal decisions. Borrows from the pod's
/// JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Workload<'a> {
    /// Namespace of the pod. On admission it comes from the request.
    pub namespace: Cow<'a, str>,
    /// Effective request, as kube-scheduler computes it.
    pub request: Amounts,
    /// The pod's labels, as `key=value,key=value`. Empty if that is too long to keep.
    pub labels: Arc<str>,
    /// The pod's required affinity to other pods.
    pub near: Vec<AffinityTerm>,
    /// The pod's own nodeSelector and required node affinity.
    pub constraints: NodeConstraints,
    /// The pod's own tolerations.
    pub tolerations: Vec<Toleration>,
    /// Things the pod uses that exist only in the cluster where it is created.
    pub ties: Ties,
    /// The pod's volume claims. Empty if there are too many to look up.
    pub volume_claims: Vec<VolumeClaim<'a>>,
    /// Fields of the pod that Liqo drops when it offloads the pod.
    pub left_behind: BTreeSet<Leftover>,
    /// `spec.activeDeadlineSeconds`. Set only while the pod arrives.
    pub active_deadline: Option<Micros>,
    /// Topology keys over which the pod's controller must spread its pods. Set only while the pod arrives.
    pub spread_keys: Vec<Cow<'a, str>>,
    /// Whether the pod names a RuntimeClass.
    pub runtime_class: bool,
    /// `spec.priority`; 0 if absent.
    pub priority: i32,
    /// Whether kube-scheduler may evict pods of lower priority for this pod (`preemptionPolicy` is not `Never`).
    pub may_preempt: bool,
    /// Whether the pod's label opts it in or out.
    pub management: Management,
    /// The SLO and its faults. `None` if the pod opts out, or if it states no SLO and its label does not require one.
    pub intent: Option<Intent>,
    /// Whether `spec.nodeName` is set.
    pub bound: bool,
    /// Whether the pod mirrors a static pod.
    pub mirror: bool,
    /// Uid of the controller, followed by its revision if it has one.
    pub controller: Option<Cow<'a, str>>,
    /// [`Pod::job_key`](edgeward_kube::pod::Pod::job_key).
    pub job: Option<Cow<'a, str>>,
    /// Whether a DaemonSet controls the pod.
    pub daemonset: bool,
    /// Whether Liqo created the pod on behalf of another cluster. The caller sets this, because it knows the creator.
    pub shadow: bool,
    /// Whether kube-scheduler is placing the pod now, so that a placement can add nothing to it. The caller sets this.
    pub unpatchable: bool,
    /// Names of the pod's scheduling gates.
    pub gates: Vec<Cow<'a, str>>,
    /// How long the pod has had our gate. `None` unless the pod is decided again because it is gated.
    pub gated_for: Option<Micros>,
    /// Our placement, if the pod already carries all of its annotations.
    pub placement: Option<StatedPlacement<'a>>,
}

impl Workload<'_> {
    /// Converts the workload to a form that does not borrow from the parsed document. Fields that matter only while the
    /// pod arrives are dropped.
    pub fn into_owned(self) -> Workload<'static> {
        Workload {
            namespace: owned(self.namespace),
            request: self.request,
            labels: self.labels,
            near: self.near,
            constraints: self.constraints,
            tolerations: self.tolerations,
            ties: self.ties,
            volume_claims: self.volume_claims.into_iter().map(VolumeClaim::into_owned).collect(),
            left_behind: self.left_behind,
            active_deadline: None,
            spread_keys: vec![],
            runtime_class: self.runtime_class,
            priority: self.priority,
            may_preempt: self.may_preempt,
            management: self.management,
            intent: self.intent.map(|intent| Intent {
                unknown_keys: vec![],
                ..intent
            }),
            bound: self.bound,
            mirror: self.mirror,
            controller: self.controller.map(owned),
            job: self.job.map(owned),
            daemonset: self.daemonset,
            shadow: self.shadow,
            unpatchable: self.unpatchable,
            gates: self.gates.into_iter().map(owned).collect(),
            gated_for: self.gated_for,
            placement: None,
        }
    }

    /// Names of the claims whose volumes are known, in the order of `volume_claims`.
    pub fn data_claims(&self) -> impl Iterator<Item = &str> {
        let claims = self.volume_claims.iter();
        let at_volumes = claims.filter(|claim| matches!(claim.data, Whereabouts::AtVolume(_)));
        at_volumes.map(VolumeClaim::name)
    }

    /// Returns the SLO priority, capped by the namespace. A pod without an SLO has the default priority.
    pub fn slo_priority(&self, caps: &PriorityCaps) -> u8 {
        let stated = self
            .intent
            .as_ref()
            .map_or(Slo::DEFAULT_PRIORITY, |intent| intent.slo.priority);
        caps.cap(&self.namespace, stated)
    }

    /// Returns the pod's position among pods that wait for room. A pod that is not created yet comes after all its
    /// equals.
    pub fn queue_key(&self, caps: &PriorityCaps, created: Option<(jiff::Timestamp, &str)>) -> QueueKey {
        QueueKey {
            priority: Reverse(self.priority),
            slo_priority: Reverse(self.slo_priority(caps)),
            is_late: false,
            created: created.map_or(jiff::Timestamp::MAX, |(at, _)| at),
            uid: created.map_or(UID_OF_NONE, |(_, uid)| uid_bytes(uid)),
            is_behind: false,
        }
    }

    /// The restriction to certain sites, if the pod or its policy states one.
    pub fn sites(&self) -> Option<&SiteRestriction> {
        self.intent.as_ref()?.sites.as_ref()
    }

    /// The pod's group, if it has one.
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        self.intent.as_ref()?.membership.as_ref()
    }

    /// The traits that the pod or its policy asks of the site or node.
    pub fn traits(&self) -> Option<&Traits> {
        self.intent.as_ref()?.traits.as_deref()
    }

    /// Whether the pod's restriction to sites allows this site.
    pub fn may_be_at(&self, site: &SiteDefinition) -> bool {
        self.sites().is_none_or(|sites| sites.allows(site))
    }

    /// Whether the pod has a scheduling gate other than ours.
    pub fn has_other_gates(&self, keys: &Keys) -> bool {
        self.gates.iter().any(|gate| **gate != *keys.gate)
    }

    /// Returns the workload as it would arrive, without our placement. `decided` is the reason code of that decision,
    /// `None` if there is none. `site` is the site that the pod belongs to by its spec.
    ///
    /// A selector does not show whether it came from us or from the pod. It counts as ours unless the reason says that
    /// the pod's own constraints left no choice. Tolerations stay: a placement at any site adds that site's tolerations
    /// anyway.
    pub fn without_placement(mut self, decided: Option<&str>, site: Option<&SiteDefinition>) -> Self {
        self.placement = None;
        let ours = decided.filter(|reason| !reason.ends_with("_pinned_by_pod")).and(site);
        if let Some(site) = ours {
            let traits = self.intent.as_ref().and_then(|intent| intent.traits.as_deref());
            let is_trait = |key: &str| traits.is_some_and(|traits| traits.of_nodes(site).any(|label| label == key));
            let is_ours = |key: &str, value: &str| is_trait(key) || site.selector().any(|ours| ours == (key, value));
            self.constraints.selector.retain(|(key, value)| !is_ours(key, value));
        }
        self
    }
}

/// Length of a uid in bytes. A uid is a UUID.
const UID: usize = 36;

/// Sorts after every uid, because UTF-8 has no byte 255.
const UID_OF_NONE: [u8; UID] = [u8::MAX; UID];

/// The bytes of the uid, cut or padded with zeros to `UID` bytes.
fn uid_bytes(uid: &str) -> [u8; UID] {
    let mut bytes = uid.bytes();
    std::array::from_fn(|_| bytes.next().unwrap_or(0))
}

/// The order in which waiting pods get room. Higher `spec.priority` comes first, then higher SLO priority, then pods
/// that can still meet their deadline. After that, older pods come first, then the uid decides as text.
///
/// The order is equal in every replica and every build. It contains no hash, because another standard library may
/// compute hashes differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    priority: Reverse<i32>,
    slo_priority: Reverse<u8>,
    /// Whether the pod misses its deadline even if it starts now.
    is_late: bool,
    /// Creation time, to the second. `Timestamp::MAX` for a pod that does not exist yet.
    created: jiff::Timestamp,
    uid: [u8; UID],
    /// Whether this is the place just behind the pod.
    is_behind: bool,
}

impl QueueKey {
    /// The place just behind this one.
    pub fn behind(self) -> Self {
        Self {
            is_behind: true,
            ..self
        }
    }

    /// Sets whether the pod can no longer meet its deadline. Such a pod comes after its equals that can.
    pub fn late(self, is_late: bool) -> Self {
        Self { is_late, ..self }
    }

    /// Sorts after every other key.
    pub const LAST: QueueKey = QueueKey {
        priority: Reverse(i32::MIN),
        slo_priority: Reverse(0),
        is_late: true,
        created: jiff::Timestamp::MAX,
        uid: UID_OF_NONE,
        is_behind: false,
    };
}

/// The annotations of a complete placement of ours. Any user can write them, so they count only together with the spec
/// of the site that they name (`passthrough_reinvocation` in section 1 of docs/guide/decide.md).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatedPlacement<'a> {
    /// Value of the decision annotation, as found: `edge` or `cloud` if we wrote it.
    pub decision: Cow<'a, str>,
    /// Site name, as found.
    pub site: Cow<'a, str>,
    /// Decision id. `None` if the annotation does not have the form that we write.
    pub id: Option<DecisionId>,
    /// When the placement was written.
    pub at: jiff::Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;
    use crate::pod::Pod;

    fn queue_key(created: Option<(jiff::Timestamp, &str)>) -> QueueKey {
        let pod = Pod::from_json(r#"{"spec":{}}"#).unwrap();
        let workload = pod.workload("shop".into(), &Keys::new("example.io"));
        workload.queue_key(&PriorityCaps::default(), created)
    }

    #[test]
    fn pods_created_in_the_same_second_are_ordered_by_uid() {
        let of = |uid| queue_key(Some((jiff::Timestamp::UNIX_EPOCH, uid)));
        let uids = [
            "",
            "0b5c8a6e-3f0d-4a52-9a5b-0c7f5a1f9d10",
            "0b5c8a6e-3f0d-4a52-9a5b-0c7f5a1f9d11",
            "0b5c8a6f",
            "1b5c8a6e-3f0d-4a52-9a5b-0c7f5a1f9d10",
            "f0e1d2c3-b4a5-4968-8776-655443322110",
            "\u{10ffff}",
        ];
        assert!(uids.is_sorted_by(|one, other| of(one) < of(other)));
    }

    #[test]
    fn uncreated_pod_queues_after_equal_created_pods() {
        let latest = queue_key(Some((jiff::Timestamp::MAX, &"\u{10ffff}".repeat(9))));
        assert!(latest < queue_key(None));
        assert!(queue_key(None) < QueueKey::LAST);
    }
}
