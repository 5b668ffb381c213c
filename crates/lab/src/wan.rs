//! The WAN towards a cloud in one run: RTT and loss in each second.

use edgeward_decision::model::slo::Class;
use edgeward_kube::units::Micros;

use crate::random::{Purpose, Stream, unit};
use crate::scenario::{Wan, WanModel};

/// The shortest timeout before a lost round trip is repeated. Source: RFC 6298, with the minimum that Linux uses.
const LEAST_TIMEOUT: Micros = Micros::from_millis(200);

const REPETITIONS: u64 = 8;

#[derive(Debug, Clone)]
pub struct Path {
    /// RTT in each second; `None` while nothing passes.
    rtt: Vec<Option<Micros>>,
    loss: Vec<f64>,
    least_from: Vec<Option<Micros>>,
}

/// Returns the number of round trips over the WAN that a request of this class takes.
pub fn round_trips(class: Class) -> u64 {
    match class {
        Class::Latency | Class::Throughput => 2,
        Class::Batch => 1,
    }
}

impl Path {
    /// Draws the WAN of a site for a run of length `lasts`. `outages` are the outages of the whole site.
    pub fn new(wan: &Wan, seed: u64, site: usize, lasts: Micros, outages: &[(Micros, Micros)]) -> Self {
        let seconds = usize::try_from(lasts.0 / 1_000_000).unwrap_or(0) + 2;
        let (mut rtt, loss) = match wan {
            Wan::Model(model) => described(model, seed, site, seconds),
            Wan::Trace(rows) => measured(rows, seconds),
        };
        for (at, lasts) in outages {
            set(&mut rtt, *at, *at + *lasts, None);
        }
        let mut least = None;
        let mut least_from: Vec<_> = rtt
            .iter()
            .rev()
            .map(|rtt| {
                least = match (least, *rtt) {
                    (Some(one), Some(other)) => Some(Micros::min(one, other)),
                    (one, other) => one.or(other),
                };
                least
            })
            .collect();
        least_from.reverse();
        Self { rtt, loss, least_from }
    }

    fn second(&self, at: Micros) -> usize {
        usize::try_from(at.0 / 1_000_000)
            .unwrap_or(usize::MAX)
            .min(self.rtt.len() - 1)
    }

    /// Returns the RTT at this time; `None` while nothing passes.
    pub fn rtt(&self, at: Micros) -> Option<Micros> {
        self.rtt[self.second(at)]
    }

    pub fn loss(&self, at: Micros) -> f64 {
        self.loss[self.second(at)]
    }

    /// Returns the time of `trips` round trips that begin at `at`, with the random numbers of this request. The trips
    /// wait while nothing passes, and a lost trip is repeated. `None` if nothing passes until the end of the run.
    pub fn crossing(&self, at: Micros, trips: u64, seed: u64, request: u64) -> Option<Micros> {
        if trips == 0 {
            return Some(Micros(0));
        }
        let begin = self.second(at);
        let up = (begin..self.rtt.len()).find(|second| self.rtt[*second].is_some())?;
        let rtt = self.rtt[up]?;
        let waits = match up == begin {
            true => Micros(0),
            false => Micros(up as u64 * 1_000_000) - at,
        };
        let mut time = waits + rtt.times(trips);
        if self.loss[up] > 0.0 {
            for trip in 0..trips {
                let timeout = LEAST_TIMEOUT.max(rtt.times(2));
                let is_lost = |repetition| {
                    unit(seed, Purpose::Crossing, request, trip * REPETITIONS + repetition) < self.loss[up]
                };
                let losses = (0..REPETITIONS).take_while(|repetition| is_lost(*repetition)).count();
                time = time + timeout.times((1 << losses) - 1);
            }
        }
        Some(time)
    }

    /// Returns a lower bound of all crossings that begin and end between these times; `None` if nothing passes between
    /// them.
    pub fn least_crossing(&self, from: Micros, to: Option<Micros>, trips: u64) -> Option<Micros> {
        let first = self.second(from);
        let least = match to.map(|to| self.second(to)) {
            // For long windows, the least RTT of the rest of the run is a good enough lower bound.
            Some(last) if last - first < 1_000 => self.rtt[first..=last].iter().flatten().min().copied(),
            _ => self.least_from[first],
        };
        least.map(|rtt| rtt.times(trips))
    }
}

fn micros(ms: f64) -> Micros {
    Micros((ms.max(0.0) * 1_000.0).round() as u64)
}

fn set(rtt: &mut [Option<Micros>], from: Micros, to: Micros, value: Option<Micros>) {
    let second = |at: Micros| usize::try_from(at.0 / 1_000_000).unwrap_or(usize::MAX).min(rtt.len());
    let (first, end) = (second(from), second(to));
    rtt[first..end].fill(value);
}

fn measured(rows: &[(Micros, Option<f64>, f64)], seconds: usize) -> (Vec<Option<Micros>>, Vec<f64>) {
    let row = |second: usize| {
        let at = Micros(second as u64 * 1_000_000);
        let after = rows.partition_point(|(from, ..)| *from <= at);
        after.checked_sub(1).map(|row| rows[row])
    };
    let rows: Vec<_> = (0..seconds).map(row).collect();
    let rtt = rows.iter().map(|row| row.and_then(|(_, rtt, _)| rtt).map(micros));
    (
        rtt.collect(),
        rows.iter().map(|row| row.map_or(0.0, |(.., loss)| loss)).collect(),
    )
}

