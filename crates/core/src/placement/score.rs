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
    let [request, allocatable, used] = [request, allocatable, used].map(|amounts| [amounts.cpu.0, amounts.memory.0]);
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

/// `part * 100 / whole`, rounded down. `whole` is positive.
fn percentage(part: i64, whole: i64) -> i64 {
    match part.checked_mul(MAX) {
        Some(part) => part / whole,
        // Far too much for the rounding to count.
        None => part / (whole / MAX).max(1),
    }
}

/// Rises when the pod brings the shares of CPU and memory closer to each other.
fn balanced_allocation(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    let [request, whole, used] = [request, allocatable, used].map(|amounts| amounts.map(|amount| amount as f64));
    let is_whole = allocatable.iter().all(|amount| *amount > 0);
    let (after, before) = match is_whole {
        true => (
            balance([used[0] + request[0], used[1] + request[1]], whole),
            balance(used, whole),
        ),
        false => (MAX, MAX),
    };
    MAX / 2 + (MAX / 2 + after - before) / 2
}

/// How close the shares of CPU and memory that are taken are to each other.
fn balance(taken: [f64; 2], whole: [f64; 2]) -> i64 {
    let share = |resource: usize| (taken[resource] / whole[resource]).min(1.0);
    let deviation = ((share(0) - share(1)) / 2.0).abs();
    ((1.0 - deviation) * MAX as f64) as i64
}

#[cfg(test)]
mod tests {
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
}
