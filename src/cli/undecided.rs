//! The likely causes why a pod has no decision, as far as the cluster shows them.

use edgeward_decision::config::Config;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::Reason;
use edgeward_kube::units::Now;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use crate::inspect::Connection;
use crate::inspect::installation::{Labels, Webhook};

/// Webhook names in `webhook/base`: for namespaces without policies, and for namespaces with them.
pub(super) const WEBHOOKS: [&str; 2] = ["pods.edgeward.io", "policies.edgeward.io"];

/// The webhook for pods that are created with the label of placed pods.
pub(super) const OF_PLACED: &str = "placed.edgeward.io";

/// Whether the webhook is called for pods that are not placed yet.
pub(super) fn asks_as_pods_arrive(webhook: &Webhook) -> bool {
    WEBHOOKS.contains(&&*webhook.entry.name)
}

/// Whether a webhook with this name belongs to edgeward.
pub(super) fn is_ours(name: &str) -> bool {
    WEBHOOKS.contains(&name) || name == OF_PLACED
}

/// The labels of the pod's namespace and the mutating webhooks, or why they could not be read.
type Seen = (anyhow::Result<Labels>, anyhow::Result<Vec<Webhook>>);

/// A pod without a decision.
pub(super) struct Undecided<'u> {
    pub(super) workload: &'u Workload<'u>,
    /// When the pod was created; `None` if it does not exist.
    pub(super) created: Option<Timestamp>,
    /// Whether the pod exists and has a node. The spec does not show whether its author or kube-scheduler set the node.
    pub(super) on_node: bool,
}

/// Returns the likely causes why a pod has no decision, at least one.
pub(super) async fn causes(connection: &Connection, config: &Config, undecided: &Undecided<'_>) -> Vec<String> {
    let namespaces = Api::<Namespace>::all(connection.client.clone());
    let namespace = connection.get_from(namespaces, &undecided.workload.namespace);
    let (namespace, webhooks) = tokio::join!(namespace, connection.webhooks());
    let labels = |found: Option<Namespace>| found.and_then(|found| found.metadata.labels);
    let seen = (namespace.map(|found| labels(found).unwrap_or_default()), webhooks);
    judge(&seen, config, undecided, connection.clock.now())
}

fn judge((labels_seen, webhooks): &Seen, config: &Config, undecided: &Undecided<'_>, now: Now) -> Vec<String> {
    let workload = undecided.workload;
    let (namespace, label) = (&*workload.namespace, &config.keys.managed);
    let mut causes = Vec::new();
    let mut labels = None;
    match labels_seen {
        Ok(found) if found.get(label).is_some_and(|value| value == "true") => labels = Some(found),
        Ok(_) => causes.push(format!("namespace {namespace} is not labelled {label}=true")),
        Err(error) => causes.push(format!(
            "namespace {namespace} may not be labelled {label}=true ({error:#})"
        )),
    }
    match webhooks {
        Ok(webhooks) => causes.extend(unasked(webhooks, namespace, labels, undecided.created)),
        Err(error) => causes.push(format!("a webhook {} may not be registered ({error:#})", WEBHOOKS[0])),
    }
    // The sites do not matter here, so there are none.
    let nowhere = Snapshot::default();
    let verdict = decide(workload, &Room::of(&nowhere), config, now);
    if workload.placement.is_some() {
        causes.push("the pod carries a recent placement, which is repeated".to_owned());
    } else if !matches!(verdict.reason, Reason::NoSiteMatches | Reason::DeniedInvalidSlo) && !verdict.reason.is_gate() {
        causes.push(format!(
            "edgeward does not decide such a pod: {} ({})",
            words(verdict.reason, config),
            verdict.reason.as_str()
        ));
    }
    if causes.is_empty() {
        let by_itself = match undecided.on_node {
            true => {
                "it was created with its nodeName, which edgeward leaves alone (whether it was, or kube-scheduler placed it, \
                 cannot be told from its spec); or "
            }
            false => "",
        };
        causes.push(format!(
            "{by_itself}edgeward did not answer, which lets the pod through (failurePolicy: Ignore), or passed it through; \
             warnings and its log say which"
        ));
    }
    causes
}

/// Returns why the API server did not call edgeward, if the webhooks show it. `labels` are those of the namespace, if
/// it opted in.
fn unasked(
    webhooks: &[Webhook],
    namespace: &str,
    labels: Option<&Labels>,
    created: Option<Timestamp>,
) -> Option<String> {
    let ours: Vec<_> = webhooks.iter().filter(|webhook| asks_as_pods_arrive(webhook)).collect();
    if ours.is_empty() {
        return Some(format!("no MutatingWebhookConfiguration has a webhook {}", WEBHOOKS[0]));
    }
    let labels = labels?;
    let for_it = ours.iter().filter(|webhook| webhook.selects(namespace, labels));
    let Some(first) = for_it.map(|webhook| webhook.created()).min() else {
        return Some(format!("no webhook {} selects namespace {namespace}", WEBHOOKS[0]));
    };
    let first = first?;
    let created = created.filter(|created| *created < first)?;
    Some(format!(
        "the webhook was registered at {first}, after the pod was created at {created}"
    ))
}

