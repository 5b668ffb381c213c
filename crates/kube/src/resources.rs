//! Amounts of resources by name: exact quantities while a pod is added up, rounded integers for comparisons.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::units::{Bytes, Millicores, Quantity};

/// Exact quantities by resource name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceList<'a>(pub BTreeMap<Cow<'a, str>, Quantity>);

impl<'a> ResourceList<'a> {
    /// Adds `other`, name by name.
    pub fn add(&mut self, other: &ResourceList<'a>) {
        for (name, quantity) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = *sum + *quantity;
        }
    }

    /// Raises the quantity of `name` to `quantity`, if it is smaller or missing.
    pub fn raise(&mut self, name: Cow<'a, str>, quantity: Quantity) {
        let old = self.0.entry(name).or_insert(quantity);
        *old = (*old).max(quantity);
    }

    /// Rounds each quantity up to thousandths.
    pub fn round_to_millis(&mut self) {
        for quantity in self.0.values_mut() {
            *quantity = quantity.round_to_millis();
        }
    }

    /// Adds the entries whose names are missing.
    pub(crate) fn fill_from<'s>(&mut self, entries: impl Iterator<Item = (&'s Cow<'a, str>, &'s Quantity)>)
    where
        'a: 's,
    {
        for (name, quantity) in entries {
            self.0.entry(name.clone()).or_insert(*quantity);
        }
    }

    /// Converts to the integers that kube-scheduler compares: CPU in millicores, everything else in whole units. Both
    /// are rounded up and never below zero. Names that kube-scheduler does not schedule by are left out. Source:
    /// `framework.Resource.SetMaxResource`.
    pub fn amounts(&self) -> Amounts {
        let mut amounts = Amounts::default();
        for (name, quantity) in &self.0 {
            let units = quantity.units().max(0);
            match &**name {
                "cpu" => amounts.cpu = Millicores(quantity.millis().max(0)),
                "memory" => amounts.memory = Bytes(units),
                "ephemeral-storage" => amounts.ephemeral_storage = Bytes(units),
                EGRESS => amounts.bandwidth.egress = units,
                INGRESS => amounts.bandwidth.ingress = units,
                name if is_scalar(name) => amounts.scalars.push((name.into(), units)),
                _ => {}
            }
        }
        amounts.scalars.shrink_to_fit();
        amounts
    }
}

/// Whether a pod may state this resource at pod level, for all of its containers together. Source:
/// `component-helpers/resource.IsSupportedPodLevelResource`.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Whether kube-scheduler compares this resource, in addition to CPU, memory and ephemeral storage. Source:
/// `pkg/scheduler/util.IsScalarResourceName`.
fn is_scalar(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    let extended = !native && !name.starts_with("requests.");
    extended
        || name.starts_with("hugepages-")
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// Prefix of the resource name with which a pod requests devices of a DeviceClass without a claim.
const OF_DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// Amount of a resource on a node where a DeviceClass serves it and no device plugin does. kube-scheduler does not
/// compare such a resource; it creates a resource claim for the request. Source:
/// `noderesources.shouldDelegateResourceToDRA`.
pub const BY_CLAIM: i64 = i64::MAX;

/// Formats an amount of this resource as kubectl does: `200m` of CPU, `64Mi` of memory, a whole number of anything
/// else. `amount` is in the unit that kube-scheduler compares.
pub fn quantity(name: &str, amount: i64) -> String {
    match name {
        "cpu" => Millicores(amount).to_string(),
        "memory" | "ephemeral-storage" => Bytes(amount).to_string(),
        name if name.starts_with("hugepages-") => Bytes(amount).to_string(),
        _ => amount.to_string(),
    }
}

/// The extended resources that nodes have. A pod with a node takes no other extended resources, whatever it requests.
#[derive(Debug, Default)]
pub struct ResourceNames {
    /// The nodes that have each resource, with the number of the list that last showed the node.
    nodes: BTreeMap<Box<str>, BTreeMap<Box<str>, u32>>,
    list: u32,
}

impl ResourceNames {
    /// Sets the resources of a node. Pass an empty amount if the node is gone. Cost: a search per name.
    pub fn set(&mut self, node: &str, allocatable: &Amounts) {
        self.nodes.retain(|_, nodes| {
            nodes.remove(node);
            !nodes.is_empty()
        });
        for (name, _) in &allocatable.scalars {
            self.nodes
                .entry(name.clone())
                .or_default()
                .insert(node.into(), self.list);
        }
    }

    /// Begins a list of all nodes. A node that is not in the list is removed when the list ends.
    pub fn list_began(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// Ends the list and removes the nodes that were not in it.
    pub fn list_ended(&mut self) {
        self.nodes.retain(|_, nodes| {
            nodes.retain(|_, list| *list == self.list);
            !nodes.is_empty()
        });
    }
}

/// Amounts that a pod requests, a node has, or a node has given away, in the integers that kube-scheduler compares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// CPU.
    pub cpu: Millicores,
    /// Memory.
    pub memory: Bytes,
    /// Local ephemeral storage.
    pub ephemeral_storage: Bytes,
    /// Extended resources, huge pages and the like, sorted by name. A missing name means zero.
    pub scalars: Vec<(Box<str>, i64)>,
    /// Pods per anti-affinity key, sorted.
    pub apart: Vec<(Apart, i64)>,
    /// Bandwidth to and from pods. It belongs to sites and not to nodes, so [`Self::fits`] does not compare it.
    pub bandwidth: Traffic,
}

/// Traffic of pods, in bits per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Traffic {
    /// From the pods.
    pub egress: i64,
    /// To the pods.
    pub ingress: i64,
}

