//! edgeward's rights. Every edgeward of the run has exactly the rights of `deploy/base` and is confined by the policies there.
//! At the end of the run, the rights are compared with the API server's audit log.

pub mod proof;

use std::iter;
use std::sync::{Mutex, PoisonError};

use self::proof::{Right, granted, granted_by, prove};
use crate::prelude::*;
use crate::wait::TIMEOUT;

/// The namespace in which `deploy/base` installs edgeward.
pub const NAMESPACE: &str = "edgeward-system";

/// The namespace label with the domain of edgeward's keys on the namespace's pods.
pub(crate) const DOMAIN: &str = "edgeward.test/domain";

/// The user agent of a test that uses edgeward's token. Its calls do not count as rights that edgeward needs.
pub(crate) const BY_HAND: &str = "by-hand";

pub(crate) const USER: &str = "system:serviceaccount:edgeward-system:edgeward";

/// The ConfigMap that the earlier version of the upgrade tests keeps.
const KEPT_BY_EARLIER: &str = "edgeward-site-memory";

const HOOKS: [(&str, &str); 2] = [
    (
        "-uninstall",
        include_str!("../../../deploy/helm/edgeward/files/uninstall-rules.yaml"),
    ),
    (
        "-test",
        include_str!("../../../deploy/helm/edgeward/files/test-rules.yaml"),
    ),
];

pub(crate) fn users() -> Vec<String> {
    let hooks = HOOKS.iter().map(|(hook, _)| *hook);
    iter::once("").chain(hooks).map(|of| format!("{USER}{of}")).collect()
}

/// The ServiceAccount of the manifests, and its rights.
pub(crate) struct Rights {
    /// ServiceAccount, roles and bindings, and the policies about that ServiceAccount, with those of `deploy/moves`.
    objects: Vec<Value>,
    /// Rights that `deploy/data` adds.
    data: Vec<Value>,
    /// Rights that `certs/self-managed` adds.
    certificates: Vec<Value>,
    /// Rights that `deploy/liqo` adds.
    liqo: Vec<Value>,
    /// Rights that `deploy/reports` adds.
    reports: Vec<Value>,
    /// Rights that `deploy/peers` adds. The suite that uses every other right has no network for peers.
    peers: Vec<Value>,
    homes: Mutex<BTreeSet<String>>,
    /// Resources that an earlier version's roles do not let edgeward read, each with an object name if it is a single one.
    unreadable: Mutex<BTreeSet<(String, String)>>,
}

/// Rights in addition to those of `deploy/base`. Dropping the value revokes them, and the API server then refuses their calls.
pub(crate) struct Granted {
    kubectl: Kubectl,
    objects: Vec<Value>,
}

impl Rights {
    /// Reads the rights of `deploy/base` and `deploy/moves`, as `kubectl apply -k` does.
    pub(crate) fn read(kubectl: &Kubectl) -> Result<Self> {
        let mut objects = kubectl.render(&workspace().join("deploy/base"))?;
        const KEPT: [&str; 2] = ["rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"];
        objects
            .retain(|object| object["kind"] == "ServiceAccount" || KEPT.iter().any(|it| object["apiVersion"] == *it));
        ensure!(objects.len() == 11, "{objects:#?}");
        objects.extend(kubectl.render(&workspace().join("deploy/moves"))?);
        for object in &mut objects {
            *object = under_every_domain(object)?;
        }
        let data = kubectl.render(&workspace().join("deploy/data"))?;
        let certificates = kubectl.render(&workspace().join("certs/self-managed"))?;
        let liqo = kubectl.render(&workspace().join("deploy/liqo"))?;
        let reports = kubectl.render(&workspace().join("deploy/reports"))?;
        let peers = fs::read_to_string(workspace().join("deploy/peers/rbac.yaml"))?;
        let peers = serde_saphyr::from_multiple(&peers)?;
        // These rights are granted in the tests' namespaces instead.
        let additions = data.iter().chain(&certificates).chain(&reports);
        let mut roles = objects.iter().chain(additions);
        ensure!(
            roles.all(|object| object["kind"] != "Role" || object["metadata"]["namespace"] == NAMESPACE),
            "a role of another namespace"
        );
        Ok(Self {
            objects,
            data,
            certificates,
            liqo,
            reports,
            peers,
            homes: Mutex::new(BTreeSet::from([NAMESPACE.to_owned()])),
            unreadable: Mutex::default(),
        })
    }

