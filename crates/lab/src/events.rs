//! A queue of events ordered by time. Events at the same time keep the order in which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use edgeward_core::units::Micros;

#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Micros,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            scheduled: 0,
        }
    }
}

impl<E> Events<E> {
    pub(crate) fn schedule(&mut self, at: Micros, event: E) {
        self.scheduled += 1;
        let number = self.scheduled;
        self.heap.push(Reverse(Entry { at, number, event }));
    }

    pub(crate) fn next(&mut self) -> Option<(Micros, E)> {
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_time_the_first_that_was_scheduled_comes_first() {
        let mut events = Events::default();
        [(5, "c"), (1, "a"), (5, "d"), (2, "b")]
            .into_iter()
            .for_each(|(at, name)| events.schedule(Micros(at), name));
        let order: Vec<_> = std::iter::from_fn(|| events.next()).map(|(_, name)| name).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
