//! The scheduling queue of kube-scheduler. Source: `pkg/scheduler/backend/queue` and `schedule_one.go` of Kubernetes
//! 1.36. [`edgeward_decision::placement::score`] scores the nodes.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use edgeward_kube::units::Micros;

use crate::cluster::PodNumber;

/// The back-off after a pod's first attempt. Each further attempt doubles it.
const FIRST_BACKOFF: Micros = Micros::from_secs(1);

/// The longest back-off.
const LONGEST_BACKOFF: Micros = Micros::from_secs(10);

/// A pod that waited this long without a helpful event is tried again.
const LEFT_OVER: Micros = Micros::from_secs(300);

pub(crate) fn backoff(attempts: u32) -> Micros {
    let doubled = FIRST_BACKOFF.times(1 << attempts.saturating_sub(1).min(10));
    doubled.min(LONGEST_BACKOFF)
}

/// A pod's entry in the queue. A newer entry of the pod makes this one void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) pod: PodNumber,
    pub(crate) number: u32,
}

type Active = (i32, Reverse<(Micros, u64)>, Place);

/// The end of the back-off, a unique number that breaks ties, and the priority.
type BackingOff = (Micros, u64, i32, Place);

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Ordered by priority, highest first, and then by time of arrival.
    active: BinaryHeap<Active>,
    backoff: BinaryHeap<Reverse<BackingOff>>,
    /// Pods that fit no node, with the time of their last attempt. They wait for an event.
    unschedulable: BTreeSet<(Micros, i32, Place)>,
    count: u64,
}

impl Queue {
    /// Adds a pod to the active queue, to be tried as soon as possible.
    pub(crate) fn activate(&mut self, place: Place, priority: i32, now: Micros) {
        self.count += 1;
        self.active.push((priority, Reverse((now, self.count)), place));
    }

    /// Queues a pod again whose attempt number `attempts` failed. `happened` says whether an event that may help the
    /// pod occurred during the attempt.
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

    /// Moves the unschedulable pods that an event may help: to the active queue, or to the back-off queue until their
    /// back-off ends. `helps` returns the pod's number of attempts if the event may help it.
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

    /// Activates pods whose last attempt is at least five minutes ago. Called every 30 s.
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

    /// Returns the next pod to try. If the active queue is empty, a pod that still backs off is returned
    /// (`SchedulerPopFromBackoffQ`).
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
    fn backoff_doubles_up_to_ten_seconds() {
        let seconds = (1..=6).map(|attempts| backoff(attempts).0 / 1_000_000);
        assert_eq!(seconds.collect::<Vec<_>>(), [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn active_queue_pops_by_priority_then_arrival() {
        let mut queue = Queue::default();
        queue.activate(place(1), 0, Micros(1));
        queue.activate(place(2), 0, Micros(2));
        queue.activate(place(3), 5, Micros(3));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|place| place.pod).collect();
        assert_eq!(order, [3, 1, 2]);
    }

    #[test]
    fn refused_pod_waits_for_event_and_backoff() {
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
        // With an empty active queue, a pod is tried before its back-off ends.
        queue.refuse(place(4), 0, 1, true, second(20));
        assert_eq!(queue.pop(), Some(place(4)));
        // After five minutes, a pod is tried without an event.
        queue.refuse(place(5), 0, 9, false, second(30));
        queue.flush_left_over(second(329));
        assert_eq!(queue.pop(), None);
        queue.flush_left_over(second(330));
        assert_eq!(queue.pop(), Some(place(5)));
    }

    #[test]
    fn large_cluster_searches_share_of_nodes() {
        let found = [10, 100, 200, 1_000, 5_000, 10_000].map(feasible_nodes_to_find);
        assert_eq!(found, [10, 100, 100, 420, 500, 500]);
    }
}
