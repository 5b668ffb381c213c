//! Assumed pods, taken together: they have room, and their node is not known yet.

use super::node::{AssumedPods, Node, Share};
use crate::resources::Amounts;

/// All of them, in the unit of [`AssumedPods::share`]: fine enough for the shares of thousands of nodes to add up.
const ALL: i128 = 1 << 32;

impl AssumedPods {
    /// Whether there is a place for one more pod on one of `nodes`, wherever kube-scheduler puts these and whichever of
    /// those that do not exist yet come first; and a place for each of those beside it. Certain where one resource is
    /// scarce; where several are, they are taken to be asked for in like proportions. `headroom` is what of a node's `used`
    /// does not count. Cost: a few divisions for each node until enough are found.
    pub fn leave_a_place<'n>(
        &self,
        request: &Amounts,
        nodes: impl Iterator<Item = &'n Node> + Clone,
        headroom: impl Fn(&Node) -> Option<Share>,
    ) -> bool {
        let leaves_one = |others: &AssumedPods, request: &Amounts| {
            let (mut places, mut shares) = (0, 0);
            nodes.clone().any(|node| {
                let share = others.share(request, node, headroom(node));
                shares += share;
                places += i64::from(share > 0);
                // It takes at least one of them to fill a place.
                shares > ALL || places > others.pods
            })
        };
        // What holds for the largest holds for all.
        let leaves_one_for_the_largest = || {
            let mut largest = self.largest.clone();
            largest.raise(request);
            if largest == *request {
                return true;
            }
            let mut others = self.clone();
            others.amounts.add(request, 1);
            others.amounts = others.amounts.less(&largest);
            others.step.divide(request);
            leaves_one(&others, &largest)
        };
        leaves_one(self, request) && leaves_one_for_the_largest()
    }

    /// Which share of these pods must come to `node`, at least, before it has no place left for `request`: in parts of
    /// [`ALL`], rounded down, and more than `ALL` where even all of them leave one. Zero where it has none now. Those that
    /// are assumed on the node count as not there yet.
    fn share(&self, request: &Amounts, node: &Node, headroom: Option<Share>) -> i128 {
        let coming = &node.assumed;
        let evicted = headroom.as_ref().map_or(0, |share| share.pods);
        let slots = node.slots.saturating_sub(node.pods).saturating_add(coming.pods);
        let of_slots = share_before_full(1, slots.saturating_add(evicted), self.pods, 1);
        let of_resource = |amount: &dyn Fn(&Amounts) -> i64| {
            let request = amount(request);
            // What is not asked for is not compared.
            if request == 0 {
                return i128::MAX;
            }
            let free = amount(&node.allocatable).saturating_sub(amount(&node.used));
            let free = free.saturating_add(amount(&coming.amounts));
            let free = free.saturating_add(headroom.as_ref().map_or(0, |share| amount(&share.amounts)));
            share_before_full(request, free, amount(&self.amounts), amount(&self.step))
        };
        let of_scalars = request.scalars.iter();
        let of_scalars = of_scalars.map(|(name, _)| of_resource(&|amounts| amounts.scalar(name)));
        let of_all = [
            of_resource(&|amounts| amounts.cpu.0),
            of_resource(&|amounts| amounts.memory.0),
            of_resource(&|amounts| amounts.ephemeral_storage.0),
        ];
        of_scalars.chain(of_all).fold(of_slots, i128::min)
    }
}

