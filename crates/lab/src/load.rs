//! The load of a run, which does not depend on the policy: creation times of pods, times of their work, replicas of
//! services.

use edgeward_kube::units::Micros;

use crate::random::{Distribution, Purpose, Stream};
use crate::scenario::{Arrivals, Rate, Replicas, Scaling, Scenario, Workload, WorkloadKind};

const AUTOSCALER_PERIOD: Micros = Micros::from_secs(15);

const AUTOSCALER_TOLERANCE: f64 = 0.1;

/// Work to be done once: a pod of a Job, together with the pods that replace it.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    pub at: Micros,
    pub workload: usize,
    pub job: u64,
    /// Time of the work at speed 1.
    pub service: Micros,
}

/// A replica slot of a service. Slot `number` is open while the service has more than `number` replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub number: u32,
    pub open: Micros,
    pub close: Micros,
}

#[derive(Debug, Clone)]
pub struct Service {
    pub workload: usize,
    pub replicas: Vec<(Micros, u32)>,
    pub rollouts: Vec<Micros>,
    pub slots: Vec<Slot>,
}

#[derive(Debug, Clone)]
pub struct Load {
    pub tasks: Vec<Task>,
    pub services: Vec<Service>,
}

impl Load {
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let (mut tasks, mut services) = (vec![], vec![]);
        for (number, workload) in scenario.workloads.iter().enumerate() {
            match &workload.kind {
                WorkloadKind::Jobs { arrivals, pods } => {
                    let mut stream = Stream::new(seed, Purpose::Arrivals, number as u64, 0);
                    for (at, controller) in times(arrivals, &mut stream, scenario.end) {
                        let job = ((number as u64) << 40) | controller;
                        tasks.extend((0..*pods).map(|pod| Task {
                            at,
                            workload: number,
                            job,
                            service: workload.drifted(service_time(workload, seed, job, pod.into()), at),
                        }));
                    }
                }
                WorkloadKind::Service { replicas, rollouts, .. } => {
                    let replicas = changes(replicas, seed, number, scenario.end);
                    let rollouts = rollouts.iter().copied().filter(|at| *at < scenario.end);
                    services.push(Service {
                        workload: number,
                        slots: slots(&replicas, scenario.end),
                        rollouts: rollouts.collect(),
                        replicas,
                    });
                }
                WorkloadKind::Initial { .. } => {}
            }
        }
        tasks.sort_by_key(|task| task.at);
        Self { tasks, services }
    }
}

/// Returns the time of one pod's work, or of one request. Pods of one controller share a part of the random variation.
pub fn service_time(workload: &Workload, seed: u64, controller: u64, number: u64) -> Micros {
    let ms = match workload.service {
        Distribution::Constant(ms) => ms,
        distribution => {
            let own = Stream::new(seed, Purpose::Service, controller, number).normal();
            let place = match workload.correlation {
                0.0 => own,
                share => {
                    let common = Stream::new(seed, Purpose::Controller, controller, 0).normal();
                    share.sqrt() * common + (1.0 - share).sqrt() * own
                }
            };
            distribution.at(place)
        }
    };
    Micros((ms * 1_000.0).round().max(1.0) as u64)
}

/// Returns the creation times of pods before `end`, each with the number of its controller.
fn times(arrivals: &Arrivals, stream: &mut Stream, end: Micros) -> Vec<(Micros, u64)> {
    let each_its_own = |times: Vec<Micros>| times.into_iter().zip(0..).collect();
    match arrivals {
        Arrivals::Log(rows) => rows.iter().copied().take_while(|(at, _)| *at < end).collect(),
        Arrivals::Trace(rows) => {
            let rows = rows.iter().take_while(|(at, _)| *at < end);
            each_its_own(rows.flat_map(|(at, count)| (0..*count).map(|_| *at)).collect())
        }
        Arrivals::Poisson(rate) => {
            let bursts = bursts(rate, stream, end);
            let most = match rate {
                Rate::PerSecond(rate) => *rate,
                Rate::Bursty {
                    per_second,
                    burst_per_second,
                    ..
                } => per_second.max(*burst_per_second),
                Rate::Diurnal {
                    per_second, amplitude, ..
                } => per_second * (1.0 + amplitude),
                Rate::Steps(steps) => steps.iter().map(|step| step.per_second).fold(0.0, f64::max),
            };
            let mut found = vec![];
            if most <= 0.0 {
                return vec![];
            }
            let mut at = 0.0;
            loop {
                // Thins a Poisson process of the highest rate.
                at += stream.exponential(1e6 / most);
                let time = Micros(at as u64);
                if time >= end {
                    return each_its_own(found);
                }
                if stream.unit() * most < at_time(rate, &bursts, time) {
                    found.push(time);
                }
            }
        }
    }
}

fn bursts(rate: &Rate, stream: &mut Stream, end: Micros) -> Vec<(Micros, Micros)> {
    let Rate::Bursty {
        every_seconds,
        lasting_seconds,
        ..
    } = rate
    else {
        return vec![];
    };
    let mut found = vec![];
    let mut at = 0.0;
    while at < end.0 as f64 {
        let from = at + stream.exponential(every_seconds.0 as f64);
        let to = from + stream.exponential(lasting_seconds.0 as f64);
        found.push((Micros(from as u64), Micros(to as u64)));
        at = to;
    }
    found
}

