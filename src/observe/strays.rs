//! Pods behind the gate of another domain than ours: held when the configuration had that one, most likely. Nobody releases
//! them, so the domain in use counts as a fault of the configuration for as long as there are any.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::keys::Keys;
use crate::metrics::Metrics;
use crate::model::pod_record::{PodRecord, Stray};

/// How many pods are told of, and how many domains are logged: anybody who may create pods can invent gates.
const TOLD: usize = 100;

/// Those pods, and who is told of each.
#[derive(Default)]
pub(super) struct Strays {
    /// The domain of the gate, by uid of the pod.
    pods: HashMap<Box<str>, Box<str>>,
    /// Whether pods came or went since the last report.
    changed: bool,
    /// The domains that were logged last.
    logged: BTreeSet<Box<str>>,
    tell: Option<Box<dyn Fn(Stray) + Send>>,
}

impl Strays {
    /// Calls `tell` with each such pod once, unless there are very many.
    pub(super) fn tell(&mut self, tell: impl Fn(Stray) + Send + 'static) {
        self.tell = Some(Box::new(tell));
    }

    /// A pod as it is now.
    pub(super) fn apply(&mut self, pod: &PodRecord) {
        let Some(stray) = &pod.stray else {
            return self.delete(&pod.uid);
        };
        let before = self.pods.insert(stray.uid.clone(), stray.domain.clone());
        self.changed |= before.as_ref() != Some(&stray.domain);
        if let (None, Some(tell), true) = (before, &self.tell, self.pods.len() <= TOLD) {
            tell((**stray).clone());
        }
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

    /// Shows the fault in the metrics, and logs each domain once for as long as there are pods of it.
    pub(super) fn report(&mut self, keys: &Keys, metrics: &Metrics) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        metrics.configuration().other_domains(!self.pods.is_empty());
        let mut domains = BTreeMap::<&str, usize>::new();
        for domain in self.pods.values() {
            *domains.entry(domain).or_default() += 1;
        }
        for (gate_domain, pods) in domains.iter().take(TOLD) {
            if !self.logged.contains(*gate_domain) {
                let domain = &*keys.domain;
                tracing::error!(
                    domain,
                    gate_domain,
                    pods,
                    "pods are behind the gate of another domain, and nobody releases them; was the domain changed?"
                );
            }
        }
        self.logged = domains.into_keys().take(TOLD).map(Box::from).collect();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::config::Config;

    #[test]
    fn a_pod_of_another_domain_is_a_fault_until_it_is_gone() {
        let (keys, metrics) = (Config::default().keys, Metrics::new());
        let told = Arc::<Mutex<Vec<Stray>>>::default();
        let mut strays = Strays::default();
        strays.tell({
            let told = Arc::clone(&told);
            move |stray| told.lock().unwrap().push(stray)
        });
        let pod = |uid: &str, gates: &[&str]| {
            let gates: Vec<_> = gates.iter().map(|name| serde_json::json!({"name": name})).collect();
            let pod = serde_json::json!({
                "metadata": {"name": format!("pod-{uid}"), "namespace": "shop", "uid": uid},
                "spec": {"schedulingGates": gates},
            });
            let text = pod.to_string();
            let pod = crate::pod::Pod::from_json(&text).unwrap();
            pod.record(&text, &keys).unwrap().unwrap()
        };
        let old = Keys::new("acme.dev").gate;
        let is_fault = |strays: &mut Strays| {
            strays.report(&keys, &metrics);
            metrics.encode().contains("edgeward_config_faults{path=\"domain\"} 1\n")
        };

        strays.apply(&pod("a", &[&keys.gate]));
        strays.apply(&pod("b", &["queue.example/admission"]));
        assert!(!is_fault(&mut strays));
        for _ in 0..2 {
            strays.apply(&pod("c", &["queue.example/admission", &old]));
        }
        strays.apply(&pod("d", &[&old]));
        assert!(is_fault(&mut strays));
        let told = std::mem::take(&mut *told.lock().unwrap());
        let of = |uid: &str| Stray {
            namespace: "shop".into(),
            name: format!("pod-{uid}").into(),
            uid: uid.into(),
            domain: "acme.dev".into(),
        };
        assert_eq!(told, [of("c"), of("d")]);

        strays.apply(&pod("c", &[]));
        assert!(is_fault(&mut strays));
        strays.retain(|uid| uid != "d");
        assert!(!is_fault(&mut strays));
    }
}
