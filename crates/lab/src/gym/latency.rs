//! The latencies between clusters, and how placements change them.

use super::generator::Generator;

/// The largest latency, ms.
pub(super) const MAX_DELAY: u16 = 500;

/// What a latency can become: for each that there is, the least and how many from there on.
#[derive(Debug)]
pub(super) struct Change([(u16, u16); MAX_DELAY as usize + 1]);

pub(super) static ALL_PLACED: Change = Change::between(1.0, 1.5);
pub(super) static SPREAD_PLACED: Change = Change::between(1.0, 1.1);
pub(super) static ALL_GONE: Change = Change::between(0.5, 1.0);
pub(super) static SPREAD_GONE: Change = Change::between(0.9, 1.0);

impl Change {
    /// From one multiple of a latency on, up to another, which is not reached. Where there is nothing between them a latency that grows
    /// may fall by one, and one that falls grow, as published.
    const fn between(least: f64, most: f64) -> Self {
        let mut ranges = [(0, 0); MAX_DELAY as usize + 1];
        let mut latency = 0;
        while latency <= MAX_DELAY {
            let (mut low, mut end) = ((latency as f64 * least) as u16, (latency as f64 * most) as u16);
            if low < 1 {
                low = 1;
            }
            if end > MAX_DELAY {
                end = MAX_DELAY;
            }
            let is_lowered = if most > 1.0 { low != 1 } else { end == MAX_DELAY };
            if low == end && is_lowered {
                low -= 1;
            } else if low >= end {
                end = low + 1;
            }
            ranges[latency as usize] = (low, end - low);
            latency += 1;
        }
        Self(ranges)
    }
}

/// The latency from each cluster to each other, whole ms, and each cluster's mean. The latency of a cluster to itself is 0
/// and counts in the mean, as published.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    entries: Vec<u16>,
    sums: Vec<u32>,
    means: Vec<f64>,
}

impl Latencies {
    pub(super) fn new(clusters: usize) -> Self {
        Self {
            entries: vec![0; clusters * clusters],
            sums: vec![0; clusters],
            means: vec![0.0; clusters],
        }
    }

    /// The mean latency of each cluster, ms.
    pub(super) fn means(&self) -> &[f64] {
        &self.means
    }

    pub(super) fn draw(&mut self, generator: &mut Generator) {
        let clusters = self.means.len();
        for (from, row) in self.entries.chunks_exact_mut(clusters).enumerate() {
            for (to, entry) in row.iter_mut().enumerate() {
                *entry = if from == to { 0 } else { generator.below(499) as u16 + 1 };
            }
            self.sums[from] = row.iter().map(|entry| u32::from(*entry)).sum();
            self.means[from] = f64::from(self.sums[from]) / clusters as f64;
        }
    }

    /// Changes the latencies between a cluster and all others, which are the same both ways from then on. O(clusters): each
    /// change of an entry changes one sum.
    pub(super) fn change(&mut self, cluster: usize, change: &Change, generator: &mut Generator) {
        let clusters = self.means.len();
        for other in (0..clusters).filter(|other| *other != cluster) {
            let entry = &mut self.entries[cluster * clusters + other];
            let (low, width) = change.0[usize::from(*entry)];
            let latency = low + generator.below(u32::from(width)) as u16;
            self.sums[cluster] = self.sums[cluster] + u32::from(latency) - u32::from(*entry);
            *entry = latency;
            let entry = &mut self.entries[other * clusters + cluster];
            self.sums[other] = self.sums[other] + u32::from(latency) - u32::from(*entry);
            *entry = latency;
            self.means[other] = f64::from(self.sums[other]) / clusters as f64;
        }
        self.means[cluster] = f64::from(self.sums[cluster]) / clusters as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gym::Settings;

    #[test]
    fn a_latency_stays_a_latency() {
        for (change, latency, low, width) in [
            (&ALL_PLACED, 1, 1, 1),
            (&ALL_PLACED, 2, 2, 1),
            (&ALL_PLACED, 139, 139, 69),
            (&ALL_PLACED, 400, 400, 100),
            (&ALL_PLACED, 500, 499, 1),
            (&SPREAD_PLACED, 1, 1, 1),
            (&SPREAD_PLACED, 9, 8, 1),
            (&SPREAD_PLACED, 10, 10, 1),
            (&SPREAD_PLACED, 100, 100, 10),
            (&SPREAD_PLACED, 480, 480, 20),
            (&SPREAD_PLACED, 500, 499, 1),
            (&ALL_GONE, 1, 1, 1),
            (&ALL_GONE, 3, 1, 2),
            (&ALL_GONE, 500, 250, 250),
            (&SPREAD_GONE, 1, 1, 1),
            (&SPREAD_GONE, 2, 1, 1),
            (&SPREAD_GONE, 500, 450, 50),
        ] {
            assert_eq!(change.0[latency], (low, width), "{latency}");
        }
        for change in [&ALL_PLACED, &SPREAD_PLACED, &ALL_GONE, &SPREAD_GONE] {
            let ranges = change.0.iter();
            assert!(
                ranges
                    .into_iter()
                    .all(|(low, width)| *low >= 1 && *width >= 1 && low + width <= MAX_DELAY + 1)
            );
        }
    }

    #[test]
    fn means_are_those_of_the_rows_whatever_changed() {
        for clusters in [1, 2, 5, Settings::MAX_CLUSTERS] {
            let mut generator = Generator::new(7);
            let mut latencies = Latencies::new(clusters);
            latencies.draw(&mut generator);
            for round in 0..300 {
                let change = [&ALL_PLACED, &SPREAD_PLACED, &ALL_GONE, &SPREAD_GONE][round % 4];
                let cluster = generator.below(clusters as u32) as usize;
                latencies.change(cluster, change, &mut generator);
                let rows = latencies.entries.chunks_exact(clusters);
                for ((number, row), mean) in rows.enumerate().zip(&latencies.means) {
                    let sum: f64 = row.iter().map(|entry| f64::from(*entry)).sum();
                    assert_eq!(*mean, sum / clusters as f64);
                    assert!(
                        row.iter()
                            .enumerate()
                            .all(|(to, entry)| (*entry == 0) == (to == number))
                    );
                    assert_eq!(row[cluster], latencies.entries[cluster * clusters + number]);
                }
            }
        }
    }
}
