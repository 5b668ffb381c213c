//! What edgeward may do: every edgeward of the run has the rights of `deploy/base` and no other. At the end of the run they
//! are held against the API server's audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::kubectl::Kubectl;

/// Where `deploy/base` installs edgeward.
pub(crate) const NAMESPACE: &str = "edgeward-system";

/// How the users begin that its ServiceAccounts are.
pub(crate) const USER: &str = "system:serviceaccount:edgeward-system:edgeward";

/// What the chart grants to the ServiceAccounts of its hooks.
const HOOKS: [(&str, &str); 2] = [
    (
        "-uninstall",
        include_str!("../../deploy/helm/edgeward/files/uninstall-rules.yaml"),
    ),
    (
        "-test",
        include_str!("../../deploy/helm/edgeward/files/test-rules.yaml"),
    ),
];

/// The users whose calls are held against the manifests.
pub(crate) fn users() -> Vec<String> {
    let hooks = HOOKS.iter().map(|(hook, _)| *hook);
    iter::once("").chain(hooks).map(|of| format!("{USER}{of}")).collect()
}

/// The ServiceAccount of the manifests, and what they grant to it.
pub(crate) struct Rights {
    /// ServiceAccount, roles and bindings.
    objects: Vec<Value>,
    /// What `deploy/recreate` adds to them.
    recreation: Vec<Value>,
    /// What `certs/self-managed` adds to them.
    certificates: Vec<Value>,
}

/// API group, resource with its subresource, and verb.
type Right = [String; 3];

