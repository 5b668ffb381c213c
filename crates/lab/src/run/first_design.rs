//! The first design, sections 5.2 to 5.4 and 6.1, taken literally: a controller that polls, and decides by sums and by counts of
//! pending pods. A pod waits for its decision, for the API server lets nobody place a pod that kube-scheduler may bind.

use edgeward_core::model::slo::{Class, PerClass};
use edgeward_core::resources::Amounts;
use edgeward_core::units::Micros;

use super::{Event, Placer, Run};
use crate::cluster::{Phase, PodNumber};
use crate::random::{Purpose, unit};
use crate::scenario::Slo;

/// Its polling interval.
pub(super) const POLL: Micros = Micros::from_millis(200);

/// How often it runs `ping -c 5`.
const PING_PERIOD: Micros = Micros::from_secs(10);

/// How many pings that are.
const PINGS: u64 = 5;

/// `RTT_THRESHOLD`, in milliseconds.
const RTT_THRESHOLD: f64 = 100.0;

/// `LOSS_THRESHOLD`, in percent.
const LOSS_THRESHOLD: f64 = 2.0;

/// What the controller remembers.
#[derive(Debug, Default)]
pub(super) struct FirstDesign {
    undecided: Vec<PodNumber>,
    /// The last average RTT of an answered ping, and the last loss in percent.
    wan: Option<(f64, f64)>,
    /// Sum and number of the processing times that were estimated, by class: their average is `avgProcTime`.
    processing: PerClass<(f64, f64)>,
}

/// `procTimeEdge` and `procTimeCloud`, in milliseconds.
fn processing_time(class: Class, millicores: i64) -> f64 {
    let cpu = millicores as f64;
    match class {
        Class::Latency => 0.5 * cpu + 20.0,
        Class::Throughput => 1.0 * cpu + 50.0,
        Class::Batch => 2.0 * cpu + 100.0,
    }
}

impl Run<'_> {
    fn first_design(&mut self) -> Option<&mut FirstDesign> {
        match &mut self.placer {
            Placer::FirstDesign(design) => Some(design),
            _ => None,
        }
    }

    pub(super) fn await_poll(&mut self, number: PodNumber) {
        if let Some(design) = self.first_design() {
            design.undecided.push(number);
        }
    }

    /// Five pings, a second apart, of the first cloud.
    pub(super) fn ping(&mut self) {
        let (now, seed) = (self.now, self.seed);
        self.events.schedule(now + PING_PERIOD, Event::Ping);
        let Some((site, path)) = self
            .paths
            .iter()
            .enumerate()
            .find_map(|(site, path)| Some((site, path.as_ref()?)))
        else {
            return;
        };
        let answered = (0..PINGS).filter_map(|ping| {
            let at = now + Micros::from_secs(ping);
            let number = at.0 / 1_000_000;
            let is_lost = unit(seed, Purpose::Probe, site as u64, number) < path.loss(at);
            path.rtt(at).filter(|_| !is_lost).map(|rtt| rtt.as_millis_f64())
        });
        let answered: Vec<f64> = answered.collect();
        let loss = 100.0 * (1.0 - answered.len() as f64 / PINGS as f64);
        let average = (!answered.is_empty()).then(|| answered.iter().sum::<f64>() / answered.len() as f64);
        if let Some(design) = self.first_design() {
            let cached = design.wan.map(|(rtt, _)| rtt);
            design.wan = average.or(cached).map(|rtt| (rtt, loss));
        }
    }

    /// Every pending pod that carries no decision is decided.
    pub(super) fn poll(&mut self) {
        self.events.schedule(self.now + POLL, Event::Poll);
        let Some(design) = self.first_design() else { return };
        for number in std::mem::take(&mut design.undecided) {
            if self.pods[number].phase != Phase::Gated {
                continue;
            }
            if let Some(slo) = self.slo_of(number) {
                let is_cloud = self.decide_as_first_design(number, &slo);
                let cloud = self.paths.iter().position(Option::is_some).unwrap_or(0);
                self.release(number, Some(if is_cloud { cloud } else { 0 }));
            }
        }
    }

    /// `decide`: whether it goes to the cloud.
    fn decide_as_first_design(&mut self, number: PodNumber, slo: &Slo) -> bool {
        let request = self.request_of(number);
        let processing = processing_time(slo.class, request.cpu.0);
        let pending = |site: usize| self.measure.pending(site, slo.class) as f64;
        let (at_edge, in_cloud) = (pending(0), (1..self.scenario.sites.len()).map(pending).sum::<f64>());
        let mut free = Amounts::default();
        for node in self.nodes.iter().filter(|node| node.site == 0 && node.node.ready) {
            free.add(&crate::cluster::less(&node.node.allocatable, &node.used), 1);
        }
        free = crate::cluster::less(&free, self.measure.unbound_at(0));
        let Some(design) = self.first_design() else {
            return false;
        };
        let (sum, count) = &mut design.processing[slo.class];
        (*sum, *count) = (*sum + processing, *count + 1.0);
        let average = *sum / *count;
        let wan = design.wan;
        if !slo.offload {
            return false;
        }
        let deadline = slo.deadline.or(slo.target).map_or(f64::INFINITY, Micros::as_millis_f64);
        let edge = at_edge * average + processing;
        if request.cpu <= free.cpu && request.memory <= free.memory && edge <= deadline {
            return false;
        }
        let Some((rtt, loss)) = wan else { return false };
        let cloud = 2.0 * rtt + in_cloud * average + processing;
        let is_healthy = rtt < RTT_THRESHOLD && loss < LOSS_THRESHOLD;
        if is_healthy && cloud <= deadline {
            return true;
        }
        slo.priority >= 7 && 2.0 * rtt + processing < edge
    }
}
