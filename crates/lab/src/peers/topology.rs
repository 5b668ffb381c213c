//! Nodes, the RTTs between them, and whom each knows at the start.

use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};

use crate::random::{Purpose, Stream};

/// The box of Flocky's evaluation, in ms.
const BOX_MS: (f64, f64) = (60.0, 37.5);

#[derive(Debug, Clone)]
pub struct Topology {
    /// In ms, from node to node.
    pub rtt_ms: Vec<Vec<f64>>,
    /// The nodes that each knows at the start.
    pub known: Vec<Vec<usize>>,
}

impl Topology {
    pub fn len(&self) -> usize {
        self.rtt_ms.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rtt_ms.is_empty()
    }

    /// Draws nodes that are uniform in the box. An RTT is the distance with up to 20 % more or less, and a node knows up
    /// to five earlier ones: as Flocky's topologies are drawn.
    pub fn uniform(nodes: usize, seed: u64) -> Self {
        let mut stream = Stream::new(seed, Purpose::Topology, 0, 0);
        let places: Vec<_> = (0..nodes)
            .map(|_| (stream.unit() * BOX_MS.0, stream.unit() * BOX_MS.1))
            .collect();
        let mut rtt_ms = vec![vec![0.0; nodes]; nodes];
        for i in 0..nodes {
            for j in 0..i {
                let distance = (places[i].0 - places[j].0).hypot(places[i].1 - places[j].1);
                rtt_ms[i][j] = distance * (0.8 + 0.4 * stream.unit());
                rtt_ms[j][i] = rtt_ms[i][j];
            }
        }
        let mut known = |node: usize| match node {
            0..=5 => (0..node).collect(),
            _ => (0..5).map(|_| stream.below(node)).collect(),
        };
        let known = (0..nodes).map(&mut known).collect();
        Self { rtt_ms, known }
    }

    /// Every node knows the first one alone.
    pub fn with_common_seed(mut self) -> Self {
        for (node, known) in self.known.iter_mut().enumerate() {
            *known = if node == 0 { Vec::new() } else { vec![0] };
        }
        self
    }

    /// The nearest `most` peers of `node` that `counts` and whose RTT is at most `range_ms`.
    pub fn in_range(&self, node: usize, range_ms: f64, most: usize, counts: impl Fn(usize) -> bool) -> Vec<usize> {
        let row = &self.rtt_ms[node];
        let peers = (0..self.len()).filter(|peer| *peer != node && row[*peer] <= range_ms && counts(*peer));
        let mut peers: Vec<_> = peers.collect();
        peers.sort_by(|one, other| row[*one].total_cmp(&row[*other]));
        peers.truncate(most);
        peers
    }
}

/// Reads a topology in Flocky's format: the number of nodes and the range, the matrix, then whom each node knows.
impl FromStr for Topology {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let first = lines.next().context("is empty")?;
        let nodes: usize = first.split(' ').next().unwrap_or_default().parse().context("line 1")?;
        let mut rows = |what: &str| {
            let rows = (0..nodes).map(|row| lines.next().with_context(|| format!("{what}: row {row} is missing")));
            rows.collect::<Result<Vec<_>>>()
        };
        let matrix = rows("the matrix")?;
        let known = rows("known nodes")?;
        let topology = Self {
            rtt_ms: matrix.into_iter().map(numbers).collect::<Result<_>>()?,
            known: known.into_iter().map(numbers).collect::<Result<_>>()?,
        };
        let is_square = topology.rtt_ms.iter().all(|row| row.len() == nodes);
        ensure!(is_square, "the matrix is not square");
        let are_nodes = topology.known.iter().flatten().all(|known| *known < nodes);
        ensure!(are_nodes, "a known node is not in the matrix");
        Ok(topology)
    }
}

fn numbers<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(line: &str) -> Result<Vec<T>> {
    let numbers = line
        .split_whitespace()
        .map(|number| number.parse().with_context(|| number.to_owned()));
    numbers.collect()
}
