//! Reads a pod's [`Slo`] from its annotations and reports every fault.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keys::Keys;
use crate::model::group::{self, MAX_SIZE, Membership, Near};
use crate::model::site_restriction::{self, Demand, SiteRestriction};
use crate::model::traits::{self, Traits};
use edgeward_kube::constraints::{is_dns_label, is_subdomain};
use edgeward_kube::excerpt::{LONGEST_NAME, excerpt};
use edgeward_kube::units::{Micros, Quantity};
use edgeward_kube::words;

words! {
    /// Workload class.
    pub enum Class {
        /// Interactive: the user waits.
        Latency = "latency",
        /// Steady work where the throughput counts.
        Throughput = "throughput",
        /// Background work that only has to finish in time.
        Batch = "batch",
    }
}

/// A value per class. A document states one value for all classes, or one for each class by name; the default is that of
/// the type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "OneOrByClass<T>",
    into = "ByClass<T>",
    bound(
        deserialize = "T: Copy + Default + Deserialize<'de>",
        serialize = "T: Copy + Serialize"
    )
)]
pub struct PerClass<T>(pub [T; 3]);

impl<T> std::ops::Index<Class> for PerClass<T> {
    type Output = T;
    fn index(&self, class: Class) -> &T {
        &self.0[class as usize]
    }
}

impl<T> std::ops::IndexMut<Class> for PerClass<T> {
    fn index_mut(&mut self, class: Class) -> &mut T {
        &mut self.0[class as usize]
    }
}

/// One value for all classes, or values for some of the classes.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum OneOrByClass<T> {
    One(T),
    ByClass(ByClass<T>),
}

impl<T: Copy + Default> From<OneOrByClass<T>> for PerClass<T> {
    fn from(stated: OneOrByClass<T>) -> Self {
        match stated {
            OneOrByClass::One(value) => PerClass([value; 3]),
            OneOrByClass::ByClass(stated) => stated.stated().map(Option::unwrap_or_default),
        }
    }
}

/// Values that a document states for some of the classes.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByClass<T> {
    latency: Option<T>,
    throughput: Option<T>,
    batch: Option<T>,
}

impl<T> ByClass<T> {
    /// Returns the stated value of each class.
    pub fn stated(self) -> PerClass<Option<T>> {
        PerClass([self.latency, self.throughput, self.batch])
    }
}

impl<T> From<PerClass<T>> for ByClass<T> {
    fn from(values: PerClass<T>) -> Self {
        values.map(Some).into()
    }
}

impl<T> From<PerClass<Option<T>>> for ByClass<T> {
    fn from(PerClass([latency, throughput, batch]): PerClass<Option<T>>) -> Self {
        Self {
            latency,
            throughput,
            batch,
        }
    }
}

impl<T> PerClass<T> {
    /// Applies `change` to the value of each class.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> PerClass<U> {
        PerClass(self.0.map(change))
    }
}

/// A pod's service-level objective. An SLO without deadline and latency target has no time bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slo {
    /// Workload class.
    pub class: Class,
    /// End-to-end deadline for queue wait, processing and WAN together.
    pub deadline: Option<Micros>,
    /// p95 latency target for processing and WAN together.
    pub latency_target: Option<Micros>,
    /// Priority from 0 to 10. Higher is more important.
    pub priority: u8,
    /// Whether the pod may run in the cloud.
    pub offload_allowed: bool,
    /// Processing time at the edge, if the team states it.
    pub processing: Option<Micros>,
}

impl Slo {
    /// The default of `slo.example.io/priority`.
    pub const DEFAULT_PRIORITY: u8 = 5;

    /// Pods of this priority or higher are urgent: they may take a cloud that misses their time bound if it is the
    /// better site.
    pub const HIGH_PRIORITY: u8 = 7;

    /// SLO priority of a pod that states none.
    pub fn default_priority() -> u8 {
        Self::DEFAULT_PRIORITY
    }

