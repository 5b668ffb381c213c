//! Checks that edgeward has the rights that it needs.

use std::collections::BTreeSet;

use edgeward_decision::config::ScorerSource;

use super::Facts;
use super::finding::Finding;
use super::finding::Level::{self, Fault, Warning};
use super::webhook::{apply, opted_in, shown};
use crate::cli::installed::LEASE;
use crate::cli::sentence;
use crate::inspect::Connection;
use crate::inspect::installation::{self, User};
use crate::watch::namespaced_name::NamespacedName;
use crate::watch::objects::is_installed;
use crate::watch::raw::Gvr;
use crate::watch::volumes::can_have_data;

const AREA: &str = "rights";

/// Rights that are needed together: the severity of a missing one (`Warning` if edgeward works without it), resources as
/// kubectl names them and verbs, both separated by single blanks, the place, and the effect if a right is missing.
type Need<'i> = (Level, &'static str, &'static str, installation::Scope<'i>, &'static str);

const VIEW: &str = "list watch";

const RESOURCES: &str = "sites.edgeward.io slopolicies.edgeward.io performanceprofiles.edgeward.io";
const STATUSES: &str = "sites.edgeward.io/status slopolicies.edgeward.io/status performanceprofiles.edgeward.io/status";
const DATA: &str = "persistentvolumeclaims persistentvolumes storageclasses.storage.k8s.io";
const DEVICES: &str = "deviceclasses.resource.k8s.io";
const EVENTS: &str = "events.events.k8s.io";
const SLICES: &str = "endpointslices.discovery.k8s.io";
const LEASES: &str = "leases.coordination.k8s.io";
const WEBHOOKS: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
/// The kinds of gangs, with the names by which a review of rights calls them.
const POD_GROUPS: [(Gvr, &str); 2] = [
    (Gvr::POD_GROUPS, "podgroups.scheduling.k8s.io"),
    (Gvr::COSCHEDULING_POD_GROUPS, "podgroups.scheduling.x-k8s.io"),
];

const LIQO: &str = "foreignclusters.core.liqo.io virtualnodes.offloading.liqo.io namespaceoffloadings.offloading.liqo.io \
                    namespacemaps.offloading.liqo.io connections.networking.liqo.io";

const NO_LEADER: &str = "no replica leads, and gated pods are never released";
const NO_CERTIFICATE: &str = "`serve --self-managed` serves no certificate, or does not renew it";

/// Returns the rights of docs/guide/operate.md and docs/guide/clouds.md that this installation needs, except the right
/// to change pods.
fn needs(facts: &Facts) -> Vec<Need<'_>> {
    let (everywhere, home) = ((None, None), (Some(&*facts.home), None));
    let (lease, registration) = ((Some(&*facts.home), Some(LEASE)), (None, Some(&*facts.webhook)));
    let mut needs = vec![
        (Fault, "nodes pods namespaces", VIEW, everywhere, "it decides nothing"),
        (Fault, EVENTS, "create", everywhere, "no Event reports a decision"),
        (Fault, SLICES, VIEW, home, "its replicas cannot count each other"),
        (Fault, LEASES, "get update", lease, NO_LEADER),
        (Fault, LEASES, "create", home, NO_LEADER),
        (Fault, RESOURCES, VIEW, everywhere, "it is never ready"),
        (Fault, STATUSES, "patch", everywhere, "they show no status"),
        (Warning, DEVICES, VIEW, everywhere, "no node offers what they describe"),
    ];
    if let Some(map) = &facts.found.map {
        let map = (Some(&*map.namespace), Some(&*map.name));
        needs.push((Fault, "configmaps", VIEW, map, "it is never ready"));
    }
    if let Some(ScorerSource::ConfigMap(name)) = facts.found.config.scorer.source() {
        let map = (Some(&*facts.home), Some(name));
        needs.push((Warning, "configmaps", VIEW, map, "the learned scorer is not read"));
    }
    if can_have_data(&facts.found.config) {
        needs.push((
            Warning,
            DATA,
            VIEW,
            everywhere,
            "pods with volume claims stay at the edge",
        ));
    }
    if facts.found.config.moves.enabled {
        needs.push((Fault, "pods/eviction", "create", everywhere, "no pod is moved"));
    }
    if facts.view.as_ref().is_some_and(|view| view.liqo.objects.is_some()) {
        needs.push((
            Warning,
            LIQO,
            VIEW,
            everywhere,
            "virtual nodes get no pods, or the wrong ones",
        ));
    }
    if facts.found.config.report.is_some() {
        let report = (None, Some("self"));
        let why = "neighbours see no report of this cluster";
        needs.push((Fault, "clusterreports.edgeward.io", "get", report, why));
        needs.push((Fault, "clusterreports.edgeward.io", "create", everywhere, why));
        needs.push((Fault, "clusterreports.edgeward.io/status", "patch", report, why));
    }
    if facts.found.config.enabled_peers().is_some() {
        let slice = (Some(&*facts.home), Some("edgeward-peers"));
        let why = "the clusters near this one are not listed";
        let unreached = "peers do not reach the leader";
        needs.push((Fault, "peers.edgeward.io", "list watch create delete", everywhere, why));
        needs.push((Fault, "peers.edgeward.io/status", "patch", everywhere, why));
        needs.push((Fault, SLICES, "patch", slice, unreached));
        needs.push((Fault, SLICES, "create", home, unreached));
    }
    let reports = facts.found.config.sites.iter().filter_map(|site| site.report.as_ref());
    let secrets = reports.filter_map(|source| source.kubeconfig_secret_ref.as_ref());
    let kubeconfigs: BTreeSet<_> = secrets.map(|secret| &*secret.name).collect();
    for name in kubeconfigs {
        let secret = (Some(&*facts.home), Some(name));
        needs.push((
            Warning,
            "secrets",
            "get",
            secret,
            "the reports of neighbours are not read",
        ));
    }
    let mut secrets = facts.behind.values().filter_map(|behind| behind.self_managed.as_ref());
    if let Some(NamespacedName { namespace, name }) = secrets.next() {
        let (there, secret) = ((Some(&**namespace), None), (Some(&**namespace), Some(&**name)));
        needs.push((Fault, "secrets", "get list watch update", secret, NO_CERTIFICATE));
        // A right to create cannot name the Secret, which does not exist yet.
        needs.push((Fault, "secrets", "create", there, NO_CERTIFICATE));
        needs.push((
            Fault,
            WEBHOOKS,
            "get list watch patch",
            registration,
            "caBundle lacks its CA",
        ));
    }
    needs
}