fn described(model: &WanModel, seed: u64, site: usize, seconds: usize) -> (Vec<Option<Micros>>, Vec<f64>) {
    let site = site as u64;
    let mut stream = Stream::new(seed, Purpose::Wan, site, 0);
    let mut added = vec![0.0; seconds];
    let mut loss = vec![model.loss; seconds];
    if let Some(diurnal) = &model.diurnal {
        for (second, added) in added.iter_mut().enumerate() {
            let since_peak = second as f64 * 1e6 - diurnal.peak_at_seconds.0 as f64;
            let phase = since_peak / diurnal.period_seconds.0 as f64 * std::f64::consts::TAU;
            *added += diurnal.added_ms * (1.0 + phase.cos()) / 2.0;
        }
    }
    if let Some(congestion) = &model.congestion {
        let mut times = Stream::new(seed, Purpose::Wan, site, 1);
        let (every, lasting) = (congestion.every_seconds, congestion.lasting_seconds);
        for (from, to) in spells(&mut times, every, lasting, seconds) {
            added[from..to]
                .iter_mut()
                .for_each(|added| *added += congestion.added_ms);
            loss[from..to]
                .iter_mut()
                .for_each(|loss| *loss = congestion.loss_pct.max(*loss));
        }
    }
    let mut rtt: Vec<_> = added
        .iter()
        .map(|added| Some(micros(model.rtt.draw(&mut stream) + added)))
        .collect();
    if let Some(flapping) = &model.flapping {
        let mut times = Stream::new(seed, Purpose::Wan, site, 2);
        for (from, to) in spells(&mut times, flapping.every_seconds, flapping.down_seconds, seconds) {
            rtt[from..to].fill(None);
        }
    }
    for outage in &model.outages {
        let from = outage.at_seconds;
        set(&mut rtt, from, from + outage.lasting_seconds, None);
    }
    (rtt, loss)
}

/// Draws spells with these mean times between and within them. Returns their first and end seconds.
fn spells(times: &mut Stream, every: Micros, lasting: Micros, seconds: usize) -> Vec<(usize, usize)> {
    let mut found = vec![];
    let mut at = 0.0;
    loop {
        let from = at + times.exponential(every.0 as f64 / 1e6);
        let to = from + times.exponential(lasting.0 as f64 / 1e6).max(1.0);
        if from >= seconds as f64 {
            return found;
        }
        found.push((from as usize, (to as usize).min(seconds)));
        at = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Flapping;

    fn path(rows: &[(u64, Option<f64>, f64)]) -> Path {
        let rows = rows.iter().map(|(at, rtt, loss)| (Micros::from_secs(*at), *rtt, *loss));
        Path::new(&Wan::Trace(rows.collect()), 1, 1, Micros::from_secs(20), &[])
    }

    #[test]
    fn crossing_waits_for_link_recovery() {
        let path = path(&[
            (0, None, 0.0),
            (5, Some(20.0), 0.0),
            (10, Some(10.0), 0.0),
            (15, None, 0.0),
        ]);
        let crossing = |seconds| path.crossing(Micros::from_secs(seconds), 2, 1, 1);
        assert_eq!(crossing(2), Some(Micros::from_millis(3_040)));
        assert_eq!(crossing(5), Some(Micros::from_millis(40)));
        assert_eq!(crossing(16), None);
        let least = |from, to: Option<u64>| path.least_crossing(Micros::from_secs(from), to.map(Micros::from_secs), 1);
        assert_eq!(least(0, Some(6)), Some(Micros::from_millis(20)));
        assert_eq!(least(0, None), Some(Micros::from_millis(10)));
        assert_eq!(least(0, Some(4)), None);
    }

    #[test]
    fn lost_round_trips_are_repeated() {
        let path = path(&[(0, Some(20.0), 0.3)]);
        let times: Vec<_> = (0..20_000)
            .filter_map(|request| path.crossing(Micros(0), 1, 3, request))
            .collect();
        let late = times.iter().filter(|time| **time > Micros::from_millis(20)).count();
        assert!((5_700..6_300).contains(&late), "{late}");
        assert!(times.iter().all(|time| *time >= Micros::from_millis(20)));
    }

    #[test]
    fn flapping_wan_is_down_for_stated_share() {
        let model = WanModel {
            rtt: crate::random::Distribution::Constant(20.0),
            loss: 0.0,
            diurnal: None,
            flapping: Some(Flapping {
                every_seconds: Micros::from_secs(90),
                down_seconds: Micros::from_secs(10),
            }),
            congestion: None,
            outages: vec![],
        };
        let path = Path::new(&Wan::Model(model), 1, 1, Micros::from_secs(200_000), &[]);
        let down = path.rtt.iter().filter(|rtt| rtt.is_none()).count();
        assert!((17_000..23_000).contains(&down), "{down}");
    }
}
