//! Deployments and the ReplicaSet of each revision: creates, rolls over and deletes pods as their controllers do.

use std::cmp::Reverse;
use std::collections::VecDeque;

use edgeward_kube::units::Micros;

use super::{Event, INFORMER, Placer, Run};
use crate::cluster::{Phase, Pod, PodNumber, Work};
use crate::scenario::WorkloadKind;
use crate::units::{MINUTE, request_time};

#[derive(Debug, Default)]
pub(super) struct Deployment {
    replicas: usize,
    revision: u32,
    /// Pods that still exist, in the order of creation.
    pods: Vec<PodNumber>,
    opened: VecDeque<usize>,
    is_due: bool,
}

impl Run<'_> {
    pub(super) fn set_replicas(&mut self, service: usize, change: usize) {
        let load = &self.load.services[service];
        let replicas = load.replicas[change].1 as usize;
        let deployment = &mut self.deployments[service];
        deployment.replicas = replicas;
        let opened = load.slots.iter().enumerate().filter(|(_, slot)| slot.open == self.now);
        deployment.opened.extend(opened.map(|(number, _)| number));
        deployment.opened.retain(|number| load.slots[*number].close > self.now);
        self.reconcile_service_soon(service);
    }

    pub(super) fn roll_out(&mut self, service: usize) {
        self.deployments[service].revision += 1;
        self.reconcile_service_soon(service);
    }

    /// Schedules a reconciliation of the pod's service, if it has one.
    pub(super) fn reconcile_soon(&mut self, number: PodNumber) {
        if let Work::Replica { service, .. } = self.pods[number].work {
            self.reconcile_service_soon(service);
        }
    }

    fn reconcile_service_soon(&mut self, service: usize) {
        if !std::mem::replace(&mut self.deployments[service].is_due, true) {
            self.events.schedule(self.now + INFORMER, Event::Reconcile(service));
        }
    }

    pub(super) fn reconcile(&mut self, service: usize) {
        let workload = self.load.services[service].workload;
        let WorkloadKind::Service { surge, unavailable, .. } = &self.scenario.workloads[workload].kind else {
            return;
        };
        let (surge, unavailable) = (*surge as usize, *unavailable as usize);
        let deployment = &mut self.deployments[service];
        deployment.is_due = false;
        deployment.pods.retain(|number| self.pods[*number].phase != Phase::Gone);
        let (replicas, revision) = (deployment.replicas, deployment.revision);
        let alive = deployment
            .pods
            .iter()
            .copied()
            .filter(|number| self.pods[*number].deleted.is_none());
        let is_new = |number: &PodNumber| matches!(self.pods[*number].work, Work::Replica { revision: of, .. } if of == revision);
        let (new, old): (Vec<_>, Vec<_>) = alive.partition(is_new);
        let most = if old.is_empty() { replicas } else { replicas + surge };
        let missing = replicas.saturating_sub(new.len());
        let created = missing.min(most.saturating_sub(new.len() + old.len()));
        let is_running = |number: &PodNumber| self.pods[*number].phase == Phase::Running;
        let new_unavailable = new.iter().filter(|number| !is_running(number)).count() + created;
        let surplus = new.len().saturating_sub(replicas);
        let least = replicas.saturating_sub(unavailable);
        let spare = (new.len() + old.len() + created).saturating_sub(least + new_unavailable);
        let leaving = self.first_to_go(new, surplus);
        let replaced = self.first_to_go(old, spare);
        leaving
            .into_iter()
            .chain(replaced)
            .for_each(|number| self.delete(number));
        for _ in 0..created {
            let first_of = self.deployments[service].opened.pop_front();
            let work = Work::Replica {
                service,
                revision,
                first_of,
            };
            let number = self.pods.len();
            self.deployments[service].pods.push(number);
            self.create(Pod::new(workload, work, self.now));
        }
    }

    /// Returns `count` of these pods, in the order in which a ReplicaSet deletes them: pods without a node, pods that
    /// do not run, pods with a lower deletion cost, the newest.
    fn first_to_go(&self, mut pods: Vec<PodNumber>, count: usize) -> Vec<PodNumber> {
        let states_cost = matches!(self.placer, Placer::Edgeward(_));
        pods.sort_by_key(|number| {
            let pod = &self.pods[*number];
            let is_in_cloud = states_cost && pod.site.is_some_and(|site| site > 0);
            (
                pod.bound.is_some(),
                pod.phase == Phase::Running,
                !is_in_cloud,
                Reverse(*number),
            )
        });
        pods.truncate(count);
        pods
    }

    /// Schedules the periodic requests of every slot, from one minute after it opens. A slot's first request is sent
    /// when its pod gets a node.
    pub(super) fn begin_requests(&mut self) {
        for (service, load) in self.load.services.iter().enumerate() {
            for (number, slot) in load.slots.iter().enumerate() {
                self.events
                    .schedule(slot.open + MINUTE, Event::Request(service, number, 1));
            }
        }
    }

    pub(super) fn request(&mut self, service: usize, number: usize, minute: u64) {
        let slot = self.load.services[service].slots[number];
        if self.now >= slot.close {
            return;
        }
        let serving = self.deployments[service].pods.iter().copied().filter(|pod| {
            let pod = &self.pods[*pod];
            let is_up = pod.node.is_some_and(|node| !self.nodes[node].failed);
            is_up && pod.phase == Phase::Running && pod.deleted.is_none()
        });
        let pod = serving.clone().nth(slot.number as usize);
        self.measure_request(service, number, minute, pod);
        self.events
            .schedule(self.now + MINUTE, Event::Request(service, number, minute + 1));
    }

    /// Time of a request at speed 1.
    pub(super) fn request_time(&self, service: usize, slot: Option<usize>, minute: u64) -> Micros {
        request_time(self.scenario, self.load, self.seed, service, slot, minute)
    }
}