/// Checks the rights of a user. The rights of the person who runs the check do not count.
pub(super) async fn review(connection: &Connection, user: User<'_>, facts: &Facts) -> Vec<Finding> {
    let User { name, .. } = user;
    if !facts.is_installed {
        let text = format!(
            "edgeward is not installed in this cluster: there is no ServiceAccount {}. The rights of a process beside the \
             cluster are reviewed with --as=USER, and --as-group=GROUP",
            name.trim_start_matches("system:serviceaccount:").replace(':', "/")
        );
        return vec![Finding::fault(AREA, text).fix(apply(&facts.found.config.keys.domain))];
    }
    judge(connection, user, facts).await.unwrap_or_else(|error| {
        let text = format!("those of {name} are not checked: {}", sentence(&error));
        let fix = format!(
            "run this check with --as={name} as a user who may create subjectaccessreviews.authorization.k8s.io (the \
             ClusterRole system:auth-delegator allows it)"
        );
        vec![Finding::warning(AREA, text).fix(fix)]
    })
}

async fn judge(connection: &Connection, user: User<'_>, facts: &Facts) -> anyhow::Result<Vec<Finding>> {
    let fix = apply(&facts.found.config.keys.domain)
        + "   # the roles of its ServiceAccount; for another user: docs/guide/operate.md#rights";
    let mut findings = Vec::new();
    for need in needs(facts) {
        findings.extend(lacking(connection, user, need, &fix).await?);
    }
    for (kind, names) in POD_GROUPS {
        if is_installed(kind, &connection.client).await? {
            let need = (
                Warning,
                names,
                VIEW,
                (None, None),
                "the pods of a gang do not start together",
            );
            let fix = "apply deploy/groups, or set podGroups.enabled in the chart";
            findings.extend(lacking(connection, user, need, fix).await?);
        }
    }
    // Pods may be changed everywhere, or in the namespaces that opted in. If no namespace opted in, no pod is gated
    // yet.
    let config = &facts.found.config;
    let opted_in = facts.namespaces.iter().flat_map(|all| opted_in(all, &config.keys));
    let mut opted_in: Vec<_> = opted_in.map(|(name, _)| name).collect();
    opted_in.retain(|name| !config.excluded_namespaces.contains(name));
    let level = if opted_in.is_empty() { Warning } else { Fault };
    let pods = |place| (level, "pods", "get patch", place, "gated pods are never released");
    let everywhere = lacking(connection, user, pods((None, None)), &fix).await?;
    let mut narrow = String::new();
    if everywhere.is_empty() || opted_in.is_empty() {
        findings.extend(everywhere);
    } else {
        narrow = format!(", and may change pods in {} and not everywhere", shown(&opted_in));
        let to = match user.account() {
            Some((namespace, name)) => format!("--serviceaccount={namespace}:{name}"),
            None => format!("--user={}", user.name),
        };
        for namespace in opted_in {
            let place = (Some(namespace.as_str()), None);
            let fix =
                format!("kubectl -n {namespace} create rolebinding edgeward-pods --clusterrole=edgeward-pods {to}");
            findings.extend(lacking(connection, user, pods(place), &fix).await?);
        }
    }
    if findings.is_empty() {
        let text = format!("{} has every right that edgeward needs{narrow}", user.name);
        findings.push(Finding::ok(AREA, text));
    }
    Ok(findings)
}