/// The share of `all`, which come in multiples of `step`, that leaves less than a request of what is free.
fn share_before_full(request: i64, free: i64, all: i64, step: i64) -> i128 {
    if free < request {
        return 0;
    }
    if all <= 0 {
        return ALL + 1;
    }
    // There is a place until they take more than the difference, and what they take is a multiple of the step.
    let (spare, step) = (i128::from(free) - i128::from(request), i128::from(step.max(1)));
    (spare / step + 1) * step * ALL / i128::from(all)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::{prop_assert, proptest};

    use super::*;
    use crate::units::Millicores;

    fn cpu(millicores: i64) -> Amounts {
        Amounts {
            cpu: Millicores(millicores),
            ..Amounts::default()
        }
    }

    fn node(free: i64) -> Node {
        Node {
            allocatable: cpu(free),
            slots: 110,
            ..Node::default()
        }
    }

    fn of(sizes: &[i64]) -> AssumedPods {
        let mut pods = AssumedPods::default();
        sizes.iter().for_each(|&size| pods.add(&cpu(size), 1));
        pods
    }

    fn has_place(sizes: &[i64], free: &[i64], request: i64) -> bool {
        let nodes: Vec<_> = free.iter().copied().map(node).collect();
        of(sizes).leave_a_place(&cpu(request), nodes.iter(), |_| None)
    }

    #[test]
    fn equal_pods_leave_exactly_the_places_that_are_left() {
        assert!(has_place(&[500; 7], &[2_000, 2_000], 500));
        assert!(!has_place(&[500; 8], &[2_000, 2_000], 500));
        // Also where a node has something left over.
        assert!(has_place(&[500; 7], &[2_300, 2_499], 500));
        assert!(!has_place(&[500; 8], &[2_300, 2_499], 500));
    }

    #[test]
    fn small_pods_can_take_a_large_ones_place_on_every_node() {
        assert!(has_place(&[100, 100], &[2_000; 3], 2_000));
        assert!(!has_place(&[100, 100, 100], &[2_000; 3], 2_000));
        // Whatever divides their sizes, a pod takes the place on one node only.
        assert!(has_place(&[99, 100], &[2_000; 3], 2_000));
        // Also one that is decided after it and comes first.
        assert!(has_place(&[100, 2_000], &[2_000; 3], 100));
        assert!(!has_place(&[100, 100, 2_000], &[2_000; 3], 100));
        // Not once it exists.
        let mut pods = of(&[100, 100, 2_000]);
        pods.largest = Amounts::default();
        assert!(pods.leave_a_place(&cpu(100), [node(2_000), node(2_000), node(2_000)].iter(), |_| None));
    }

    #[test]
    fn what_is_charged_by_guess_counts_as_not_there_yet() {
        let mut guessed = node(2_000);
        guessed.used = cpu(1_500);
        guessed.pods = 3;
        let pods = of(&[500; 3]);
        assert_eq!(pods.share(&cpu(1_000), &guessed, None), 0);
        guessed.assumed = pods.clone();
        assert_eq!(pods.share(&cpu(1_000), &guessed, None), ALL);
    }

    #[test]
    fn slots_run_out_too() {
        let mut two = node(2_000);
        two.slots = 2;
        assert_eq!(of(&[0; 4]).share(&cpu(0), &two, None), ALL / 2);
        two.pods = 2;
        assert_eq!(of(&[0; 4]).share(&cpu(0), &two, None), 0);
        // Nobody else asks for what this one asks for.
        two.pods = 0;
        assert_eq!(of(&[0]).share(&cpu(100), &two, None), ALL + 1);
    }

    #[test]
    fn what_placeholders_take_is_a_place() {
        let mut kept_warm = node(2_000);
        kept_warm.used = cpu(1_500);
        kept_warm.pods = 1;
        kept_warm.slots = 1;
        assert_eq!(of(&[500]).share(&cpu(500), &kept_warm, None), 0);
        let headroom = || Share {
            amounts: cpu(1_500),
            pods: 1,
        };
        assert_eq!(of(&[500; 4]).share(&cpu(500), &kept_warm, Some(headroom())), ALL / 4);
    }

    /// Whether some order of these pods, each on any node that has room for it, leaves one without a place.
    fn can_one_be_left_out(sizes: &[i64], free: &mut [i64]) -> bool {
        let fits = |free: &[i64], size: i64| free.iter().any(|free| *free >= size);
        sizes.iter().any(|size| !fits(free, *size))
            || (0..sizes.len()).any(|first| {
                let mut rest = sizes.to_vec();
                let size = rest.swap_remove(first);
                (0..free.len()).any(|at| {
                    free[at] >= size && {
                        free[at] -= size;
                        let left_out = can_one_be_left_out(&rest, free);
                        free[at] += size;
                        left_out
                    }
                })
            })
    }

    proptest! {
        /// Pods are decided one after the other; none that is promised a place is without one in the end.
        #[test]
        fn nobody_is_left_out(asked in vec(1i64..5, 1..6), mut free in vec(0i64..9, 1..4)) {
            let mut promised = vec![];
            for size in asked {
                if has_place(&promised, &free, size) {
                    promised.push(size);
                }
            }
            prop_assert!(!can_one_be_left_out(&promised, &mut free), "{promised:?}");
        }
    }
}
