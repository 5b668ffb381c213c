//! Which of several nodes kube-scheduler would take: the scores of its default plugins on CPU and memory.
//!
//! Source: `noderesources.leastResourceScorer` and `balancedResourceScorer` of Kubernetes 1.36, each of weight 1. The other
//! default plugins (image locality, spread, affinity, preferred taints) are not evaluated: a guess at the node is enough,
//! since a pod charges the node it is bound to as soon as it is.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::model::node::Node;
use crate::resources::Amounts;

/// The highest score of one plugin.
const MAX: i64 = 100;

/// How many of the nodes that a pod fits are scored for a guess. kube-scheduler scores as many at least, and of more only a
/// share, which begins elsewhere each time. Source: `minFeasibleNodesToFind` and `numFeasibleNodesToFind`.
pub const SCORED: usize = 100;

/// Of these nodes, of each of which so much is taken, the one that kube-scheduler would take for `request`; of equals, the
/// first by name. Cost: a score for each.
pub fn best_node<'n>(request: &Amounts, nodes: impl Iterator<Item = (&'n Node, Cow<'n, Amounts>)>) -> Option<&'n Node> {
    let best = nodes.min_by_key(|(node, used)| (Reverse(score(request, &node.allocatable, used)), &*node.name));
    best.map(|(node, _)| node)
}

/// How much kube-scheduler likes to place `request` on a node: from 0 to 200, the higher the better. The node has
/// `allocatable`, of which `used` is taken. Cost: a few divisions.
pub fn score(request: &Amounts, allocatable: &Amounts, used: &Amounts) -> i64 {
    Scorer::new(request).score(allocatable, used)
}

/// Scores one node after the other for the same request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scorer {
    /// CPU and memory, which are scored.
    request: [i64; 2],
    /// Whether they are less than [`EXACT`].
    is_exact: bool,
    /// As [`least_allocated`] counts it.
    counted: [f64; 2],
    /// As [`balance`] does.
    stated: [f64; 2],
}

/// Below this, a quotient of integers up to 100 differs from the next whole number by more than it is rounded by as a
/// floating-point number: by 2^-46 at least, and that is 2^-47 at most. So the cheaper division gives the same.
const EXACT: i64 = 1 << 46;

/// Whether none of these is negative, or as large as [`EXACT`].
fn are_exact(amounts: &[i64]) -> bool {
    (0..EXACT).contains(&amounts.iter().fold(0, |all, amount| all | amount))
}

impl Scorer {
    pub(super) fn new(request: &Amounts) -> Self {
        Self::of(scored(request))
    }

    fn of(request: [i64; 2]) -> Self {
        Self {
            request,
            is_exact: are_exact(&request),
            counted: counted(request).map(|amount| amount as f64),
            stated: request.map(|amount| amount as f64),
        }
    }

    /// As [`score`].
    #[inline]
    pub(super) fn score(&self, allocatable: &Amounts, used: &Amounts) -> i64 {
        self.score_of(scored(allocatable), scored(used))
    }

    /// The same of \[CPU, memory\].
    #[inline]
    pub(super) fn score_of(&self, allocatable: [i64; 2], used: [i64; 2]) -> i64 {
        let [[cpu, memory], [used_cpu, used_memory]] = [allocatable, used];
        if !self.is_exact || cpu == 0 || memory == 0 || !are_exact(&[cpu, memory, used_cpu, used_memory]) {
            return score_in_integers(self.request, allocatable, used);
        }
        let [whole, used] = [allocatable, used].map(|amounts| amounts.map(|amount| amount as f64));
        let percentage = |resource: usize| {
            let free = (whole[resource] - used[resource] - self.counted[resource]).max(0.0);
            (free * MAX as f64 / whole[resource]) as i64
        };
        let least = (percentage(0) + percentage(1)) / 2;
        if self.request == [0, 0] {
            return least;
        }
        let after = [used[0] + self.stated[0], used[1] + self.stated[1]];
        least + rise(balance(after, whole), balance(used, whole))
    }
}

/// The resources that are scored: CPU and memory.
fn scored(amounts: &Amounts) -> [i64; 2] {
    [amounts.cpu.0, amounts.memory.0]
}

/// The same as [`Scorer::score_of`], of any numbers.
fn score_in_integers(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    let least = least_allocated(request, allocatable, used);
    // Skipped for pods that ask for neither.
    match request {
        [0, 0] => least,
        _ => least + balanced_allocation(request, allocatable, used),
    }
}

/// What a pod without a request counts as, for scoring only. Source: `schedutil.DefaultMilliCPURequest` and
/// `DefaultMemoryRequest`.
const DEFAULTS: [i64; 2] = [100, 200 * 1024 * 1024];

/// A request as it counts for [`least_allocated`].
fn counted(request: [i64; 2]) -> [i64; 2] {
    let counted = |resource: usize| match request[resource] {
        0 => DEFAULTS[resource],
        request => request,
    };
    [counted(0), counted(1)]
}

