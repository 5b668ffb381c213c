//! `review --live`: asks the API server with a dry run, which stores nothing.

use std::collections::BTreeMap;

use edgeward_decision::config::Config;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::verdict::Reason;
use edgeward_decision::pod::Pod;
use serde_json::{Value, json};

use super::report::{AnswerItem, Item, integers};
use super::subject::Subject;
use crate::admission::review::shorten;
use crate::cli::undecided::{self, Undecided};
use crate::inspect::{Answer, Connection};

/// Returns the API server's answer to a pod. `namespace` applies if the pod names none.
pub(super) async fn review(
    subject: &Subject,
    namespace: &str,
    connection: &Connection,
    config: &Config,
) -> anyhow::Result<Item> {
    let pod = subject.pod()?;
    let namespace = subject.namespace.as_deref().unwrap_or(namespace);
    let workload = pod.workload(namespace.into(), &config.keys);
    let answer = ask(connection, subject, namespace).await?;
    let mut item = Item {
        faults: workload
            .intent
            .iter()
            .flat_map(|intent| intent.faults.clone())
            .collect(),
        ..Item::of(subject, &pod, &workload, &config.keys)
    };
    // The warnings of the answer already contain the hints that edgeward gave.
    item.hints.retain(|hint| !answer.warnings.contains(&shorten(hint)));
    item.warnings = answer.warnings;
    match answer.outcome {
        Err(refusal) => {
            let who = refusal.message.split_once("admission webhook \"");
            let who = who.and_then(|(_, rest)| rest.split_once("\" denied the request"));
            let ours = who.is_some_and(|(webhook, _)| undecided::is_ours(webhook));
            Ok(Item {
                verdict: if ours { "deny" } else { "refused" },
                reason: ours.then(|| Reason::DeniedInvalidSlo.as_str().to_owned()),
                answer: Some(AnswerItem {
                    refusal: Some(refusal.message),
                    ..AnswerItem::default()
                }),
                ..item
            })
        }
        Ok(stored) => as_stored(&stored, &pod, &workload, item, connection, config).await,
    }
}

/// Sends the pod under a generated name, because its own may be taken.
async fn ask(connection: &Connection, subject: &Subject, namespace: &str) -> anyhow::Result<Answer> {
    let mut pod: Value = serde_json::from_str(&subject.text)?;
    pod["metadata"]["namespace"] = json!(namespace);
    let metadata = &mut pod["metadata"];
    if let Value::String(name) = metadata["name"].take() {
        metadata["generateName"] = json!(format!("{name}-"));
    } else if metadata["generateName"].is_null() {
        metadata["generateName"] = json!("review-");
    }
    connection.dry_run(namespace, &pod).await
}

/// Adds the pod that the API server would store to `item`.
async fn as_stored(
    stored: &Value,
    sent: &Pod<'_>,
    workload: &Workload<'_>,
    item: Item,
    connection: &Connection,
    config: &Config,
) -> anyhow::Result<Item> {
    let text = stored.to_string();
    let pod = Pod::from_json(&text)?;
    let keys = &config.keys;
    let written = |key: &str| pod.annotation(key).map(str::to_owned);
    // Each decision gets a new id. An id that the sent pod already had is a copy.
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
    let undecided = Undecided {
        workload,
        created: None,
        on_node: false,
    };
    let causes = match decided {
        true => vec![],
        false => undecided::causes(connection, config, &undecided).await,
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
            causes,
        }),
        ..item
    })
}