/// The largest bandwidth, in bits per second. Source: CNI's bandwidth plugin.
pub const MAX_BITS: i64 = 1_000_000_000_000_000;

/// Names of the annotations that state a pod's traffic, which are those of amounts too.
pub const EGRESS: &str = "kubernetes.io/egress-bandwidth";
/// See [`EGRESS`].
pub const INGRESS: &str = "kubernetes.io/ingress-bandwidth";

impl Traffic {
    /// Whether this is more than `other` in one of the directions.
    pub fn exceeds(self, other: Self) -> bool {
        self.egress > other.egress || self.ingress > other.ingress
    }

    /// The amounts that are not zero, by name.
    pub fn named<'n>(self) -> impl Iterator<Item = (&'n str, i64)> {
        let both = [(EGRESS, self.egress), (INGRESS, self.ingress)];
        both.into_iter().filter(|(_, bits)| *bits != 0)
    }
}

/// A key of anti-affinity ("Affinity and anti-affinity" in docs/guide/decide.md). No two pods with this key may share a node or topology
/// domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Apart {
    /// Number that stands for the namespace and for the labels that the anti-affinity selects.
    pub pods: u64,
    /// Label whose value names the topology domain. `None` means the node itself.
    pub topology_key: Option<Arc<str>>,
}

impl Amounts {
    /// Returns the amount of one scalar resource.
    pub fn scalar(&self, name: &str) -> i64 {
        let at = self.scalars.binary_search_by(|(n, _)| (**n).cmp(name));
        at.map_or(0, |at| self.scalars[at].1)
    }

    /// Number of pods with this anti-affinity key.
    pub fn pods_apart(&self, apart: &Apart) -> i64 {
        let at = self.apart.binary_search_by(|(known, _)| known.cmp(apart));
        at.map_or(0, |at| self.apart[at].1)
    }

    /// Whether `used`, the usage of a node, contains a pod that this pod keeps apart from.
    pub fn is_kept_from(&self, used: &Amounts) -> bool {
        let is_taken = |apart: &Apart| apart.topology_key.is_none() && used.pods_apart(apart) > 0;
        self.apart.iter().any(|(apart, _)| is_taken(apart))
    }

    /// Whether `self` fits into `total` minus `used`. A resource that is not requested is not compared, so an
    /// over-committed node still takes a pod that requests nothing of it. Cost: a few comparisons. Source:
    /// `noderesources.fitsRequest`.
    pub fn fits(&self, total: &Amounts, used: &Amounts) -> bool {
        let fits = |request: i64, total: i64, used: i64| request <= 0 || request <= total.saturating_sub(used);
        fits(self.cpu.0, total.cpu.0, used.cpu.0)
            && fits(self.memory.0, total.memory.0, used.memory.0)
            && fits(
                self.ephemeral_storage.0,
                total.ephemeral_storage.0,
                used.ephemeral_storage.0,
            )
            && self
                .scalars
                .iter()
                .all(|(name, request)| fits(*request, total.capacity(name), used.scalar(name)))
            && !self.is_kept_from(used)
    }

