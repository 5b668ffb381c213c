//! Groups: pods of one application that run near each other or start together ("Groups" in docs/guide/groups.md).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::model::slo::{Class, MAX_MILLIS};
use crate::model::snapshot::ByNamespace;
use edgeward_kube::constraints::is_dns_label;
use edgeward_kube::units::Micros;

/// Maximum number of components that a pod may have to be near to.
const MAX_NEAR: usize = 16;

/// Maximum length of the list of components, in bytes.
const MAX_NEAR_BYTES: usize = 512;

/// Maximum number of groups of a namespace that are counted at one site.
pub const MAX_GROUPS: usize = 1_000;

/// Maximum number of different memberships of a group that are counted at one site.
pub const MAX_COMPONENTS: usize = 64;

/// Maximum number of pods of a group that start together. A gang that is larger has no known size.
pub const MAX_SIZE: u32 = 256;

/// The allowed values of `near`, for messages.
pub const NEAR: &str = "a list such as db=10ms, cache=2ms, search=50ms?, logs=site: at most 16 components in 512 bytes";

/// The allowed values of `group` and `component`, for messages.
pub const DNS_LABEL: &str = "a DNS label: lower-case letters, digits and `-`, at most 63";

/// The API of Kubernetes' PodGroup, whose names begin the names of its gangs.
pub const KUBERNETES_API: &str = "scheduling.k8s.io";

/// The API of coscheduling's PodGroup.
pub const COSCHEDULING_API: &str = "scheduling.x-k8s.io";

/// The size of a gang whose PodGroup does not exist yet.
pub const UNKNOWN_SIZE: u32 = u32::MAX;

/// Sizes of PodGroups by API. An API that is not served, or that edgeward may not read, has no entry.
pub type PodGroups = BTreeMap<&'static str, Arc<ByNamespace<u32>>>;

/// What ties a pod to other pods of its namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    /// Name of the group.
    pub group: Box<str>,
    /// The part of the application that the pod is. Empty if nothing names it.
    pub component: Box<str>,
    /// The components that the pod must be near to, by name.
    pub near: Vec<Near>,
    /// The pod's class.
    pub class: Class,
    /// The number of pods that start together; `None` if each starts alone.
    pub size: Option<u32>,
    /// Whether all pods of the group run at one site, because a mark of Kubernetes, Kueue or coscheduling names the group.
    pub is_gang: bool,
}

/// A component that a pod must be near to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Near {
    /// Name of the component.
    pub component: Box<str>,
    /// The largest distance.
    pub within: Within,
    /// Whether the distance only ranks sites.
    pub is_optional: bool,
}

/// A limit on the distance to another pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Within {
    /// The same site.
    Site,
    /// This RTT or less.
    Rtt(Micros),
}

impl Near {
    /// Reads the value of a `near` annotation. `None` if it is not valid.
    pub fn parse_list(text: &str) -> Option<Vec<Self>> {
        let entries: Vec<_> = text.split(',').take(MAX_NEAR + 1).collect();
        if text.len() > MAX_NEAR_BYTES || entries.len() > MAX_NEAR {
            return None;
        }
        let mut list: Vec<_> = entries.into_iter().map(Self::parse).collect::<Option<_>>()?;
        list.sort();
        let is_repeated = list.windows(2).any(|pair| pair[0].component == pair[1].component);
        (!is_repeated).then_some(list)
    }

    fn parse(entry: &str) -> Option<Self> {
        let (component, limit) = entry.trim().split_once('=')?;
        let (limit, is_optional) = match limit.strip_suffix('?') {
            Some(limit) => (limit, true),
            None => (limit, false),
        };
        let within = match limit {
            "site" => Within::Site,
            limit => {
                let digits = limit.strip_suffix("ms")?;
                let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
                let ms = digits
                    .parse()
                    .ok()
                    .filter(|ms| is_whole && (1..=MAX_MILLIS).contains(ms))?;
                Within::Rtt(Micros::from_millis(ms))
            }
        };
        is_dns_label(component).then(|| Self {
            component: component.into(),
            within,
            is_optional,
        })
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optional = if self.is_optional { "?" } else { "" };
        match self.within {
            Within::Site => write!(f, "{}=site{optional}", self.component),
            Within::Rtt(rtt) => write!(f, "{}={}ms{optional}", self.component, rtt.0 / 1_000),
        }
    }
}

/// The limits on the distance between two pods of a group, and whether each is optional.
pub fn limits<'m>(one: &'m Membership, other: &'m Membership) -> impl Iterator<Item = (Within, bool)> {
    let stated = |by: &'m Membership, of: &'m Membership| {
        let near = by.near.iter().filter(|near| near.component == of.component);
        near.map(|near| (near.within, near.is_optional))
    };
    stated(one, other).chain(stated(other, one))
}

