//! What is asked: one pod as a decision sees it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::ties::{Leftover, Ties};
use super::volumes::{VolumeClaim, Whereabouts};
use crate::keys::Keys;
use crate::model::constraints::{NodeConstraints, Toleration};
use crate::model::decision_id::DecisionId;
use crate::model::pod_affinity::AffinityTerm;
use crate::model::priority_caps::PriorityCaps;
use crate::model::site::SiteDefinition;
use crate::model::site_restriction::SiteRestriction;
use crate::model::slo::{Intent, Management, Slo};
use crate::model::traits::Traits;
use crate::resources::Amounts;
use crate::units::Micros;

/// A pod, reduced to what a decision reads: two that are equal are decided alike. Borrows from the pod's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Workload<'a> {
    /// Namespace of the request.
    pub namespace: Cow<'a, str>,
    /// Effective request, as kube-scheduler computes it.
    pub request: Amounts,
    /// Its labels, as `key=value,key=value`.
    pub labels: Arc<str>,
    /// Its required affinity to other pods.
    pub near: Vec<AffinityTerm>,
    /// The pod's own nodeSelector and required node affinity.
    pub constraints: NodeConstraints<'a>,
    /// The pod's own tolerations.
    pub tolerations: Vec<Toleration<'a>>,
    /// What ties the pod to the cluster it is created in.
    pub ties: Ties,
    /// Its claims for volumes; none where it has too many to look at.
    pub volume_claims: Vec<VolumeClaim<'a>>,
    /// What of it Liqo would leave behind.
    pub left_behind: BTreeSet<Leftover>,
    /// `spec.activeDeadlineSeconds`, of a pod that arrives.
    pub active_deadline: Option<Micros>,
    /// Whether it names a RuntimeClass.
    pub runtime_class: bool,
    /// `spec.priority`, 0 when absent.
    pub priority: i32,
    /// Whether kube-scheduler may evict pods of lower priority for it (`preemptionPolicy` is not `Never`).
    pub may_preempt: bool,
    /// Opt-in and opt-out of this pod.
    pub management: Management,
    /// The SLO and its faults; `None` for a pod that states none and is not forced to.
    pub intent: Option<Intent>,
    /// `spec.nodeName` is set.
    pub bound: bool,
    /// Mirror of a static pod.
    pub mirror: bool,
    /// Uid of its controller.
    pub controller: Option<Cow<'a, str>>,
    /// Controlled by a DaemonSet.
    pub daemonset: bool,
    /// Created by Liqo on behalf of another cluster: set by who knows the creator.
    pub shadow: bool,
    /// Names of its scheduling gates.
    pub gates: Vec<Cow<'a, str>>,
    /// For how long our gate has gated it, where it is decided again because of that; `None` for a pod that arrives.
    pub gated_for: Option<Micros>,
    /// The placement of ours it already carries, if it carries all of one.
    pub placement: Option<StatedPlacement<'a>>,
}

impl Workload<'_> {
    /// The same, independent of the document it was read from, and without the texts that only a warning about it shows.
    pub fn into_owned(self) -> Workload<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Workload {
            namespace: owned(self.namespace),
            request: self.request,
            labels: self.labels,
            near: self.near,
            constraints: self.constraints.into_owned(),
            tolerations: self.tolerations.into_iter().map(Toleration::into_owned).collect(),
            ties: self.ties,
            volume_claims: self.volume_claims.into_iter().map(VolumeClaim::into_owned).collect(),
            left_behind: self.left_behind,
            active_deadline: None,
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
            daemonset: self.daemonset,
            shadow: self.shadow,
            gates: self.gates.into_iter().map(owned).collect(),
            gated_for: self.gated_for,
            placement: self.placement.map(StatedPlacement::into_owned),
        }
    }

    /// The names of the claims whose volumes are known, in the order of these.
    pub fn data_claims(&self) -> impl Iterator<Item = &str> {
        let claims = self.volume_claims.iter();
        let at_volumes = claims.filter(|claim| matches!(claim.data, Whereabouts::AtVolume(_)));
        at_volumes.map(VolumeClaim::name)
    }

    /// Its SLO priority, as high as its namespace may go; the default of one without SLO.
    pub fn slo_priority(&self, caps: &PriorityCaps) -> u8 {
        let stated = self
            .intent
            .as_ref()
            .map_or(Slo::DEFAULT_PRIORITY, |intent| intent.slo.priority);
        caps.cap(&self.namespace, stated)
    }

    /// Its place among pods that wait for room; behind all its equals, if it was not created yet.
    pub fn queue_key(&self, caps: &PriorityCaps, created: Option<(jiff::Timestamp, &str)>) -> QueueKey {
        QueueKey {
            priority: Reverse(self.priority),
            slo_priority: Reverse(self.slo_priority(caps)),
            is_late: false,
            created: created.map_or(jiff::Timestamp::MAX, |(at, _)| at),
            uid: created.map_or(UID_OF_NONE, |(_, uid)| uid_bytes(uid)),
        }
    }

    /// The sites at which alone it may run, if it says so.
    pub fn sites(&self) -> Option<&SiteRestriction> {
        self.intent.as_ref()?.sites.as_ref()
    }

    /// What its site or node must have.
    pub fn traits(&self) -> Option<&Traits> {
        self.intent.as_ref()?.traits.as_deref()
    }

    /// Whether it may run at this site, as far as it says.
    pub fn may_be_at(&self, site: &SiteDefinition) -> bool {
        self.sites().is_none_or(|sites| sites.allows(site))
    }

    /// Whether somebody else's gate keeps it from being scheduled.
    pub fn has_other_gates(&self, keys: &Keys) -> bool {
        self.gates.iter().any(|gate| **gate != *keys.gate)
    }

    /// The same as it would arrive, without the placement of ours that it carries: `decided` is the reason of that decision,
    /// `None` where there is none, and `site` the one that it belongs to by its spec. Whether a selector came from us or was
    /// its own cannot be seen; it came from us, unless the decision says that its own constraints left no choice. Tolerations
    /// stay: whoever is sent to a site has those of that site anyway.
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