/// Returns the reason why edgeward leaves a pod alone, for people.
fn words(reason: Reason, config: &Config) -> String {
    let keys = &config.keys;
    match reason {
        Reason::NotManaged => format!(
            "it has no annotation {}class, and no SloPolicy is for it",
            keys.slo_prefix
        ),
        Reason::OptedOut => format!("its label {} says false", keys.managed),
        other => other.as_str().replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;
    use serde_json::json;

    use super::*;
    use edgeward_decision::pod::Pod;
    use edgeward_kube::units::Moment;

    fn labels(managed: &str) -> Labels {
        Labels::from([("scheduling.example.io/managed".to_owned(), managed.to_owned())])
    }

    fn causes(seen: Seen, metadata: serde_json::Value, created: Option<&str>) -> Vec<String> {
        causes_of(seen, metadata, created, false)
    }

    fn causes_of(seen: Seen, metadata: serde_json::Value, created: Option<&str>, on_node: bool) -> Vec<String> {
        let config = Config::default();
        let pod = json!({"metadata": metadata, "spec": {}}).to_string();
        let workload = Pod::from_json(&pod).unwrap().workload("shop".into(), &config.keys);
        let undecided = Undecided {
            workload: &workload,
            created: created.map(|at| at.parse().unwrap()),
            on_node,
        };
        let now = Now {
            moment: Moment(0),
            wall: "2026-11-21T12:00:00Z".parse().unwrap(),
        };
        judge(&seen, &config, &undecided, now)
    }

    fn seen(namespace: Labels, webhooks: Vec<Webhook>) -> Seen {
        (Ok(namespace), Ok(webhooks))
    }

    #[test]
    fn cause_of_undecided_pod_is_named() {
        let slo = || json!({"annotations": {"slo.example.io/class": "batch"}});
        let webhook = || vec![Webhook::example()];
        let is = |found: Vec<String>, expected: &str| assert_eq!(found, [expected]);
        is(
            causes(seen(Labels::new(), webhook()), slo(), None),
            "namespace shop is not labelled scheduling.example.io/managed=true",
        );
        is(
            causes(seen(labels("true"), vec![]), slo(), None),
            "no MutatingWebhookConfiguration has a webhook pods.edgeward.io",
        );
        is(
            causes(seen(labels("true"), webhook()), slo(), Some("2026-11-20T00:00:00Z")),
            "the webhook was registered at 2026-11-21T00:00:00Z, after the pod was created at 2026-11-20T00:00:00Z",
        );
        is(
            causes(seen(labels("true"), webhook()), json!({}), None),
            "edgeward does not decide such a pod: it has no annotation slo.example.io/class, and no SloPolicy is for it (passthrough_not_managed)",
        );
        let opted_out = json!({"labels": {"scheduling.example.io/managed": "false"}});
        is(
            causes(seen(labels("true"), webhook()), opted_out, None),
            "edgeward does not decide such a pod: its label scheduling.example.io/managed says false (passthrough_opted_out)",
        );
        let unknown = causes(seen(labels("true"), webhook()), slo(), Some("2026-11-21T01:00:00Z"));
        assert!(unknown[0].starts_with("edgeward did not answer"), "{unknown:?}");
        assert_eq!(unknown.len(), 1);
        let nobody_says = (Err(anyhow!("forbidden")), Err(anyhow!("forbidden")));
        assert_eq!(causes(nobody_says, slo(), None).len(), 2);
    }

    #[test]
    fn undecided_pod_without_visible_cause_lists_possible_causes() {
        let seen = || seen(labels("true"), vec![Webhook::example()]);
        let named = "it was created with its nodeName, which edgeward leaves alone (whether it was, or kube-scheduler \
                     placed it, cannot be told from its spec); or ";
        let silent = "edgeward did not answer, which lets the pod through (failurePolicy: Ignore), or passed it through; \
                      warnings and its log say which";
        let metadata = json!({"annotations": {"slo.example.io/class": "batch"}});
        let found = causes_of(seen(), metadata.clone(), None, true);
        assert_eq!(found, [format!("{named}{silent}")]);
        assert_eq!(causes(seen(), metadata, None), [silent]);
    }
}
