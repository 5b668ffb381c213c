//! What edgeward may do, and what it needs.

use super::finding::{Finding, Level};
use super::webhook::{apply, shown};
use crate::cli::installed::{LEASE, Place};
use crate::cli::sentence;
use crate::inspect::Connection;
use crate::inspect::installation::{PairSecret, Right};

const AREA: &str = "rights";

/// In which namespace, and of which object; everywhere, and of all, without.
type Where<'i> = (Option<&'i str>, Option<&'i str>);

/// Rights that are needed together.
#[derive(Debug, Clone, Copy)]
struct Need<'i> {
    /// As kubectl writes them, one blank between two.
    resources: &'static str,
    verbs: &'static str,
    place: Where<'i>,
    /// What does not work without.
    purpose: &'static str,
    /// How bad it is.
    level: Level,
}

fn need<'i>(resources: &'static str, verbs: &'static str, place: Where<'i>, purpose: &'static str) -> Need<'i> {
    Need {
        resources,
        verbs,
        place,
        purpose,
        level: Level::Fault,
    }
}

impl Need<'_> {
    /// edgeward goes on without.
    fn or_goes_on(self) -> Self {
        Self {
            level: Level::Warning,
            ..self
        }
    }
}

const VIEW: &str = "list watch";
const VIEW_AND_UPDATE: &str = "get list watch update";
const VIEW_AND_PATCH: &str = "get list watch patch";

const NODES: &str = "nodes pods namespaces";
const RESOURCES: &str = "sites.edgeward.io slopolicies.edgeward.io performanceprofiles.edgeward.io";
const STATUSES: &str = "sites.edgeward.io/status slopolicies.edgeward.io/status performanceprofiles.edgeward.io/status";
const DATA: &str = "persistentvolumeclaims persistentvolumes storageclasses.storage.k8s.io";
const LEASES: &str = "leases.coordination.k8s.io";
const ENDPOINTS: &str = "endpointslices.discovery.k8s.io";
const WEBHOOKS: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const LIQO: &str = "foreignclusters.core.liqo.io virtualnodes.offloading.liqo.io namespaceoffloadings.offloading.liqo.io \
                    namespacemaps.offloading.liqo.io connections.networking.liqo.io";

const NO_PICTURE: &str = "it decides nothing without";
const NO_EVENT: &str = "no Event tells of a decision without";
const NO_REPLICAS: &str = "its replicas cannot count each other without";
const NO_RELEASE: &str = "gated pods are never released without";
const NO_LEADER: &str = "nobody leads, and gated pods are never released without";
const NO_CONFIGURATION: &str = "`serve --config-map` is never ready without";
const NO_STATUS: &str = "they show no status, and no profile prefers a site, without";
const NO_DATA: &str = "pods with claims stay at the edge without";
const NO_CERTIFICATE: &str = "`serve --self-managed` serves no certificate, or renews none, without";
const NO_TRUST: &str = "API servers do not learn of the CA of `serve --self-managed` without";
const NO_LIQO: &str = "no pod goes to a virtual node, or pods go where their namespace is not offloaded, without";

/// What decides which rights are needed.
pub(super) struct Installation<'i> {
    /// edgeward's own namespace.
    pub(super) home: &'i str,
    /// Where its configuration is.
    pub(super) place: &'i Place,
    /// Whether a definition of our custom resources is installed.
    pub(super) custom_resources: bool,
    /// Whether Liqo is in use.
    pub(super) liqo: bool,
    /// Whether a site in use can have data.
    pub(super) has_data: bool,
    /// The Secret that edgeward keeps its certificates in, if it does.
    pub(super) certificates: Option<&'i PairSecret>,
    /// Name of the MutatingWebhookConfiguration.
    pub(super) webhook: &'i str,
    /// The namespaces that opted in, where they are known.
    pub(super) opted_in: Option<&'i [&'i str]>,
}

impl<'i> Installation<'i> {
    /// The rights of docs/live-view.md, docs/sites.md and docs/operations.md that are needed here, but for changing pods.
    fn needs(&self) -> Vec<Need<'i>> {
        let (everywhere, home) = ((None, None), (Some(self.home), None));
        let lease = (Some(self.home), Some(LEASE));
        let mut needs = vec![
            need(NODES, VIEW, everywhere, NO_PICTURE),
            need("events.events.k8s.io", "create", everywhere, NO_EVENT),
            need(ENDPOINTS, VIEW, home, NO_REPLICAS),
            need(LEASES, "get update", lease, NO_LEADER),
            need(LEASES, "create", home, NO_LEADER),
        ];
        if let Place::Map(map) = self.place {
            let place = (Some(&*map.namespace), Some(&*map.name));
            needs.push(need("configmaps", VIEW, place, NO_CONFIGURATION));
        }
        if self.custom_resources {
            needs.push(need(RESOURCES, VIEW, everywhere, "it is never ready without"));
            needs.push(need(STATUSES, "patch", everywhere, NO_STATUS));
        }
        if self.has_data {
            needs.push(need(DATA, VIEW, everywhere, NO_DATA).or_goes_on());
        }
        if self.liqo {
            needs.push(need(LIQO, VIEW, everywhere, NO_LIQO).or_goes_on());
        }
        if let Some(PairSecret { namespace, name, .. }) = self.certificates {
            let secret = (Some(&**namespace), Some(&**name));
            needs.push(need("secrets", VIEW_AND_UPDATE, secret, NO_CERTIFICATE));
            // One that is to be created has no name yet.
            needs.push(need("secrets", "create", (secret.0, None), NO_CERTIFICATE));
            let webhook = (None, Some(self.webhook));
            needs.push(need(WEBHOOKS, VIEW_AND_PATCH, webhook, NO_TRUST));
        }
        needs
    }
}

