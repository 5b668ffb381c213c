//! Scores nodes as kube-scheduler's default plugins score CPU and memory, to guess which node it would pick.
//!
//! Source: `noderesources.leastResourceScorer` and `balancedResourceScorer` of Kubernetes 1.36, each of weight 1. The other
//! default plugins (image locality, spread, affinity, preferred taints) are not evaluated. A guess is enough, because a
//! bound pod charges its real node.

use std::borrow::Cow;
use std::cmp::Reverse;

use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;

/// The highest score of one plugin.
const MAX: i64 = 100;

/// The most fitting nodes that are scored for a guess. kube-scheduler scores at least as many. In a larger cluster it
/// scores only a share of the nodes and starts at a different one each time. Source: `minFeasibleNodesToFind` and
/// `numFeasibleNodesToFind`.
pub const SCORED: usize = 100;

/// The node that kube-scheduler would pick for `request`; ties go to the first by name. Each node comes with the amounts
/// taken from it. Cost: one score per node.
pub fn best_node<'n>(request: &Amounts, nodes: impl Iterator<Item = (&'n Node, Cow<'n, Amounts>)>) -> Option<&'n Node> {
    let best = nodes.min_by_key(|(node, used)| (Reverse(score(request, &node.allocatable, used)), &*node.name));
    best.map(|(node, _)| node)
}

/// The score of a node for `request`, from 0 to 200; higher is better. The node has `allocatable`, and `used` of it is
/// taken. Cost: a few divisions.
pub fn score(request: &Amounts, allocatable: &Amounts, used: &Amounts) -> i64 {
    let [request, allocatable, used] = [request, allocatable, used].map(|amounts| [amounts.cpu.0, amounts.memory.0]);
    let least = least_allocated(request, allocatable, used);
    // kube-scheduler skips balanced allocation for pods that request neither.
    match request {
        [0, 0] => least,
        _ => least + balanced_allocation(request, allocatable, used),
    }
}

/// Stand-ins for a request that is missing, in millicores and bytes, for scoring only. Source:
/// `schedutil.DefaultMilliCPURequest` and `DefaultMemoryRequest`.
const DEFAULTS: [i64; 2] = [100, 200 * 1024 * 1024];

fn least_allocated(request: [i64; 2], allocatable: [i64; 2], used: [i64; 2]) -> i64 {
    let score = |resource: usize| {
        let request = match request[resource] {
            0 => DEFAULTS[resource],
            request => request,
        };
        let allocatable = allocatable[resource];
        let free = allocatable.saturating_sub(used[resource]).saturating_sub(request);
        // The score exceeds `MAX` only if `used` is negative.
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
        // For amounts this large, the rounding does not matter.
        None => part / (whole / MAX).max(1),
    }
}

/// Rises when the pod brings the taken shares of CPU and memory closer to each other.
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

/// How close the taken shares of CPU and memory are to each other, from 0 to 100.
fn balance(taken: [f64; 2], whole: [f64; 2]) -> i64 {
    let share = |resource: usize| (taken[resource] / whole[resource]).min(1.0);
    let deviation = ((share(0) - share(1)) / 2.0).abs();
    ((1.0 - deviation) * MAX as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgeward_kube::units::{Bytes, Millicores};

    const GI: i64 = 1 << 30;

    fn amounts(cpu: i64, memory: i64) -> Amounts {
        Amounts {
            cpu: Millicores(cpu),
            memory: Bytes(memory),
            ..Amounts::default()
        }
    }

    #[test]
    fn scores_equal_those_of_kube_scheduler() {
        // From Kubernetes' TestLeastAllocatedScoringStrategy, "nothing scheduled, resources requested, differently sized
        // nodes". CPU (4000 - 3000) * 100 / 4000 = 25, memory (10000 - 5000) * 100 / 10000 = 50; (25 + 50) / 2 = 37.
        assert_eq!(least_allocated([3000, 5000], [4000, 10_000], [0, 0]), 37);
        assert_eq!(least_allocated([3000, 5000], [6000, 10_000], [0, 0]), 50);
        // The pod requests more than there is.
        assert_eq!(least_allocated([5000, 0], [4000, 10 * GI], [0, 0]), 49);
        // Shares 0.75 and 0.5 after, 0 and 0 before: 50 + (50 + 87 - 100) / 2.
        assert_eq!(balanced_allocation([3000, 5000], [4000, 10_000], [0, 0]), 68);
        // Shares 0.5 and 0.5 after, 0.5 and 0 before: 50 + (50 + 100 - 75) / 2.
        assert_eq!(balanced_allocation([0, 5000], [4000, 10_000], [2000, 0]), 87);
    }

    #[test]
    fn pod_without_requests_prefers_the_emptier_node() {
        let nothing = Amounts::default();
        let empty = score(&nothing, &amounts(4000, 8 * GI), &amounts(0, 0));
        let busy = score(&nothing, &amounts(4000, 8 * GI), &amounts(3000, 6 * GI));
        assert!(empty > busy, "{empty} {busy}");
        assert_eq!(score(&nothing, &Amounts::default(), &nothing), 0);
        // Extreme and invalid numbers cause no panic.
        assert_eq!(least_allocated([1, 1], [i64::MAX, i64::MAX], [0, 0]), MAX);
        least_allocated([0, 0], [1, 1], [i64::MIN, i64::MIN]);
    }
}