    /// Whether the SLO states a deadline or a latency target.
    pub fn has_time_bound(&self) -> bool {
        self.deadline.is_some() || self.latency_target.is_some()
    }
}

/// Maximum number of characters of a faulty value in a message. The allowed values must still fit on the line.
const SHOWN_CHARS: usize = 24;

/// An annotation or label with an invalid value, or a missing one. Serialises in the form that `review` prints.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize)]
pub struct SloFault {
    /// Key of the annotation or label.
    pub key: String,
    /// Start of the value. `None` if the annotation is missing.
    pub value: Option<String>,
    /// Description of the allowed values.
    pub allowed: &'static str,
}

impl fmt::Display for SloFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) if value.chars().nth(SHOWN_CHARS).is_some() => {
                let start: String = value.chars().take(SHOWN_CHARS).collect();
                write!(f, "{}: {start:?}… is not {}", self.key, self.allowed)
            }
            Some(value) => write!(f, "{}: {value:?} is not {}", self.key, self.allowed),
            None => write!(f, "{} is missing: {}", self.key, self.allowed),
        }
    }
}

/// The SLO of a managed pod, and every fault in how it is stated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Intent {
    /// The SLO. If there are faults, it has no time bound and does not allow offloading (section 2 of
    /// docs/guide/decide.md).
    pub slo: Slo,
    /// Whether the priority is stated and valid. Otherwise [`Slo::priority`] is the default.
    pub priority_known: bool,
    /// Whether the class is stated and valid. Otherwise [`Slo::class`] is a substitute.
    pub class_known: bool,
    /// The restriction to certain sites, from the pod or its policy. It holds even if other annotations are faulty.
    pub sites: Option<SiteRestriction>,
    /// The traits for the site or node, from the pod and its policy. They hold even if other annotations are faulty.
    pub traits: Option<Box<Traits>>,
    /// The PerformanceProfile that ranks the feasible sites.
    pub profile: Option<Box<str>>,
    /// The SloPolicy of the pod's namespace whose neighbourhood the pod's clouds belong to.
    pub neighbourhood: Option<Box<str>>,
    /// Whether the pod may be moved to another site, if it says so.
    pub movable: Option<bool>,
    /// The pod's group, if it has one.
    pub membership: Option<Arc<Membership>>,
    /// Whether the controller's pods spread over sites.
    pub spreads: bool,
    /// Data that the pod reads before it starts to work.
    pub input: Option<Box<Input>>,
    /// Every fault: first the invalid values, in the order of the contract's table, then the missing ones.
    pub faults: Vec<SloFault>,
    /// Annotations under the SLO prefix that edgeward does not read, most likely misspelt. Only the first few are kept,
    /// shortened for messages.
    pub unknown_keys: Vec<String>,
}

/// Data that a pod reads before it starts to work. At a cloud it comes from the edge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Input {
    /// The trait of sites that have the data. `None` if no cloud has it.
    pub at: Option<Box<str>>,
    /// Its size.
    pub bytes: u64,
}

impl Input {
    /// The allowed values, for messages.
    const ALLOWED: &str = "a size such as 2Gi, or the data and its size such as frames=2Gi";

    /// The largest input in bytes: 1 EiB.
    const MOST: i64 = 1 << 60;

    /// Reads `2Gi` or `frames=2Gi`. A site has the data `frames` if it has the trait `data.frames`.
    fn parse(text: &str) -> Option<Self> {
        let (data, size) = match text.split_once('=') {
            Some((data, size)) => (Some(format!("data.{data}")), size),
            None => (None, text),
        };
        let bytes = Quantity::parse(size).ok()?.units();
        let is_valid = (1..=Self::MOST).contains(&bytes) && data.as_deref().is_none_or(traits::is_name);
        is_valid.then(|| Self {
            at: data.map(Into::into),
            bytes: bytes.unsigned_abs(),
        })
    }
}

