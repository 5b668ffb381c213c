//! kube-scheduler: handles one pod at a time. A pod gets a node or waits for an event; bindings run concurrently.

use edgeward_decision::placement::score::score;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Micros;

use super::{Event, INFORMER, Run, micros};
use crate::cluster::PodNumber;
use crate::kube_scheduler::{Place, feasible_nodes_to_find};
use crate::random::{Purpose, unit};

/// The order of candidate evictions, least harm first: highest priority of the victims, sum of their priorities, their
/// number.
type VictimRank = (i32, i64, usize);

impl Run<'_> {
    /// kube-scheduler sees a new pod without a node, or a pod that has become schedulable.
    pub(super) fn queued(&mut self, number: PodNumber) {
        if self.pods[number].is_unbound() {
            let place = self.next_place(number);
            self.queue.activate(place, self.priority(number), self.now);
            self.wake_scheduler();
        }
    }

    /// Returns a new place in the queue for the pod. Its earlier places become void.
    fn next_place(&mut self, number: PodNumber) -> Place {
        let pod = &mut self.pods[number];
        pod.queued += 1;
        Place {
            pod: number,
            number: pod.queued,
        }
    }

    fn priority(&self, number: PodNumber) -> i32 {
        self.scenario.workloads[self.pods[number].workload].priority
    }

    pub(super) fn wake_scheduler(&mut self) {
        if !self.is_cycle_scheduled {
            self.is_cycle_scheduled = true;
            self.events.schedule(self.now, Event::Cycle);
        }
    }

    pub(super) fn cycle(&mut self) {
        self.is_cycle_scheduled = false;
        while let Some(place) = self.queue.pop() {
            let pod = &mut self.pods[place.pod];
            if !pod.is_unbound() || pod.queued != place.number {
                continue;
            }
            pod.attempts += 1;
            self.helps = 0;
            let node = self.find_node(place.pod);
            if let Some(node) = node {
                // kube-scheduler's cache counts the pod from now on.
                let request = self.request_of(place.pod);
                self.nodes[node].take(place.pod, request);
            }
            self.is_cycle_scheduled = true;
            let ends = self.now + micros(self.scenario.delays.cycle);
            self.events.schedule(ends, Event::CycleEnds(place.pod, node));
            return;
        }
    }

    pub(super) fn cycle_ends(&mut self, number: PodNumber, node: Option<usize>) {
        self.is_cycle_scheduled = false;
        match node {
            Some(node) => {
                self.pods[number].node = Some(node);
                if let Some(nominated) = self.pods[number].nominated.take() {
                    self.nodes[nominated].nominated.retain(|other| *other != number);
                }
                let delay = self.draw(self.scenario.delays.bind, Purpose::Bind, number);
                self.events.schedule(self.now + delay, Event::Bound(number));
            }
            None if self.pods[number].is_unbound() => self.refuse(number),
            None => {}
        }
        self.wake_scheduler();
    }

    /// Handles a pod that no node fits: evicts pods if possible, and queues the pod again.
    fn refuse(&mut self, number: PodNumber) {
        let had_nominated = self.pods[number].nominated;
        if self.has_priorities {
            self.preempt(number);
        }
        let pod = &mut self.pods[number];
        let is_news = pod.refused.is_none() || pod.nominated != had_nominated;
        if pod.refused.is_none() {
            pod.refused = Some(self.now);
        }
        let attempts = pod.attempts;
        if is_news {
            pod.version += 1;
            self.emit(number);
        }
        let place = self.next_place(number);
        self.queue
            .refuse(place, self.priority(number), attempts, self.helps > 0, self.now);
    }

    /// Returns a node that fits the pod and has the highest score. Among equal scores, a random draw decides.
    fn find_node(&mut self, number: PodNumber) -> Option<usize> {
        let pod = &self.pods[number];
        let request = self.request_of(number);
        let priority = self.priority(number);
        let allowed = &self.allowed[pod.workload][pod.site.map_or(0, |site| site + 1)];
        if allowed.is_empty() {
            return None;
        }
        let wanted = feasible_nodes_to_find(self.nodes.len());
        let first = self.next_node % allowed.len();
        let (mut best, mut best_score, mut equals, mut found, mut seen) = (None, i64::MIN, 0_usize, 0, 0);
        for &at in allowed[first..].iter().chain(&allowed[..first]) {
            seen += 1;
            let node = &self.nodes[at];
            if !node.fits(request) || !self.fits_beside_nominated(at, number, request, priority) {
                continue;
            }
            found += 1;
            let score = score(request, &node.node.allocatable, &node.used);
            if score > best_score {
                (best, best_score, equals) = (Some(at), score, 1);
            } else if score == best_score {
                // Reservoir sampling, as in kube-scheduler.
                equals += 1;
                let lot = unit(
                    self.seed,
                    Purpose::Lot,
                    number as u64,
                    (u64::from(pod.attempts) << 32) | equals as u64,
                );
                if lot * equals as f64 <= 1.0 {
                    best = Some(at);
                }
            }
            if found >= wanted {
                break;
            }
        }
        self.next_node = first + seen;
        best
    }

    /// Whether the node fits the pod in addition to the pods nominated to it. Only nominated pods of at least this
    /// priority count.
    fn fits_beside_nominated(&self, at: usize, number: PodNumber, request: &Amounts, priority: i32) -> bool {
        let node = &self.nodes[at];
        let ahead = node.nominated.iter().filter(|other| **other != number);
        let mut ahead = ahead.filter(|other| self.priority(**other) >= priority).peekable();
        if ahead.peek().is_none() {
            return true;
        }
        let (mut used, mut pods) = (node.used.clone(), node.pods.len() as i64);
        for other in ahead {
            used.add(self.request_of(*other), 1);
            pods += 1;
        }
        pods < node.node.slots && request.fits(&node.node.allocatable, &used)
    }

    /// Evicts pods of lower priority if that makes room for this pod on some node. Chooses the node whose
    /// most important victim has the lowest priority, then the lowest sum of priorities, then the fewest victims.
    fn preempt(&mut self, number: PodNumber) {
        let workload = &self.scenario.workloads[self.pods[number].workload];
        let priority = workload.priority;
        if !workload.may_preempt {
            return;
        }
        // The victims of an earlier attempt are still terminating.
        if let Some(node) = self.pods[number].nominated {
            let is_terminating =
                |other: &PodNumber| self.pods[*other].deleted.is_some() && self.priority(*other) < priority;
            if self.nodes[node].pods.iter().any(is_terminating) {
                return;
            }
            self.nodes[node].nominated.retain(|other| *other != number);
            self.pods[number].nominated = None;
        }
        let pod = &self.pods[number];
        let allowed = &self.allowed[pod.workload][pod.site.map_or(0, |site| site + 1)];
        let mut best: Option<(VictimRank, usize, Vec<PodNumber>)> = None;
        for &at in allowed.iter() {
            let Some(victims) = self.victims(at, number, priority) else {
                continue;
            };
            let priorities = victims.iter().map(|victim| self.priority(*victim));
            let rank = (
                priorities.clone().max().unwrap_or(i32::MIN),
                priorities
                    .map(|priority| i64::from(priority) + i64::from(i32::MAX))
                    .sum::<i64>(),
                victims.len(),
            );
            if best.as_ref().is_none_or(|(other, ..)| rank < *other) {
                best = Some((rank, at, victims));
            }
        }
        if let Some((_, node, victims)) = best {
            self.pods[number].nominated = Some(node);
            self.nodes[node].nominated.push(number);
            for victim in victims {
                self.measure.preempted += 1;
                self.delete(victim);
            }
        }
    }

    /// Returns the pods that must leave the node for this pod. Among the pods with lower priority, as many as fit are
    /// spared, the highest priority first. `None` if evictions do not help.
    fn victims(&self, at: usize, number: PodNumber, priority: i32) -> Option<Vec<PodNumber>> {
        let node = &self.nodes[at];
        if !node.node.state.ready {
            return None;
        }
        let mut lower: Vec<_> = node
            .pods
            .iter()
            .copied()
            .filter(|other| self.priority(*other) < priority)
            .collect();
        if lower.is_empty() {
            return None;
        }
        let request = self.request_of(number);
        let mut used = node.used.clone();
        let mut pods = node.pods.len() as i64;
        for other in &lower {
            used = used.less(self.request_of(*other));
            pods -= 1;
        }
        let fits = |used: &Amounts, pods: i64| pods < node.node.slots && request.fits(&node.node.allocatable, used);
        if !fits(&used, pods) {
            return None;
        }
        lower.sort_by_key(|other| {
            (
                std::cmp::Reverse(self.priority(*other)),
                self.pods[*other].started,
                *other,
            )
        });
        let mut victims = vec![];
        for other in lower {
            let mut with = used.clone();
            with.add(self.request_of(other), 1);
            if fits(&with, pods + 1) {
                (used, pods) = (with, pods + 1);
            } else {
                victims.push(other);
            }
        }
        Some(victims)
    }

    /// kube-scheduler sees that a pod has left its node. Pods that it refused may fit now.
    pub(super) fn freed(&mut self, number: PodNumber, node: usize) {
        let request = self.request_of(number);
        self.nodes[node].free(number, request);
        self.something_helps(None);
        self.reconsider();
    }

    pub(super) fn node_helps(&mut self, node: usize) {
        self.something_helps(Some(node));
        self.reconsider();
    }

    fn something_helps(&mut self, node: Option<usize>) {
        self.helps += 1;
        let Self {
            queue,
            pods,
            nodes,
            scenario,
            ..
        } = self;
        queue.move_to_active(self.now, |number| {
            let request = &scenario.workloads[pods[number].workload].request;
            // The hint of NodeResourcesFit: a node that could not hold the pod even when empty does not help.
            let helps = node.is_none_or(|node| request.fits(&nodes[node].node.allocatable, &Amounts::default()));
            helps.then_some(pods[number].attempts)
        });
        self.wake_scheduler();
    }

    pub(super) fn ungated(&mut self, number: PodNumber) {
        if !self.scenario.workloads[self.pods[number].workload].is_unscheduled {
            self.events.schedule(self.now + INFORMER, Event::Queued(number));
        }
    }

    /// How long a pod has been gated, or was gated until now.
    pub(super) fn gated_for(&self, number: PodNumber) -> Micros {
        self.now - self.pods[number].gated
    }
}
