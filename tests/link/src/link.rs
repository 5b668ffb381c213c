//! The link without its devices: packets go in and out, and time is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::conditions::{Command, Conditions, Outage};

/// Most packets in flight in one direction, which is also netem's default. Further packets are lost.
pub const ON_THE_WAY: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the first namespace (edge) to the second (cloud): requests. Only this direction has `loss`.
    Forth,
    Back,
}

/// Packets of one direction, by outcome. `entered = passed + lost + cut + overflowed + on_the_way`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub entered: u64,
    pub passed: u64,
    pub lost: u64,
    /// Dropped because the link was cut when they entered or would have left.
    pub cut: u64,
    /// Dropped because [`ON_THE_WAY`] other packets were in flight.
    pub overflowed: u64,
    pub on_the_way: u64,
}

/// Random numbers for packets. Every packet draws two, whatever the conditions are, so a change of conditions does not change
/// the fate of later packets.
struct Schedule(Rng);

impl Schedule {
    fn new(seed: u64, way: Way) -> Self {
        // The two directions must not draw the same numbers.
        Self(Rng::with_seed(match way {
            Way::Forth => seed,
            Way::Back => !seed,
        }))
    }

    /// Two numbers in 0..1: for loss and for jitter.
    fn draw(&mut self) -> (f64, f64) {
        (self.0.f64(), self.0.f64())
    }
}

/// Whether each packet on the way forth is lost, for a link with this seed. The sequence starts with the first packet and has
/// no end.
pub fn losses(seed: u64, loss: f64) -> impl Iterator<Item = bool> {
    let mut schedule = Schedule::new(seed, Way::Forth);
    std::iter::repeat_with(move || schedule.draw().0 < loss)
}

struct Line {
    schedule: Schedule,
    /// Packets in order of entry. A packet that is not due holds up later ones, so nothing overtakes.
    queue: VecDeque<(Instant, Box<[u8]>)>,
    counts: Counts,
}

pub struct Link {
    conditions: Conditions,
    forth: Line,
    back: Line,
}

impl Link {
    pub fn new(seed: u64) -> Self {
        let line = |way| Line {
            schedule: Schedule::new(seed, way),
            queue: VecDeque::new(),
            counts: Counts::default(),
        };
        Self {
            conditions: Conditions::default(),
            forth: line(Way::Forth),
            back: line(Way::Back),
        }
    }

    pub fn obey(&mut self, command: Command, now: Instant) -> Option<[Counts; 2]> {
        match command {
            Command::Shape { rtt, jitter, loss } => {
                let conditions = &mut self.conditions;
                conditions.rtt = rtt.unwrap_or(conditions.rtt);
                conditions.jitter = jitter.unwrap_or(conditions.jitter);
                conditions.loss = loss.unwrap_or(conditions.loss);
            }
            Command::Cut => self.conditions.outage = Outage::Cut,
            Command::Flap(period) => self.conditions.outage = Outage::Flapping { period, since: now },
            Command::Heal => self.conditions.outage = Outage::None,
            Command::Seed(seed) => {
                self.forth.schedule = Schedule::new(seed, Way::Forth);
                self.back.schedule = Schedule::new(seed, Way::Back);
            }
            Command::Counts => return Some(self.counts()),
        }
        // A packet in flight across a cut is dropped, even if `heal` comes before the packet is due.
        if self.conditions.is_cut(now) {
            self.forth.sever();
            self.back.sever();
        }
        None
    }

    pub fn counts(&self) -> [Counts; 2] {
        [&self.forth, &self.back].map(|line| Counts {
            on_the_way: line.queue.len() as u64,
            ..line.counts
        })
    }

    /// Takes a packet from a device. Ignores packets that are not unicast IPv4.
    pub fn enter(&mut self, way: Way, packet: &[u8], now: Instant) {
        if !is_unicast_v4(packet) {
            return;
        }
        let conditions = self.conditions;
        let loss = match way {
            Way::Forth => conditions.loss,
            Way::Back => 0.0,
        };
        let line = self.line(way);
        let (luck, lateness) = line.schedule.draw();
        line.counts.entered += 1;
        if conditions.is_cut(now) {
            line.counts.cut += 1;
        } else if luck < loss {
            line.counts.lost += 1;
        } else if line.queue.len() == ON_THE_WAY {
            line.counts.overflowed += 1;
        } else {
            let delay: Duration = conditions.rtt / 2 + conditions.jitter.mul_f64(lateness) / 2;
            line.queue.push_back((now + delay, packet.into()));
        }
    }

