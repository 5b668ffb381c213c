//! The group of a pod: by edgeward's annotations, or by a mark of Kubernetes, Kueue or coscheduling.

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::group::{COSCHEDULING_API, KUBERNETES_API, MAX_SIZE, Membership};
use crate::model::slo::{Class, Intent};
use crate::pod::Pod;
use edgeward_kube::constraints::is_label_value;

/// Labels that name a pod's part of its application; the first that the pod has counts.
const COMPONENT_LABELS: [&str; 3] = ["app.kubernetes.io/component", "app.kubernetes.io/name", "app"];

const KUEUE_GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const KUEUE_SIZE: &str = "kueue.x-k8s.io/pod-group-total-count";
const COSCHEDULING_GROUP: &str = "scheduling.x-k8s.io/pod-group";

/// Maximum length of the name of an object, in bytes.
const LONGEST: usize = 253;

/// Maximum number of topology keys of a pod that are compared with nodes.
const MAX_SPREAD_KEYS: usize = 8;

impl<'a> Pod<'a> {
    /// Completes the group that the annotations state with a component from the pod's labels. Without such a group, a mark
    /// names one.
    pub(super) fn complete_group(&self, intent: &mut Intent) {
        match &mut intent.membership {
            Some(membership) if membership.component.is_empty() => {
                let labels = COMPONENT_LABELS.iter().filter_map(|label| self.label(label));
                let component = labels.into_iter().find(|component| is_label_value(component));
                Arc::make_mut(membership).component = component.unwrap_or_default().into();
            }
            Some(_) => {}
            None => intent.membership = self.gang(intent.slo.class).map(Arc::new),
        }
    }

    /// The gang that a mark names.
    fn gang(&self, class: Class) -> Option<Membership> {
        let of_spec = self.spec.scheduling_group.as_ref();
        let of_spec = of_spec.and_then(|group| group.pod_group_name.stated());
        let size = || self.annotation(KUEUE_SIZE)?.parse().ok();
        let marks = [
            (KUBERNETES_API, of_spec, None),
            ("kueue.x-k8s.io", self.label(KUEUE_GROUP), size()),
            (COSCHEDULING_API, self.label(COSCHEDULING_GROUP), None),
        ];
        let is_name = |name: &&str| !name.is_empty() && name.len() <= LONGEST;
        let mut named = marks
            .into_iter()
            .filter_map(|(api, name, size)| Some((api, name.filter(is_name)?, size)));
        let (api, name, size) = named.next()?;
        Some(Membership {
            // A slash keeps it apart from the groups of annotations.
            group: format!("{api}/{name}").into(),
            component: Box::default(),
            near: vec![],
            class,
            size: size.filter(|size| (1..=MAX_SIZE).contains(size)),
            is_gang: true,
        })
    }

    /// Topology keys over which kube-scheduler must spread the pods of the pod's controller.
    pub(super) fn spread_keys(&self) -> Vec<Cow<'a, str>> {
        let constraints = self.spec.topology_spread_constraints.iter().flatten();
        let required = constraints.filter(|constraint| constraint.when_unsatisfiable == "DoNotSchedule");
        let keys = required.map(|constraint| constraint.topology_key.0.clone());
        keys.take(MAX_SPREAD_KEYS).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::keys::Keys;

    fn membership(labels: Value, annotations: Value, spec: Value) -> Option<Membership> {
        let mut all = json!({"slo.example.io/class": "batch"});
        all.as_object_mut()
            .unwrap()
            .extend(annotations.as_object().unwrap().clone());
        let pod = json!({"metadata": {"labels": labels, "annotations": all}, "spec": spec}).to_string();
        let (_, intent) = Pod::from_json(&pod).unwrap().slo(&Keys::new("example.io"));
        intent.unwrap().membership.as_deref().cloned()
    }

    #[test]
    fn component_comes_from_annotation_or_labels() {
        let group = json!({"slo.example.io/group": "shop"});
        let component = |labels, annotations| membership(labels, annotations, json!({})).unwrap().component;
        assert_eq!(&*component(json!({}), group.clone()), "");
        assert_eq!(&*component(json!({"app": "a"}), group.clone()), "a");
        assert_eq!(
            &*component(json!({"app": "a", "app.kubernetes.io/name": "n"}), group.clone()),
            "n"
        );
        let labels = json!({"app.kubernetes.io/component": "c", "app.kubernetes.io/name": "n"});
        assert_eq!(&*component(labels.clone(), group), "c");
        let stated = json!({"slo.example.io/group": "shop", "slo.example.io/component": "db"});
        assert_eq!(&*component(labels, stated), "db");
    }

    #[test]
    fn marks_name_gangs() {
        let gang = |labels, annotations, spec| {
            let found = membership(labels, annotations, spec)?;
            Some((found.group.into_string(), found.size, found.is_gang))
        };
        let kueue = json!({KUEUE_GROUP: "train"});
        let of = |name: &str, size| Some((name.to_owned(), size, true));
        assert_eq!(
            gang(kueue.clone(), json!({KUEUE_SIZE: "4"}), json!({})),
            of("kueue.x-k8s.io/train", Some(4))
        );
        assert_eq!(
            gang(kueue.clone(), json!({KUEUE_SIZE: "x"}), json!({})),
            of("kueue.x-k8s.io/train", None)
        );
        let coscheduling = json!({COSCHEDULING_GROUP: "train"});
        assert_eq!(
            gang(coscheduling, json!({}), json!({})),
            of("scheduling.x-k8s.io/train", None)
        );
        let of_spec = json!({"schedulingGroup": {"podGroupName": "train"}});
        assert_eq!(gang(json!({}), json!({}), of_spec), of("scheduling.k8s.io/train", None));
        assert_eq!(gang(json!({}), json!({}), json!({})), None);
        let stated = gang(kueue, json!({"slo.example.io/group": "shop"}), json!({}));
        assert_eq!(stated, Some(("shop".to_owned(), None, false)));
    }
}