/// Whose rights are reviewed, and what was found.
pub(super) struct Reviewed {
    pub(super) findings: Vec<Finding>,
    /// Whether there is such a ServiceAccount, if it is one.
    pub(super) is_installed: bool,
}

/// Reviews the rights of `user`, who is in these groups besides; without one those of the ServiceAccount in `home`. Those of
/// whoever asks say nothing of them.
pub(super) async fn review(
    connection: &Connection,
    user: Option<&str>,
    groups: &[String],
    installation: &Installation<'_>,
    domain: &str,
) -> Reviewed {
    let of_home = || format!("system:serviceaccount:{}:edgeward", installation.home);
    let user = &*user.map_or_else(of_home, str::to_owned);
    let reviewer = Reviewer {
        connection,
        user,
        groups,
    };
    let mut findings = reviewer.review(installation).await.unwrap_or_else(|error| {
        let text = format!("those of {user} are not checked: {}", sentence(&error));
        let fix = format!(
            "let somebody who may create subjectaccessreviews.authorization.k8s.io (the ClusterRole system:auth-delegator \
             allows it) run this check with --as={user}"
        );
        vec![Finding::warning(AREA, text).fix(fix)]
    });
    let mut is_installed = true;
    // Looked for only where rights are missing: whoever has them needs no right to look.
    if let (Some((namespace, name)), true) = (account(user), findings.iter().any(Finding::is_fault))
        && let Ok(false) = connection.has_account(namespace, name).await
    {
        is_installed = false;
        let text = format!(
            "edgeward is not installed in this cluster: there is no ServiceAccount {namespace}/{name}. The rights of a \
             process beside the cluster are reviewed with --as=USER, and --as-group=GROUP"
        );
        findings = vec![Finding::fault(AREA, text).fix(apply(domain))];
    }
    Reviewed { findings, is_installed }
}

/// Whose rights are asked for.
struct Reviewer<'r> {
    connection: &'r Connection,
    user: &'r str,
    groups: &'r [String],
}

impl Reviewer<'_> {
    async fn review(&self, installation: &Installation<'_>) -> anyhow::Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for need in installation.needs() {
            findings.extend(self.lacking(&need).await?);
        }
        // Pods may be changed everywhere, or in the namespaces that opted in. Where none did, none is gated yet.
        let is_in_use = installation.opted_in != Some(&[]);
        let level = if is_in_use { Level::Fault } else { Level::Warning };
        let mut pods = need("pods", "get patch", (None, None), NO_RELEASE);
        pods.level = level;
        let everywhere = self.lacking(&pods).await?;
        let opted_in = installation.opted_in.unwrap_or_default();
        let opted_in = if everywhere.is_empty() { &[] } else { opted_in };
        let mut there = Vec::new();
        for namespace in opted_in {
            let place = (Some(*namespace), None);
            there.extend(self.lacking(&Need { place, ..pods }).await?);
        }
        let is_narrow = there.len() < opted_in.len();
        findings.extend(if is_narrow { there } else { everywhere });
        if findings.is_empty() {
            let pods = match is_narrow {
                true => format!(", and may change pods in {} and not everywhere", shown(opted_in)),
                false => String::new(),
            };
            let text = format!("{} has every right that edgeward needs{pods}", self.user);
            findings.push(Finding::ok(AREA, text));
        }
        Ok(findings)
    }

    /// What the user lacks, a finding for each resource.
    async fn lacking(&self, need: &Need<'_>) -> anyhow::Result<Vec<Finding>> {
        let (namespace, name) = need.place;
        let mut findings = Vec::new();
        for resource in need.resources.split(' ') {
            let mut refused = Vec::new();
            for verb in need.verbs.split(' ') {
                let right = Right {
                    resource,
                    verb,
                    namespace,
                    name,
                };
                if !self.connection.may(self.user, self.groups, &right).await? {
                    refused.push(verb);
                }
            }
            if !refused.is_empty() {
                findings.push(lacks(resource, need, &refused, self.user));
            }
        }
        Ok(findings)
    }
}

/// Namespace and name of a ServiceAccount.
fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

