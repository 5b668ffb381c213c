//! Placement of pods at creation, by the policies that keep no state.

use std::sync::Arc;

use edgeward_decision::pod::Pod as WirePod;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Micros;

use super::{Event, Placer, Run};
use crate::cluster::{NodeState, Phase, PodNumber};
use crate::scenario::{Scenario, Slo, WorkloadKind};

/// Returns the nodes that the pods of each workload may use: without a placement, and placed at each site. Readiness
/// and room are not checked.
pub(super) fn allowed(scenario: &Scenario, nodes: &[NodeState]) -> Vec<Vec<Arc<[usize]>>> {
    let of_workload = |workload: &crate::scenario::Workload| {
        // Initial pods already have their nodes.
        if let WorkloadKind::Initial { .. } = workload.kind {
            return vec![Arc::from([]); scenario.sites.len() + 1];
        }
        let text = workload.manifest.to_string();
        let placements = std::iter::once(None).chain(scenario.sites.iter().map(Some));
        let allowed = placements.map(|site| {
            // A manifest that is not a pod has already been reported as a fault of the scenario.
            let Ok(pod) = WirePod::from_json(&text) else {
                return Arc::from([]);
            };
            let workload = pod.workload("".into(), &scenario.config.keys);
            let mut constraints = workload.constraints.clone();
            let mut tolerations = workload.tolerations.clone();
            if let Some(site) = site {
                let selector = site.definition.selector();
                constraints
                    .selector
                    .extend(selector.map(|(key, value)| (key.to_owned(), value.to_owned())));
                tolerations.extend(site.definition.tolerations.iter().cloned());
            }
            let admits = |node: &NodeState| {
                let mut node = node.node.clone();
                node.state.ready = true;
                node.admits(&constraints, tolerations.iter())
            };
            (0..nodes.len()).filter(|at| admits(&nodes[*at])).collect()
        });
        allowed.collect()
    };
    scenario.workloads.iter().map(of_workload).collect()
}

impl<'s> Run<'s> {
    pub(super) fn slo_of(&self, number: PodNumber) -> Option<Slo> {
        self.scenario.workloads[self.pods[number].workload].slo
    }

    pub(super) fn admit(&mut self, number: PodNumber) {
        self.measure.created += 1;
        let Some(slo) = self.slo_of(number) else {
            if matches!(self.placer, Placer::Edgeward(_)) {
                self.review(number);
            }
            return;
        };
        self.measure.decisions += 1;
        match &self.placer {
            Placer::Edge => self.place(number, 0),
            Placer::Cloud => {
                let cloud = self.could_hold(number).find(|site| *site > 0);
                self.place(number, cloud.filter(|_| slo.offload).unwrap_or(0));
            }
            Placer::LeastLoaded => {
                let sites = self.could_hold(number).filter(|site| *site == 0 || slo.offload);
                let is_up = |site: &usize| {
                    self.paths[*site]
                        .as_ref()
                        .is_none_or(|path| path.rtt(self.now).is_some())
                };
                let share = |site: usize| (self.share_taken(site) * 1e6) as i64;
                let least = sites.filter(is_up).min_by_key(|site| (share(*site), *site));
                self.place(number, least.unwrap_or(0));
            }
            Placer::Edgeward(_) => self.review(number),
            Placer::Clairvoyant(_) => self.foresee(number),
        }
    }

    pub(super) fn place(&mut self, number: PodNumber, site: usize) {
        self.pods[number].site = Some(site);
        self.measure.placed(site, self.request_of(number));
    }

    pub(super) fn hold(&mut self, number: PodNumber, reason: &'static str) {
        let pod = &mut self.pods[number];
        pod.phase = Phase::Gated;
        pod.reason = reason;
        pod.gated = self.now;
        self.measure.was_gated();
    }

    /// Removes the gate from a pod, and places the pod if a site is given.
    pub(super) fn release(&mut self, number: PodNumber, site: Option<usize>) {
        self.measure.released(self.gated_for(number), self.pods[number].created);
        let pod = &mut self.pods[number];
        pod.phase = Phase::Unbound;
        pod.version += 1;
        if let Some(site) = site {
            self.place(number, site);
        }
        self.ungated(number);
    }

    pub(super) fn could_hold(&self, number: PodNumber) -> impl Iterator<Item = usize> + use<'_, 's> {
        let request = self.request_of(number);
        let workload = self.pods[number].workload;
        (0..self.scenario.sites.len()).filter(move |site| {
            let mut nodes = self.allowed[workload][site + 1].iter();
            nodes.any(|at| request.fits(&self.nodes[*at].node.allocatable, &Amounts::default()))
        })
    }

    /// The used share of a site's CPU or memory, whichever is larger. Placed pods without a node count as well.
    fn share_taken(&self, site: usize) -> f64 {
        let (mut total, mut used) = (Amounts::default(), self.measure.unbound_at(site).clone());
        for node in self.nodes.iter().filter(|node| node.site == site) {
            total.add(&node.node.allocatable, 1);
            used.add(&node.used, 1);
        }
        let share = |used: i64, total: i64| used as f64 / total.max(1) as f64;
        share(used.cpu.0, total.cpu.0).max(share(used.memory.0, total.memory.0))
    }

    /// True time of the pod's work, or of its first request, at a site.
    pub(super) fn service_at(&self, number: PodNumber, site: usize) -> Micros {
        let time = match self.pods[number].work {
            crate::cluster::Work::Task(task) => self.load.tasks[task].service,
            crate::cluster::Work::Replica { service, first_of, .. } => self.request_time(service, first_of, 0),
            crate::cluster::Work::Initial => return Micros(0),
        };
        self.scenario.sites[site].service(time, self.now)
    }

    pub(super) fn reconsider(&mut self) {
        if let Placer::Clairvoyant(clairvoyant) = &mut self.placer
            && clairvoyant.wants_to_look()
        {
            self.events.schedule(self.now, Event::Reconsider);
        }
    }
}
