//! Checks the way from the API server to edgeward: the registration, and the pods that it covers.

use std::collections::BTreeMap;

use edgeward_decision::keys::Keys;

use super::Facts;
use super::finding::Finding;
use crate::cli::installed::DOMAIN;
use crate::cli::undecided::{OF_PLACED, WEBHOOKS, asks_as_pods_arrive};
use crate::inspect::installation::{Calls, Labels, Webhook};

const AREA: &str = "webhook";

/// Longest acceptable timeout of a webhook, in seconds.
const TIMEOUT: i32 = 2;

/// Checks the registration.
pub(super) fn registration(facts: &Facts) -> Vec<Finding> {
    let (keys, configuration) = (&facts.found.config.keys, &facts.webhook);
    let Some(ours) = &facts.ours else {
        return vec![];
    };
    let fix = apply(&keys.domain) + "   # the folder that edgeward was installed from; with Helm, `helm upgrade`";
    if !ours.iter().any(asks_as_pods_arrive) {
        let text = format!(
            "there is no MutatingWebhookConfiguration {configuration} with a webhook {}: no pod is decided",
            WEBHOOKS[0]
        );
        return vec![match facts.found.config.extender.enabled {
            true => Finding::warning(AREA, text + " unless kube-scheduler asks edgeward"),
            false => Finding::fault(AREA, text).fix(fix),
        }];
    }
    let mut findings: Vec<_> = ours.iter().map(|webhook| judge_entry(webhook, &fix)).collect();
    if ours.iter().all(|webhook| webhook.entry.name != OF_PLACED) {
        let text = format!(
            "there is no entry {OF_PLACED}: a pod that brings the label {} along, as a copy of a placed one does, is not decided",
            keys.placed
        );
        let how = "   # as it was installed; a patch of yours may leave it out";
        findings.push(Finding::warning(AREA, text).fix(apply(&keys.domain) + how));
    }
    findings
}

fn judge_entry(webhook: &Webhook, fix: &str) -> Finding {
    let entry = &webhook.entry;
    let name = &entry.name;
    if !webhook.creates_pods() {
        let text = format!("{name} does not cover the creation of pods: the API server never calls it");
        return Finding::fault(AREA, text).fix(fix);
    }
    let policy = entry.failure_policy.as_deref().unwrap_or("Fail");
    let timeout = entry.timeout_seconds.unwrap_or_default();
    if policy != "Ignore" {
        let text = format!("{name} has failurePolicy {policy}: while edgeward is away, no pod is created");
        return Finding::warning(AREA, text).fix(fix);
    }
    if timeout > TIMEOUT {
        let text = format!("{name} has timeoutSeconds {timeout}: a pod may wait that long for edgeward");
        return Finding::warning(AREA, text).fix(fix);
    }
    let text = format!("{name} calls {}, failurePolicy Ignore, {timeout} s", webhook.target());
    Finding::ok(AREA, text)
}

/// Checks that edgeward answers the API server, by the API server's own counters.
pub(super) fn calls(facts: &Facts) -> Vec<Finding> {
    let Some(Calls { made, failed }) = facts.calls else {
        return vec![];
    };
    let answered = made.saturating_sub(failed);
    if failed == 0 || answered > 0 {
        let text = format!("the API server's calls: {answered} answered since it started, {failed} not");
        return vec![Finding::ok(AREA, text)];
    }
    let text = format!(
        "none of the API server's calls was answered since it started, {failed} in all: it did not reach edgeward, or does \
         not believe it"
    );
    let fix = "edgeward review --live -n NAMESPACE -f POD.yaml   # calls now; docs/guide/install.md#managed-control-planes: a firewall \
               rule for that port, `hostNetwork` where pods are not reached, a NetworkPolicy that leaves out where calls come from";
    vec![Finding::warning(AREA, text).fix(fix)]
}

/// Returns the command that applies the manifests as installed. Only these have the authority or the annotation that
/// `webhook/base` lacks.
pub(super) fn apply(domain: &str) -> String {
    match domain {
        DOMAIN => "kubectl apply -k mine".to_owned(),
        domain => format!(r"kubectl kustomize mine | sed 's/example\.io/{domain}/g' | kubectl apply -f -"),
    }
}

/// Returns how to make the registration select a namespace.
fn select(facts: &Facts, ours: &[&Webhook], namespace: &str) -> String {
    let mut domains = ours.iter().filter_map(|webhook| webhook.domain());
    let other = domains.find(|domain| *domain != facts.found.config.keys.domain);
    let other = other.map(|domain| format!(", and it is of the domain {domain}"));
    format!(
        "kubectl edit mutatingwebhookconfiguration {}   # its namespaceSelectors leave {namespace} out{}",
        facts.webhook,
        other.unwrap_or_default()
    )
}

/// Returns the namespaces that opted in.
pub(super) fn opted_in<'n>(
    namespaces: &'n BTreeMap<String, Labels>,
    keys: &Keys,
) -> impl Iterator<Item = (&'n String, &'n Labels)> {
    let is_true = |labels: &Labels| labels.get(&keys.managed).is_some_and(|value| value == "true");
    namespaces.iter().filter(move |(_, labels)| is_true(labels))
}

/// Checks which namespaces opted in, and whether edgeward gets their pods.
pub(super) fn namespaces(facts: &Facts) -> Vec<Finding> {
    const AREA: &str = "namespaces";
    let Some(namespaces) = &facts.namespaces else {
        return vec![];
    };
    let (config, configuration) = (&facts.found.config, &facts.webhook);
    let label = &config.keys.managed;
    // A pod that is being created is not placed yet.
    let ours = facts.ours.iter().flatten();
    let ours: Vec<_> = ours.filter(|webhook| asks_as_pods_arrive(webhook)).collect();
    let mut findings = Vec::new();
    let mut good = Vec::new();
    for (name, labels) in opted_in(namespaces, &config.keys) {
        if config.excluded_namespaces.contains(name) {
            let text = format!("{name} is labelled {label}=true but excluded: its pods pass through");
            let fix = format!("kubectl label namespace {name} {label}-");
            findings.push(Finding::warning(AREA, text).fix(fix));
        } else if !ours.is_empty() && !ours.iter().any(|one| one.selects(name, labels)) {
            let text = format!("{name} is labelled {label}=true, but no webhook of {configuration} selects it");
            findings.push(Finding::fault(AREA, text).fix(select(facts, &ours, name)));
        } else {
            good.push(name);
        }
    }
    if !good.is_empty() {
        findings.push(Finding::ok(AREA, format!("{} opted in: {}", good.len(), shown(&good))));
    }
    if findings.is_empty() {
        let text = format!("none is labelled {label}=true: no pod is decided");
        let fix = format!("kubectl label namespace NAMESPACE {label}=true");
        findings.push(Finding::warning(AREA, text).fix(fix));
    }
    findings
}

/// Joins the first few of many names.
pub(super) fn shown<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 8;
    let first: Vec<_> = names.iter().take(SHOWN).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
