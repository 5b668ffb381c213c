//! Required affinity and anti-affinity of a pod to other pods ("Affinity and anti-affinity" in docs/guide/decide.md).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde::Deserialize;

use crate::constraints::{HOSTNAME, Requirement, is_label_key};
use crate::pod::Pod;
use crate::pod::fields::{StringMap, Text};
use crate::pod_affinity::AffinityTerm as Near;
use crate::resources::{Amounts, Apart};
use crate::selector::{Expression, Operator, Selector};

/// Maximum number of anti-affinity terms of a pod that count.
const MAX_TERMS: usize = 4;

/// Maximum number of namespaces, expressions and values in a pod's affinity. They are compared with many pods.
const MAX_PARTS: usize = 64;

/// Maximum length of a pod's labels that are kept, in bytes.
const MAX_LABELS: usize = 1024;

/// A PodAffinityTerm of Kubernetes.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AffinityTerm<'a> {
    #[serde(borrow)]
    label_selector: Option<LabelSelector<'a>>,
    topology_key: Text<'a>,
    namespaces: Option<Vec<Text<'a>>>,
    namespace_selector: Option<LabelSelector<'a>>,
    match_label_keys: Option<Vec<Text<'a>>>,
    mismatch_label_keys: Option<Vec<Text<'a>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LabelSelector<'a> {
    #[serde(borrow)]
    match_labels: Option<StringMap<'a>>,
    match_expressions: Option<Vec<Requirement>>,
}

impl Pod<'_> {
    /// Adds to the pod's request in `namespace` the anti-affinity terms that select the pod itself. Pods with an equal
    /// term exclude each other, so no labels need to be kept.
    pub(super) fn kept_apart(&self, mut request: Amounts, namespace: &str) -> Amounts {
        let affinity = self.spec.constraints.affinity.as_ref();
        let required = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()?.required.as_ref());
        let terms = required.into_iter().flatten();
        let apart = terms.filter_map(|term| term.apart(self, namespace));
        request.apart = apart.take(MAX_TERMS).map(|apart| (apart, 1)).collect();
        request.apart.sort_unstable();
        request.apart.dedup();
        request
    }

    /// The required affinity to other pods. Empty if edgeward cannot evaluate a part of it, or if it is too long.
    pub fn pod_affinity(&self, namespace: &str) -> Vec<Near> {
        let affinity = self.spec.constraints.affinity.as_ref();
        let required = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()?.required.as_ref());
        let terms = required.into_iter().flatten();
        let terms: Option<Vec<_>> = terms.map(|term| term.near(self, namespace)).collect();
        let is_short = |terms: &Vec<Near>| terms.iter().map(Near::parts).sum::<usize>() <= MAX_PARTS;
        terms.filter(is_short).unwrap_or_default()
    }

    /// Labels in order, as `key=value,key=value`. Empty if that is too long.
    pub fn labels_text(&self) -> String {
        let labels: Vec<_> = self.labels().map(|(key, value)| format!("{key}={value}")).collect();
        Some(labels.join(","))
            .filter(|text| text.len() <= MAX_LABELS)
            .unwrap_or_default()
    }
}

