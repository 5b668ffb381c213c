//! kube-scheduler's queue. Source: `pkg/scheduler/backend/queue` and `schedule_one.go` of Kubernetes 1.36. Nodes are scored by
//! [`edgeward_core::placement::score`].

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use edgeward_core::units::Micros;

use crate::cluster::PodNumber;

/// For how long a pod is not tried again after its first attempt; doubled with each.
const FIRST_BACKOFF: Micros = Micros::from_secs(1);

/// And at most.
const LONGEST_BACKOFF: Micros = Micros::from_secs(10);

/// After how long a pod is tried again though nothing has happened.
const LEFT_OVER: Micros = Micros::from_secs(300);

pub(crate) fn backoff(attempts: u32) -> Micros {
    let doubled = FIRST_BACKOFF.times(1 << attempts.saturating_sub(1).min(10));
    doubled.min(LONGEST_BACKOFF)
}

/// A pod's place in a queue; one counts only as long as the pod has not got another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) pod: PodNumber,
    pub(crate) number: u32,
}

type Active = (i32, Reverse<(Micros, u64)>, Place);

/// The end of the backoff, a number that differs, and the priority.
type BackingOff = (Micros, u64, i32, Place);

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// By priority, the highest first, and then by the time at which they came.
    active: BinaryHeap<Active>,
    backoff: BinaryHeap<Reverse<BackingOff>>,
    /// Those that fit no node, and when they were tried last; until something happens.
    unschedulable: BTreeSet<(Micros, i32, Place)>,
    count: u64,
}

impl Queue {
    /// A pod comes, or comes again, to be tried as soon as may be.
    pub(crate) fn activate(&mut self, place: Place, priority: i32, now: Micros) {
        self.count += 1;
        self.active.push((priority, Reverse((now, self.count)), place));
    }

    /// A pod was tried for the `attempts`th time, in vain; whether something `happened` meanwhile that may help it.
    pub(crate) fn refuse(&mut self, place: Place, priority: i32, attempts: u32, happened: bool, now: Micros) {
        if happened {
            self.back_off(place, priority, now + backoff(attempts));
        } else {
            self.unschedulable.insert((now, priority, place));
        }
    }

    fn back_off(&mut self, place: Place, priority: i32, until: Micros) {
        self.count += 1;
        self.backoff.push(Reverse((until, self.count, priority, place)));
    }

    /// Something happened: the pods that it may help, which have been tried so often, are tried again when their backoff is over.
    pub(crate) fn move_to_active(&mut self, now: Micros, helps: impl Fn(PodNumber) -> Option<u32>) {
        if self.unschedulable.is_empty() {
            return;
        }
        for (tried, priority, place) in std::mem::take(&mut self.unschedulable) {
            match helps(place.pod) {
                None => drop(self.unschedulable.insert((tried, priority, place))),
                Some(attempts) if tried + backoff(attempts) <= now => self.activate(place, priority, now),
                Some(attempts) => self.back_off(place, priority, tried + backoff(attempts)),
            }
        }
    }

    /// Every 30 s: pods that were tried last long ago are tried again.
    pub(crate) fn flush_left_over(&mut self, now: Micros) {
        while let Some(&(tried, priority, place)) = self.unschedulable.first() {
            if now - tried < LEFT_OVER {
                return;
            }
            self.unschedulable.remove(&(tried, priority, place));
            self.activate(place, priority, now);
        }
    }

    pub(crate) fn flush_backoff(&mut self, now: Micros) {
        while let Some(&Reverse((until, _, priority, place))) = self.backoff.peek() {
            if until > now {
                return;
            }
            self.backoff.pop();
            self.activate(place, priority, now);
        }
    }

    /// The next pod to be tried. While nobody else is to be, one that still backs off is (`SchedulerPopFromBackoffQ`).
    pub(crate) fn pop(&mut self) -> Option<Place> {
        if let Some((.., place)) = self.active.pop() {
            return Some(place);
        }
        self.backoff.pop().map(|Reverse((.., place))| place)
    }
}

pub(crate) fn feasible_nodes_to_find(nodes: usize) -> usize {
    const LEAST: usize = 100;
    if nodes < LEAST {
        return nodes;
    }
    let percent = (50_usize.saturating_sub(nodes / 125)).max(5);
    (nodes * percent / 100).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pod: PodNumber) -> Place {
        Place { pod, number: 0 }
    }

    #[test]
    fn the_backoff_doubles_up_to_ten_seconds() {
        let seconds = (1..=6).map(|attempts| backoff(attempts).0 / 1_000_000);
        assert_eq!(seconds.collect::<Vec<_>>(), [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn the_higher_priority_is_first_and_then_who_came_first() {
        let mut queue = Queue::default();
        queue.activate(place(1), 0, Micros(1));
        queue.activate(place(2), 0, Micros(2));
        queue.activate(place(3), 5, Micros(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|place| place.pod).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    #[test]
    fn who_was_refused_waits_for_an_event_and_then_for_its_backoff() {
        let mut queue = Queue::default();
        let second = Micros::from_secs;
        queue.refuse(place(1), 0, 3, false, second(10));
        queue.flush_backoff(second(100));
        assert_eq!(queue.pop(), None, "nothing happened");
        queue.move_to_active(second(11), |_| None);
        assert_eq!(queue.pop(), None, "it does not help");
        queue.activate(place(2), 0, second(11));
        queue.move_to_active(second(11), |_| Some(3));
        queue.flush_backoff(second(13));
        assert_eq!(queue.pop(), Some(place(2)), "4 s are not over");
        queue.activate(place(3), 0, second(13));
        queue.flush_backoff(second(14));
        assert_eq!([queue.pop(), queue.pop()], [Some(place(3)), Some(place(1))]);
        // While nobody else is there, nobody waits for the end of a backoff.
        queue.refuse(place(4), 0, 1, true, second(20));
        assert_eq!(queue.pop(), Some(place(4)));
        // After five minutes a pod is tried without an event.
        queue.refuse(place(5), 0, 9, false, second(30));
        queue.flush_left_over(second(329));
        assert_eq!(queue.pop(), None);
        queue.flush_left_over(second(330));
        assert_eq!(queue.pop(), Some(place(5)));
    }

    #[test]
    fn of_many_nodes_a_share_is_looked_for() {
        let found = [10, 100, 200, 1_000, 5_000, 10_000].map(feasible_nodes_to_find);
        assert_eq!(found, [10, 100, 100, 420, 500, 500]);
    }
}