/// Returns a finding for each resource on which the user lacks a right.
async fn lacking(connection: &Connection, user: User<'_>, need: Need<'_>, fix: &str) -> anyhow::Result<Vec<Finding>> {
    let (_, resources, verbs, place, _) = need;
    let mut findings = Vec::new();
    for resource in resources.split(' ') {
        let mut refused = Vec::new();
        for verb in verbs.split(' ') {
            if !connection.may(user, verb, resource, place).await? {
                refused.push(verb);
            }
        }
        if !refused.is_empty() {
            findings.push(lacks(resource, need, &refused, user.name).fix(fix));
        }
    }
    Ok(findings)
}

fn lacks(resource: &str, (level, _, _, place, purpose): Need<'_>, verbs: &[&str], user: &str) -> Finding {
    let mut what = format!("{} {resource}", verbs.join(", "));
    if let Some(name) = place.1 {
        what += &format!(" {name}");
    }
    if let Some(namespace) = place.0 {
        what += &format!(" in namespace {namespace}");
    }
    Finding::new(level, AREA, format!("{user} may not {what}: {purpose}"))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use edgeward_decision::config::Config;
    use serde_json::{Value, json};

    use super::super::Behind;
    use super::*;

    /// Returns resource and verb of every rule in the first YAML block of a page that contains `words`. Resources have
    /// kubectl's names.
    fn documented(page: &str, words: &str) -> BTreeSet<[String; 2]> {
        let mut blocks = page.split("```yaml\n").filter_map(|rest| rest.split("```").next());
        let block = blocks.find(|block| block.contains(words)).unwrap();
        let mut rights = BTreeSet::new();
        for document in block.split("---\n") {
            let role: Value = serde_saphyr::from_str(document).unwrap();
            let texts = |value: &Value| -> Vec<String> {
                let texts = value.as_array().unwrap().iter();
                texts.map(|text| text.as_str().unwrap().to_owned()).collect()
            };
            for rule in role["rules"].as_array().unwrap() {
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        let (kind, sub) = resource.split_once('/').unwrap_or((&resource, ""));
                        let dot = if group.is_empty() { "" } else { "." };
                        let slash = if sub.is_empty() { "" } else { "/" };
                        for verb in texts(&rule["verbs"]) {
                            rights.insert([format!("{kind}{dot}{group}{slash}{sub}"), verb]);
                        }
                    }
                }
            }
        }
        rights
    }

    #[test]
    fn reviewed_permissions_match_documented_roles() {
        const OPERATE: &str = include_str!("../../../docs/guide/operate.md");
        let mut expected = documented(OPERATE, "kind: ClusterRole");
        expected.extend(documented(
            include_str!("../../../docs/guide/clouds.md"),
            "storageclasses",
        ));
        expected.extend(documented(OPERATE, "resourceNames: [edgeward-certificates]"));
        let behind = Behind {
            self_managed: Some(NamespacedName::parse("edge/certificates", "")),
            ..Behind::default()
        };
        let mut facts = Facts {
            behind: BTreeMap::from([(String::new(), behind)]),
            ..Facts::example()
        };
        facts.found.map = Some(NamespacedName::parse("edge/settings", "edge"));
        let sites = json!({"sites": [
            {"name": "edge", "kind": "edge"}, {"name": "far", "kind": "cloud", "storageClasses": ["fast"]},
        ]});
        facts.found.config.sites = Config::read(&sites).unwrap().sites;
        let mut reviewed = BTreeSet::from([["pods", "get"], ["pods", "patch"]].map(|right| right.map(str::to_owned)));
        for (_, resources, verbs, ..) in needs(&facts) {
            for resource in resources.split(' ') {
                reviewed.extend(verbs.split(' ').map(|verb| [resource, verb].map(str::to_owned)));
            }
        }
        assert_eq!(reviewed, expected);
    }

    #[test]
    fn missing_permission_is_reported_with_its_place_and_effect() {
        let map = (Fault, "", "", (Some("edge"), Some("settings")), "it is never ready");
        assert_eq!(
            lacks("configmaps", map, &["list", "watch"], "me").text,
            "me may not list, watch configmaps settings in namespace edge: it is never ready"
        );
    }
}
