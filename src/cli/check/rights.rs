//! What edgeward may do, held against what it needs.

use super::finding::{Finding, Level};
use super::webhook::{apply, shown};
use crate::cli::installed::{LEASE, Place};
use crate::cli::sentence;
use crate::inspect::Connection;
use crate::inspect::installation::{PairSecret, Right};

const AREA: &str = "rights";

/// Where a right is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everywhere,
    /// Everywhere, or in the namespaces that opted in.
    Pods,
    /// In edgeward's own namespace.
    Home,
    /// Of the Lease in edgeward's own namespace.
    Lease,
    /// Of the ConfigMap with the configuration.
    Configuration,
    /// Where definitions of our custom resources are installed.
    CustomResources,
    /// Where Liqo is in use.
    Liqo,
    /// Where a cloud can have data.
    Data,
    /// Of the Secret that edgeward keeps, where it does.
    Certificates,
    /// Of any Secret in that namespace: one that is to be created has no name that could be told.
    NewCertificates,
    /// Of the webhook configuration whose caBundle it keeps.
    Registration,
}

/// Group and plural.
type Resource = [&'static str; 2];

/// Rights that are needed together: of which resources, to do what, where, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Need(&'static [Resource], &'static [&'static str], Scope, &'static str);

const VIEW: &[&str] = &["list", "watch"];

/// Those of docs/live-view.md and, of the ConfigMap and certificates, docs/operations.md.
const NEEDS: [Need; 13] = [
    Need(
        &[["", "nodes"], ["", "pods"], ["", "namespaces"]],
        VIEW,
        Scope::Everywhere,
        "it decides nothing without",
    ),
    Need(
        &[["", "pods"]],
        &["get", "patch"],
        Scope::Pods,
        "held pods are never released without",
    ),
    Need(
        &[["events.k8s.io", "events"]],
        &["create"],
        Scope::Everywhere,
        "no Event tells of a decision without",
    ),
    Need(
        &[["discovery.k8s.io", "endpointslices"]],
        VIEW,
        Scope::Home,
        "its replicas cannot count each other without",
    ),
    Need(
        &[["coordination.k8s.io", "leases"]],
        &["get", "update"],
        Scope::Lease,
        "nobody leads, and held pods are never released without",
    ),
    Need(
        &[["coordination.k8s.io", "leases"]],
        &["create"],
        Scope::Home,
        "nobody leads, and held pods are never released without",
    ),
    Need(
        &[["", "configmaps"]],
        VIEW,
        Scope::Configuration,
        "`serve --config-map` is never ready without",
    ),
    Need(
        &[
            ["edgeward.io", "sites"],
            ["edgeward.io", "slopolicies"],
            ["edgeward.io", "performanceprofiles"],
        ],
        VIEW,
        Scope::CustomResources,
        "it is never ready without",
    ),
    Need(
        &[
            ["edgeward.io", "sites/status"],
            ["edgeward.io", "slopolicies/status"],
            ["edgeward.io", "performanceprofiles/status"],
        ],
        &["patch"],
        Scope::CustomResources,
        "they show no status, and no profile prefers a site, without",
    ),
    Need(
        &[
            ["", "persistentvolumeclaims"],
            ["", "persistentvolumes"],
            ["storage.k8s.io", "storageclasses"],
        ],
        VIEW,
        Scope::Data,
        "pods with claims stay at the edge without",
    ),
    Need(
        &[["", "secrets"]],
        &["get", "list", "watch", "update"],
        Scope::Certificates,
        "`serve --self-managed` serves no certificate, or renews none, without",
    ),
    Need(
        &[["", "secrets"]],
        &["create"],
        Scope::NewCertificates,
        "`serve --self-managed` makes no certificate without",
    ),
    Need(
        &[["admissionregistration.k8s.io", "mutatingwebhookconfigurations"]],
        &["get", "list", "watch", "patch"],
        Scope::Registration,
        "`serve --self-managed` cannot tell API servers of its CA without",
    ),
];

/// Those of `deploy/liqo`.
const OF_LIQO: Need = Need(
    &[
        ["core.liqo.io", "foreignclusters"],
        ["offloading.liqo.io", "virtualnodes"],
        ["offloading.liqo.io", "namespaceoffloadings"],
        ["offloading.liqo.io", "namespacemaps"],
        ["networking.liqo.io", "connections"],
    ],
    VIEW,
    Scope::Liqo,
    "no pod goes to a virtual node, or pods go where their namespace is not offloaded, without",
);

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

impl Installation<'_> {
    /// In which namespace a right is needed, and for which object; `None` where it is not.
    fn applies(&self, scope: Scope) -> Option<(Option<&str>, Option<&str>)> {
        let everywhere = |applies: bool| applies.then_some((None, None));
        match scope {
            Scope::Everywhere | Scope::Pods => everywhere(true),
            Scope::Home => Some((Some(self.home), None)),
            Scope::Lease => Some((Some(self.home), Some(LEASE))),
            Scope::Configuration => match self.place {
                Place::Map(map) => Some((Some(&map.namespace), Some(&map.name))),
                Place::Path(_) | Place::Deployment(_) => None,
            },
            Scope::CustomResources => everywhere(self.custom_resources),
            Scope::Liqo => everywhere(self.liqo),
            Scope::Data => everywhere(self.has_data),
            Scope::Certificates => self.certificates.map(|of| (Some(&*of.namespace), Some(&*of.name))),
            Scope::NewCertificates => self.certificates.map(|of| (Some(&*of.namespace), None)),
            Scope::Registration => self.certificates.map(|_| (None, Some(self.webhook))),
        }
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
    let user = user.map_or_else(of_home, str::to_owned);
    let mut findings = held_against_needs(connection, &user, groups, installation).await;
    let mut is_installed = true;
    // Looked for only where rights are missing: whoever has them needs no right to look.
    if let (Some((namespace, name)), true) = (account(&user), findings.iter().any(Finding::is_fault))
        && let Ok(false) = connection.has_account(namespace, name).await
    {
        is_installed = false;
        findings = vec![not_installed(namespace, name, domain)];
    }
    Reviewed { findings, is_installed }
}

async fn held_against_needs(
    connection: &Connection,
    user: &str,
    groups: &[String],
    installation: &Installation<'_>,
) -> Vec<Finding> {
    let reviewer = Reviewer {
        connection,
        user,
        groups,
    };
    let mut findings = Vec::new();
    let mut is_narrow = false;
    for need in NEEDS.iter().chain([&OF_LIQO]) {
        let Some((namespace, name)) = installation.applies(need.2) else {
            continue;
        };
        for resource in need.0 {
            let refused = match reviewer.refused(*resource, need.1, namespace, name).await {
                Ok(refused) if refused.is_empty() => continue,
                Ok(refused) => refused,
                Err(error) => return vec![unknown(user, &error)],
            };
            let lacking = lacks(*resource, need, &refused, user, namespace, name);
            match installation.opted_in.filter(|_| need.2 == Scope::Pods) {
                None => findings.push(lacking),
                // It holds no pod yet, and may be given the right where it will.
                Some([]) => findings.push(Finding {
                    level: Level::Warning,
                    ..lacking
                }),
                Some(opted_in) => match reviewer.refused_in(*resource, need, opted_in).await {
                    Ok(found) if found.len() == opted_in.len() => findings.push(lacking),
                    Ok(found) => {
                        is_narrow = true;
                        findings.extend(found);
                    }
                    Err(error) => return vec![unknown(user, &error)],
                },
            }
        }
    }
    if findings.is_empty() {
        let pods = match installation.opted_in.filter(|_| is_narrow) {
            Some(opted_in) => format!(", and may change pods in {} and not everywhere", shown(opted_in)),
            None => String::new(),
        };
        findings.push(Finding::ok(
            AREA,
            format!("{user} has every right that edgeward needs{pods}"),
        ));
    }
    findings
}

/// Whose rights are asked for.
struct Reviewer<'r> {
    connection: &'r Connection,
    user: &'r str,
    groups: &'r [String],
}