impl Rights {
    /// Of `deploy/base`, as `kubectl apply -k` reads it.
    pub(crate) fn read(kubectl: &Kubectl) -> Result<Self> {
        let mut objects = kubectl.render(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/base"))?;
        objects.retain(|object| {
            object["kind"] == "ServiceAccount" || object["apiVersion"] == "rbac.authorization.k8s.io/v1"
        });
        ensure!(objects.len() == 5, "{objects:#?}");
        let recreation = kubectl.render(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/recreate"))?;
        let certificates = kubectl.render(concat!(env!("CARGO_MANIFEST_DIR"), "/certs/self-managed"))?;
        Ok(Self {
            objects,
            recreation,
            certificates,
        })
    }

    /// Creates the ServiceAccount with its rights, in a namespace that has nothing else.
    pub(crate) fn grant(&self, kubectl: &Kubectl) -> Result<()> {
        kubectl.run(&["create", "namespace", NAMESPACE], "")?;
        kubectl.run(&["create", "-f", "-"], &list(&self.objects)).map(drop)
    }

    /// Adds the right to have pods created anew.
    pub(crate) fn grant_recreation(&self, kubectl: &Kubectl) -> Result<()> {
        kubectl.run(&["apply", "-f", "-"], &list(&self.recreation)).map(drop)
    }

    /// Adds the right to keep certificates in another namespace.
    pub(crate) fn grant_certificates_in(&self, namespace: &str, kubectl: &Kubectl) -> Result<()> {
        let mut objects = self.certificates.clone();
        for object in &mut objects {
            if object["kind"] == "Role" || object["kind"] == "RoleBinding" {
                object["metadata"]["namespace"] = json!(namespace);
            }
        }
        let kubectl = kubectl.in_namespace(namespace);
        kubectl.run(&["apply", "-f", "-"], &list(&objects)).map(drop)
    }

    /// Removes them, their namespace with all that is in it, and the ServiceAccount.
    pub(crate) fn revoke(&self, kubectl: &Kubectl) -> Result<()> {
        let args = ["delete", "--ignore-not-found", "--timeout=45s"];
        kubectl.run(&[&args[..], &["-f", "-"]].concat(), &list(&self.objects))?;
        let namespace = ["namespace", NAMESPACE];
        kubectl.run(&[&args[..], &namespace].concat(), "").map(drop)
    }

    /// Makes another namespace edgeward's own: what it may do in that of the manifests, it may do there.
    pub(crate) fn grant_in(&self, namespace: &str, kubectl: &Kubectl) -> Result<()> {
        let mut objects = self.objects.clone();
        objects.retain(|object| object["kind"] == "Role" || object["kind"] == "RoleBinding");
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(namespace);
        }
        kubectl
            .in_namespace(namespace)
            .run(&["apply", "-f", "-"], &list(&objects))
            .map(drop)
    }

    fn granted(&self) -> BTreeSet<Right> {
        let objects = self.objects.iter().chain(&self.recreation).chain(&self.certificates);
        objects.flat_map(|object| granted(&object["rules"])).collect()
    }

    /// Holds them against the calls in the audit log: the API server has allowed each, by a right of the manifests. If
    /// `everything` was tried, each right was used. Says on stdout what was checked.
    pub(crate) fn prove(&self, calls: &[Value], everything: bool) -> Result<()> {
        let mut accounts = vec![(String::new(), "deploy/base", self.granted())];
        for (hook, rules) in HOOKS {
            let rules: Value = serde_saphyr::from_str(rules)?;
            let granted = granted(&rules["everywhere"]).into_iter().chain(granted(&rules["home"]));
            accounts.push((hook.to_owned(), "the chart", granted.collect()));
        }
        let mut complaints = Vec::new();
        for (of, by, granted) in &accounts {
            let user = format!("{USER}{of}");
            let calls = calls.iter().filter(|call| call["user"]["username"] == user);
            let calls: Vec<_> = calls.collect();
            // A hook does all that it may in its only trial.
            let everything = everything || (!of.is_empty() && !calls.is_empty());
            complaints.extend(prove(&format!("edgeward{of}"), by, granted, &calls, everything));
        }
        if !complaints.is_empty() {
            bail!("{}", complaints.join("\n"));
        }
        Ok(())
    }
}

/// What is wrong with the calls of one ServiceAccount.
fn prove(of: &str, by: &str, granted: &BTreeSet<Right>, calls: &[&Value], everything: bool) -> Vec<String> {
    let mut used = BTreeSet::new();
    let mut faults = BTreeMap::<String, usize>::new();
    for call in calls {
        // Of what is no resource, such as /version, everybody may know.
        let right = right(&call["objectRef"], &call["verb"]);
        let allowed = call["annotations"]["authorization.k8s.io/decision"] == "allow";
        if allowed && right.as_ref().is_none_or(|right| granted.contains(right)) {
            used.extend(right);
            continue;
        }
        let how = match allowed {
            true => "allowed, but not by the manifests",
            false => "not allowed",
        };
        let what = format!("{of}: {how}: {} {}", call["verb"], call["requestURI"]);
        *faults.entry(what).or_default() += 1;
    }
    println!(
        "rights: {} calls of {of}, {} not allowed by {by}",
        calls.len(),
        faults.values().sum::<usize>()
    );
    let mut complaints: Vec<_> = faults
        .iter()
        .map(|(what, count)| format!("{what} ({count}x)"))
        .collect();
    match everything {
        true => println!("rights: {} of {} that {by} grants were used", used.len(), granted.len()),
        false => println!("rights: NOT checked whether each is used, for not every trial was run and passed"),
    }
    if everything {
        complaints.extend(granted.difference(&used).map(|[group, resource, verb]| {
            format!("{of}: granted and never used: {verb} {resource} of group {group:?}")
        }));
    }
    complaints
}

/// What the rules of a role grant.
fn granted(rules: &Value) -> BTreeSet<Right> {
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in rules.as_array().into_iter().flatten() {
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                let right = |verb| [group.clone(), resource.clone(), verb];
                rights.extend(words(&rule["verbs"]).into_iter().map(right));
            }
        }
    }
    rights
}

/// A token of a ServiceAccount of ours as it is now.
pub(crate) fn token(kubectl: &Kubectl, account: &str) -> Result<String> {
    let args = ["create", "token", account, "--duration=24h"];
    let said = kubectl.in_namespace(NAMESPACE).run(&args, "")?;
    Ok(said.stdout.trim_end().to_owned())
}

/// What a call of the audit log takes; `None` where it is about no resource.
fn right(object: &Value, verb: &Value) -> Option<Right> {
    let word = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let resource = match (word("resource"), word("subresource")) {
        (resource, _) if resource.is_empty() => return None,
        (resource, sub) if sub.is_empty() => resource,
        (resource, sub) => format!("{resource}/{sub}"),
    };
    Some([word("apiGroup"), resource, verb.as_str()?.to_owned()])
}

fn list(objects: &[Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}