    /// Adds `other`, multiplied by `times`.
    pub fn add(&mut self, other: &Amounts, times: u32) {
        let add = |amount: &mut i64, more: i64| *amount = amount.saturating_add(more.saturating_mul(times.into()));
        add(&mut self.cpu.0, other.cpu.0);
        add(&mut self.memory.0, other.memory.0);
        add(&mut self.ephemeral_storage.0, other.ephemeral_storage.0);
        add_named(&mut self.scalars, &other.scalars, add);
        add_named(&mut self.apart, &other.apart, add);
        add(&mut self.bandwidth.egress, other.bandwidth.egress);
        add(&mut self.bandwidth.ingress, other.bandwidth.ingress);
    }

    /// Total amount of a resource by its Kubernetes name. A missing resource of a DeviceClass counts as [`BY_CLAIM`].
    pub fn capacity(&self, name: &str) -> i64 {
        match self.get(name) {
            0 if name.starts_with(OF_DEVICE_CLASS) => BY_CLAIM,
            amount => amount,
        }
    }

    /// Sets the amount of these names to [`BY_CLAIM`], unless there is an amount already. No other name keeps
    /// [`BY_CLAIM`].
    pub fn set_by_claim(&mut self, names: &BTreeSet<Box<str>>) {
        self.scalars.retain(|(_, amount)| ![0, BY_CLAIM].contains(amount));
        let missing = names.iter().filter(|name| self.scalar(name) == 0);
        let missing: Vec<_> = missing.map(|name| (name.clone(), BY_CLAIM)).collect();
        add_named(&mut self.scalars, &missing, |amount, more| *amount = more);
    }

    /// Drops the extended resources that are not in `names`.
    pub fn retain(&mut self, names: &ResourceNames) {
        self.scalars.retain(|(name, _)| names.nodes.contains_key(name));
        self.scalars.shrink_to_fit();
    }

    /// Drops the extended resources and anti-affinity keys with an amount of zero. A pod may list any number of them.
    pub fn forget_zeros(&mut self) {
        self.scalars.retain(|(_, amount)| *amount != 0);
        self.apart.retain(|(_, pods)| *pods != 0);
    }

    /// Returns `self` minus `other`, for each resource of `self`.
    pub fn less(&self, other: &Amounts) -> Amounts {
        Amounts {
            cpu: self.cpu - other.cpu,
            memory: self.memory - other.memory,
            ephemeral_storage: self.ephemeral_storage - other.ephemeral_storage,
            scalars: less_named(&self.scalars, |name| other.scalar(name)),
            apart: less_named(&self.apart, |apart| other.pods_apart(apart)),
            bandwidth: Traffic {
                egress: self.bandwidth.egress.saturating_sub(other.bandwidth.egress),
                ingress: self.bandwidth.ingress.saturating_sub(other.bandwidth.ingress),
            },
        }
    }

    /// Iterates over every resource that is not zero, by its Kubernetes name. CPU is in millicores, the rest in bytes
    /// or units.
    pub fn named(&self) -> impl Iterator<Item = (&str, i64)> {
        [
            ("cpu", self.cpu.0),
            ("memory", self.memory.0),
            ("ephemeral-storage", self.ephemeral_storage.0),
        ]
        .into_iter()
        .chain(self.scalars.iter().map(|(name, amount)| (&**name, *amount)))
        .filter(|&(_, amount)| amount != 0)
    }

    /// Formats every amount above zero for people: `cpu 900m`, `memory 128Mi`.
    pub fn quantities(&self) -> impl Iterator<Item = String> {
        let positive = self.named().filter(|(_, amount)| *amount > 0);
        positive.map(|(name, amount)| format!("{name} {}", quantity(name, amount)))
    }

    /// Returns the amount of any resource, by its Kubernetes name.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.cpu.0,
            "memory" => self.memory.0,
            "ephemeral-storage" => self.ephemeral_storage.0,
            scalar => self.scalar(scalar),
        }
    }
}

