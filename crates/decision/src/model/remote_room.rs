//! Room in the cluster behind a cloud's node, as far as the pods bound to that node reveal it.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use edgeward_kube::resources::{Amounts, quantity};

/// Name of the pod slot among resources. Every pod takes one slot.
pub const POD_SLOT: &str = "pods";

/// Maximum number of bounds per site that decisions compare with. Bounds on the fewest resources are kept.
pub const MAX_BOUNDS: usize = 16;

/// Whether a pod that has a node has started there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Start {
    /// The pod has a container status, is no longer Pending, or has no node.
    #[default]
    Begun,
    /// The pod has no container status yet.
    Silent,
    /// Condition PodScheduled is False although the pod has a node: the scheduler of the cluster behind the node cannot
    /// place it. The bound is set if lack of room is the only cause. It is `None` for any other cause, or if the pod
    /// may request more in that cluster than it states here.
    Refused(Option<Arc<Bound>>),
}

/// Amounts of one or more resources that a site has no room for. A pod that requests at least these amounts of all of
/// them is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound(Vec<(Box<str>, i64)>);

impl Bound {
    /// Builds the bound of this request over the named resources; `pods` names the pod slot. Returns `None` if there
    /// are no names, or if the request has none of a named resource. In that case the refused pod requests more than is
    /// known.
    pub fn new<'r>(request: &Amounts, resources: impl IntoIterator<Item = &'r str>) -> Option<Self> {
        let amount = |name: &str| if name == POD_SLOT { 1 } else { request.get(name) };
        let amounts = resources.into_iter().map(|name| (name.into(), amount(name)));
        let mut amounts: Vec<(Box<str>, i64)> = amounts.collect();
        amounts.sort_unstable();
        amounts.dedup();
        amounts.shrink_to_fit();
        let is_bound = !amounts.is_empty() && amounts.iter().all(|(_, amount)| *amount > 0);
        is_bound.then_some(Self(amounts))
    }

    /// Builds a bound from stated amounts. Positive `slots` add the pod slot. Returns `None` if there are no amounts,
    /// or if one is not positive.
    pub fn of(amounts: &Amounts, slots: Option<i64>) -> Option<Self> {
        let names = amounts.named().map(|(name, _)| name);
        let names: Vec<_> = names
            .chain(slots.is_some_and(|slots| slots > 0).then_some(POD_SLOT))
            .collect();
        Self::new(amounts, names)
    }

    /// The resources and amounts, sorted by name.
    pub fn amounts(&self) -> impl ExactSizeIterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (&**name, *amount))
    }

    /// Whether a pod with this request is refused. Cost: a search per resource.
    pub fn refuses(&self, request: &Amounts) -> bool {
        let asked = |name: &str| if name == POD_SLOT { 1 } else { request.get(name) };
        self.amounts().all(|(name, amount)| asked(name) >= amount)
    }

    /// Whether this bound refuses every pod that `other` refuses.
    pub fn covers(&self, other: &Bound) -> bool {
        let of_other = |name: &str| other.0.iter().find(|(known, _)| **known == *name);
        self.0.len() <= other.0.len()
            && self
                .amounts()
                .all(|(name, amount)| of_other(name).is_some_and(|(_, more)| *more >= amount))
    }
}

/// Orders a bound before every bound that it covers.
impl Ord for Bound {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0.len(), &self.0).cmp(&(other.0.len(), &other.0))
    }
}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Amounts by resource, in Kubernetes notation: `cpu 500m and memory 2Gi`.
pub fn listed<'a>(amounts: impl Iterator<Item = (&'a str, i64)>) -> String {
    let listed = amounts.map(|(name, amount)| match (name, amount) {
        (POD_SLOT, 1) => "a pod slot".to_owned(),
        (POD_SLOT, slots) => format!("{slots} pod slots"),
        (name, amount) => format!("{name} {}", quantity(name, amount)),
    });
    listed.collect::<Vec<_>>().join(" and ")
}

/// A bound from which on a site is full, as pods in the cluster behind it report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullFrom {
    /// Requests at or above this bound are refused.
    pub bound: Arc<Bound>,
    /// Number of pods that wait there for this much or more. It is 0 for a while after the last one is gone.
    pub pods: u64,
}

/// Formats the bound and its pods as in `cpu 500m or more (3 waiting)`.
impl fmt::Display for FullFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} or more ({} waiting)", listed(self.bound.amounts()), self.pods)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use edgeward_kube::units::{Bytes, Millicores};

    const NAMES: [&str; 4] = ["cpu", "memory", "example.com/gpu", POD_SLOT];

    fn requests() -> impl Strategy<Value = Amounts> {
        [0i64..4, 0i64..4, 0i64..4].prop_map(|[cpu, memory, gpus]| Amounts {
            cpu: Millicores(cpu),
            memory: Bytes(memory),
            scalars: vec![("example.com/gpu".into(), gpus)],
            ..Amounts::default()
        })
    }

    fn bounds() -> impl Strategy<Value = Option<Bound>> {
        let names = proptest::sample::subsequence(&NAMES[..], 1..=4);
        (requests(), names).prop_map(|(request, names)| Bound::new(&request, names))
    }

    proptest! {
        #[test]
        fn unrequested_resource_never_causes_refusal(bound in bounds(), request in requests()) {
            let bound = bound.filter(|bound| bound.refuses(&request));
            for (name, _) in bound.iter().flat_map(Bound::amounts) {
                prop_assert!(name == POD_SLOT || request.get(name) > 0);
            }
        }

        #[test]
        fn larger_request_than_a_refused_one_is_refused(bound in bounds(), request in requests(), more in requests()) {
            let mut sum = request.clone();
            sum.add(&more, 1);
            prop_assert!(bound.is_none_or(|bound| !bound.refuses(&request) || bound.refuses(&sum)));
        }

        #[test]
        fn covering_bound_sorts_first_and_refuses_at_least_as_much(
            one in bounds(), other in bounds(), request in requests(),
        ) {
            if let (Some(one), Some(other)) = (one, other) && one.covers(&other) {
                prop_assert!(one.refuses(&request) || !other.refuses(&request));
                prop_assert!(one <= other);
            }
        }
    }

    #[test]
    fn bound_exists_only_for_requested_resources() {
        let request = Amounts {
            cpu: Millicores(500),
            memory: Bytes(7),
            ..Amounts::default()
        };
        let bound = Bound::new(&request, ["memory", "cpu"]).unwrap();
        assert_eq!(bound.amounts().collect::<Vec<_>>(), [("cpu", 500), ("memory", 7)]);
        assert_eq!(Bound::new(&request, ["example.com/gpu"]), None);
        assert_eq!(Bound::new(&request, ["cpu", "example.com/gpu"]), None);
        let slot = Bound::new(&request, [POD_SLOT]).unwrap();
        assert!(slot.refuses(&Amounts::default()));
    }
}