impl Reviewer<'_> {
    /// The verbs that the user may not.
    async fn refused(
        &self,
        [group, resource]: Resource,
        verbs: &[&'static str],
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> anyhow::Result<Vec<&'static str>> {
        let mut refused = Vec::new();
        for verb in verbs {
            let right = Right {
                group,
                resource,
                verb,
                namespace,
                name,
            };
            if !self.connection.may(self.user, self.groups, &right).await? {
                refused.push(*verb);
            }
        }
        Ok(refused)
    }

    /// What is missing in which of these namespaces.
    async fn refused_in(&self, resource: Resource, need: &Need, namespaces: &[&str]) -> anyhow::Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for namespace in namespaces {
            let refused = self.refused(resource, need.1, Some(namespace), None).await?;
            if !refused.is_empty() {
                findings.push(lacks(resource, need, &refused, self.user, Some(namespace), None));
            }
        }
        Ok(findings)
    }
}

/// Namespace and name of a ServiceAccount.
fn account(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix("system:serviceaccount:")?.split_once(':')
}

/// One word for all that is missing: rights that are given to nobody install nothing.
fn not_installed(namespace: &str, name: &str, domain: &str) -> Finding {
    let text = format!(
        "edgeward is not installed in this cluster: there is no ServiceAccount {namespace}/{name}. The rights of a process \
         beside the cluster are reviewed with --as=USER, and --as-group=GROUP"
    );
    Finding::fault(AREA, text, apply(domain))
}

