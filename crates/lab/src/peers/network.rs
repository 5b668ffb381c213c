//! The agents of `edgeward-peers` on a simulated network.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use edgeward_kube::units::{Micros, Moment};
use edgeward_peers::agent::{MAX_NEAR, ROUND};
use edgeward_peers::coordinate::Coordinate;
use edgeward_peers::message::{MAX_OFFERS, Offer, Reply, Request, Seen};
use edgeward_peers::{Agent, ClusterId, Input, Output, Settings};

use super::{Measured, Topology};
use crate::random::{Purpose, Stream};

/// All start within this time.
const START: Micros = Micros::from_secs(1);
/// An unanswered handshake ends after this time.
const TIMEOUT: Micros = Micros::from_secs(1);
/// A node that left returns after this many rounds and has forgotten everything.
const ABSENCE: u64 = 10;
/// The addresses of nodes begin here.
const FIRST_ADDRESS: u32 = 0x0a00_0001;
/// Offers of hostile nodes: addresses where nothing is.
const FIRST_UNUSED: u32 = 0x0a80_0000;

/// A network and what disturbs it. Shares are from 0 to 1.
#[derive(Debug, Clone)]
pub struct Plan {
    pub range_ms: f64,
    pub rounds: u64,
    pub seed: u64,
    /// Nodes that lie: false coordinates, and offers of addresses where nothing is.
    pub hostile: f64,
    /// Requests that get no answer.
    pub loss: f64,
    /// Nodes that leave in a round.
    pub churn: f64,
    /// Rounds in which nodes with even numbers do not reach the others.
    pub partition: Range<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Round(usize),
    /// A request arrives.
    Request {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    /// `None`: there was no answer.
    Answer {
        from: usize,
        to: IpAddr,
        reply: Option<Vec<u8>>,
    },
}

struct Node {
    /// `None` while it is absent.
    agent: Option<Agent>,
    is_hostile: bool,
    returns: u64,
    random: fastrand::Rng,
}

struct Network<'a> {
    topology: &'a Topology,
    plan: &'a Plan,
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<(Moment, u64, Event)>>,
    /// Orders events of one moment.
    count: u64,
    now: Moment,
    round: u64,
    pings: usize,
    faults: Stream,
}

/// Runs the agents from a cold start. Deterministic by the seed.
pub fn run(topology: &Topology, plan: &Plan) -> Vec<Measured> {
    let mut network = Network::new(topology, plan);
    (1..=plan.rounds).map(|round| network.run_round(round)).collect()
}

fn address(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(FIRST_ADDRESS + node as u32))
}

fn id(node: usize) -> Option<ClusterId> {
    ClusterId::parse(&format!("c{node}"))
}

impl<'a> Network<'a> {
    fn new(topology: &'a Topology, plan: &'a Plan) -> Self {
        let count = topology.len();
        let mut network = Self {
            topology,
            plan,
            nodes: Vec::new(),
            events: BinaryHeap::new(),
            count: 0,
            now: Moment::default(),
            round: 0,
            pings: 0,
            faults: Stream::new(plan.seed, Purpose::Discovery, 0, 0),
        };
        // The first node is honest: a newcomer that knows liars alone finds nothing.
        let mut others: Vec<usize> = (1..count).collect();
        let hostile = (plan.hostile * count as f64).round() as usize;
        let hostile: BTreeSet<usize> = (0..hostile.min(others.len()))
            .map(|_| others.swap_remove(network.faults.below(others.len())))
            .collect();
        for node in 0..count {
            let mut random =
                fastrand::Rng::with_seed(Stream::new(plan.seed, Purpose::Discovery, 1, node as u64).state());
            let agent = network.agent(node, &mut random);
            network.nodes.push(Node {
                agent,
                is_hostile: hostile.contains(&node),
                returns: 0,
                random,
            });
            let start = Micros((network.faults.unit() * START.0 as f64) as u64);
            network.push(start, Event::Round(node));
        }
        network
    }

