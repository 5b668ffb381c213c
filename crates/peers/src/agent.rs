//! The state machine of discovery.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use edgeward_kube::units::{Micros, Moment};

use crate::coordinate::Coordinate;
use crate::message::{self, MAX_OFFERS, Offer, Reply, Request, Seen};
use crate::peer::{Peer, Standing};
use crate::settings::{ClusterId, Settings};

/// The time of a round.
pub const ROUND: Micros = Micros::from_secs(10);
/// The most near peers.
pub const MAX_NEAR: usize = 64;
/// The most other peers.
pub const MAX_KNOWN: usize = 256;
/// Rounds between two measurements of a near peer that answers.
const RECHECK: u64 = 5;
/// Rounds for which a peer that failed or is too far is not tried: 10 minutes.
const REST: u64 = 60;
/// Rounds until a peer that was measured as too far is measured once more.
const DOUBT: u64 = 2;
/// Failures in a row that bury a peer.
const MAX_FAILURES: u8 = 3;
/// Attempts in a round. The first rounds take a quarter of the time, because a cluster that starts knows nobody to compare with.
const TRIES: usize = 16;
const FIRST_ROUNDS: u64 = 8;
/// Handshakes in 10 s with peers that are not verified.
const UNVERIFIED_TRIES: usize = 16;
/// Unverified peers of one introducer.
const MAX_UNVERIFIED: usize = 16;
/// Dead peers in a row that end an introducer's offers.
const MAX_DEAD_OFFERS: u8 = 3;
/// Requests that are open at once.
const MAX_OPEN: usize = 3;
/// Candidates predicted beyond this multiple of the bound are skipped.
const SLACK: f64 = 1.5;
/// A peer may ask once in this time.
const REQUEST_INTERVAL: Micros = Micros::from_secs(1);
/// Peers whose last request is remembered.
const MAX_ASKERS: usize = 1024;

/// What happened.
#[derive(Debug, Clone)]
pub enum Input<'a> {
    /// The next round begins.
    Round,
    /// A peer answered an [`Output::Ask`].
    Answered {
        /// Its address.
        address: IpAddr,
        /// Its id, from [`Settings::identify`] with its verified certificate.
        id: ClusterId,
        /// The time of the TCP handshake.
        rtt: Micros,
        /// A [`Reply`].
        reply: &'a [u8],
    },
    /// An [`Output::Ask`] found no verified peer, or no answer.
    Failed {
        /// Its address.
        address: IpAddr,
    },
    /// A peer asks.
    Asked {
        /// The source address of its connection.
        from: IpAddr,
        /// Its id, from [`Settings::identify`] with its verified certificate.
        id: ClusterId,
        /// A [`Request`].
        request: &'a [u8],
    },
}

/// Work for the shell.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Connect, verify the certificate, send the request, and report [`Input::Answered`] or [`Input::Failed`] within a round.
    Ask {
        /// The address.
        address: IpAddr,
        /// A [`Request`].
        request: Vec<u8>,
    },
    /// The answer to [`Input::Asked`]: a [`Reply`].
    Reply(Vec<u8>),
    /// The answer to [`Input::Asked`] where it gets none.
    Refuse,
}

/// One cluster's view of its peers.
#[derive(Debug, Clone)]
pub struct Agent {
    settings: Settings,
    /// By address: an id is only a claim until its certificate is verified.
    peers: BTreeMap<IpAddr, Peer>,
    coordinate: Coordinate,
    round: u64,
    /// Increases with each change of what is offered.
    version: u64,
    open: BTreeSet<IpAddr>,
    /// When each peer asked last.
    askers: BTreeMap<ClusterId, Moment>,
    tries: usize,
    unverified_tries: usize,
    /// Peers of this round that were not verified when they were asked, and did not answer yet.
    unverified: BTreeSet<IpAddr>,
    /// A random peer to try in this round.
    stray: Option<IpAddr>,
}