    /// Creates the ServiceAccount with its rights and policies, in a namespace that has nothing else.
    pub(crate) fn grant(&self, kubectl: &Kubectl) -> Result<()> {
        kubectl.run(&["create", "namespace", NAMESPACE], "")?;
        kubectl.run(&["create", "-f", "-"], &list(&self.objects)).map(drop)
    }

    /// Removes the right to change pods in every namespace, as `deploy/narrow` does.
    pub(crate) fn narrow(&self, kubectl: &Kubectl) -> Result<Narrowed> {
        let is_binding =
            |object: &&Value| object["kind"] == "ClusterRoleBinding" && object["metadata"]["name"] == "edgeward-pods";
        let bindings: Vec<_> = self.objects.iter().filter(is_binding).cloned().collect();
        ensure!(bindings.len() == 1, "{bindings:#?}");
        let args = ["delete", TIMEOUT, "-f", "-"];
        kubectl.run(&args, &list(&bindings))?;
        Ok(Narrowed {
            kubectl: kubectl.clone(),
            objects: bindings,
        })
    }

    /// Adds the rights to read PodGroups.
    pub(crate) fn grant_groups(&self, kubectl: &Kubectl) -> Result<Granted> {
        let groups = kubectl.render(&workspace().join("deploy/groups"))?;
        Granted::apply(groups, kubectl.clone())
    }

    /// Adds the rights to read Liqo's objects, volumes and claims. Liqo's sites need all of them.
    pub(crate) fn grant_liqo(&self, kubectl: &Kubectl) -> Result<Granted> {
        Granted::apply(self.liqo_and_data(), kubectl.clone())
    }

    pub(crate) fn grant_liqo_for_good(&self, kubectl: &Kubectl) -> Result<()> {
        kubectl
            .run(&["create", "-f", "-"], &list(&self.liqo_and_data()))
            .map(drop)
    }

    fn liqo_and_data(&self) -> Vec<Value> {
        [&self.liqo[..], &self.data].concat()
    }

    pub(crate) fn grant_data(&self, kubectl: &Kubectl) -> Result<Granted> {
        Granted::apply(self.data.clone(), kubectl.clone())
    }

    pub(crate) fn grant_certificates_in(&self, namespace: &str, kubectl: &Kubectl) -> Result<Granted> {
        let objects = self.at_home_in(namespace, &self.certificates);
        Granted::apply(objects, kubectl.in_namespace(namespace))
    }

    pub(crate) fn grant_reports_in(&self, namespace: &str, kubectl: &Kubectl) -> Result<Granted> {
        Granted::apply(self.at_home_in(namespace, &self.reports), kubectl.clone())
    }

    pub(crate) fn grant_peers_in(&self, namespace: &str, kubectl: &Kubectl) -> Result<Granted> {
        Granted::apply(self.at_home_in(namespace, &self.peers), kubectl.clone())
    }

    /// Removes the rights, the namespace with its content, and the ServiceAccount.
    pub(crate) fn revoke(&self, kubectl: &Kubectl) -> Result<()> {
        let args = ["delete", "--ignore-not-found", TIMEOUT];
        kubectl.run(&[&args[..], &["-f", "-"]].concat(), &list(&self.objects))?;
        let namespace = ["namespace", NAMESPACE];
        kubectl.run(&[&args[..], &namespace].concat(), "").map(drop)
    }

    /// Makes another namespace edgeward's own. edgeward gets the same rights there as in the manifests' namespace.
    pub(crate) fn grant_in(&self, namespace: &str, kubectl: &Kubectl) -> Result<()> {
        let mut objects = self.at_home_in(namespace, &self.objects);
        objects.retain(|object| object["kind"] == "Role" || object["kind"] == "RoleBinding");
        kubectl
            .in_namespace(namespace)
            .run(&["apply", "-f", "-"], &list(&objects))
            .map(drop)
    }

    /// These objects, with those in the manifests' namespace moved to `namespace`, which becomes edgeward's own.
    fn at_home_in(&self, namespace: &str, objects: &[Value]) -> Vec<Value> {
        let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
        homes.insert(namespace.to_owned());
        let mut objects = objects.to_vec();
        for object in &mut objects {
            if object["kind"] == "Role" || object["kind"] == "RoleBinding" {
                object["metadata"]["namespace"] = json!(namespace);
            }
        }
        objects
    }

    fn granted(&self) -> BTreeSet<Right> {
        let additions = [&self.data, &self.certificates, &self.liqo, &self.reports];
        granted_by(self.objects.iter().chain(additions.into_iter().flatten()))
    }