fn least_allocated(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    let request = counted(request);
    let score = |resource: usize| {
        let allocatable = allocatable[resource];
        let free = allocatable.saturating_sub(used[resource]);
        let free = free.saturating_sub(request[resource]);
        // It is less, as long as nothing negative is used.
        percentage(free.max(0), allocatable).min(MAX)
    };
    match allocatable.map(|amount| amount > 0) {
        [true, true] => (score(0) + score(1)) / 2,
        [true, false] => score(0),
        [false, true] => score(1),
        [false, false] => 0,
    }
}

/// `part * 100 / whole`, rounded down, of which the second is positive.
fn percentage(part: i64, whole: i64) -> i64 {
    match part.checked_mul(MAX) {
        Some(part) => part / whole,
        // Far too much for the rounding to count.
        None => part / (whole / MAX).max(1),
    }
}

/// Rises when the pod brings the shares of CPU and memory closer to each other.
fn balanced_allocation(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    if allocatable.iter().any(|amount| *amount <= 0) {
        return rise(MAX, MAX);
    }
    let [request, whole, used] = [request, allocatable, used].map(|amounts| amounts.map(|amount| amount as f64));
    rise(
        balance([used[0] + request[0], used[1] + request[1]], whole),
        balance(used, whole),
    )
}

/// What kube-scheduler makes of how balanced a node is with the pod, and without it.
fn rise(after: i64, before: i64) -> i64 {
    MAX / 2 + (MAX / 2 + after - before) / 2
}

/// How close the shares of CPU and memory that are taken are to each other.
#[inline]
fn balance(taken: [f64; 2], whole: [f64; 2]) -> i64 {
    let share = |resource: usize| (taken[resource] / whole[resource]).min(1.0);
    let deviation = ((share(0) - share(1)) / 2.0).abs();
    ((1.0 - deviation) * MAX as f64) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::units::{Bytes, Millicores};

    const GI: i64 = 1 << 30;

    fn amounts(cpu: i64, memory: i64) -> Amounts {
        Amounts {
            cpu: Millicores(cpu),
            memory: Bytes(memory),
            ..Amounts::default()
        }
    }

    #[test]
    fn the_numbers_of_kube_scheduler() {
        // TestLeastAllocatedScoringStrategy "nothing scheduled, resources requested, differently sized nodes":
        // cpu (4000 - 3000) * 100 / 4000 = 25, memory (10000 - 5000) * 100 / 10000 = 50; (25 + 50) / 2 = 37.
        assert_eq!(least_allocated([3000, 5000], [4000, 10_000], [0, 0]), 37);
        assert_eq!(least_allocated([3000, 5000], [6000, 10_000], [0, 0]), 50);
        // More is asked for than there is.
        assert_eq!(least_allocated([5000, 0], [4000, 10 * GI], [0, 0]), 49);
        // Shares 0.75 and 0.5 after, 0 and 0 before: 50 + (50 + 87 - 100) / 2.
        assert_eq!(balanced_allocation([3000, 5000], [4000, 10_000], [0, 0]), 68);
        // Shares 0.5 and 0.5 after 0.5 and 0 before: 50 + (50 + 100 - 75) / 2.
        assert_eq!(balanced_allocation([0, 5000], [4000, 10_000], [2000, 0]), 87);
    }

    #[test]
    fn a_pod_that_asks_for_nothing_goes_where_most_is_free() {
        let nothing = Amounts::default();
        let empty = score(&nothing, &amounts(4000, 8 * GI), &amounts(0, 0));
        let busy = score(&nothing, &amounts(4000, 8 * GI), &amounts(3000, 6 * GI));
        assert!(empty > busy, "{empty} {busy}");
        assert_eq!(score(&nothing, &Amounts::default(), &nothing), 0);
        // Nor do the largest numbers and absurd ones end anything.
        assert_eq!(least_allocated([1, 1], [i64::MAX, i64::MAX], [0, 0]), MAX);
        least_allocated([0, 0], [1, 1], [i64::MIN, i64::MIN]);
    }

    /// An amount as it may be, or one at a bound.
    fn amount() -> impl Strategy<Value = i64> {
        let bounds = select(vec![
            0,
            1,
            2,
            100,
            EXACT - 1,
            EXACT,
            EXACT + 1,
            i64::MAX / 100,
            i64::MAX,
        ]);
        prop_oneof![0_i64..200, 0_i64..1 << 34, 0..EXACT, 0..i64::MAX, bounds]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        #[test]
        fn floating_point_numbers_give_the_same(
            request in [amount(), amount()], whole in [amount(), amount()], part in [amount(), amount()],
            percent in [0_i64..=100, 0..=100], beside in [-1_i64..=1, -1..=1], is_at in proptest::bool::ANY,
        ) {
            // Just where a whole percentage is left, and beside it: there it would be rounded to another.
            let at = |resource: usize| {
                let left = (i128::from(whole[resource]) * i128::from(percent[resource]) / 100) as i64;
                let left = left.saturating_add(beside[resource]);
                whole[resource].saturating_sub(left).saturating_sub(counted(request)[resource]).max(0)
            };
            let used = if is_at { [at(0), at(1)] } else { part };
            let plain = score_in_integers(request, whole, used);
            prop_assert_eq!(Scorer::of(request).score_of(whole, used), plain, "{:?} of {:?}", used, whole);
        }
    }
}