/// The length of a uid, which is a UUID.
const UID: usize = 36;

/// Behind every uid: UTF-8 has no such byte.
const UID_OF_NONE: [u8; UID] = [u8::MAX; UID];

/// The uid, cut or filled with zeros to its usual length.
fn uid_bytes(uid: &str) -> [u8; UID] {
    let mut bytes = uid.bytes();
    std::array::from_fn(|_| bytes.next().unwrap_or(0))
}

/// The order in which pods are given room: by `spec.priority`, then SLO priority, the higher first, then by age, then by uid
/// as text. It is the same in every replica, and in every build: no hash is part of it, which another standard library may
/// compute differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    priority: Reverse<i32>,
    slo_priority: Reverse<u8>,
    /// Whether its deadline is missed even if it starts now.
    is_late: bool,
    /// To the second; the last moment for a pod that does not exist yet.
    created: jiff::Timestamp,
    uid: [u8; UID],
}

impl QueueKey {
    /// The same, behind its equals that can still meet their deadlines, if it cannot.
    pub fn late(self, is_late: bool) -> Self {
        Self { is_late, ..self }
    }

    /// Behind everybody.
    pub const LAST: QueueKey = QueueKey {
        priority: Reverse(i32::MIN),
        slo_priority: Reverse(0),
        is_late: true,
        created: jiff::Timestamp::MAX,
        uid: UID_OF_NONE,
    };
}

impl StatedPlacement<'_> {
    fn into_owned(self) -> StatedPlacement<'static> {
        StatedPlacement {
            decision: Cow::Owned(self.decision.into_owned()),
            site: Cow::Owned(self.site.into_owned()),
            id: self.id,
            at: self.at,
        }
    }
}

/// The annotations of a complete placement of ours. Anybody can write them: they count only together with the spec of the
/// site that they name (`passthrough_reinvocation` in docs/reference/codes.md).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatedPlacement<'a> {
    /// `edge` or `cloud`, as found.
    pub decision: Cow<'a, str>,
    /// Site name, as found.
    pub site: Cow<'a, str>,
    /// Its id; `None` where the annotation is not one that we write.
    pub id: Option<DecisionId>,
    /// When it was written.
    pub at: jiff::Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keys;
    use crate::wire::pod::Pod;

    fn queue_key(created: Option<(jiff::Timestamp, &str)>) -> QueueKey {
        let pod = Pod::from_json(r#"{"spec":{}}"#).unwrap();
        let workload = pod.workload("shop".into(), &Keys::new("example.io"));
        workload.queue_key(&PriorityCaps::default(), created)
    }

    #[test]
    fn of_pods_of_one_second_the_one_with_the_smaller_uid_is_first() {
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
    fn a_pod_that_is_not_created_yet_is_behind_its_equals_and_before_the_last() {
        let latest = queue_key(Some((jiff::Timestamp::MAX, &"\u{10ffff}".repeat(9))));
        assert!(latest < queue_key(None));
        assert!(queue_key(None) < QueueKey::LAST);
    }
}
