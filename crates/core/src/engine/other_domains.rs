//! Pods behind the gate of another domain than ours: most likely gated when the configuration had that one. Edgeward does not
//! release them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Effect;
use crate::model::pod_record::PodRecord;

/// How many pods are reported, and how many domains: anybody who may create pods can invent gates.
const MAX_REPORTED: usize = 100;

/// Those pods, and which domains were reported.
#[derive(Debug, Default)]
pub(super) struct OtherDomains {
    /// The domain of the gate, by uid of the pod.
    pods: HashMap<Box<str>, Box<str>>,
    /// Whether pods came or went since the last report.
    changed: bool,
    /// The domains that were reported last.
    reported: BTreeSet<Box<str>>,
}

impl OtherDomains {
    /// A pod as it is now. Each such pod is reported once, unless there are very many.
    pub(super) fn apply(&mut self, pod: &PodRecord) -> Option<Effect> {
        let Some(other_domain_pod) = &pod.other_domain_pod else {
            self.delete(&pod.uid);
            return None;
        };
        let before = self
            .pods
            .insert(other_domain_pod.uid.clone(), other_domain_pod.domain.clone());
        self.changed |= before.as_ref() != Some(&other_domain_pod.domain);
        (before.is_none() && self.pods.len() <= MAX_REPORTED)
            .then(|| Effect::HeldByAnotherDomain(other_domain_pod.clone()))
    }

    /// A pod is gone.
    pub(super) fn delete(&mut self, uid: &str) {
        self.changed |= self.pods.remove(uid).is_some();
    }

    /// Keeps the pods that are still there.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        let before = self.pods.len();
        self.pods.retain(|uid, _| is_there(uid));
        self.changed |= self.pods.len() < before;
    }

    /// Each domain that is new, with the number of its pods; `None` where none is.
    pub(super) fn report(&mut self) -> Option<Effect> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut domains = BTreeMap::<&str, usize>::new();
        for domain in self.pods.values() {
            *domains.entry(domain).or_default() += 1;
        }
        domains = domains.into_iter().take(MAX_REPORTED).collect();
        let new = domains.iter().filter(|(domain, _)| !self.reported.contains(**domain));
        let new: Vec<_> = new.map(|(domain, pods)| (Box::from(*domain), *pods)).collect();
        self.reported = domains.into_keys().map(Box::from).collect();
        (!new.is_empty()).then_some(Effect::OtherDomains(new))
    }
}
