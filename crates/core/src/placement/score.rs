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
#[inline]
pub fn score(request: &Amounts, allocatable: &Amounts, used: &Amounts) -> i64 {
    score_of(scored(request), scored(allocatable), scored(used))
}

/// The resources that are scored: CPU and memory.
fn scored(amounts: &Amounts) -> [i64; 2] {
    [amounts.cpu.0, amounts.memory.0]
}

/// The same of [CPU, memory].
#[inline]
pub(super) fn score_of(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
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

fn least_allocated(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    let score = |resource: usize| {
        let request = match request[resource] {
            0 => DEFAULTS[resource],
            request => request,
        };
        let allocatable = allocatable[resource];
        let free = allocatable.saturating_sub(used[resource]).saturating_sub(request);
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

/// Below this, a quotient of integers up to 100 differs from the next whole number by more than it is rounded by as a
/// floating-point number: by 2^-46 at least, and that is 2^-47 at most. So the cheaper division gives the same.
const EXACT: i64 = 1 << 46;

/// `part * 100 / whole`, rounded down, of which the first is not negative and the second positive; any number above 100 where it is
/// above.
fn percentage(part: i64, whole: i64) -> i64 {
    if part < EXACT && whole < EXACT {
        return (part as f64 * MAX as f64 / whole as f64) as i64;
    }
    match part.checked_mul(MAX) {
        Some(part) => part / whole,
        // Far too much for the rounding to count.
        None => part / (whole / MAX).max(1),
    }
}

/// Rises when the pod brings the shares of CPU and memory closer to each other.
fn balanced_allocation(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    MAX / 2 + (MAX / 2 + balance(request, allocatable, used) - balance([0, 0], allocatable, used)) / 2
}

fn balance(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    if allocatable.iter().any(|amount| *amount <= 0) {
        return MAX;
    }
    let share = |resource: usize| {
        let taken = used[resource] as f64 + request[resource] as f64;
        (taken / allocatable[resource] as f64).min(1.0)
    };
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
        fn the_cheaper_division_gives_the_same(whole in amount(), part in amount(), percent in 0_i64..=100) {
            let whole = whole.max(1);
            // Just at a whole percentage, and beside it: there it would be rounded to another.
            let at = (i128::from(whole) * i128::from(percent) / 100) as i64;
            for part in [part, at.saturating_sub(1), at, at.saturating_add(1)].map(|part| part.max(0)) {
                let plain = match part.checked_mul(MAX) {
                    Some(part) => part / whole,
                    None => part / (whole / MAX).max(1),
                };
                prop_assert_eq!(percentage(part, whole).min(MAX), plain.min(MAX), "{} of {}", part, whole);
            }
        }
    }
}