fn at_time(rate: &Rate, bursts: &[(Micros, Micros)], at: Micros) -> f64 {
    match rate {
        Rate::PerSecond(rate) => *rate,
        Rate::Bursty {
            per_second,
            burst_per_second,
            ..
        } => {
            let next = bursts.partition_point(|(_, to)| *to <= at);
            let is_burst = bursts.get(next).is_some_and(|(from, _)| *from <= at);
            if is_burst { *burst_per_second } else { *per_second }
        }
        Rate::Diurnal {
            per_second,
            amplitude,
            period_seconds,
            peak_at_seconds,
        } => {
            let since_peak = at.0 as f64 - peak_at_seconds.0 as f64;
            let phase = since_peak / period_seconds.0 as f64 * std::f64::consts::TAU;
            per_second * (1.0 + amplitude * phase.cos())
        }
        Rate::Steps(steps) => {
            let after = steps.partition_point(|step| step.at_seconds <= at);
            after.checked_sub(1).map_or(0.0, |step| steps[step].per_second)
        }
    }
}

fn changes(replicas: &Replicas, seed: u64, workload: usize, end: Micros) -> Vec<(Micros, u32)> {
    let Scaling {
        demand,
        per_replica,
        min,
        max,
        stabilisation_seconds,
    } = match replicas {
        Replicas::Fixed(count) => return vec![(Micros(0), *count)],
        Replicas::Scaled(scaling) => scaling,
    };
    let mut stream = Stream::new(seed, Purpose::Arrivals, workload as u64, 1);
    let bursts = bursts(demand, &mut stream, end);
    let mut found: Vec<(Micros, u32)> = vec![];
    let mut recommended: Vec<(Micros, u32)> = vec![];
    let mut at = Micros(0);
    while at < end {
        let asked = at_time(demand, &bursts, at) / per_replica;
        let now = found.last().map(|(_, count)| *count);
        let is_near = now.is_some_and(|now| (asked / f64::from(now.max(1)) - 1.0).abs() <= AUTOSCALER_TOLERANCE);
        let wanted = match now {
            Some(now) if is_near => now,
            _ => (asked.ceil() as u32).clamp(*min, *max),
        };
        recommended.retain(|(then, _)| *then + *stabilisation_seconds > at);
        recommended.push((at, wanted));
        // Like an autoscaler, it scales down no further than the highest recommendation in the stabilisation window.
        let next = recommended.iter().map(|(_, count)| *count).max().unwrap_or(wanted);
        let next = now.map_or(wanted, |now| if wanted > now { wanted } else { next.min(now) });
        if now != Some(next) {
            found.push((at, next));
        }
        at = at + AUTOSCALER_PERIOD;
    }
    found
}

fn slots(replicas: &[(Micros, u32)], end: Micros) -> Vec<Slot> {
    let mut open: Vec<Slot> = vec![];
    let mut found = vec![];
    for (at, count) in replicas {
        while open.len() > *count as usize {
            found.extend(open.pop().map(|slot| Slot { close: *at, ..slot }));
        }
        while open.len() < *count as usize {
            open.push(Slot {
                number: open.len() as u32,
                open: *at,
                close: end,
            });
        }
    }
    found.extend(open);
    found.sort_by_key(|slot| (slot.open, slot.number));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn count(rate: Rate, seconds: u64) -> Vec<Micros> {
        let mut stream = Stream::new(1, Purpose::Arrivals, 0, 0);
        let times = times(&Arrivals::Poisson(rate), &mut stream, Micros::from_secs(seconds));
        times.into_iter().map(|(at, _)| at).collect()
    }

    fn rate(stated: serde_json::Value) -> Rate {
        serde_json::from_value(stated).unwrap()
    }

    #[test]
    fn arrival_profiles_keep_mean_rate() {
        for stated in [
            json!({"perSecond": 2}),
            json!({"diurnal": {"perSecond": 2, "amplitude": 1, "periodSeconds": 1_000}}),
            json!({"bursty": {"perSecond": 1, "burstPerSecond": 11, "everySeconds": 90, "lastingSeconds": 10}}),
            json!({"steps": [{"atSeconds": 0, "perSecond": 1}, {"atSeconds": 5_000, "perSecond": 3}]}),
        ] {
            let found = count(rate(stated.clone()), 10_000).len();
            assert!(found.abs_diff(20_000) < 1_500, "{stated}: {found}");
        }
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let times = count(Rate::PerSecond(1.0), 100_000);
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).0 as f64 / 1e6)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The standard deviation of an exponential distribution equals its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn autoscaler_scales_up_at_once_and_down_late() {
        let steps = [(0, 10), (60, 40), (120, 10)].map(|(at, rate)| json!({"atSeconds": at, "perSecond": rate}));
        let scaling = json!({"demand": {"steps": steps}, "perReplica": 10, "max": 3});
        let scaling = serde_json::from_value(scaling).unwrap();
        let found = changes(&Replicas::Scaled(scaling), 1, 0, Micros::from_secs(1_000));
        let seconds = found.iter().map(|(at, count)| (at.0 / 1_000_000, *count));
        assert_eq!(seconds.collect::<Vec<_>>(), [(0, 1), (60, 3), (405, 1)]);
        let slots = slots(&found, Micros::from_secs(1_000));
        let of = |slot: &Slot| (slot.number, slot.open.0 / 1_000_000, slot.close.0 / 1_000_000);
        assert_eq!(
            slots.iter().map(of).collect::<Vec<_>>(),
            [(0, 0, 1_000), (1, 60, 405), (2, 60, 405)]
        );
    }
}