    fn agent(&self, node: usize, random: &mut fastrand::Rng) -> Option<Agent> {
        let settings = Settings {
            id: id(node)?,
            address: address(node),
            domain: "lab".into(),
            denied: BTreeSet::new(),
            allowed_cidrs: vec!["10.0.0.0/8".parse().ok()?],
            own_ranges: Vec::new(),
            seeds: self.topology.known[node].iter().map(|known| address(*known)).collect(),
            max_rtt: Micros((self.plan.range_ms * 1_000.0) as u64),
        };
        Some(Agent::new(settings, random))
    }

    fn push(&mut self, delay: Micros, event: Event) {
        self.count += 1;
        self.events.push(Reverse((self.now.after(delay), self.count, event)));
    }

    fn run_round(&mut self, round: u64) -> Measured {
        self.round = round;
        self.pings = 0;
        self.churn();
        let end = Moment::default().after(ROUND.times(round));
        while let Some(Reverse((at, _, _))) = self.events.peek()
            && *at < end
        {
            let Some(Reverse((at, _, event))) = self.events.pop() else {
                break;
            };
            self.now = at;
            self.take(event);
        }
        self.now = end;
        self.measure()
    }

    fn churn(&mut self) {
        for node in 0..self.nodes.len() {
            if self.nodes[node].agent.is_none() && self.nodes[node].returns <= self.round {
                let mut random = self.nodes[node].random.clone();
                self.nodes[node].agent = self.agent(node, &mut random);
                self.nodes[node].random = random;
            } else if self.plan.churn > 0.0 && self.faults.unit() < self.plan.churn {
                self.nodes[node].agent = None;
                self.nodes[node].returns = self.round + ABSENCE;
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Round(node) => {
                if self.nodes[node].is_hostile {
                    self.attack(node);
                } else {
                    self.input(node, Input::Round);
                }
                let honest = self.nodes[node].agent.as_ref().filter(|_| !self.nodes[node].is_hostile);
                self.push(honest.map_or(ROUND, Agent::pause), Event::Round(node));
            }
            Event::Request { from, to, bytes } => self.request(from, to, &bytes),
            Event::Answer { from, to, reply } => {
                let peer = self.node_at(to);
                let rtt = peer.map_or(0.0, |peer| self.topology.rtt_ms[from][peer]);
                let input = match (&reply, peer.and_then(id)) {
                    (Some(reply), Some(id)) => Input::Answered {
                        address: to,
                        id,
                        rtt: Micros((rtt * 1_000.0) as u64),
                        reply,
                    },
                    _ => Input::Failed { address: to },
                };
                self.input(from, input);
            }
        }
    }

    fn node_at(&self, address: IpAddr) -> Option<usize> {
        let IpAddr::V4(v4) = address else { return None };
        let node = u32::from(v4).checked_sub(FIRST_ADDRESS)? as usize;
        (node < self.nodes.len()).then_some(node)
    }

    /// Gives a node an input. Returns its reply, if the input was a request.
    fn input(&mut self, node: usize, input: Input<'_>) -> Option<Vec<u8>> {
        let now = self.now;
        let Node { agent, random, .. } = &mut self.nodes[node];
        let outputs = agent.as_mut()?.handle(input, now, random);
        let mut answer = None;
        for output in outputs {
            match output {
                Output::Ask { address, request } => {
                    self.pings += 1;
                    self.send(node, address, request);
                }
                Output::Reply(reply) => answer = Some(reply),
                Output::Refuse => {}
            }
        }
        answer
    }

    /// The TCP and TLS handshakes take a round trip each, the request half of one.
    fn send(&mut self, from: usize, to: IpAddr, bytes: Vec<u8>) {
        let is_lost = self.plan.loss > 0.0 && self.faults.unit() < self.plan.loss;
        let is_apart = |peer: usize| self.plan.partition.contains(&self.round) && from % 2 != peer % 2;
        let is_there = |peer: &usize| !is_lost && !is_apart(*peer) && self.nodes[*peer].agent.is_some();
        match self.node_at(to).filter(is_there) {
            Some(peer) => {
                let delay = self.rtts(from, peer, 2.5);
                self.push(delay, Event::Request { from, to: peer, bytes });
            }
            None => self.push(TIMEOUT, Event::Answer { from, to, reply: None }),
        }
    }

    fn rtts(&self, from: usize, to: usize, count: f64) -> Micros {
        Micros((count * self.topology.rtt_ms[from][to] * 1_000.0) as u64)
    }

    fn request(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let reply = match (self.nodes[to].is_hostile, id(from)) {
            (true, _) => Some(self.lie(from, bytes)),
            (false, Some(id)) => {
                let input = Input::Asked {
                    from: address(from),
                    id,
                    request: bytes,
                };
                self.input(to, input)
            }
            (false, None) => None,
        };
        if self.nodes[from].is_hostile {
            return;
        }
        let delay = self.rtts(from, to, 0.5);
        let to = address(to);
        self.push(delay, Event::Answer { from, to, reply });
    }

    /// Offers addresses where nothing is, said to be where the asking node is.
    fn lie(&mut self, from: usize, request: &[u8]) -> Vec<u8> {
        let request: Option<Request> = serde_json::from_slice(request).ok();
        let random = &mut self.nodes[from].random;
        let there = request.and_then(|request| request.coordinate);
        let offer = |at: u32| {
            Some(Offer {
                id: ClusterId::parse(&format!("f{at}"))?,
                address: IpAddr::V4(Ipv4Addr::from(FIRST_UNUSED + at)),
                coordinate: there,
                rtt_ms: Some(0.0),
                age_ms: 0,
            })
        };
        let offers = (0..MAX_OFFERS).filter_map(|_| offer(random.u32(..0x10_0000))).collect();
        let reply = Reply {
            coordinate: Some(self.false_coordinate()),
            version: u64::from(self.faults.unit() < 0.5),
            offers,
        };
        serde_json::to_vec(&reply).unwrap_or_default()
    }

    fn false_coordinate(&mut self) -> Coordinate {
        let mut draw = |size: f64| (self.faults.unit() - 0.5) * size;
        Coordinate::new(draw(80.0), draw(80.0), 0.0)
    }

    /// A hostile node asks as many others as it may, each second one.
    fn attack(&mut self, node: usize) {
        for second in 0..ROUND.0 / 1_000_000 {
            let to = self.faults.below(self.nodes.len());
            if to == node || self.nodes[to].agent.is_none() {
                continue;
            }
            let request = Request {
                address: address(node),
                coordinate: Some(self.false_coordinate()),
                seen: Seen::default(),
            };
            let bytes = serde_json::to_vec(&request).unwrap_or_default();
            self.push(Micros::from_secs(second), Event::Request { from: node, to, bytes });
        }
    }

    /// Honest nodes alone are counted, as nodes and as peers.
    fn measure(&self) -> Measured {
        let is_live = |node: usize| self.nodes[node].agent.is_some();
        let is_honest = |node: usize| !self.nodes[node].is_hostile;
        let (mut found, mut expected, mut near, mut dead, mut nodes) = (0, 0, 0, 0, 0);
        for (node, state) in self.nodes.iter().enumerate() {
            let Some(agent) = state.agent.as_ref().filter(|_| is_honest(node)) else {
                continue;
            };
            nodes += 1;
            let held = agent.peers().filter(|(_, peer)| peer.is_near());
            let held: BTreeSet<usize> = held.filter_map(|(address, _)| self.node_at(address)).collect();
            near += held.len();
            dead += held.iter().filter(|peer| !is_live(**peer)).count();
            let in_range = self.topology.in_range(node, self.plan.range_ms, MAX_NEAR, is_live);
            let in_range = in_range.into_iter().filter(|peer| is_honest(*peer));
            for peer in in_range {
                expected += 1;
                found += usize::from(held.contains(&peer));
            }
        }
        let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
        Measured {
            accuracy: share(found, expected),
            pings: share(self.pings, nodes),
            dead: share(dead, near),
            near: share(near, nodes),
        }
    }
}
