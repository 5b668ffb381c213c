//! Scales the load of a scenario.

use super::{Arrivals, Rate, Replicas, Scenario, WorkloadKind};

impl Scenario {
    /// Returns the scenario with `factor` times its load: its rates, the rows of its traces, and its replicas with the
    /// bounds of autoscalers. Initial pods stay unchanged.
    pub fn at_load(&self, factor: f64) -> Scenario {
        let mut scenario = self.clone();
        let times = |count: u32| (f64::from(count) * factor).round() as u32;
        for workload in &mut scenario.workloads {
            match &mut workload.kind {
                WorkloadKind::Jobs { arrivals, .. } => match arrivals {
                    Arrivals::Poisson(rate) => scale(rate, factor),
                    Arrivals::Trace(rows) => *rows = repeated(rows, factor),
                    Arrivals::Log(rows) => {
                        let ones: Vec<_> = (0..rows.len()).map(|row| (row, 1)).collect();
                        let rows_of = |(row, count): (usize, u32)| std::iter::repeat_n(rows[row], count as usize);
                        *rows = repeated(&ones, factor).into_iter().flat_map(rows_of).collect();
                    }
                },
                WorkloadKind::Service { replicas, .. } => match replicas {
                    Replicas::Fixed(count) => *count = times(*count),
                    Replicas::Scaled(scaling) => {
                        scale(&mut scaling.demand, factor);
                        scaling.min = times(scaling.min).max(1);
                        scaling.max = times(scaling.max).max(scaling.min);
                    }
                },
                WorkloadKind::Initial { .. } => {}
            }
        }
        scenario
    }
}

fn scale(rate: &mut Rate, factor: f64) {
    match rate {
        Rate::PerSecond(rate) => *rate *= factor,
        Rate::Bursty {
            per_second,
            burst_per_second,
            ..
        } => {
            *per_second *= factor;
            *burst_per_second *= factor;
        }
        Rate::Diurnal { per_second, .. } => *per_second *= factor,
        Rate::Steps(steps) => steps.iter_mut().for_each(|step| step.per_second *= factor),
    }
}

/// Multiplies the count of each row. Fractions carry over to the next row.
fn repeated<T: Copy>(rows: &[(T, u32)], factor: f64) -> Vec<(T, u32)> {
    let (mut all, mut made) = (0.0, 0.0);
    let rows = rows.iter().map(|(at, count)| {
        all += f64::from(*count) * factor;
        let count = (all + 1e-9).floor() - made;
        made += count;
        (*at, count as u32)
    });
    rows.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use edgeward_kube::units::Micros;

    use super::*;

    #[test]
    fn scaled_trace_keeps_times_and_total_count() {
        let rows: Vec<_> = (0..10).map(|second| (Micros::from_secs(second), 1)).collect();
        let count = |factor| repeated(&rows, factor).iter().map(|(_, count)| count).sum::<u32>();
        assert_eq!([0.0, 0.25, 0.5, 1.0, 1.3].map(count), [0, 2, 5, 10, 13]);
        assert_eq!(repeated(&rows, 1.0), rows);
        assert_eq!(repeated(&rows[..2], 0.5), [(Micros::from_secs(1), 1)]);
    }
}