/// Who checks may not review the rights of others, or nobody answered.
fn unknown(user: &str, error: &anyhow::Error) -> Finding {
    let text = format!("those of {user} are not checked: {}", sentence(error));
    let fix = format!(
        "let somebody who may create subjectaccessreviews.authorization.k8s.io (the ClusterRole system:auth-delegator allows \
         it) run this check with --as={user}"
    );
    Finding::warning(AREA, text, Some(fix))
}

fn lacks(
    [group, resource]: Resource,
    Need(_, _, scope, purpose): &Need,
    verbs: &[&str],
    user: &str,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Finding {
    let resource = match group {
        "" => resource.to_owned(),
        group => match resource.split_once('/') {
            Some((resource, sub)) => format!("{resource}.{group}/{sub}"),
            None => format!("{resource}.{group}"),
        },
    };
    let place = match namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => String::new(),
    };
    let object = name.map(|name| format!(" {name}")).unwrap_or_default();
    let text = format!(
        "{user} may not {} {resource}{object}{place}: {purpose}",
        verbs.join(", ")
    );
    let fix = grant(&resource, verbs, user, namespace, name);
    match scope {
        // It goes on without what these say.
        Scope::Data | Scope::Liqo => Finding::warning(AREA, text, Some(fix)),
        _ => Finding::fault(AREA, text, fix),
    }
}

/// Commands that give a right. They may be run again, and take nothing from others who have it by the same role.
fn grant(resource: &str, verbs: &[&str], user: &str, namespace: Option<&str>, name: Option<&str>) -> String {
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

    /// Group, resource and verb of every rule in the first YAML block of a page that has these words.
    fn documented(page: &str, words: &str) -> BTreeSet<[String; 3]> {
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
                        for verb in texts(&rule["verbs"]) {
                            rights.insert([group.clone(), resource.clone(), verb]);
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
        let mut reviewed = BTreeSet::new();
        for Need(resources, verbs, ..) in &NEEDS {
            for [group, resource] in *resources {
                reviewed.extend(verbs.iter().map(|verb| [*group, *resource, *verb].map(str::to_owned)));
            }
        }
        assert_eq!(reviewed, expected);
    }

    #[test]
    fn what_is_not_there_is_installed_whole() {
        let found = not_installed("edge", "edgeward", "example.io");
        assert!(
            found.is_fault() && found.text.contains("no ServiceAccount edge/edgeward. "),
            "{found:?}"
        );
        assert_eq!(found.fix.as_deref(), Some("kubectl apply -k mine"));
        assert_eq!(account("system:serviceaccount:edge:me"), Some(("edge", "me")));
        assert_eq!(account("system:serviceaccount:edge"), None);
        assert_eq!(account("jane"), None);
    }

    #[test]
    fn the_fix_grants_what_is_missing_to_whom_it_is() {
        let account = "system:serviceaccount:edge:me";
        let found = lacks(["", "pods"], &NEEDS[0], &["watch"], account, None, None);
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
        let found = lacks(
            ["", "configmaps"],
            &NEEDS[8],
            VIEW,
            "me",
            Some("edge"),
            Some("settings"),
        );
        assert_eq!(
            found.fix.unwrap(),
            "kubectl get namespace edge && \
             kubectl -n edge create role edgeward-configmaps-list-watch --verb=list,watch --resource=configmaps \
             --resource-name=settings --dry-run=client -o yaml | kubectl -n edge auth reconcile -f - && \
             kubectl -n edge create rolebinding edgeward-configmaps-list-watch --role=edgeward-configmaps-list-watch \
             --user=me --dry-run=client -o yaml | kubectl -n edge auth reconcile -f -"
        );
    }
}