impl AffinityTerm<'_> {
    /// Returns the anti-affinity key of this term, if the term selects the pod itself.
    fn apart(&self, pod: &Pod<'_>, namespace: &str) -> Option<Apart> {
        let selector = self.selector(|key| pod.label(key))?;
        let is_own =
            self.is_of(namespace) && is_label_key(&self.topology_key) && selector.matches(|key| pod.label(key));
        let mut hasher = DefaultHasher::new();
        (namespace, &selector).hash(&mut hasher);
        is_own.then(|| Apart {
            pods: hasher.finish(),
            topology_key: (self.topology_key != *HOSTNAME).then(|| (&*self.topology_key).into()),
        })
    }

    /// Returns the term as affinity, if edgeward can evaluate it. It does not know the labels of namespaces.
    fn near(&self, pod: &Pod<'_>, namespace: &str) -> Option<Near> {
        let mut namespaces: Vec<_> = self
            .namespaces
            .iter()
            .flatten()
            .map(|stated| (&**stated).into())
            .collect();
        if namespaces.is_empty() {
            namespaces.push(namespace.into());
        }
        let is_evaluated = self.namespace_selector.is_none() && is_label_key(&self.topology_key);
        is_evaluated.then_some(Near {
            namespaces,
            selector: self.selector(|key| pod.label(key))?,
            topology_key: (&*self.topology_key).into(),
        })
    }

    /// Whether the term is certain to select pods of this namespace, the pod's own.
    fn is_of(&self, namespace: &str) -> bool {
        let mut namespaces = self.namespaces.iter().flatten().peekable();
        match &self.namespace_selector {
            Some(selector) if selector.expressions().is_some_and(|expressions| expressions.is_empty()) => true,
            None if namespaces.peek().is_none() => true,
            _ => namespaces.any(|stated| *stated == *namespace),
        }
    }

    /// Returns the selector with its expressions sorted. The API server merges `matchLabelKeys` and `mismatchLabelKeys`
    /// into the selector after the webhooks have run. This function merges them too, so the result is equal before and
    /// after.
    fn selector<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> Option<Selector> {
        let mut expressions = self.label_selector.as_ref()?.expressions()?;
        let keys = [
            (&self.match_label_keys, Operator::In),
            (&self.mismatch_label_keys, Operator::NotIn),
        ];
        for (keys, operator) in keys {
            let stated = keys.iter().flatten();
            let of_pod = stated.filter_map(|key| Some((Box::from(&**key), operator, vec![Box::from(label(key)?)])));
            expressions.extend(of_pod);
        }
        expressions.sort_unstable();
        expressions.dedup();
        Some(Selector(expressions))
    }
}

