//! Units: everything with a time to meet. A unit is a task, or a sampled request of a service. All policies get the
//! same units.

use std::collections::HashMap;

use edgeward_decision::model::slo::{Class, PerClass};
use edgeward_kube::units::{Micros, Permille};

use crate::load::{Load, service_time};
use crate::outcome::Attained;
use crate::scenario::{Scenario, Slo, Workload};
use crate::wan::{Path, round_trips};

pub const MINUTE: Micros = Micros::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    Task(usize),
    /// A request to a slot of a service, `minute` minutes after the slot opened. Minute 0 is the first request, sent
    /// when the slot's pod gets its node.
    Request {
        service: usize,
        slot: usize,
        minute: u64,
    },
}

#[derive(Debug, Clone, Default)]
pub struct Units {
    pub list: Vec<(Unit, Class)>,
    places: HashMap<Unit, usize>,
}

/// Returns the time of a request at speed 1, `minute` minutes after the slot opened.
pub fn request_time(
    scenario: &Scenario,
    load: &Load,
    seed: u64,
    service: usize,
    slot: Option<usize>,
    minute: u64,
) -> Micros {
    let number = ((slot.unwrap_or((1 << 20) - 1) as u64) << 20) | minute;
    let load = &load.services[service];
    let workload = &scenario.workloads[load.workload];
    let opened = slot.map_or(Micros(0), |slot| load.slots[slot].open);
    let time = service_time(workload, seed, (1 << 62) | service as u64, number);
    workload.drifted(time, opened + MINUTE.times(minute))
}

impl Units {
    pub fn new(scenario: &Scenario, load: &Load) -> Self {
        let mut units = Self::default();
        for (number, task) in load.tasks.iter().enumerate() {
            if let Some(slo) = timed(&scenario.workloads[task.workload])
                && task.at >= scenario.warmup
            {
                units.add(Unit::Task(number), slo.class);
            }
        }
        for (service, load) in load.services.iter().enumerate() {
            let Some(slo) = timed(&scenario.workloads[load.workload]) else {
                continue;
            };
            for (slot, open) in load.slots.iter().enumerate() {
                for minute in 0.. {
                    let at = open.open + MINUTE.times(minute);
                    if minute > 0 && (slo.target.is_none() || at >= open.close) {
                        break;
                    }
                    if at >= scenario.warmup {
                        units.add(Unit::Request { service, slot, minute }, slo.class);
                    }
                }
            }
        }
        units
    }

    fn add(&mut self, unit: Unit, class: Class) {
        self.places.insert(unit, self.list.len());
        self.list.push((unit, class));
    }

    pub fn place(&self, unit: Unit) -> Option<usize> {
        self.places.get(&unit).copied()
    }

    /// Counts the units of each class, and the met units among them.
    pub fn by_class(&self, met: &[bool]) -> PerClass<Attained> {
        let mut found = PerClass::<Attained>::default();
        for ((_, class), met) in self.list.iter().zip(met) {
            found[*class].asked += 1;
            found[*class].met += u64::from(*met);
        }
        found
    }
}

/// Returns the SLO of a workload, if it has a time to meet and its pods can run.
fn timed(workload: &Workload) -> Option<Slo> {
    let slo = workload.slo?;
    let is_timed = slo.deadline.is_some() || slo.target.is_some();
    (is_timed && !workload.is_quota_blocked && !workload.is_unscheduled).then_some(slo)
}

/// Whether a pod meets its times, given its wait for a node, the time of its work, and its WAN crossing.
pub fn is_met(slo: &Slo, waited: Micros, service: Micros, crossing: Option<Micros>) -> bool {
    let Some(crossing) = crossing else { return false };
    slo.deadline
        .is_none_or(|deadline| waited + service + crossing <= deadline)
        && slo.target.is_none_or(|target| service + crossing <= target)
}

pub fn request_id(unit: Unit) -> u64 {
    match unit {
        Unit::Task(task) => task as u64,
        Unit::Request { service, slot, minute } => {
            (1 << 62) | ((service as u64) << 44) | ((slot as u64) << 24) | minute
        }
    }
}

/// Computes the bound `relaxed`: whether each unit could be met by its pod alone in the empty fleet, at its best site
/// and the best time. No policy meets a unit that this bound misses.
pub fn relaxed(scenario: &Scenario, load: &Load, paths: &[Option<Path>], seed: u64, units: &Units) -> Vec<bool> {
    let nodes: Vec<_> = scenario.sites.iter().map(|site| &site.nodes).collect();
    let could_hold: Vec<Vec<bool>> = scenario
        .workloads
        .iter()
        .map(|workload| {
            let fits = |nodes: &&Vec<edgeward_kube::node::Node>| {
                nodes
                    .iter()
                    .any(|node| workload.request.fits(&node.allocatable, &Default::default()))
            };
            nodes.iter().map(fits).collect()
        })
        .collect();
    let is_met = |(unit, class): &(Unit, Class)| {
        let (workload, at, time) = match *unit {
            Unit::Task(task) => {
                let task = &load.tasks[task];
                (task.workload, task.at, task.service)
            }
            Unit::Request { service, slot, minute } => {
                let time = request_time(scenario, load, seed, service, Some(slot), minute);
                let service = &load.services[service];
                (service.workload, service.slots[slot].open + MINUTE.times(minute), time)
            }
        };
        let Some(slo) = scenario.workloads[workload].slo else {
            return false;
        };
        (0..scenario.sites.len()).any(|site| {
            let path = paths[site].as_ref();
            if !could_hold[workload][site] || (path.is_some() && !slo.offload) {
                return false;
            }
            let place = &scenario.sites[site];
            // A pod may start when a slow spell is over. A periodic request cannot wait.
            let service = match unit {
                Unit::Request { minute: 1.., .. } => place.service(time, at),
                _ => time.rescaled(Permille::ONE, place.speed),
            };
            let trips = round_trips(*class);
            let crossing = match (path, unit) {
                (None, _) => Some(Micros(0)),
                (Some(path), Unit::Request { minute: 1.., .. }) => path.crossing(at, trips, seed, request_id(*unit)),
                (Some(path), _) => path.least_crossing(at, slo.deadline.map(|deadline| at + deadline), trips),
            };
            let slo = match unit {
                Unit::Request { minute: 1.., .. } => Slo { deadline: None, ..slo },
                _ => slo,
            };
            self::is_met(&slo, Micros(0), service, crossing)
        })
    };
    units.list.iter().map(is_met).collect()
}
