//! What a Prometheus server would tell of the requests of services: mean and p95 by site, namespace and class, over the last five
//! minutes.

use std::collections::BTreeMap;

use edgeward_cluster::engine::Change;
use edgeward_cluster::telemetry::{Measurement, Telemetry, Work};
use edgeward_decision::config::{Config, Input, Prometheus};
use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::ProcessingTime;
use edgeward_kube::units::Micros;

use super::{Event, Run, clock};
use crate::cluster::{Phase, Work as PodWork};
use crate::load::service_time;

/// The number of requests that each running pod has answered within five minutes.
const REQUESTS: u64 = 20;

/// The Prometheus settings, if they ask for processing times.
pub(super) fn queried(config: &Config) -> Option<&Prometheus> {
    let prometheus = config.prometheus.as_ref();
    prometheus.filter(|prometheus| prometheus.queries.contains_key(&Input::Processing))
}

impl Run<'_> {
    /// Queries the requests, and tells every replica. The requests are not those that are measured.
    pub(in crate::run) fn query_request_times(&mut self) {
        let times = self.request_times();
        let (now, seen) = (self.now, clock(self.now).moment);
        let Some(edgeward) = self.edgeward() else { return };
        let Some(prometheus) = queried(&edgeward.config) else {
            return;
        };
        let (period, until) = (prometheus.period, seen.after(prometheus.staleness));
        let mut telemetry = Telemetry::default();
        for ((site, namespace, class), mut times) in times {
            let Some(time) = ProcessingTime::of(&mut times) else {
                continue;
            };
            for (is_p95, value) in [(false, time.mean), (true, time.p95)] {
                let work = Work {
                    namespace: namespace.clone(),
                    class,
                    is_p95,
                };
                let site = &self.scenario.sites[site].definition.name;
                let measurement = Measurement::processing(site, work, value);
                telemetry.record(measurement, seen, until, &self.scenario.config);
            }
        }
        let Some(edgeward) = self.edgeward() else { return };
        for replica in &mut edgeward.replicas {
            replica.apply(&Change::Telemetry(Box::new(telemetry.clone())), now);
        }
        for number in 0..self.scenario.replicas as usize {
            self.changed(number);
        }
        self.events.schedule(now + period, Event::RequestTimes);
    }

    /// Times of requests by site, namespace and class.
    fn request_times(&self) -> BTreeMap<(usize, Box<str>, Class), Vec<Micros>> {
        let mut times = BTreeMap::<_, Vec<_>>::new();
        let running = self
            .pods
            .iter()
            .enumerate()
            .filter(|(_, pod)| pod.phase == Phase::Running);
        for (number, pod) in running {
            let (PodWork::Replica { service, .. }, Some(node)) = (pod.work, pod.node) else {
                continue;
            };
            let (workload, site) = (&self.scenario.workloads[pod.workload], self.nodes[node].site);
            let Some(slo) = workload.slo else { continue };
            let answered = times
                .entry((site, (*workload.namespace).into(), slo.class))
                .or_default();
            for request in 0..REQUESTS {
                let own = (1 << 61) | ((number as u64) << 20) | (self.now.0 / 60_000_000 * REQUESTS + request);
                let time = service_time(workload, self.seed, (1 << 62) | service as u64, own);
                let time = workload.drifted(time, self.now);
                answered.push(self.scenario.sites[site].service(time, self.now));
            }
        }
        times
    }
}