fn add_named<K: Ord + Clone>(sums: &mut Vec<(K, i64)>, more: &[(K, i64)], add: impl Fn(&mut i64, i64)) {
    for (name, amount) in more.iter().filter(|(_, amount)| *amount != 0) {
        let found = sums.binary_search_by(|(known, _)| known.cmp(name));
        let at = found.unwrap_or_else(|at| {
            sums.insert(at, (name.clone(), 0));
            at
        });
        add(&mut sums[at].1, *amount);
    }
}

fn less_named<K: Clone>(all: &[(K, i64)], other: impl Fn(&K) -> i64) -> Vec<(K, i64)> {
    let rest = |(name, amount): &(K, i64)| (name.clone(), amount.saturating_sub(other(name)));
    all.iter().map(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&'static str, &str)]) -> ResourceList<'static> {
        let entries = entries.iter();
        let read = |&(name, quantity): &(&'static str, &str)| (name.into(), Quantity::parse(quantity).unwrap());
        ResourceList(entries.map(read).collect())
    }

    #[test]
    fn each_resource_has_its_own_notation() {
        let amounts = list(&[
            ("cpu", "5"),
            ("memory", "64Mi"),
            ("ephemeral-storage", "129M"),
            ("example.com/gpu", "2048"),
            ("hugepages-2Mi", "4Mi"),
        ]);
        let shown: Vec<_> = amounts.amounts().quantities().collect();
        assert_eq!(
            shown,
            [
                "cpu 5",
                "memory 64Mi",
                "ephemeral-storage 129M",
                "example.com/gpu 2048",
                "hugepages-2Mi 4Mi"
            ]
        );
    }

    #[test]
    fn sum_contains_the_resources_of_both_lists() {
        let mut sum = list(&[("cpu", "1"), ("example.com/b", "1"), ("example.com/c", "0")]).amounts();
        sum.add(
            &list(&[("cpu", "500m"), ("example.com/a", "1"), ("example.com/b", "2")]).amounts(),
            2,
        );
        sum.forget_zeros();
        assert_eq!(sum.cpu, Millicores(2_000));
        assert_eq!(sum.scalars, [("example.com/a".into(), 2), ("example.com/b".into(), 5)]);
        let huge = list(&[("cpu", "9E")]).amounts();
        sum.add(&huge, u32::MAX);
        assert_eq!(sum.cpu, Millicores(i64::MAX));
    }

    #[test]
    fn names_of_resources_go_with_the_last_node_that_has_them() {
        let having = |names: &[String]| Amounts {
            scalars: names.iter().map(|name| (name.as_str().into(), 1)).collect(),
            ..Amounts::default()
        };
        let known = |names: &ResourceNames| names.nodes.keys().map(ToString::to_string).collect::<Vec<_>>();
        let mut names = ResourceNames::default();
        for update in 0..60 {
            let invented: Vec<_> = (0..3_500).map(|i| format!("example.com/r-{update}-{i:04}")).collect();
            names.set("one", &having(&invented));
            assert_eq!(known(&names), invented);
        }
        let gpu = ["example.com/gpu".to_owned()];
        names.set("one", &having(&gpu));
        names.set("other", &having(&gpu));
        names.set("one", &Amounts::default());
        assert_eq!(known(&names), gpu);
        names.list_began();
        names.set("one", &Amounts::default());
        assert_eq!(known(&names), gpu, "until the list is complete");
        names.list_ended();
        assert!(known(&names).is_empty());
    }

    #[test]
    fn device_class_resource_fits_unless_node_has_it() {
        let gpus = |amount: &str| list(&[("example.com/gpu", amount)]).amounts();
        let fits = |total: &Amounts| [1, 4, 5].map(|asked| gpus(&asked.to_string()).fits(total, &gpus("3")));
        let names = BTreeSet::from(["example.com/gpu".into()]);
        for (amount, expected) in [("0", [true; 3]), ("7", [true, true, false])] {
            let mut node = gpus(amount);
            node.set_by_claim(&names);
            assert_eq!(fits(&node), expected, "{amount}");
            node.set_by_claim(&BTreeSet::new());
            assert_eq!(fits(&node), fits(&gpus(amount)), "{amount}, without the class");
        }
        let by_class = list(&[("deviceclass.resource.kubernetes.io/gpu", "1")]).amounts();
        assert!(by_class.fits(&Amounts::default(), &by_class));
        assert!(!by_class.fits(&by_class, &by_class), "a node that has it");
    }
}