/// Live pods of groups, counted by namespace, group and membership.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(ByNamespace<BTreeMap<Arc<Membership>, u64>>);

impl Members {
    /// The memberships of a group, with the number of pods of each. Cost: two searches.
    pub fn of(&self, namespace: &str, group: &str) -> impl Iterator<Item = (&Arc<Membership>, u64)> {
        let members = self.0.get(namespace, group).into_iter().flatten();
        members.map(|(membership, pods)| (membership, *pods))
    }

    /// The number of pods of a group. Cost: two searches, and a pass over its memberships.
    pub fn count(&self, namespace: &str, group: &str) -> u64 {
        let pods = self.of(namespace, group);
        pods.fold(0, |sum, (_, pods)| sum.saturating_add(pods))
    }

    /// Whether a pod with this membership can be counted within the limits on groups and components.
    pub fn has_place_for(&self, namespace: &str, membership: &Membership) -> bool {
        match self.0.get(namespace, &membership.group) {
            Some(members) => members.len() < MAX_COMPONENTS || members.contains_key(membership),
            None => self.0.of(namespace).count() < MAX_GROUPS,
        }
    }

    /// Changes the number of pods with this membership. A count of zero is removed.
    pub fn change(&mut self, namespace: &str, membership: &Arc<Membership>, by: i64) {
        let mut members = self.0.get(namespace, &membership.group).cloned().unwrap_or_default();
        let pods = members.entry(Arc::clone(membership)).or_default();
        *pods = pods.saturating_add_signed(by);
        if *pods == 0 {
            members.remove(membership);
        }
        if members.is_empty() {
            self.0.remove(namespace, &membership.group);
        } else {
            self.0.entry(namespace, &membership.group).insert_entry(members);
        }
    }

    /// Leaves out one pod with this membership, if any is counted.
    pub fn leave_out(&mut self, namespace: &str, membership: &Arc<Membership>) {
        let is_counted = self
            .of(namespace, &membership.group)
            .any(|(member, _)| member == membership);
        if is_counted {
            self.change(namespace, membership, -1);
        }
    }

    /// Whether no pod is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over namespaces, memberships and numbers of pods, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Membership>, u64)> {
        self.0
            .iter()
            .flat_map(|(namespace, _, members)| members.iter().map(move |(member, pods)| (namespace, member, *pods)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<String> {
        let list = Near::parse_list(text)?;
        Some(list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn near_is_read_and_written() {
        let list = "db=10ms, cache=2ms,search=50ms?,logs=site , audit=site?";
        let written = "audit=site?, cache=2ms, db=10ms, logs=site, search=50ms?";
        assert_eq!(parsed(list).unwrap(), written);
        assert_eq!(parsed(written).unwrap(), written);
    }

    #[test]
    fn invalid_near_is_not_read() {
        let many: Vec<_> = (0..17).map(|i| format!("c{i}=1ms")).collect();
        let long = format!("{}=1ms", "a".repeat(64));
        let invalid = [
            "",
            "db",
            "db=",
            "db=10",
            "db=10s",
            "db=0ms",
            "db=+1ms",
            "db=ms",
            "db=1.5ms",
            "Db=1ms",
            "db=1ms,",
            "=1ms",
            "db=1ms??",
            "db=1ms,db=2ms",
            "db=31536000001ms",
            &long,
        ];
        for text in invalid.into_iter().chain([&*many.join(",")]) {
            assert_eq!(parsed(text), None, "{text}");
        }
        assert!(parsed(&many[..16].join(",")).is_some());
    }

    #[test]
    fn members_are_counted_within_limits() {
        let member = |group: &str, component: &str| {
            Arc::new(Membership {
                group: group.into(),
                component: component.into(),
                near: vec![],
                class: Class::Batch,
                size: None,
                is_gang: false,
            })
        };
        let mut members = Members::default();
        for i in 0..MAX_GROUPS {
            members.change("shop", &member(&format!("g{i}"), "web"), 1);
        }
        (1..MAX_COMPONENTS).for_each(|i| members.change("shop", &member("g0", &format!("c{i}")), 1));
        assert!(!members.has_place_for("shop", &member("other", "web")));
        assert!(!members.has_place_for("shop", &member("g0", "db")));
        assert!(members.has_place_for("shop", &member("g0", "web")));
        assert!(members.has_place_for("shop", &member("g1", "db")));
        members.change("shop", &member("g1", "web"), -1);
        assert!(members.has_place_for("shop", &member("other", "web")));
        assert_eq!(members.of("shop", "g1").count(), 0);
    }
}
