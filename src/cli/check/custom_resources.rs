//! Checks the custom resources: their definitions, and the objects of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_decision::config::sites::of_objects;
use edgeward_decision::document::Faults;
use edgeward_decision::model::site::SiteDefinition;
use edgeward_decision::placement::policy::Seen;
use serde_json::Value;

use super::Facts;
use super::finding::Finding;
use crate::inspect;
use crate::inspect::Connection;
use crate::inspect::installation::Labels;

const AREA: &str = "resources";

/// The custom resources of a cluster.
#[derive(Default)]
pub(super) struct CustomResources {
    /// The `spec` of each Site; `None` if the definition is not installed.
    pub(super) sites: Option<BTreeMap<String, Value>>,
    /// The policies; `None` if the definition is not installed.
    pub(super) policies: Option<Vec<Arc<Seen>>>,
    /// The fault of each profile, if it has one; `None` if the definition is not installed.
    pub(super) profiles: Option<BTreeMap<String, Option<String>>>,
}

pub(super) async fn ask(connection: &Connection) -> anyhow::Result<CustomResources> {
    let (sites, policies, profiles) = tokio::try_join!(
        inspect::site_specs(connection),
        inspect::policies(connection),
        inspect::profile_faults(connection)
    )?;
    Ok(CustomResources {
        sites,
        policies,
        profiles,
    })
}

impl CustomResources {
    /// Whether at least one definition is installed.
    pub(super) fn are_installed(&self) -> bool {
        self.sites.is_some() || self.policies.is_some() || self.profiles.is_some()
    }

    /// Returns the sites that the Sites define; `None` if there are none.
    ///
    /// # Errors
    /// The faults that prevent their use.
    pub(super) fn sites(&self) -> Result<Option<Vec<Arc<SiteDefinition>>>, Faults> {
        let specs = self.sites.as_ref().filter(|specs| !specs.is_empty());
        specs.map(of_objects).transpose()
    }
}

/// Checks definitions, profiles, policies and Sites.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(custom) = &facts.custom else {
        return vec![];
    };
    let keys = &facts.found.config.keys;
    let mut findings = vec![installed(custom)];
    for (name, fault) in custom.profiles.iter().flatten() {
        if let Some(fault) = fault {
            let text = format!("PerformanceProfile {name} is not accepted: {fault}");
            findings.push(Finding::fault(AREA, text).fix(format!("kubectl edit performanceprofile {name}")));
        }
    }
    let mut unlabelled = BTreeMap::<&str, u32>::new();
    for seen in custom.policies.iter().flatten() {
        let (namespace, name) = (&seen.namespace, &seen.name);
        let faults = seen.policy.as_ref().err().map(|refused| &refused.faults().0);
        for fault in faults.into_iter().flatten() {
            let text = format!("SloPolicy {namespace}/{name} is not in force as it is: {fault}");
            let fix = format!("kubectl -n {namespace} edit slopolicy {name}");
            findings.push(Finding::fault(AREA, text).fix(fix));
        }
        let all = facts.namespaces.as_ref();
        let labels = all.and_then(|all| all.get(namespace)?.labels.as_ref());
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
    let faults = custom.sites().err();
    findings.extend(faults.iter().flat_map(|faults| &faults.0).map(|fault| {
        let text = format!("no Site is in use: {fault}");
        Finding::fault(AREA, text).fix("kubectl edit sites.edgeward.io")
    }));
    findings
}

/// Checks that all definitions are installed, or none.
fn installed(custom: &CustomResources) -> Finding {
    let kinds = [
        ("Site", custom.sites.as_ref().map(BTreeMap::len)),
        ("SloPolicy", custom.policies.as_ref().map(Vec::len)),
        ("PerformanceProfile", custom.profiles.as_ref().map(BTreeMap::len)),
    ];
    let texts = kinds.map(|(kind, count)| match count {
        Some(count) => format!("{kind}: {count}"),
        None => format!("{kind}: not installed"),
    });
    let text = texts.join(", ");
    match kinds.iter().filter(|(_, count)| count.is_some()).count() {
        0 => Finding::ok(
            AREA,
            text + "; sites come from the configuration, SLOs from annotations",
        ),
        3 => Finding::ok(AREA, text + "; without Sites, those of the configuration are in use"),
        _ => Finding::warning(AREA, text).fix("edgeward crds | kubectl apply --server-side -f -"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;
    use edgeward_decision::placement::policy::Policy;

    fn none() -> CustomResources {
        CustomResources {
            sites: Some(BTreeMap::new()),
            policies: Some(vec![]),
            profiles: Some(BTreeMap::new()),
        }
    }

    fn policy(name: &str, spec: Value) -> Arc<Seen> {
        Arc::new(Seen {
            namespace: "shop".into(),
            name: name.into(),
            generation: Some(1),
            policy: Policy::read(&json!({ "spec": spec })),
        })
    }

    fn judged(custom: CustomResources, labels: &[&str]) -> Vec<(Level, String)> {
        let label = |name: &&str| (format!("scheduling.example.io/{name}"), "true".to_owned());
        let labels = BTreeMap::from([("shop".to_owned(), labels.iter().map(label).collect())]);
        let facts = Facts {
            custom: Some(custom),
            namespaces: super::super::testkit::namespaces(labels),
            ..Facts::example()
        };
        let findings = judge(&facts).into_iter();
        findings.map(|found| (found.level, found.text)).collect()
    }

    #[test]
    fn missing_crd_beside_installed_ones_is_a_warning() {
        let levels = |custom: CustomResources| judged(custom, &[])[0].0;
        assert_eq!(levels(none()), Level::Ok);
        let one = CustomResources {
            policies: None,
            ..none()
        };
        assert_eq!(levels(one), Level::Warning);
        assert_eq!(levels(CustomResources::default()), Level::Ok);
    }

    #[test]
    fn invalid_policy_is_a_fault_and_unlabelled_namespace_warns() {
        let custom = || CustomResources {
            policies: Some(vec![policy("good", json!({"selector": {}, "slo": {"class": "batch"}}))]),
            ..none()
        };
        assert_eq!(judged(custom(), &["managed", "policies"]).len(), 1);
        for labels in [&["managed"][..], &["policies"], &[]] {
            let (level, text) = judged(custom(), labels).remove(1);
            assert!(
                level == Level::Warning && text.starts_with("namespace shop has 1 SloPolicies"),
                "{text}"
            );
        }
        let custom = CustomResources {
            policies: Some(vec![policy("bad", json!({"selector": {}, "slo": {"class": "fast"}}))]),
            ..none()
        };
        let (level, text) = judged(custom, &["managed", "policies"]).remove(1);
        assert_eq!(level, Level::Fault);
        assert!(
            text.starts_with(
                "SloPolicy shop/bad is not in force as it is: spec.slo.class: \"fast\" is not one of latency"
            ),
            "{text}"
        );
    }

    #[test]
    fn one_invalid_site_object_disables_all_of_them() {
        let faults = |specs: Value| {
            let specs = specs.as_object().unwrap().clone();
            let custom = CustomResources {
                sites: Some(specs.into_iter().collect()),
                ..none()
            };
            judged(custom, &[]).split_off(1)
        };
        assert_eq!(
            faults(json!({"here": {"kind": "edge"}, "there": {"kind": "cloud"}})),
            []
        );
        let found = faults(json!({"here": {"kind": "edge"}, "there": {"kind": "cloud", "speedFactor": -1}}));
        let [(Level::Fault, text)] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(text.starts_with("no Site is in use: Site there.speedFactor"), "{text}");
    }
}