impl LabelSelector<'_> {
    /// Returns the expressions. `None` if an operator is not known.
    fn expressions(&self) -> Option<Vec<Expression>> {
        let labels = self.match_labels.iter().flat_map(StringMap::iter);
        let labels = labels.map(|(key, value)| Some((key.into(), Operator::In, vec![value.into()])));
        let requirements = self.match_expressions.iter().flatten().map(|requirement| {
            let mut values: Vec<_> = requirement.values.iter().map(|value| Box::from(&**value)).collect();
            values.sort_unstable();
            values.dedup();
            Some((
                (&*requirement.key).into(),
                Operator::of_word(&requirement.operator)?,
                values,
            ))
        });
        labels.chain(requirements).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The anti-affinity terms of a pod of app web with hash 1.
    fn apart(terms: &Value) -> Vec<(Apart, i64)> {
        apart_of(&json!({"app": "web", "hash": "1"}), "shop", terms)
    }

    fn apart_of(labels: &Value, namespace: &str, terms: &Value) -> Vec<(Apart, i64)> {
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        let pod = json!({"metadata": {"labels": labels}, "spec": {"affinity": affinity}}).to_string();
        let pod = Pod::from_json(&pod).unwrap();
        pod.kept_apart(Amounts::default(), namespace).apart
    }

    fn term(selector: Value) -> Value {
        json!({"labelSelector": selector, "topologyKey": HOSTNAME})
    }

    fn of_app(app: &str) -> Value {
        term(json!({"matchLabels": {"app": app}}))
    }

    fn with(mut term: Value, field: &str, value: Value) -> Value {
        term[field] = value;
        term
    }

    #[test]
    fn term_counts_if_it_selects_the_pod_itself() {
        let expression = |operator: &str, values: Value| {
            term(json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}))
        };
        for (counts, term) in [
            (true, of_app("web")),
            (false, of_app("db")),
            (true, term(json!({}))),
            (false, term(Value::Null)),
            (true, expression("In", json!(["db", "web"]))),
            (false, expression("NotIn", json!(["web"]))),
            (true, expression("Exists", json!([]))),
            (false, expression("Unknown", json!([]))),
            (true, with(of_app("web"), "namespaces", json!(["bank", "shop"]))),
            (false, with(of_app("web"), "namespaces", json!(["bank"]))),
            (true, with(of_app("web"), "namespaceSelector", json!({}))),
            (
                false,
                with(
                    of_app("web"),
                    "namespaceSelector",
                    json!({"matchLabels": {"team": "a"}}),
                ),
            ),
            (false, with(of_app("web"), "mismatchLabelKeys", json!(["hash"]))),
            (false, with(of_app("web"), "topologyKey", json!("no label key"))),
        ] {
            assert_eq!(apart(&json!([term])).len(), usize::from(counts), "{term}");
        }
    }

    #[test]
    fn only_pods_with_an_equal_term_share_its_number() {
        let web = apart(&json!([of_app("web")]));
        assert_eq!(web[0].0.topology_key, None);
        let same = term(json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "web"]}]}));
        assert_eq!(apart(&json!([same, of_app("web")])), web);
        let next_replica_set = json!({"app": "web", "hash": "2"});
        assert_eq!(apart_of(&next_replica_set, "shop", &json!([of_app("web")])), web);
        assert_ne!(apart_of(&next_replica_set, "bank", &json!([of_app("web")])), web);
        let of_zone = apart(&json!([with(of_app("web"), "topologyKey", json!("zone"))]));
        assert_eq!(
            (of_zone[0].0.pods, of_zone[0].0.topology_key.as_deref()),
            (web[0].0.pods, Some("zone"))
        );
    }

    #[test]
    fn match_label_keys_read_equal_before_and_after_storage() {
        let arriving = with(of_app("web"), "matchLabelKeys", json!(["hash", "missing"]));
        let mut stored = arriving.clone();
        stored["labelSelector"]["matchExpressions"] = json!([{"key": "hash", "operator": "In", "values": ["1"]}]);
        assert_eq!(apart(&json!([arriving])), apart(&json!([stored])));
        let next_replica_set = apart_of(&json!({"app": "web", "hash": "2"}), "shop", &json!([arriving]));
        assert_ne!(apart(&json!([arriving])), next_replica_set);
    }

    #[test]
    fn affinity_counts_only_if_all_terms_can_be_evaluated() {
        let near = |labels: &Value, terms: &Value| {
            let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
            let pod = json!({"metadata": {"labels": labels}, "spec": {"affinity": affinity}}).to_string();
            let pod = Pod::from_json(&pod).unwrap();
            let near = pod.pod_affinity("shop");
            near.iter().map(|term| term.namespaces.join(",")).collect::<Vec<_>>()
        };
        let many = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": vec!["x"; 63]}]});
        for (terms, expected) in [
            (json!([of_app("db")]), &["shop"][..]),
            (json!([of_app("db"), of_app("web")]), &["shop", "shop"]),
            (json!([with(of_app("db"), "namespaces", json!(["a", "b"]))]), &["a,b"]),
            (
                json!([of_app("db"), with(of_app("db"), "namespaceSelector", json!({}))]),
                &[],
            ),
            (json!([with(of_app("db"), "topologyKey", json!("no label key"))]), &[]),
            (json!([term(Value::Null)]), &[]),
            (json!([term(many)]), &["shop"]),
            (json!(vec![of_app("db"); 21]), &["shop"; 21]),
            (json!(vec![of_app("db"); 22]), &[]),
        ] {
            assert_eq!(near(&json!({}), &terms), expected, "{terms}");
        }
    }

    #[test]
    fn labels_are_kept_up_to_their_bound() {
        let text = |value: &str| {
            let pod = json!({"metadata": {"labels": {"b": value, "a": "1"}}, "spec": {}}).to_string();
            Pod::from_json(&pod).unwrap().labels_text()
        };
        assert_eq!(text("2"), "a=1,b=2");
        assert_eq!(text(&"x".repeat(MAX_LABELS)), "");
    }

    #[test]
    fn four_terms_of_a_pod_count() {
        let terms = (0..9).map(|i| with(of_app("web"), "topologyKey", json!(format!("key-{i}"))));
        assert_eq!(apart(&terms.collect()).len(), MAX_TERMS);
    }
}
