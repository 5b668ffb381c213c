//! Flocky's discovery as published: no bound on pings, and every pinger is pinged back in every round.

use super::{Measured, Topology};
use crate::random::{Purpose, Stream};

struct Node {
    discovered: Vec<bool>,
    /// Nodes that pinged it since its last round.
    pingers: Vec<bool>,
}

pub(super) fn run(topology: &Topology, range_ms: f64, rounds: u64, seed: u64) -> Vec<Measured> {
    let count = topology.len();
    let mut stream = Stream::new(seed, Purpose::Topology, 1, 0);
    let start = topology.known.iter().map(|known| {
        let mut discovered = vec![false; count];
        known.iter().for_each(|peer| discovered[*peer] = true);
        Node {
            discovered,
            pingers: vec![false; count],
        }
    });
    let mut nodes: Vec<Node> = start.collect();
    // What each serves to others: nothing before its first round has ended.
    let mut available = vec![vec![false; count]; count];
    let mut measured = Vec::new();
    for _ in 0..rounds {
        let mut pings = 0;
        for node in 0..count {
            pings += round(&mut nodes, node, topology, range_ms, &available, &mut stream);
        }
        for (node, served) in nodes.iter().zip(&mut available) {
            served.clone_from(&node.discovered);
        }
        measured.push(measure(&nodes, topology, range_ms, pings));
    }
    measured
}

/// A round of one node. Returns its pings.
fn round(
    nodes: &mut [Node],
    node: usize,
    topology: &Topology,
    range_ms: f64,
    available: &[Vec<bool>],
    stream: &mut Stream,
) -> usize {
    let rtt = &topology.rtt_ms[node];
    let mut discovered = std::mem::take(&mut nodes[node].discovered);
    let pingers = std::mem::replace(&mut nodes[node].pingers, vec![false; rtt.len()]);
    let mut queue: Vec<usize> = (0..rtt.len())
        .filter(|peer| discovered[*peer] || pingers[*peer])
        .collect();
    let mut is_queued = vec![false; rtt.len()];
    is_queued[node] = true;
    queue.iter().for_each(|peer| is_queued[*peer] = true);
    let mut known = discovered.iter().filter(|is_known| **is_known).count();
    let bound = |known: usize| range_ms * (10.0 / known as f64).sqrt().max(1.0);
    let mut lowest = f64::INFINITY;
    let mut pings = 0;
    if !queue.is_empty() {
        lowest = rtt[queue[stream.below(queue.len())]];
        pings += 1;
    }
    let mut is_within_reach = false;
    while !queue.is_empty() {
        let peer = queue.swap_remove(stream.below(queue.len()));
        pings += 1;
        nodes[peer].pingers[node] = true;
        let is_near = rtt[peer] <= bound(known);
        let is_lost = !is_near && lowest > bound(known);
        let is_kept = is_near || is_lost && (known <= 1 || rtt[peer] <= lowest);
        if is_near || is_lost {
            let served = available[peer].iter().enumerate().filter(|(_, is_served)| **is_served);
            let new: Vec<_> = served
                .map(|(other, _)| other)
                .filter(|other| !is_queued[*other])
                .collect();
            new.iter().for_each(|other| is_queued[*other] = true);
            queue.extend(new);
        }
        is_within_reach |= is_near;
        if is_kept {
            lowest = lowest.min(rtt[peer]);
        }
        known = known + usize::from(is_kept) - usize::from(discovered[peer]);
        discovered[peer] = is_kept;
    }
    if is_within_reach {
        for peer in 0..rtt.len() {
            if discovered[peer] && rtt[peer] > bound(known) {
                discovered[peer] = false;
                known -= 1;
            }
        }
    }
    nodes[node].discovered = discovered;
    pings
}

fn measure(nodes: &[Node], topology: &Topology, range_ms: f64, pings: usize) -> Measured {
    let (mut found, mut expected, mut near) = (0, 0, 0);
    for (node, state) in nodes.iter().enumerate() {
        let in_range = topology.in_range(node, range_ms, usize::MAX, |_| true);
        expected += in_range.len();
        found += in_range.iter().filter(|peer| state.discovered[**peer]).count();
        near += state.discovered.iter().filter(|is_known| **is_known).count();
    }
    let count = nodes.len() as f64;
    Measured {
        accuracy: found as f64 / expected.max(1) as f64,
        pings: pings as f64 / count,
        dead: 0.0,
        near: near as f64 / count,
    }
}
