//! A pod as the decision reads it: its Kubernetes fields, and the annotations that a policy gives it. It produces a
//! [`Workload`].

mod group;
mod hints;

use std::borrow::Cow;
use std::ops::Deref;

use edgeward_kube::excerpt::LONGEST_NAME;
use edgeward_kube::pod::{self, StringMap, fields};
use serde::Deserialize;

use crate::keys::Keys;
use crate::model::decision_id::DecisionId;
use crate::model::slo::{self, Intent, Management};
use crate::model::volumes::{MAX_CLAIMS, VolumeClaim};
use crate::model::workload::{StatedPlacement, Workload};

/// A pod, with the annotations that a policy gives it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct Pod<'a> {
    #[serde(borrow)]
    fields: pod::Pod<'a>,
    /// Annotations that count as the pod's own. See [`Pod::inherit`].
    #[serde(skip)]
    inherited: Vec<(String, String)>,
}

impl<'a> Deref for Pod<'a> {
    type Target = pod::Pod<'a>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

impl<'a> From<pod::Pod<'a>> for Pod<'a> {
    fn from(fields: pod::Pod<'a>) -> Self {
        Self {
            fields,
            inherited: vec![],
        }
    }
}

impl<'a> Pod<'a> {
    /// Reads a pod. See [`pod::Pod::from_json`].
    ///
    /// # Errors
    /// The text is not a pod.
    pub fn from_json(json: &'a str) -> Result<Self, serde_json::Error> {
        pod::Pod::from_json(json).map(Self::from)
    }

    /// Reads an existing pod without long constraints. See [`pod::Pod::without_long_constraints`].
    ///
    /// # Errors
    /// The text is not a pod.
    pub fn without_long_constraints(json: &'a str) -> Result<Self, serde_json::Error> {
        pod::Pod::without_long_constraints(json).map(Self::from)
    }

    /// Applies the API server's defaults. See [`pod::Pod::apply_api_defaults`].
    pub fn apply_api_defaults(&mut self) {
        self.fields.apply_api_defaults();
    }

    /// Gives the pod annotations for keys that it does not have. The sites and traits of a policy are an exception:
    /// they replace the pod's own values. The annotations count for the workload, and a placement writes them to the
    /// pod.
    pub fn inherit(&mut self, annotations: impl Iterator<Item = (String, String)>, keys: &Keys) {
        let is_missing = |(key, value): &(String, String)| match self.annotation(key) {
            Some(own) => keys.is_of_policy(key) && own != value,
            None => true,
        };
        self.inherited = annotations.filter(is_missing).collect();
    }

    /// The annotations from [`Self::inherit`] that the pod does not carry itself. They take precedence over the pod's
    /// own.
    pub fn inherited(&self) -> &[(String, String)] {
        &self.inherited
    }

    /// Returns the pod as a workload in `namespace`. `shadow` and `unpatchable` stay false, because the pod
    /// does not tell.
    pub fn workload(&self, namespace: Cow<'a, str>, keys: &Keys) -> Workload<'a> {
        let (management, intent) = self.slo(keys);
        Workload {
            request: self.amounts(&self.request(), &namespace),
            near: self.pod_affinity(&namespace),
            labels: self.labels_text().into(),
            namespace,
            constraints: self.spec.constraints(),
            tolerations: self.tolerations().cloned().collect(),
            ties: self.spec.ties(),
            volume_claims: self.volume_claims(),
            left_behind: self.spec.left_behind(),
            active_deadline: self.spec.active_deadline_seconds.map(pod::seconds),
            spread_keys: self.spread_keys(),
            runtime_class: self.spec.names_runtime_class(),
            priority: self.spec.priority.unwrap_or(0),
            may_preempt: self.spec.may_preempt(),
            management,
            intent,
            bound: !self.spec.node_name.is_empty(),
            mirror: self.is_mirror(),
            controller: self.controller_uid(),
            job: self.job_key(),
            daemonset: self.is_of_daemonset(),
            shadow: false,
            unpatchable: false,
            gates: self
                .spec
                .scheduling_gates
                .iter()
                .flatten()
                .map(|gate| gate.name.0.clone())
                .collect(),
            gated_for: None,
            placement: self.stated_placement(keys),
        }
    }

    /// Whether the pod uses a volume claim, its own or another's.
    pub fn has_volume_claims(&self) -> bool {
        let mut volumes = self.spec.volumes();
        volumes.any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some())
    }

    /// The pod's volume claims. Empty if there are more than [`MAX_CLAIMS`], or if a name is too long for an object.
    fn volume_claims(&self) -> Vec<VolumeClaim<'a>> {
        let metadata = self.metadata.as_ref();
        let own_name = metadata.and_then(|metadata| metadata.name.stated());
        let claim = |volume: &fields::Volume<'a>| {
            let named = volume.persistent_volume_claim.as_ref().map(|claim| VolumeClaim {
                name: Some(claim.claim_name.0.clone()),
                ..VolumeClaim::default()
            });
            named.or_else(|| {
                volume.ephemeral.map(|_| VolumeClaim {
                    class: volume.ephemeral_class(),
                    name: own_name.map(|pod| format!("{pod}-{}", &*volume.name).into()),
                    is_ephemeral: true,
                    ..VolumeClaim::default()
                })
            })
        };
        let claims = self.spec.volumes().filter_map(claim);
        let claims: Vec<_> = claims.take(MAX_CLAIMS + 1).collect();
        let is_name = |name: &Option<Cow<'_, str>>| name.as_ref().is_none_or(|name| name.len() <= LONGEST_NAME);
        let are_named = claims.iter().all(|claim| is_name(&claim.name) && is_name(&claim.class));
        if claims.len() <= MAX_CLAIMS && are_named {
            claims
        } else {
            vec![]
        }
    }

    /// Reads the management label, the SLO and the group, from the pod's own and its inherited annotations.
    pub fn slo(&self, keys: &Keys) -> (Management, Option<Intent>) {
        let inherited = self.inherited.iter().map(|(key, value)| (&**key, &**value));
        let own = self.annotations().into_iter().flat_map(StringMap::iter);
        let (management, mut intent) = slo::parse(own.chain(inherited), self.label(&keys.managed), keys);
        if let Some(intent) = &mut intent {
            self.complete_group(intent);
        }
        (management, intent)
    }

    fn stated_placement(&self, keys: &Keys) -> Option<StatedPlacement<'a>> {
        let annotations = self.annotations()?;
        let id = annotations.get(&keys.decision_id).filter(|id| !id.is_empty())?;
        let name = |key| annotations.cow(key).filter(|name| name.len() <= LONGEST_NAME);
        Some(StatedPlacement {
            decision: name(&keys.decision)?,
            site: name(&keys.site)?,
            id: DecisionId::parse(id),
            at: annotations.get(&keys.timestamp)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests;
