//! Latencies between clusters, and their changes by placements.

use super::generator::Generator;

/// The largest latency, in ms.
pub(super) const MAX_DELAY: u16 = 500;

/// The range of new latencies for each current latency: the least one, and their number.
#[derive(Debug)]
pub(super) struct Change([(u16, u16); MAX_DELAY as usize + 1]);

pub(super) static ALL_PLACED: Change = Change::between(1.0, 1.5);
pub(super) static SPREAD_PLACED: Change = Change::between(1.0, 1.1);
pub(super) static ALL_GONE: Change = Change::between(0.5, 1.0);
pub(super) static SPREAD_GONE: Change = Change::between(0.9, 1.0);

impl Change {
    /// Returns the change to a random latency from `least` times the current one up to, but not including, `most`
    /// times. If the range is empty, a growing latency may fall by one and a falling latency may grow, as published.
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

/// The latency from each cluster to each other cluster in whole ms, and the mean of each cluster. A cluster's latency
/// to itself is 0 and counts in the mean, as published.
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

    /// Mean latency of each cluster, in ms.
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

    /// Changes the latencies between a cluster and all others. They are then equal in both directions. O(clusters),
    /// because each change of an entry updates one sum.
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