    pub(crate) fn homes(&self) -> BTreeSet<String> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A test removes the right to list and watch the object of this name, or all if it is empty. From now on, a refusal of
    /// these calls is no fault.
    pub(crate) fn take_away(&self, resource: &str, name: &str) {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        unreadable.insert((resource.to_owned(), name.to_owned()));
    }

    /// Whether a test has removed the right to this call.
    pub(crate) fn is_taken_away(&self, call: &Value) -> bool {
        let unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |field: &str| call["objectRef"][field].as_str().unwrap_or_default().to_owned();
        unreadable.contains(&(of("resource"), of("name")))
            && (call["verb"] == "list" || call["verb"] == "watch")
            && call["annotations"]["authorization.k8s.io/decision"] == "forbid"
    }

    /// Compares the rights with the calls in the audit logs of clusters where edgeward has these namespaces. The API server
    /// must have allowed each call by a right of the manifests. If `everything` was tried, each right must have been used, and
    /// none may be wider than needed. Prints what was checked.
    pub(crate) fn prove(&self, calls: &[Value], homes: &BTreeSet<String>, everything: bool) -> Result<()> {
        let mut own = self.granted();
        if !everything {
            own.extend(granted_by(self.peers.iter()));
        }
        let mut accounts = vec![(String::new(), "deploy/base", own)];
        for (hook, rules) in HOOKS {
            let rules: Value = serde_saphyr::from_str(rules)?;
            let mut all = BTreeSet::new();
            all.extend(granted(&rules["everywhere"], true));
            all.extend(granted(&rules["home"], false));
            accounts.push((hook.to_owned(), "the chart", all));
        }
        let mut complaints = Vec::new();
        for (of, by, granted) in &accounts {
            let user = format!("{USER}{of}");
            let is_its = |call: &&Value| {
                call["user"]["username"] == user
                    && call["userAgent"] != BY_HAND
                    && call["objectRef"]["name"] != KEPT_BY_EARLIER
            };
            let calls = calls.iter().filter(is_its);
            let calls: Vec<_> = calls.collect();
            let proof = prove(granted, &calls, homes, everything);
            let of = format!("edgeward{of}");
            println!(
                "rights: {} calls of {of}, {} not allowed by {by}",
                calls.len(),
                proof.refused
            );
            match everything {
                true => println!("rights: {} of {} that {by} grants were used", proof.used, granted.len()),
                false => println!("rights: NOT checked whether each is used, for not every test was run and passed"),
            }
            complaints.extend(proof.complaints.iter().map(|complaint| format!("{of}: {complaint}")));
        }
        if !complaints.is_empty() {
            bail!("{}", complaints.join("\n"));
        }
        Ok(())
    }
}

impl Granted {
    fn apply(objects: Vec<Value>, kubectl: Kubectl) -> Result<Self> {
        // Also removes the objects if only some of them were created.
        let granted = Self { kubectl, objects };
        granted.kubectl.run(&["apply", "-f", "-"], &list(&granted.objects))?;
        Ok(granted)
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        let args = ["delete", "--ignore-not-found", TIMEOUT, "-f", "-"];
        if let Err(error) = self.kubectl.run(&args, &list(&self.objects)) {
            eprintln!("{error:#}");
        }
    }
}

pub struct Narrowed {
    kubectl: Kubectl,
    objects: Vec<Value>,
}

impl Drop for Narrowed {
    fn drop(&mut self) {
        if let Err(error) = self.kubectl.run(&["create", "-f", "-"], &list(&self.objects)) {
            eprintln!("{error:#}");
        }
    }
}

/// Adapts a policy to the domains of a run. The run's edgewards have one identity and several domains, so a key in a policy
/// follows the domain of the pod's namespace. Other objects stay unchanged.
fn under_every_domain(object: &Value) -> Result<Value> {
    let domain = format!("namespaceObject.metadata.?labels[?'{DOMAIN}'].orValue('example.io')");
    let mut text = object.to_string();
    for prefix in ["scheduling", "slo"] {
        text = text.replace(
            &format!("'{prefix}.example.io/"),
            &format!("'{prefix}.' + {domain} + '/"),
        );
    }
    ensure!(!text.contains("example.io/"), "{text}");
    Ok(serde_json::from_str(&text)?)
}

pub(crate) fn token(kubectl: &Kubectl, account: &str) -> Result<String> {
    let args = ["create", "token", account, "--duration=24h"];
    let said = kubectl.in_namespace(NAMESPACE).run(&args, "")?;
    Ok(said.stdout.trim_end().to_owned())
}

fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}