    /// The next packet that is due at `now`, in order of entry; `None` if there is none yet.
    pub fn leave(&mut self, way: Way, now: Instant) -> Option<Box<[u8]>> {
        let is_cut = self.conditions.is_cut(now);
        let line = self.line(way);
        while let Some((due, _)) = line.queue.front()
            && *due <= now
        {
            let (_, packet) = line.queue.pop_front()?;
            if !is_cut {
                line.counts.passed += 1;
                return Some(packet);
            }
            line.counts.cut += 1;
        }
        None
    }

    /// The earliest time at which a packet leaves in either direction; `None` if the link is empty.
    pub fn due(&self) -> Option<Instant> {
        let next = |line: &Line| line.queue.front().map(|(due, _)| *due);
        [&self.forth, &self.back].into_iter().filter_map(next).min()
    }

    fn line(&mut self, way: Way) -> &mut Line {
        match way {
            Way::Forth => &mut self.forth,
            Way::Back => &mut self.back,
        }
    }
}

impl Line {
    fn sever(&mut self) {
        self.counts.cut += self.queue.len() as u64;
        self.queue.clear();
    }
}

fn is_unicast_v4(packet: &[u8]) -> bool {
    const VERSION_4: u8 = 4;
    // First octet of multicast; class E and the broadcast address are above it.
    const GROUPS: u8 = 224;
    let version = packet.first().map(|byte| byte >> 4);
    version == Some(VERSION_4)
        && packet
            .get(16)
            .is_some_and(|&first_of_destination| first_of_destination < GROUPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: [Way; 2] = [Way::Forth, Way::Back];
    const NOTHING: [u16; 0] = [];

    fn tell(link: &mut Link, line: &str, now: Instant) {
        assert_eq!(link.obey(line.parse().unwrap(), now), None);
    }

    /// An IPv4 packet to 198.51.100.2 that carries `number` as its identification.
    fn packet(number: u16) -> Vec<u8> {
        let mut packet = vec![0; 22];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[198, 51, 100, 2]);
        packet[20..].copy_from_slice(&number.to_be_bytes());
        packet
    }

    fn number(packet: &[u8]) -> u16 {
        u16::from_be_bytes([packet[20], packet[21]])
    }

    fn leaving(link: &mut Link, way: Way, now: Instant) -> Vec<u16> {
        std::iter::from_fn(|| link.leave(way, now))
            .map(|packet| number(&packet))
            .collect()
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn half_of_the_rtt_lies_on_either_way() {
        let start = Instant::now();
        for way in WAYS {
            let mut link = Link::new(0);
            tell(&mut link, "rtt 150ms", start);
            link.enter(way, &packet(1), start);
            assert_eq!(link.due(), Some(start + ms(75)));
            assert_eq!(leaving(&mut link, way, start + ms(74)), NOTHING);
            assert_eq!(leaving(&mut link, way, start + ms(75)), [1]);
            assert_eq!(link.due(), None);
        }
    }

    #[test]
    fn jitter_only_adds_and_nothing_overtakes() {
        let start = Instant::now();
        let mut link = Link::new(3);
        tell(&mut link, "rtt 20ms jitter 40ms", start);
        for n in 0..200 {
            link.enter(Way::Forth, &packet(n), start + ms(u64::from(n)));
        }
        let mut late = 0;
        let mut expected = 0;
        for now in 0..300 {
            for n in leaving(&mut link, Way::Forth, start + ms(now)) {
                assert_eq!(n, expected);
                expected += 1;
                let took = now - u64::from(n);
                assert!((10..=31).contains(&took), "{n} took {took} ms");
                late += u32::from(took > 20);
            }
        }
        assert_eq!(expected, 200);
        assert!(late > 50, "only {late} of 200 were late");
    }

    #[test]
    fn exactly_the_packets_of_the_schedule_are_lost_and_only_forth() {
        let now = Instant::now();
        let mut link = Link::new(0);
        tell(&mut link, "loss 5%", now);
        tell(&mut link, "seed 7", now);
        let mut passed = Vec::new();
        for n in 0..2000 {
            for way in WAYS {
                link.enter(way, &packet(n), now);
            }
            // Jitter does not change which packets are lost.
            if n == 300 {
                tell(&mut link, "jitter 1ms", now);
            }
            passed.extend(leaving(&mut link, Way::Forth, now + ms(1)));
            assert_eq!(leaving(&mut link, Way::Back, now + ms(1)), [n]);
        }
        let expected: Vec<u16> = (0..2000)
            .zip(losses(7, 0.05))
            .filter(|(_, lost)| !lost)
            .map(|(n, _)| n)
            .collect();
        assert_eq!(passed, expected);
        let lost = 2000 - passed.len();
        assert!((70..=130).contains(&lost), "{lost} of 2000 at 5 %");
        let [forth, back] = link.counts();
        assert_eq!((forth.lost, back.lost), (lost as u64, 0));
    }

    #[test]
    fn a_cut_takes_what_is_on_its_way_and_what_comes_until_it_heals() {
        let start = Instant::now();
        let mut link = Link::new(0);
        tell(&mut link, "rtt 20ms", start);
        for way in WAYS {
            link.enter(way, &packet(1), start);
        }
        tell(&mut link, "cut", start);
        link.enter(Way::Forth, &packet(2), start);
        tell(&mut link, "heal", start);
        link.enter(Way::Forth, &packet(3), start);
        assert_eq!(leaving(&mut link, Way::Forth, start + ms(10)), [3]);
        assert_eq!(leaving(&mut link, Way::Back, start + ms(10)), NOTHING);
        let [forth, back] = link.counts();
        assert_eq!((forth.cut, forth.passed, back.cut, back.passed), (2, 1, 1, 0));
    }

    #[test]
    fn a_flap_takes_what_enters_or_would_leave_during_an_outage() {
        let start = Instant::now();
        let mut link = Link::new(0);
        tell(&mut link, "rtt 200ms", start);
        tell(&mut link, "flap 3s", start);
        // The three packets: one enters during an outage, one arrives in whole time, one would leave during the next outage.
        for (n, at) in [(1, 2_999), (2, 3_000), (3, 5_950)] {
            link.enter(Way::Forth, &packet(n), start + ms(at));
        }
        assert_eq!(leaving(&mut link, Way::Forth, start + ms(3_100)), [2]);
        assert_eq!(leaving(&mut link, Way::Forth, start + ms(6_050)), NOTHING);
        let [forth, _] = link.counts();
        assert_eq!((forth.cut, forth.on_the_way), (2, 0));
    }

    #[test]
    fn the_queue_is_bounded_and_everything_is_accounted_for() {
        let now = Instant::now();
        let mut link = Link::new(0);
        tell(&mut link, "rtt 1s", now);
        let sent = u16::try_from(ON_THE_WAY).unwrap() + 5;
        for n in 0..sent {
            link.enter(Way::Forth, &packet(n), now);
        }
        let [forth, _] = link.counts();
        let expected = Counts {
            entered: u64::from(sent),
            overflowed: 5,
            on_the_way: ON_THE_WAY as u64,
            ..Counts::default()
        };
        assert_eq!(forth, expected);
    }

    #[test]
    fn what_a_kernel_says_by_itself_neither_passes_nor_draws() {
        let now = Instant::now();
        let mut link = Link::new(0);
        let mut to_a_group = packet(1);
        to_a_group[16] = 224;
        let mut version_6 = packet(2);
        version_6[0] = 0x60;
        for noise in [&to_a_group[..], &version_6, &[0x45], &[]] {
            link.enter(Way::Forth, noise, now);
        }
        assert_eq!(link.counts(), [Counts::default(); 2]);
        assert_eq!(link.leave(Way::Forth, now), None);
    }
}