/// Value of the pod's `managed` label.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Management {
    /// No label: the annotations decide whether the pod is managed.
    #[default]
    Unlabelled,
    /// `false`: the pod opts out.
    OptedOut,
    /// `true`: the pod is managed, and an incomplete SLO is a fault.
    Forced,
}

/// Maximum number of unknown annotations that are kept.
const MAX_UNKNOWN_KEYS: usize = 5;

/// Description of a valid profile name, for messages.
pub const PROFILE_NAME: &str = "the name of a PerformanceProfile: lower-case letters, digits, `-` and `.`, at most 63";

/// Whether `name` is a valid name of a PerformanceProfile.
pub fn is_profile_name(name: &str) -> bool {
    name.len() <= 63 && is_subdomain(name)
}

/// The longest time that an SLO may state, in milliseconds: one year.
pub const MAX_MILLIS: u64 = 365 * 24 * 3600 * 1000;

/// Reads the intent from a pod's annotations and its `managed` label. There is no intent if the pod opts out, or if it
/// states no class, sites or traits and its label does not force it. Cost: one pass over the annotations.
pub fn parse<'p>(
    annotations: impl Iterator<Item = (&'p str, &'p str)>,
    managed_label: Option<&str>,
    keys: &'p Keys,
) -> (Management, Option<Intent>) {
    let mut found = BTreeMap::new();
    let mut unknown = vec![];
    for (key, value) in annotations {
        let Some(name) = key.strip_prefix(keys.slo_prefix.as_str()) else {
            continue;
        };
        if is_read(name) {
            found.insert(name, value);
        } else if unknown.len() < MAX_UNKNOWN_KEYS {
            unknown.push(excerpt(key, LONGEST_NAME));
        }
    }
    let mut faults = Faults {
        keys,
        found,
        list: vec![],
    };
    let management = match managed_label {
        None => Management::Unlabelled,
        Some("false") => Management::OptedOut,
        Some("true") => Management::Forced,
        Some(other) => {
            faults.add(keys.managed.clone(), Some(other), "\"true\" or \"false\"");
            Management::Forced
        }
    };
    let alone = [
        "class",
        "sites",
        "policySites",
        "traits",
        "policyTraits",
        "neighbourhood",
    ];
    let states_nothing = !alone.iter().any(|name| faults.states(name));
    if management == Management::OptedOut || (management == Management::Unlabelled && states_nothing) {
        return (management, None);
    }

    const MILLIS: &str = "a whole number of milliseconds from 1 to 31536000000";
    let whole = |text: &str| {
        text.parse::<u64>()
            .ok()
            .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let millis = |text: &str| {
        whole(text)
            .filter(|ms| (1..=MAX_MILLIS).contains(ms))
            .map(Micros::from_millis)
    };
    let priority = |text: &str| {
        whole(text)
            .and_then(|number| u8::try_from(number).ok())
            .filter(|number| *number <= 10)
    };
    let class = faults.read("class", "latency, throughput or batch", Class::of_word);
    let deadline = faults.read("deadlineMs", MILLIS, millis);
    let latency_target = faults.read("latencyTargetMs", MILLIS, millis);
    let priority = faults.read("priority", "a whole number from 0 to 10", priority);
    let offload_allowed = faults.read("offloadAllowed", "\"true\" or \"false\"", |text| text.parse().ok());
    let processing = faults.read("processingMs", MILLIS, millis);
    let demands = ["sites", "policySites"].map(|name| {
        let read = faults.read(name, site_restriction::ALLOWED, Demand::parse);
        faults.states(name).then(|| read.unwrap_or(Demand::Unreadable))
    });
    let traits = ["traits", "policyTraits"].map(|name| {
        let read = faults.read(name, traits::ALLOWED, Traits::parse);
        faults.states(name).then(|| read.unwrap_or_else(Traits::unreadable))
    });
    let traits = traits.into_iter().flatten().reduce(Traits::and);
    let profile = faults.read("profile", PROFILE_NAME, |name| {
        is_profile_name(name).then(|| name.into())
    });
    let neighbourhood = faults.read("neighbourhood", "the name of an SloPolicy", |name| {
        is_subdomain(name).then(|| name.into())
    });
    let movable = faults.read("movable", "\"true\" or \"false\"", |text| text.parse().ok());
    // A value that cannot be read was meant for something.
    let movable = movable.or(faults.states("movable").then_some(false));
    let membership = faults.membership(class.unwrap_or(Class::Batch));
    let spreads = faults.spreads();
    let input = faults.read("input", Input::ALLOWED, Input::parse);
    if !faults.states("class") {
        faults.missing("class", "latency, throughput or batch");
    }
    if management == Management::Forced && !faults.states("deadlineMs") && !faults.states("latencyTargetMs") {
        faults.missing("deadlineMs", "state it or latencyTargetMs, in whole milliseconds");
    }
    let is_valid = faults.list.is_empty();
    let intent = Intent {
        slo: Slo {
            class: class.unwrap_or(Class::Batch),
            deadline: deadline.filter(|_| is_valid),
            latency_target: latency_target.filter(|_| is_valid),
            priority: priority.unwrap_or(Slo::DEFAULT_PRIORITY),
            offload_allowed: is_valid && offload_allowed.unwrap_or(true),
            processing,
        },
        priority_known: priority.is_some(),
        class_known: class.is_some(),
        sites: SiteRestriction::of(demands.into_iter().flatten()),
        traits: traits.map(Box::new),
        profile,
        neighbourhood,
        movable,
        membership: membership.map(Arc::new),
        spreads,
        input: input.map(Box::new),
        faults: faults.list,
        unknown_keys: unknown,
    };
    (management, Some(intent))
}

/// Names of the annotations that edgeward reads, without the prefix.
pub const NAMES: [&str; 19] = [
    "class",
    "deadlineMs",
    "latencyTargetMs",
    "priority",
    "offloadAllowed",
    "processingMs",
    "sites",
    "policySites",
    "traits",
    "policyTraits",
    "profile",
    "neighbourhood",
    "movable",
    "group",
    "component",
    "near",
    "groupSize",
    "spread",
    "input",
];

/// Whether edgeward reads an SLO annotation with this name. The name has no prefix.
pub fn is_read(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Message about an annotation under the prefix that edgeward does not read.
pub fn not_read(key: &str) -> String {
    format!("{key} is not an annotation that edgeward reads")
}

struct Faults<'k> {
    keys: &'k Keys,
    /// The annotations that edgeward reads, by their name without the prefix.
    found: BTreeMap<&'k str, &'k str>,
    list: Vec<SloFault>,
}

impl Faults<'_> {
    fn states(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    fn read<T>(&mut self, name: &str, allowed: &'static str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = *self.found.get(name)?;
        let parsed = parse(value);
        if parsed.is_none() {
            self.add(format!("{}{name}", self.keys.slo_prefix), Some(value), allowed);
        }
        parsed
    }

    /// The group that the annotations state. `None` without one, or if one of them is faulty.
    fn membership(&mut self, class: Class) -> Option<Membership> {
        let name = |text: &str| is_dns_label(text).then(|| text.into());
        let size = |text: &str| {
            let is_whole = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse()
                .ok()
                .filter(|size| is_whole && (1..=MAX_SIZE).contains(size))
        };
        let before = self.list.len();
        let group = self.read("group", group::DNS_LABEL, name);
        let component = self.read("component", group::DNS_LABEL, name);
        let near = self.read("near", group::NEAR, Near::parse_list);
        let size = self.read("groupSize", "a whole number from 1 to 256", size);
        if !self.states("group") && (self.states("near") || self.states("groupSize")) {
            self.missing("group", "near and groupSize need it, a DNS label");
        }
        let is_valid = self.list.len() == before;
        group.filter(|_| is_valid).map(|group| Membership {
            group,
            component: component.unwrap_or_default(),
            near: near.unwrap_or_default(),
            class,
            size,
            is_gang: false,
        })
    }

    fn spreads(&mut self) -> bool {
        self.read("spread", "`sites`", |text| (text == "sites").then_some(()))
            .is_some()
    }

    fn missing(&mut self, name: &str, allowed: &'static str) {
        self.add(format!("{}{name}", self.keys.slo_prefix), None, allowed);
    }

    fn add(&mut self, key: String, value: Option<&str>, allowed: &'static str) {
        self.list.push(SloFault {
            key,
            value: value.map(|value| excerpt(value, LONGEST_NAME)),
            allowed,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)], label: Option<&str>) -> (Management, Option<Intent>) {
        let annotations: Vec<_> = annotations
            .iter()
            .map(|(name, value)| (format!("slo.example.io/{name}"), *value))
            .collect();
        parse(
            annotations.iter().map(|(k, v)| (k.as_str(), *v)),
            label,
            &Keys::new("example.io"),
        )
    }

    fn faults(annotations: &[(&str, &str)], label: Option<&str>) -> Vec<String> {
        let (_, intent) = read(annotations, label);
        intent.unwrap().faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn complete_slo_is_read() {
        let (management, intent) = read(
            &[
                ("class", "throughput"),
                ("deadlineMs", "500"),
                ("latencyTargetMs", "100"),
                ("priority", "10"),
                ("offloadAllowed", "false"),
                ("processingMs", "40"),
                ("profile", "greenness"),
                ("movable", "true"),
            ],
            None,
        );
        assert_eq!(management, Management::Unlabelled);
        assert_eq!(
            intent.unwrap(),
            Intent {
                slo: Slo {
                    class: Class::Throughput,
                    deadline: Some(Micros(500_000)),
                    latency_target: Some(Micros(100_000)),
                    priority: 10,
                    offload_allowed: false,
                    processing: Some(Micros(40_000)),
                },
                priority_known: true,
                class_known: true,
                sites: None,
                traits: None,
                profile: Some("greenness".into()),
                neighbourhood: None,
                movable: Some(true),
                membership: None,
                spreads: false,
                input: None,
                faults: vec![],
                unknown_keys: vec![],
            }
        );
    }

    #[test]
    fn input_has_a_size_and_may_have_a_name() {
        let input = |text: &str| {
            let (_, intent) = read(&[("class", "batch"), ("input", text)], None);
            let input = intent.unwrap().input?;
            Some((input.at.map(String::from), input.bytes))
        };
        assert_eq!(input("2Gi"), Some((None, 2 << 30)));
        assert_eq!(
            input("frames=1500M"),
            Some((Some("data.frames".to_owned()), 1_500_000_000))
        );
        for text in ["", "0", "-1", "2Gb", "frames=", "=2Gi", "a b=2Gi", "a=b=2Gi", "2Ei"] {
            assert_eq!(input(text), None, "{text}");
            assert_eq!(faults(&[("class", "batch"), ("input", text)], None).len(), 1, "{text}");
        }
    }

    #[test]
    fn class_opts_in_with_defaults_and_label_opts_out() {
        let (_, intent) = read(&[("class", "batch")], None);
        let slo = intent.unwrap().slo;
        assert_eq!(
            (slo.priority, slo.offload_allowed, slo.has_time_bound()),
            (5, true, false)
        );
        assert_eq!(read(&[("deadlineMs", "5")], None), (Management::Unlabelled, None));
        assert_eq!(read(&[("class", "batch")], Some("false")), (Management::OptedOut, None));
    }

    #[test]
    fn all_slo_faults_are_reported_with_allowed_values() {
        let bad = [
            ("class", "fast"),
            ("deadlineMs", "0"),
            ("latencyTargetMs", "1.5"),
            ("priority", "11"),
            ("offloadAllowed", "yes"),
            ("processingMs", "+3"),
            ("movable", "1"),
        ];
        assert_eq!(
            faults(&bad, Some("maybe")),
            [
                r#"scheduling.example.io/managed: "maybe" is not "true" or "false""#,
                r#"slo.example.io/class: "fast" is not latency, throughput or batch"#,
                r#"slo.example.io/deadlineMs: "0" is not a whole number of milliseconds from 1 to 31536000000"#,
                r#"slo.example.io/latencyTargetMs: "1.5" is not a whole number of milliseconds from 1 to 31536000000"#,
                r#"slo.example.io/priority: "11" is not a whole number from 0 to 10"#,
                r#"slo.example.io/offloadAllowed: "yes" is not "true" or "false""#,
                r#"slo.example.io/processingMs: "+3" is not a whole number of milliseconds from 1 to 31536000000"#,
                r#"slo.example.io/movable: "1" is not "true" or "false""#,
            ]
        );
    }

    #[test]
    fn forced_pods_must_be_complete() {
        assert_eq!(
            faults(&[], Some("true")),
            [
                "slo.example.io/class is missing: latency, throughput or batch",
                "slo.example.io/deadlineMs is missing: state it or latencyTargetMs, in whole milliseconds",
            ]
        );
        assert!(faults(&[("class", "batch"), ("latencyTargetMs", "9")], Some("true")).is_empty());
    }

    #[test]
    fn invalid_slo_has_no_time_bound_and_stays_local() {
        let (_, intent) = read(&[("class", "latency"), ("deadlineMs", "9"), ("priority", "x")], None);
        let intent = intent.unwrap();
        assert_eq!(intent.slo.deadline, None);
        assert!(!intent.slo.offload_allowed);
        assert!(intent.class_known);
    }

    #[test]
    fn sites_restriction_holds_despite_other_slo_faults() {
        let allowed = |annotations: &[(&str, &str)]| read(annotations, None).1.unwrap().sites.unwrap().to_string();
        assert_eq!(
            allowed(&[("class", "fast"), ("sites", "near"), ("policySites", "region=eu")]),
            "near and region in (eu)"
        );
        // The restriction holds even if the pod states no other SLO key.
        assert_eq!(allowed(&[("sites", "near")]), "near");
        let (_, unreadable) = read(&[("class", "batch"), ("sites", "region in")], None);
        let unreadable = unreadable.unwrap();
        assert!(unreadable.sites.unwrap().is_unreadable());
        assert_eq!(
            unreadable.faults[0].to_string(),
            r#"slo.example.io/sites: "region in" is not site names or a selector of site labels, at most 1024 bytes"#
        );
        assert_eq!(read(&[("sites", "near")], Some("false")).1, None);
    }

    #[test]
    fn fault_of_long_value_still_names_allowed_values() {
        let long = "9".repeat(5_000);
        assert_eq!(
            faults(&[("class", "batch"), ("priority", &long)], None),
            [r#"slo.example.io/priority: "999999999999999999999999"… is not a whole number from 0 to 10"#]
        );
    }

    #[test]
    fn misspelt_keys_are_named() {
        let (_, intent) = read(&[("class", "batch"), ("deadlineMS", "5")], None);
        let intent = intent.unwrap();
        assert_eq!(intent.unknown_keys, ["slo.example.io/deadlineMS"]);
        let many: Vec<String> = (0..1_000).map(|i| format!("x{i}")).collect();
        let many: Vec<_> = many
            .iter()
            .map(|name| (name.as_str(), ""))
            .chain([("class", "batch")])
            .collect();
        assert_eq!(read(&many, None).1.unwrap().unknown_keys.len(), MAX_UNKNOWN_KEYS);
    }
}
