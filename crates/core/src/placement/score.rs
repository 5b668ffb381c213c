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
    let least = least_allocated(request, allocatable, used);
    // Skipped for pods that ask for neither.
    match (request.cpu.0, request.memory.0) {
        (0, 0) => least,
        _ => least + balanced_allocation(request, allocatable, used),
    }
}

/// What a pod without a request counts as, for scoring only. Source: `schedutil.DefaultMilliCPURequest` and
/// `DefaultMemoryRequest`.
const DEFAULT_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

fn least_allocated(request: &Amounts, allocatable: &Amounts, used: &Amounts) -> i64 {
    let or = |request: i64, default: i64| if request == 0 { default } else { request };
    let resources = [
        (or(request.cpu.0, DEFAULT_CPU), allocatable.cpu.0, used.cpu.0),
        (
            or(request.memory.0, DEFAULT_MEMORY),
            allocatable.memory.0,
            used.memory.0,
        ),
    ];
    let scores = resources
        .into_iter()
        .filter(|&(_, allocatable, _)| allocatable > 0)
        .map(|(request, allocatable, used)| {
            let free = allocatable.saturating_sub(used).saturating_sub(request).max(0);
            let share = match free.checked_mul(MAX) {
                Some(free) => free / allocatable,
                // Far too much for the rounding to count.
                None => free / (allocatable / MAX).max(1),
            };
            // It is less, as long as nothing negative is used.
            share.min(MAX)
        });
    let (sum, count) = scores.fold((0, 0), |(sum, count), score| (sum + score, count + 1));
    if count == 0 { 0 } else { sum / count }
}

/// Rises when the pod brings the shares of CPU and memory closer to each other.
fn balanced_allocation(request: &Amounts, allocatable: &Amounts, used: &Amounts) -> i64 {
    let nothing = Amounts::default();
    MAX / 2 + (MAX / 2 + balance(request, allocatable, used) - balance(&nothing, allocatable, used)) / 2
}

fn balance(request: &Amounts, allocatable: &Amounts, used: &Amounts) -> i64 {
    let share = |request: i64, allocatable: i64, used: i64| {
        (allocatable > 0).then(|| ((used as f64 + request as f64) / allocatable as f64).min(1.0))
    };
    let cpu = share(request.cpu.0, allocatable.cpu.0, used.cpu.0);
    let memory = share(request.memory.0, allocatable.memory.0, used.memory.0);
    let deviation = match (cpu, memory) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
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
        assert_eq!(
            least_allocated(&amounts(3000, 5000), &amounts(4000, 10_000), &amounts(0, 0)),
            37
        );
        assert_eq!(
            least_allocated(&amounts(3000, 5000), &amounts(6000, 10_000), &amounts(0, 0)),
            50
        );
        // More is asked for than there is.
        assert_eq!(
            least_allocated(&amounts(5000, 0), &amounts(4000, 10 * GI), &amounts(0, 0)),
            49
        );
        // Shares 0.75 and 0.5 after, 0 and 0 before: 50 + (50 + 87 - 100) / 2.
        assert_eq!(
            balanced_allocation(&amounts(3000, 5000), &amounts(4000, 10_000), &amounts(0, 0)),
            68
        );
        // Shares 0.5 and 0.5 after 0.5 and 0 before: 50 + (50 + 100 - 75) / 2.
        assert_eq!(
            balanced_allocation(&amounts(0, 5000), &amounts(4000, 10_000), &amounts(2000, 0)),
            87
        );
    }

    #[test]
    fn a_pod_that_asks_for_nothing_goes_where_most_is_free() {
        let nothing = Amounts::default();
        let empty = score(&nothing, &amounts(4000, 8 * GI), &amounts(0, 0));
        let busy = score(&nothing, &amounts(4000, 8 * GI), &amounts(3000, 6 * GI));
        assert!(empty > busy, "{empty} {busy}");
        assert_eq!(score(&nothing, &Amounts::default(), &nothing), 0);
        // Nor do the largest numbers and absurd ones end anything.
        assert_eq!(
            least_allocated(&amounts(1, 1), &amounts(i64::MAX, i64::MAX), &nothing),
            MAX
        );
        least_allocated(&nothing, &amounts(1, 1), &amounts(i64::MIN, i64::MIN));
    }
}
