//! The API server's own answer: a creation that stores nothing.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::report::{AnswerItem, Item, class_of, integers};
use super::subject::Subject;
use crate::config::Config;
use crate::decide::decide;
use crate::decide::verdict::Reason;
use crate::fleet::Snapshot;
use crate::observe::{Answer, Connection};
use crate::pod::Pod;
use crate::room::Room;
use crate::units::Now;
use crate::workload::Workload;

/// Our webhook's name in `webhook/base`.
const WEBHOOK: &str = "pods.edgeward.io";

/// Sends pods to an API server.
pub(super) struct Live<'c> {
    pub(super) connection: &'c Connection,
    pub(super) config: &'c Config,
    /// Of pods that name none.
    pub(super) namespace: &'c str,
    pub(super) now: Now,
}

impl Live<'_> {
    pub(super) async fn review(&self, subject: &Subject) -> anyhow::Result<Item> {
        let pod = subject.pod()?;
        let namespace = subject.namespace.as_deref().unwrap_or(self.namespace);
        let workload = pod.workload(namespace.into(), &self.config.keys);
        let answer = self.ask(subject, namespace).await?;
        let item = Item {
            source: subject.source.clone(),
            namespace: namespace.to_owned(),
            name: pod.name().to_owned(),
            class: class_of(&workload),
            faults: workload
                .intent
                .iter()
                .flat_map(|intent| intent.faults.clone())
                .collect(),
            warnings: answer.warnings,
            hints: subject.hints.clone(),
            ..Item::default()
        };
        match answer.outcome {
            Err(refusal) => {
                let ours = format!("admission webhook \"{WEBHOOK}\" denied the request");
                let ours = refusal.message.contains(&ours);
                Ok(Item {
                    verdict: if ours { "deny" } else { "refused" },
                    reason: ours.then(|| Reason::DeniedInvalidSlo.as_str().to_owned()),
                    request: integers(&pod.request()),
                    answer: Some(AnswerItem {
                        refusal: Some(refusal.message),
                        ..AnswerItem::default()
                    }),
                    ..item
                })
            }
            Ok(stored) => self.stored(&stored, &pod, &workload, item).await,
        }
    }

    /// Sends the pod; one whose name is taken, under another.
    async fn ask(&self, subject: &Subject, namespace: &str) -> anyhow::Result<Answer> {
        let mut pod: Value = serde_json::from_str(&subject.text)?;
        pod["metadata"]["namespace"] = json!(namespace);
        let metadata = &mut pod["metadata"];
        if metadata["name"].is_null() && metadata["generateName"].is_null() {
            metadata["generateName"] = json!("review-");
        }
        let answer = self.connection.dry_run(namespace, &pod).await?;
        match (&answer.outcome, pod["metadata"]["name"].take()) {
            (Err(refusal), Value::String(name)) if refusal.reason == "AlreadyExists" => {
                pod["metadata"]["generateName"] = json!(format!("{name}-"));
                self.connection.dry_run(namespace, &pod).await
            }
            _ => Ok(answer),
        }
    }

    async fn stored(
        &self,
        stored: &Value,
        sent: &Pod<'_>,
        workload: &Workload<'_>,
        item: Item,
    ) -> anyhow::Result<Item> {
        let text = stored.to_string();
        let pod = Pod::from_json(&text)?;
        let keys = &self.config.keys;
        let written = |key: &str| pod.annotation(key).map(str::to_owned);
        // An id is new with every decision: one that was there before is a copy.
        let id = pod.annotation(&keys.decision_id);
        let decided = id.is_some() && id != sent.annotation(&keys.decision_id);
        let annotations: BTreeMap<_, _> = keys
            .written()
            .into_iter()
            .filter_map(|key| Some((key.to_owned(), written(key)?)))
            .collect();
        let verdict = match pod.annotation(&keys.decision).filter(|_| decided) {
            Some("edge") => "edge",
            Some("cloud") => "cloud",
            _ => "passthrough",
        };
        Ok(Item {
            verdict,
            site: written(&keys.site).filter(|_| decided),
            reason: written(&keys.reason).filter(|_| decided),
            request: integers(&pod.request()),
            answer: Some(AnswerItem {
                annotations,
                node_selector: stored["spec"]["nodeSelector"].clone(),
                tolerations: stored["spec"]["tolerations"].clone(),
                refusal: None,
                causes: if decided { vec![] } else { self.causes(workload).await },
            }),
            ..item
        })
    }

    /// Why a pod may have come back without a decision, as far as can be seen from here.
    async fn causes(&self, workload: &Workload<'_>) -> Vec<String> {
        let (namespace, label) = (&workload.namespace, &self.config.keys.managed);
        let mut causes = Vec::new();
        match self.connection.namespace_labels(namespace).await {
            Ok(labels) if labels.get(label).is_some_and(|value| value == "true") => {}
            Ok(_) => causes.push(format!("namespace {namespace} is not labelled {label}=true")),
            Err(error) => causes.push(format!(
                "namespace {namespace} may not be labelled {label}=true ({error:#})"
            )),
        }
        match self.connection.mutating_webhooks().await {
            Ok(webhooks) if webhooks.iter().any(|webhook| webhook == WEBHOOK) => {}
            Ok(_) => causes.push(format!("no MutatingWebhookConfiguration has a webhook {WEBHOOK}")),
            Err(error) => causes.push(format!("a webhook {WEBHOOK} may not be registered ({error:#})")),
        }
        // Whatever the sites are, for that is not asked here.
        let nowhere = Snapshot::default();
        let verdict = decide(workload, &Room::of(&nowhere), self.config, self.now);
        if workload.placement.is_some() {
            causes.push("the pod carries a recent placement, which is repeated".to_owned());
        } else if !matches!(verdict.reason, Reason::EdgeSiteMissing | Reason::DeniedInvalidSlo) {
            causes.push(format!("edgeward is not for such a pod: {}", verdict.reason.as_str()));
        }
        if causes.is_empty() {
            causes.push(
                "edgeward did not answer, which lets the pod through (failurePolicy: Ignore), or passed it through; \
                 warnings and its log say which"
                    .to_owned(),
            );
        }
        causes
    }
}