impl Agent {
    /// An agent that knows its seeds only.
    pub fn new(mut settings: Settings, random: &mut fastrand::Rng) -> Self {
        settings.seeds.truncate(MAX_NEAR);
        Self {
            settings,
            peers: BTreeMap::new(),
            coordinate: Coordinate::random(random),
            round: 0,
            version: random.u64(1..1 << 53),
            open: BTreeSet::new(),
            askers: BTreeMap::new(),
            tries: 0,
            unverified_tries: 0,
            unverified: BTreeSet::new(),
            stray: None,
        }
    }

    /// The time until the next [`Input::Round`].
    pub fn pause(&self) -> Micros {
        match self.round < FIRST_ROUNDS {
            true => Micros(ROUND.0 / 4),
            false => ROUND,
        }
    }

    /// All peers, by address.
    pub fn peers(&self) -> impl Iterator<Item = (IpAddr, &Peer)> {
        self.peers.iter().map(|(address, peer)| (*address, peer))
    }

    /// Takes an input and returns what to do. An answer to [`Input::Asked`] comes first.
    pub fn handle(&mut self, input: Input<'_>, now: Moment, random: &mut fastrand::Rng) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            Input::Round => self.begin_round(now, random),
            Input::Answered {
                address,
                id,
                rtt,
                reply,
            } => {
                if self.open.remove(&address) {
                    self.answered(address, id, rtt, reply, now, random);
                }
            }
            Input::Failed { address } => {
                if self.open.remove(&address) {
                    self.failed(address, now);
                }
            }
            Input::Asked { from, id, request } => {
                let reply = self.asked(from, &id, request, now, random);
                outputs.push(reply.map_or(Output::Refuse, |reply| Output::Reply(message::write(&reply))));
            }
        }
        while self.open.len() < MAX_OPEN
            && let Some(address) = self.next(now)
        {
            outputs.push(self.ask(address, now));
        }
        outputs
    }

    fn begin_round(&mut self, now: Moment, random: &mut fastrand::Rng) {
        self.round += 1;
        let round = self.round;
        let is_over = |peer: &Peer| matches!(peer.standing, Standing::Buried { until } if until <= round);
        let reach = self.reach_ms();
        let is_far = |peer: &Peer| peer.rtt_ms(&self.coordinate) > SLACK * reach;
        let is_useless = |peer: &Peer| round > FIRST_ROUNDS && peer.introducer.is_some() && is_far(peer);
        self.peers.retain(|_, peer| !is_over(peer) && !is_useless(peer));
        self.askers.retain(|_, last| now.since(*last) < REQUEST_INTERVAL);
        for seed in self.settings.seeds.clone() {
            if let Some(seed) = self.settings.allowed(seed) {
                self.peers.entry(seed).or_insert_with(|| Peer::new(None, None, None));
            }
        }
        self.tries = TRIES;
        self.unverified.clear();
        self.unverified_tries = UNVERIFIED_TRIES / if round <= FIRST_ROUNDS { 4 } else { 1 };
        self.make_room(random);
        let others = self.peers.iter().filter(|(_, peer)| !peer.is_near());
        let others: Vec<_> = others.map(|(address, _)| *address).collect();
        self.stray = random.choice(others);
    }

    /// The next peer to ask in this round: a near peer that is due, the best candidate, or the random peer.
    fn next(&mut self, now: Moment) -> Option<IpAddr> {
        if let Some(due) = self.next_near(now) {
            return Some(due);
        }
        if self.tries > 0
            && let Some(candidate) = self.next_candidate(now)
        {
            self.tries -= 1;
            return Some(candidate);
        }
        let stray = self.stray.take()?;
        let peer = self.peers.get(&stray)?;
        let may_ask = self.may_ask(stray, peer, now) && (peer.is_verified || self.unverified_tries > 0);
        may_ask.then_some(stray)
    }

    fn next_near(&self, now: Moment) -> Option<IpAddr> {
        let due = |(address, peer): (&IpAddr, &Peer)| match peer.standing {
            Standing::Near { due } if due <= self.round && self.may_ask(*address, peer, now) => Some((due, *address)),
            _ => None,
        };
        Some(self.peers.iter().filter_map(due).min()?.1)
    }

    /// The known peer with the lowest RTT, measured or predicted. Peers whose introducer offered dead ones come last.
    fn next_candidate(&self, now: Moment) -> Option<IpAddr> {
        let reach = self.reach_ms();
        // At most one is open for each introducer, because its result decides about the others.
        let judged: BTreeSet<_> = self
            .open
            .iter()
            .filter_map(|open| self.peers.get(open)?.introducer)
            .collect();
        let rank = |(address, peer): (&IpAddr, &Peer)| {
            let rtt = peer.rtt_ms(&self.coordinate);
            let is_judged = peer.introducer.is_some_and(|introducer| judged.contains(&introducer));
            let is_free = peer.is_verified || self.unverified_tries > 0;
            let is_candidate =
                peer.standing == Standing::Known && is_free && !is_judged && self.may_ask(*address, peer, now);
            let has_rested = |rounds| peer.tried.is_none_or(|tried| self.round >= tried + rounds);
            let is_in_doubt = peer.too_far == 1 && has_rested(DOUBT);
            let is_close = match peer.rtt {
                Some(_) => rtt <= reach || is_in_doubt || has_rested(REST) && rtt <= SLACK * reach,
                None => rtt <= SLACK * reach || rtt.is_infinite() || self.round <= FIRST_ROUNDS,
            };
            (is_candidate && is_close).then(|| (self.doubt(*address, peer), rtt, *address))
        };
        let candidates = self.peers.iter().filter_map(rank);
        let best = candidates.min_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)))?;
        Some(best.2)
    }

    /// A peer is asked once in a round, and no sooner than it answers again.
    fn may_ask(&self, address: IpAddr, peer: &Peer, now: Moment) -> bool {
        let has_rested = peer
            .asked
            .is_none_or(|asked| now.since(asked) >= REQUEST_INTERVAL.times(2));
        peer.tried != Some(self.round) && has_rested && !self.open.contains(&address)
    }

    /// How little the introducer of a peer is to be trusted. An address that an asker stated, and did not ask from, comes last.
    fn doubt(&self, address: IpAddr, peer: &Peer) -> u8 {
        let Some(introducer) = peer.introducer else {
            let is_known = peer.is_verified || self.settings.seeds.contains(&address);
            return if is_known { 0 } else { MAX_DEAD_OFFERS };
        };
        self.peers
            .get(&introducer)
            .map_or(0, |introducer| introducer.dead_offers)
    }

    fn ask(&mut self, address: IpAddr, now: Moment) -> Output {
        let mut seen = Seen::default();
        if let Some(peer) = self.peers.get_mut(&address) {
            peer.tried = Some(self.round);
            peer.asked = Some(now);
            seen = peer.seen;
            if !peer.is_verified {
                self.unverified_tries -= 1;
                self.unverified.insert(address);
            }
        }
        self.open.insert(address);
        let request = Request {
            address: self.settings.address,
            coordinate: self.own_coordinate(),
            seen,
        };
        Output::Ask {
            address,
            request: message::write(&request),
        }
    }

    /// The own coordinate, if it rests on measurements.
    fn own_coordinate(&self) -> Option<Coordinate> {
        let measured = self.peers.values().filter(|peer| peer.rtt.is_some()).count();
        (measured >= 3).then_some(self.coordinate)
    }

    fn answered(
        &mut self,
        address: IpAddr,
        id: ClusterId,
        rtt: Micros,
        reply: &[u8],
        now: Moment,
        random: &mut fastrand::Rng,
    ) {
        let reply = message::read::<Reply>(reply).filter(|reply| reply.offers.len() <= MAX_OFFERS);
        let Some(reply) = reply.filter(|_| self.settings.admits(&id)) else {
            return self.failed(address, now);
        };
        let limit = self.limit_ms(address);
        let Some(peer) = self.peers.get_mut(&address) else {
            return;
        };
        let is_as_offered = peer.id.as_ref().is_none_or(|claimed| *claimed == id);
        let introducer = peer.introducer;
        if !peer.is_verified {
            self.version += 1;
        }
        self.unverified_tries += usize::from(self.unverified.remove(&address));
        peer.verify(id.clone(), now);
        // A busy moment makes a measurement too long. So a near peer is measured once more before it is dropped, and of two of a
        // peer that is not near the shorter one counts.
        let is_too_far = rtt.as_millis_f64() > limit;
        let is_in_doubt = is_too_far && is_as_offered && peer.too_far == u8::from(!peer.is_near());
        let rtt = peer.rtt.filter(|_| is_in_doubt).map_or(rtt, |last| last.min(rtt));
        peer.rtt = Some(rtt);
        peer.too_far = if is_too_far { (peer.too_far + 1).min(2) } else { 0 };
        peer.coordinate = reply.coordinate.and_then(Coordinate::checked);
        let count = match peer.seen.version == reply.version {
            true => peer.seen.count + reply.offers.len(),
            false => reply.offers.len(),
        };
        peer.seen = Seen {
            version: reply.version,
            count,
        };
        let is_muted = peer.muted_until > self.round;
        let delay = match self.round {
            // It knew little itself.
            1 => 1,
            _ if is_in_doubt => 1,
            _ if peer.is_near() && self.round > FIRST_ROUNDS => RECHECK,
            _ => random.u64(1..=RECHECK),
        };
        peer.standing = Standing::Near {
            due: self.round + delay,
        };
        self.peers
            .retain(|at, peer| *at == address || peer.id.as_ref() != Some(&id));
        if let Some(introducer) = introducer {
            self.judge(introducer, is_as_offered);
        }
        self.trim();
        self.locate(random);
        // A near peer that offered a new candidate is asked again in the next round: its own near peers may be near, too.
        if !is_muted
            && self.learn(address, reply.offers, rtt, now)
            && let Some(Standing::Near { due }) = self.peers.get_mut(&address).map(|peer| &mut peer.standing)
        {
            *due = self.round + 1;
        }
        self.make_room(random);
    }

    /// Drops near peers beyond the bound, farthest first. The bound is wider where less than ten are near.
    fn trim(&mut self) {
        loop {
            let near = self.peers.iter().filter(|(_, peer)| peer.is_near());
            let (count, farthest) = (near.clone().count(), near.max_by_key(|(_, peer)| peer.rtt));
            let Some((address, rtt)) = farthest.map(|(address, peer)| (*address, peer.rtt)) else {
                return;
            };
            let is_beyond = rtt.is_none_or(|rtt| rtt.as_millis_f64() > self.bound_ms(count));
            if count <= MAX_NEAR && !is_beyond {
                return;
            }
            if let Some(peer) = self.peers.get_mut(&address) {
                peer.standing = Standing::Known;
                peer.too_far = peer.too_far.max(1);
            }
        }
    }

    fn bound_ms(&self, near: usize) -> f64 {
        let factor = (10.0 / near as f64).sqrt().max(1.0);
        self.settings.max_rtt.as_millis_f64() * factor
    }

    /// The RTT up to which this peer is or stays near.
    fn limit_ms(&self, address: IpAddr) -> f64 {
        match self.peers.get(&address).is_some_and(Peer::is_near) {
            true => self.bound_ms(self.peers.values().filter(|peer| peer.is_near()).count()),
            false => self.reach_ms(),
        }
    }

    /// A new near peer would be kept up to this RTT.
    fn reach_ms(&self) -> f64 {
        let near = self.peers.values().filter(|peer| peer.is_near());
        let count = near.clone().count();
        match near.filter_map(|peer| peer.rtt).max() {
            Some(farthest) if count >= MAX_NEAR => farthest.as_millis_f64(),
            _ => self.bound_ms(count + 1),
        }
    }

    /// Fits the own coordinate to all measurements.
    fn locate(&mut self, random: &mut fastrand::Rng) {
        let measured = self
            .peers
            .values()
            .filter_map(|peer| Some((peer.coordinate?, peer.rtt?.as_millis_f64())));
        let measured: Vec<_> = measured.collect();
        self.coordinate.fit(&measured, random);
    }

    /// Counts for and against an introducer. Its third dead peer in a row ends its offers for a while.
    fn judge(&mut self, introducer: IpAddr, is_alive: bool) {
        let Some(peer) = self.peers.get_mut(&introducer) else {
            return;
        };
        peer.dead_offers = if is_alive { 0 } else { peer.dead_offers + 1 };
        if peer.dead_offers >= MAX_DEAD_OFFERS {
            // After that, one more dead peer mutes it again.
            peer.dead_offers = MAX_DEAD_OFFERS - 1;
            peer.muted_until = self.round + REST;
            self.peers
                .retain(|_, peer| peer.introducer != Some(introducer) || peer.is_buried());
        }
    }

    /// Takes the offers of a peer that may be tried, as long as it has few that are not verified. Returns whether any is new.
    fn learn(&mut self, introducer: IpAddr, offers: Vec<Offer>, rtt: Micros, now: Moment) -> bool {
        let mut has_news = false;
        let limit = if self.round <= FIRST_ROUNDS {
            f64::INFINITY
        } else {
            SLACK * self.reach_ms()
        };
        let unverified = self
            .peers
            .values()
            .filter(|peer| peer.introducer == Some(introducer))
            .count();
        let mut room = MAX_UNVERIFIED.saturating_sub(unverified);
        for offer in offers {
            let Some(address) = self
                .settings
                .allowed(offer.address)
                .filter(|_| self.settings.admits(&offer.id))
            else {
                continue;
            };
            let heard = now.before(Micros::from_millis(offer.age_ms));
            let is_new = !self.peers.contains_key(&address);
            let new = || Peer::new(Some(offer.id.clone()), None, None);
            let mut peer = self.peers.remove(&address).unwrap_or_else(new);
            let is_newer = peer.exchanged.is_none_or(|exchanged| exchanged < heard);
            if is_newer && !peer.is_verified && peer.id.as_ref() == Some(&offer.id) {
                peer.coordinate = offer.coordinate.and_then(Coordinate::checked).or(peer.coordinate);
            }
            if let Some(further) = offer.rtt_ms.filter(|further| *further >= 0.0) {
                peer.detour_ms = peer.detour_ms.min(rtt.as_millis_f64() + further);
            }
            let is_back = peer.is_buried() && peer.failed.is_some_and(|failed| failed < heard);
            let is_wanted = is_new && peer.rtt_ms(&self.coordinate) <= limit || is_back;
            if is_wanted && room > 0 {
                peer.standing = Standing::Known;
                peer.introducer = Some(introducer);
                room -= 1;
                has_news = true;
            } else if is_new {
                continue;
            }
            self.peers.insert(address, peer);
        }
        has_news
    }

    fn failed(&mut self, address: IpAddr, now: Moment) {
        let Some(peer) = self.peers.get_mut(&address) else {
            return;
        };
        peer.failures = peer.failures.saturating_add(1);
        peer.failed = Some(now);
        let introducer = peer.introducer.take();
        if introducer.is_some() || peer.failures >= MAX_FAILURES {
            if peer.is_near() {
                self.version += 1;
            }
            peer.standing = Standing::Buried {
                until: self.round + REST,
            };
        } else if peer.is_near() {
            peer.standing = Standing::Near { due: self.round + 1 };
        }
        if let Some(introducer) = introducer {
            self.judge(introducer, false);
        }
    }

    /// Forgets peers beyond [`MAX_KNOWN`]. Those that were never verified go first, so that offers displace no known peer.
    fn make_room(&mut self, random: &mut fastrand::Rng) {
        let others = self.peers.values().filter(|peer| !peer.is_near()).count();
        let limit = SLACK * self.reach_ms();
        for _ in MAX_KNOWN..others {
            let is_kept = |address: &IpAddr| self.open.contains(address) || self.settings.seeds.contains(address);
            let spare = self
                .peers
                .iter()
                .filter(|(address, peer)| !peer.is_near() && !is_kept(address));
            let rank = |(address, peer): (&IpAddr, &Peer)| {
                let rtt = peer.rtt_ms(&self.coordinate);
                let (class, within) = match peer.is_verified {
                    _ if peer.is_buried() => (5, 0.0),
                    false => (3 + u8::from(self.doubt(*address, peer) > 0), rtt),
                    true if rtt > limit => (2, random.f64()),
                    true => (1, rtt),
                };
                (class, within, *address)
            };
            let worst = spare
                .map(rank)
                .max_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
            if let Some((_, _, address)) = worst {
                self.peers.remove(&address);
            }
        }
    }
}
