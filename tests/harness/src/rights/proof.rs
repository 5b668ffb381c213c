//! Compares granted rights with the calls that used them.

use crate::prelude::*;

/// Resources that users name. If all tests use the same name, a right to that name alone still would not be enough.
const NAMED_BY_USERS: [&str; 2] = ["pods", "performanceprofiles/status"];

/// The ConfigMap with the configuration. A hash of its content follows this prefix.
const CONFIGURATION: &str = "edgeward-config";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    action: Action,
    /// Granted in each namespace and cluster-wide; otherwise only in edgeward's own namespaces.
    everywhere: bool,
    /// The object that the right is limited to; `None` for all objects.
    name: Option<String>,
}

/// API group, resource with subresource, and verb. A non-resource path stands in the place of the resource.
type Action = [String; 3];

struct Call {
    action: Action,
    namespace: Option<String>,
    /// `None` for creations, because a right to a name does not allow them.
    name: Option<String>,
}

pub struct Proof {
    /// Number of calls that were refused or are not covered by these rights.
    pub refused: usize,
    pub used: usize,
    pub complaints: Vec<String>,
}

/// Checks the calls of one ServiceAccount from the audit log. `homes` are edgeward's own namespaces. Reports refused calls,
/// including refusals by policies. If `everything` was tried, also reports rights that were not used, or for which a narrower
/// right would do.
pub fn prove(granted: &BTreeSet<Right>, calls: &[&Value], homes: &BTreeSet<String>, everything: bool) -> Proof {
    let mut used = BTreeMap::<&Right, Vec<Call>>::new();
    let mut faults = BTreeMap::<String, usize>::new();
    for entry in calls {
        if let Some(refusal) = refused_by_policy(entry) {
            *faults
                .entry(format!("{}: {refusal}", told("refused", entry)))
                .or_default() += 1;
            continue;
        }
        let allowed = entry["annotations"]["authorization.k8s.io/decision"] == "allow";
        let Some(call) = call(entry) else { continue };
        // If two rights allow the call, the wider one is not needed.
        let rights = granted.iter().filter(|right| right.allows(&call, homes));
        let right = rights.min_by_key(|right| (right.everywhere, right.name.is_none()));
        match (allowed, right) {
            (true, Some(right)) => used.entry(right).or_default().push(call),
            // Some paths, such as /version, are open to everyone.
            (true, None) if call.action[1].starts_with('/') => {}
            (true, None) => {
                *faults
                    .entry(told("allowed, but not by the manifests", entry))
                    .or_default() += 1
            }
            (false, _) => *faults.entry(told("not allowed", entry)).or_default() += 1,
        }
    }
    let mut complaints: Vec<_> = faults
        .iter()
        .map(|(what, count)| format!("{what} ({count}x)"))
        .collect();
    if everything {
        for right in granted {
            let complaint = match used.get(right) {
                None => Some("never used".to_owned()),
                Some(calls) => right.wider_than(calls, homes),
            };
            let [group, resource, verb] = &right.action;
            complaints.extend(complaint.map(|it| format!("granted and {it}: {verb} {resource} of group {group:?}")));
        }
    }
    Proof {
        refused: faults.values().sum(),
        used: used.len(),
        complaints,
    }
}

impl Call {
    fn is_for_configuration(&self) -> bool {
        let name = self.name.as_deref().and_then(|name| name.strip_prefix(CONFIGURATION));
        let hash = name.and_then(|rest| rest.strip_prefix('-'));
        self.action[1] == "configmaps" && hash.is_some_and(|hash| hash.len() == 10)
    }
}

impl Right {
    fn allows(&self, call: &Call, homes: &BTreeSet<String>) -> bool {
        self.action == call.action
            && (self.everywhere || is_home(call, homes))
            && (self.name.is_none()
                || self.name == call.name
                || call.is_for_configuration() && self.name.as_deref() == Some(CONFIGURATION))
    }

    /// The part of the right that none of its uses needs. There is at least one use.
    fn wider_than(&self, uses: &[Call], homes: &BTreeSet<String>) -> Option<String> {
        if self.everywhere && uses.iter().all(|call| is_home(call, homes)) {
            return Some("wider than used, in edgeward's own namespace alone".to_owned());
        }
        let name = uses.first()?.name.as_ref()?;
        let is_open = self.name.is_none() && !NAMED_BY_USERS.contains(&self.action[1].as_str());
        let is_one = uses.iter().all(|call| call.name.as_ref() == Some(name));
        (is_open && is_one).then(|| format!("wider than used, for {name} alone"))
    }
}

fn is_home(call: &Call, homes: &BTreeSet<String>) -> bool {
    call.namespace
        .as_ref()
        .is_some_and(|namespace| homes.contains(namespace))
}

/// The message of a policy about edgeward's identity that refused this call.
fn refused_by_policy(entry: &Value) -> Option<&str> {
    let failures = entry["annotations"]["validation.policy.admission.k8s.io/validation_failure"].as_str()?;
    failures.contains("edgeward-confine-").then_some(failures)
}

fn told(how: &str, entry: &Value) -> String {
    format!("{how}: {} {}", entry["verb"], entry["requestURI"])
}

fn call(entry: &Value) -> Option<Call> {
    let object = &entry["objectRef"];
    let word = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let given = |name: &str| object[name].as_str().map(str::to_owned);
    let resource = match (word("resource"), word("subresource")) {
        (resource, _) if resource.is_empty() => path(entry)?,
        (resource, sub) if sub.is_empty() => resource,
        (resource, sub) => format!("{resource}/{sub}"),
    };
    let verb = entry["verb"].as_str()?.to_owned();
    Some(Call {
        namespace: given("namespace"),
        // The log takes the name from the body. Authorization does not see it.
        name: given("name").filter(|_| verb != "create"),
        action: [word("apiGroup"), resource, verb],
    })
}

fn path(entry: &Value) -> Option<String> {
    let uri = entry["requestURI"].as_str()?;
    Some(uri.split('?').next().unwrap_or(uri).to_owned())
}

/// The rights of these roles. A ClusterRole counts everywhere, as it is bound; a Role counts in edgeward's own namespaces.
pub fn granted_by<'o>(objects: impl IntoIterator<Item = &'o Value>) -> BTreeSet<Right> {
    let objects = objects.into_iter();
    objects
        .flat_map(|object| granted(&object["rules"], object["kind"] == "ClusterRole"))
        .collect()
}

pub fn granted(rules: &Value, everywhere: bool) -> BTreeSet<Right> {
    let words = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rights = BTreeSet::new();
    for rule in rules.as_array().into_iter().flatten() {
        let names = match &rule["resourceNames"] {
            Value::Null => vec![None],
            names => words(names).into_iter().map(Some).collect(),
        };
        for path in words(&rule["nonResourceURLs"]) {
            rights.extend(words(&rule["verbs"]).into_iter().map(|verb| Right {
                action: [String::new(), path.clone(), verb],
                everywhere,
                name: None,
            }));
        }
        for group in words(&rule["apiGroups"]) {
            for resource in words(&rule["resources"]) {
                for verb in words(&rule["verbs"]) {
                    rights.extend(names.iter().map(|name| Right {
                        action: [group.clone(), resource.clone(), verb.clone()],
                        everywhere,
                        name: name.clone(),
                    }));
                }
            }
        }
    }
    rights
}
