//! Answers peers that ask.

use std::net::IpAddr;

use edgeward_kube::units::{Micros, Moment};

use super::{Agent, MAX_ASKERS, MAX_FAILURES, MAX_NEAR, REQUEST_INTERVAL};
use crate::coordinate::Coordinate;
use crate::message::{self, MAX_OFFERS, Offer, Reply, Request, Seen};
use crate::peer::{Peer, Standing};
use crate::settings::ClusterId;

impl Agent {
    pub(super) fn asked(
        &mut self,
        from: IpAddr,
        id: &ClusterId,
        request: &[u8],
        now: Moment,
        random: &mut fastrand::Rng,
    ) -> Option<Reply> {
        let is_early = |last: &Moment| now.since(*last) < REQUEST_INTERVAL;
        if !self.settings.admits(id) || self.askers.get(id).is_some_and(is_early) || self.askers.len() >= MAX_ASKERS {
            return None;
        }
        self.askers.insert(id.clone(), now);
        let request: Request = message::read(request)?;
        let coordinate = request.coordinate.and_then(Coordinate::checked);
        if let Some(address) = self.settings.allowed(request.address) {
            self.meet(address, from.to_canonical() == address, id, coordinate, now);
            self.make_room(random);
        }
        Some(self.reply(id, coordinate, request.seen, now, random))
    }

    /// Notes a peer that asked. Its connection verifies it only if it came from the address it states.
    fn meet(
        &mut self,
        address: IpAddr,
        is_from_there: bool,
        id: &ClusterId,
        coordinate: Option<Coordinate>,
        now: Moment,
    ) {
        let is_same = |peer: &Peer| peer.id.as_ref() == Some(id);
        self.peers
            .retain(|at, peer| *at == address || peer.is_near() || !is_same(peer));
        let new = || Peer::new(Some(id.clone()), coordinate, None);
        let peer = self.peers.entry(address).or_insert_with(new);
        let is_proven = is_from_there || peer.is_verified && is_same(peer);
        if is_proven && peer.is_buried() {
            peer.standing = Standing::Known;
            peer.failures = MAX_FAILURES - 1;
        }
        if is_proven && !peer.is_near() {
            if !peer.is_verified {
                self.version += 1;
            }
            peer.verify(id.clone(), now);
        }
        if is_proven {
            peer.coordinate = coordinate;
        }
    }

    fn reply(
        &mut self,
        asker: &ClusterId,
        coordinate: Option<Coordinate>,
        seen: Seen,
        now: Moment,
        random: &mut fastrand::Rng,
    ) -> Reply {
        let is_offered = |peer: &Peer| peer.is_verified && peer.failures == 0 && peer.id.as_ref() != Some(asker);
        let offered = self.peers.iter().filter(|(_, peer)| is_offered(peer));
        let mut offered: Vec<_> = offered.collect();
        random.shuffle(&mut offered);
        let asker_rtt = self
            .peers
            .values()
            .find(|peer| peer.id.as_ref() == Some(asker))
            .and_then(|peer| peer.rtt);
        let distance = |peer: &Peer| {
            let direct = coordinate.zip(peer.coordinate).map(|(here, there)| here.rtt_ms(&there));
            let detour = asker_rtt
                .zip(peer.rtt)
                .map(|(one, other)| (one + other).as_millis_f64());
            let least = direct.unwrap_or(f64::INFINITY).min(detour.unwrap_or(f64::INFINITY));
            (least * 1_000.0) as u64
        };
        offered.sort_by_cached_key(|(_, peer)| distance(peer));
        // The nearest, and some others that the asking peer may need.
        let is_told = seen.version == self.version && seen.count >= MAX_NEAR;
        offered.truncate(if is_told { 0 } else { MAX_NEAR });
        let nearest = MAX_OFFERS / 2;
        if offered.len() > nearest {
            random.shuffle(&mut offered[nearest..]);
        }
        let offers = offered.into_iter().take(MAX_OFFERS);
        let offers = offers.filter_map(|(address, peer)| {
            Some(Offer {
                id: peer.id.clone()?,
                address: *address,
                coordinate: peer.coordinate,
                rtt_ms: peer.rtt.map(Micros::as_millis_f64),
                age_ms: now.since(peer.exchanged?).0 / 1_000,
            })
        });
        Reply {
            coordinate: self.own_coordinate(),
            version: self.version,
            offers: offers.collect(),
        }
    }
}
