//! A queue of events ordered by time. Events at the same time keep the order in which they were scheduled.

use std::collections::BTreeMap;

use edgeward_kube::units::Micros;

#[derive(Debug)]
pub(crate) struct Events<E> {
    /// Events by their time and number.
    queue: BTreeMap<(Micros, u64), E>,
    scheduled: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self {
            queue: BTreeMap::new(),
            scheduled: 0,
        }
    }
}

impl<E> Events<E> {
    pub(crate) fn schedule(&mut self, at: Micros, event: E) {
        self.scheduled += 1;
        self.queue.insert((at, self.scheduled), event);
    }

    pub(crate) fn next(&mut self) -> Option<(Micros, E)> {
        self.queue.pop_first().map(|((at, _), event)| (at, event))
    }
}
