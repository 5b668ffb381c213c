//! Checks the custom resources: their definitions, the policies, and the Sites.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_decision::document::Faults;
use edgeward_decision::placement::policy::{Policy, Seen};

use super::Facts;
use super::finding::Finding;
use crate::inspect::installation::Labels;
use crate::inspect::{self, Connection};
use crate::watch::raw::Gvr;

const AREA: &str = "resources";

const KINDS: [Gvr; 3] = [Gvr::SITES, Gvr::POLICIES, Gvr::PROFILES];

/// The custom resources of a cluster.
#[derive(Default)]
pub(super) struct CustomResources {
    /// Plurals of the kinds that are not installed.
    missing: Vec<&'static str>,
    policies: Vec<Arc<Seen>>,
}

pub(super) async fn ask(connection: &Connection) -> anyhow::Result<CustomResources> {
    let mut missing = vec![];
    for kind in KINDS {
        if !connection.serves(kind).await? {
            missing.push(kind.plural);
        }
    }
    let policies = inspect::policies(connection).await?.unwrap_or_default();
    Ok(CustomResources { missing, policies })
}

/// Checks definitions and policies.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(custom) = &facts.custom else {
        return vec![];
    };
    let keys = &facts.found.config.keys;
    let mut findings = vec![installed(&custom.missing)];
    let mut unlabelled = BTreeMap::<&str, u32>::new();
    for seen in &custom.policies {
        let (namespace, name) = (&seen.namespace, &seen.name);
        let faults = seen.policy.as_ref().err().map(|refused| &refused.faults.0);
        for fault in faults.into_iter().flatten() {
            let text = format!("SloPolicy {namespace}/{name} is not in force as it is: {fault}");
            let fix = format!("kubectl -n {namespace} edit slopolicy {name}");
            findings.push(Finding::fault(AREA, text).fix(fix));
        }
        let keeps_members = seen.in_force().is_some_and(Policy::keeps_members);
        if keeps_members && seen.members.is_empty() {
            let text =
                format!("SloPolicy {namespace}/{name}: its neighbourhood has no cloud, so its pods use only the edge");
            let fix = format!(
                "kubectl -n {namespace} get slopolicy {name} -o yaml   # which clouds its sites and traits leave"
            );
            findings.push(Finding::warning(AREA, text).fix(fix));
        }
        let labels = facts.namespaces.as_ref().and_then(|all| all.get(namespace));
        let has = |labels: &Labels, key: &String| labels.get(key).is_some_and(|value| value == "true");
        if labels.is_some_and(|labels| !has(labels, &keys.managed) || !has(labels, &keys.policies)) {
            *unlabelled.entry(namespace).or_default() += 1;
        }
    }
    findings.extend(unlabelled.into_iter().map(|(namespace, count)| {
        let (managed, policies) = (&keys.managed, &keys.policies);
        let text = format!(
            "namespace {namespace} has {count} SloPolicies and not both labels {managed}=true and {policies}=true: edgeward \
             is not called for pods that state no class"
        );
        let fix = format!("kubectl label --overwrite namespace {namespace} {managed}=true {policies}=true");
        Finding::warning(AREA, text).fix(fix)
    }));
    findings
}

/// What could not be read, with the faults of Sites.
pub(super) fn unread(facts: &Facts) -> Vec<Finding> {
    let unread = facts.view.iter().flat_map(|view| &view.unread);
    let findings = unread.flat_map(|error| match error.downcast_ref::<Faults>() {
        Some(Faults(faults)) => {
            let text = |fault| format!("no Site is in use: {fault}");
            let finding = |fault| Finding::fault(AREA, text(fault)).fix("kubectl edit sites.edgeward.io");
            faults.iter().map(finding).collect()
        }
        None => vec![Finding::unknown(AREA, error)],
    });
    findings.collect()
}

/// Checks that all definitions are installed, or none.
fn installed(missing: &[&str]) -> Finding {
    match missing.len() {
        0 => Finding::ok(
            AREA,
            "all are installed; without Sites, those of the configuration are in use",
        ),
        3 => Finding::ok(
            AREA,
            "none is installed; sites come from the configuration, SLOs from annotations",
        ),
        _ => Finding::warning(AREA, format!("not installed: {}", missing.join(", ")))
            .fix("edgeward crds | kubectl apply --server-side -f -"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::finding::Level;
    use super::*;

    fn judged(spec: Value, labels: &[&str]) -> Vec<(Level, String)> {
        let policy = Seen {
            namespace: "shop".into(),
            name: "policy".into(),
            generation: Some(1),
            policy: Policy::read(&json!({ "spec": spec })),
            members: vec![],
        };
        let label = |name: &&str| (format!("scheduling.example.io/{name}"), "true".to_owned());
        let labels = BTreeMap::from([("shop".to_owned(), labels.iter().map(label).collect())]);
        let facts = Facts {
            custom: Some(CustomResources {
                policies: vec![Arc::new(policy)],
                ..CustomResources::default()
            }),
            namespaces: Some(labels),
            ..Facts::example()
        };
        let findings = judge(&facts).into_iter().skip(1);
        findings.map(|found| (found.level, found.text)).collect()
    }

    #[test]
    fn missing_crd_beside_installed_ones_is_a_warning() {
        let all = KINDS.map(|kind| kind.plural);
        for (missing, level) in [(0, Level::Ok), (1, Level::Warning), (2, Level::Warning), (3, Level::Ok)] {
            assert_eq!(installed(&all[..missing]).level, level);
        }
    }

    #[test]
    fn invalid_policy_is_a_fault_and_unlabelled_namespace_warns() {
        let batch = || json!({"selector": {}, "slo": {"class": "batch"}});
        assert_eq!(judged(batch(), &["managed", "policies"]), []);
        for labels in [&["managed"][..], &["policies"], &[]] {
            let found = judged(batch(), labels);
            assert!(
                matches!(&found[..], [(Level::Warning, text)] if text.starts_with("namespace shop has 1 SloPolicies")),
                "{found:?}"
            );
        }
        let found = judged(
            json!({"selector": {}, "slo": {"class": "fast"}}),
            &["managed", "policies"],
        );
        let expected = "SloPolicy shop/policy is not in force as it is: spec.slo.class: \"fast\" is not one of latency";
        assert!(
            matches!(&found[..], [(Level::Fault, text)] if text.starts_with(expected)),
            "{found:?}"
        );
    }
}