fn lacks(resource: &str, need: &Need<'_>, verbs: &[&str], user: &str) -> Finding {
    let (namespace, name) = need.place;
    let place = namespace.map(|namespace| format!(" in namespace {namespace}"));
    let object = name.map(|name| format!(" {name}"));
    let text = format!(
        "{user} may not {} {resource}{}{}: {}",
        verbs.join(", "),
        object.unwrap_or_default(),
        place.unwrap_or_default(),
        need.purpose
    );
    Finding::new(need.level, AREA, text).fix(grant(resource, verbs, user, need.place))
}

/// Commands that give a right. They may be run again, and take nothing from others who have it by the same role.
fn grant(resource: &str, verbs: &[&str], user: &str, (namespace, name): Where<'_>) -> String {
    let role = format!("edgeward-{}-{}", resource.replace(['.', '/'], "-"), verbs.join("-"));
    let to = match account(user) {
        Some((namespace, name)) => format!("--serviceaccount={namespace}:{name}"),
        None => format!("--user={user}"),
    };
    let verbs = verbs.join(",");
    let only = name.map(|name| format!(" --resource-name={name}")).unwrap_or_default();
    // `auth reconcile` would create a namespace that is missing, without its labels.
    let (kubectl, kind, only_there) = match namespace {
        None => ("kubectl".to_owned(), "clusterrole", String::new()),
        Some(namespace) => (
            format!("kubectl -n {namespace}"),
            "role",
            format!("kubectl get namespace {namespace} && "),
        ),
    };
    let reconciled = format!("--dry-run=client -o yaml | {kubectl} auth reconcile -f -");
    format!(
        "{only_there}{kubectl} create {kind} {role} --verb={verbs} --resource={resource}{only} {reconciled} && \
         {kubectl} create {kind}binding {role} --{kind}={role} {to} {reconciled}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::sources::namespaced_name::NamespacedName;

    /// Resource, as kubectl writes it, and verb of every rule in the first YAML block of a page that has these words.
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
    fn what_is_reviewed_is_what_is_documented() {
        let mut expected = documented(include_str!("../../../docs/live-view.md"), "kind: ClusterRole");
        const OPERATIONS: &str = include_str!("../../../docs/operations.md");
        expected.extend(documented(OPERATIONS, "[configmaps]"));
        expected.extend(documented(include_str!("../../../docs/sites.md"), "storageclasses"));
        expected.extend(documented(OPERATIONS, "resourceNames: [edgeward-certificates]"));
        let secret = PairSecret {
            namespace: "edge".into(),
            name: "certificates".into(),
            cert: "tls.crt".into(),
            key: "tls.key".into(),
            is_self_managed: true,
        };
        let installation = Installation {
            home: "edge",
            place: &Place::Map(NamespacedName::parse("edge/settings", "edge")),
            custom_resources: true,
            liqo: false,
            has_data: true,
            certificates: Some(&secret),
            webhook: "zz-edgeward",
            opted_in: None,
        };
        let mut reviewed = BTreeSet::from([["pods", "get"], ["pods", "patch"]].map(|right| right.map(str::to_owned)));
        for need in installation.needs() {
            for resource in need.resources.split(' ') {
                reviewed.extend(need.verbs.split(' ').map(|verb| [resource, verb].map(str::to_owned)));
            }
        }
        assert_eq!(reviewed, expected);
    }

    #[test]
    fn the_fix_grants_what_is_missing_to_whom_it_is() {
        let account = "system:serviceaccount:edge:me";
        let pods = need(NODES, VIEW, (None, None), NO_PICTURE);
        let found = lacks("pods", &pods, &["watch"], account);
        assert_eq!(
            found.text,
            "system:serviceaccount:edge:me may not watch pods: it decides nothing without"
        );
        assert_eq!(
            found.fix.unwrap(),
            "kubectl create clusterrole edgeward-pods-watch --verb=watch --resource=pods \
             --dry-run=client -o yaml | kubectl auth reconcile -f - && \
             kubectl create clusterrolebinding edgeward-pods-watch --clusterrole=edgeward-pods-watch --serviceaccount=edge:me \
             --dry-run=client -o yaml | kubectl auth reconcile -f -"
        );
        let map = need("configmaps", VIEW, (Some("edge"), Some("settings")), NO_CONFIGURATION);
        let found = lacks("configmaps", &map, &["list", "watch"], "me");
        assert_eq!(
            found.fix.unwrap(),
            "kubectl get namespace edge && \
             kubectl -n edge create role edgeward-configmaps-list-watch --verb=list,watch --resource=configmaps \
             --resource-name=settings --dry-run=client -o yaml | kubectl -n edge auth reconcile -f - && \
             kubectl -n edge create rolebinding edgeward-configmaps-list-watch --role=edgeward-configmaps-list-watch \
             --user=me --dry-run=client -o yaml | kubectl -n edge auth reconcile -f -"
        );
    }

    #[test]
    fn accounts_have_a_namespace_and_a_name() {
        assert_eq!(account("system:serviceaccount:edge:me"), Some(("edge", "me")));
        assert_eq!(account("system:serviceaccount:edge"), None);
        assert_eq!(account("jane"), None);
    }
}
