use std::net::IpAddr;

use edgeward_kube::units::{Micros, Moment};
use proptest::prelude::*;

use crate::agent::{MAX_KNOWN, MAX_NEAR};
use crate::message::{MAX_BYTES, MAX_OFFERS, Offer, Reply, Request, Seen};
use crate::{Agent, ClusterId, Input, Output, Settings};

fn id(name: &str) -> ClusterId {
    ClusterId::parse(name).unwrap()
}

fn settings() -> Settings {
    Settings {
        id: id("self"),
        address: "10.0.0.1".parse().unwrap(),
        domain: "fleet.example".into(),
        denied: [id("denied")].into(),
        allowed_cidrs: vec!["10.0.0.0/16".parse().unwrap(), "127.0.0.0/8".parse().unwrap()],
        own_ranges: vec!["10.0.9.0/24".parse().unwrap()],
        seeds: vec!["10.0.0.2".parse().unwrap()],
        max_rtt: Micros::from_millis(10),
    }
}

#[test]
fn identity_is_taken_from_spiffe_uri_of_own_domain() {
    let settings = settings();
    assert_eq!(settings.identify("spiffe://fleet.example/cluster/a-1"), Some(id("a-1")));
    for uri in [
        "spiffe://other.example/cluster/a",
        "spiffe://fleet.example.org/cluster/a",
        "spiffe://fleet.example/ns/a",
        "spiffe://fleet.example/cluster/",
        "spiffe://fleet.example/cluster/a/b",
        "spiffe://fleet.example/cluster/denied",
        "spiffe://fleet.example/cluster/self",
        "https://fleet.example/cluster/a",
    ] {
        assert_eq!(settings.identify(uri), None, "{uri}");
    }
}

#[test]
fn address_is_allowed_only_within_ranges() {
    let settings = settings();
    let allowed = |text: &str| settings.allowed(text.parse().unwrap()).is_some();
    assert!(allowed("10.0.0.2") && allowed("::ffff:10.0.0.2"));
    for text in [
        "10.1.0.1",
        "10.0.9.7",
        "127.0.0.1",
        "::ffff:127.0.0.1",
        "169.254.0.1",
        "fe80::1",
        "10.0.0.1",
    ] {
        assert!(!allowed(text), "{text}");
    }
    let anywhere = Settings {
        allowed_cidrs: ["0.0.0.0/0", "::/0"].map(|range| range.parse().unwrap()).into(),
        ..settings
    };
    for text in [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "::1",
        "::",
        "0.0.0.0",
        "224.0.0.1",
        "ff02::1",
        "255.255.255.255",
    ] {
        assert!(anywhere.allowed(text.parse().unwrap()).is_none(), "{text}");
    }
}

/// A step of the network or of a hostile peer. Addresses and ids are numbers of a small range, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Round,
    Answer {
        open: usize,
        id: u8,
        rtt_ms: u64,
        offers: Vec<(u16, u8, f64)>,
    },
    Garbage {
        open: usize,
        bytes: Vec<u8>,
    },
    Fail {
        open: usize,
    },
    Ask {
        from: u16,
        id: u8,
        address: u16,
        x: f64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![Just(f64::MAX), Just(0.0), -50.0..50.0];
    let offers = prop::collection::vec((0..700_u16, any::<u8>(), number.clone()), 0..20);
    prop_oneof![
        3 => Just(Step::Round),
        20 => (any::<usize>(), any::<u8>(), 0..60_u64, offers)
            .prop_map(|(open, id, rtt_ms, offers)| Step::Answer { open, id, rtt_ms, offers }),
        2 => (any::<usize>(), prop::collection::vec(any::<u8>(), 0..50)).prop_map(|(open, bytes)| Step::Garbage { open, bytes }),
        4 => any::<usize>().prop_map(|open| Step::Fail { open }),
        6 => (0..700_u16, any::<u8>(), prop::option::of(0..700_u16), number)
            .prop_map(|(from, id, address, x)| Step::Ask { from, id, address: address.unwrap_or(from), x }),
    ]
}

/// Some of these are own, loopback or not allowed.
fn address(number: u16) -> IpAddr {
    match number {
        600..650 => IpAddr::from([127, 0, 0, number as u8]),
        650.. => IpAddr::from([10, 0, 9, number as u8]),
        _ => IpAddr::from([10, (number / 550) as u8, (number / 200) as u8, number as u8]),
    }
}

fn cluster(number: u8) -> ClusterId {
    match number {
        0 => id("self"),
        1 => id("denied"),
        _ => id(&format!("c{number}")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn hostile_messages_never_break_a_guard(steps in prop::collection::vec(step(), 1..400), seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut agent = Agent::new(settings(), &mut random);
        let mut open: Vec<IpAddr> = Vec::new();
        // The cluster at each address, and its last two handshakes.
        let mut measured = std::collections::BTreeMap::new();
        // Unverified peers that were tried in this round and did not show a certificate.
        let mut spent = std::collections::BTreeSet::new();
        for (at, step) in steps.into_iter().enumerate() {
            let now = Moment(at as i64 * 400_000);
            let bytes;
            let take = |open: &mut Vec<IpAddr>, index: usize| (!open.is_empty()).then(|| open.swap_remove(index % open.len()));
            let input = match step {
                Step::Round => { spent.clear(); Input::Round }
                Step::Answer { open: index, id, rtt_ms, offers } => {
                    let Some(to) = take(&mut open, index) else { continue };
                    let offers = offers.into_iter().map(|(number, id, x)| Offer {
                        id: cluster(id),
                        address: address(number),
                        coordinate: Some(crate::coordinate::Coordinate::new(x, x, 0.0)),
                        rtt_ms: Some(x),
                        age_ms: 0,
                    });
                    let reply = Reply { coordinate: None, version: 1, offers: offers.collect() };
                    let is_read = reply.offers.len() <= MAX_OFFERS;
                    bytes = serde_json::to_vec(&reply).unwrap();
                    let rtt = Micros::from_millis(rtt_ms);
                    if is_read && id > 1 {
                        let before = measured.insert(to, (cluster(id), rtt, rtt));
                        if let Some((_, last, _)) = before.filter(|(before, ..)| *before == cluster(id)) {
                            measured.insert(to, (cluster(id), rtt, last));
                        }
                        spent.remove(&to);
                    }
                    Input::Answered { address: to, id: cluster(id), rtt, reply: &bytes }
                }
                Step::Garbage { open: index, bytes: garbage } => {
                    let Some(to) = take(&mut open, index) else { continue };
                    bytes = garbage;
                    Input::Answered { address: to, id: id("c9"), rtt: Micros(1), reply: &bytes }
                }
                Step::Fail { open: index } => {
                    let Some(to) = take(&mut open, index) else { continue };
                    Input::Failed { address: to }
                }
                Step::Ask { from, id, address: claimed, x } => {
                    let coordinate = Some(crate::coordinate::Coordinate::new(x, x, 0.0));
                    let request = Request { address: address(claimed), coordinate, seen: Seen::default() };
                    bytes = serde_json::to_vec(&request).unwrap();
                    Input::Asked { from: address(from), id: cluster(id), request: &bytes }
                }
            };
            for output in agent.handle(input, now, &mut random) {
                match output {
                    Output::Ask { address, request } => {
                        prop_assert!(settings().allowed(address).is_some(), "{address}");
                        prop_assert!(request.len() <= MAX_BYTES && !open.contains(&address));
                        let is_unverified = agent.peers().any(|(at, peer)| at == address && !peer.is_verified);
                        if is_unverified { spent.insert(address); }
                        open.push(address);
                    }
                    Output::Reply(reply) => prop_assert!(reply.len() <= MAX_BYTES),
                    Output::Refuse => {}
                }
            }
            let near: Vec<_> = agent.peers().filter(|(_, peer)| peer.is_near()).collect();
            prop_assert!(near.len() <= MAX_NEAR && agent.peers().count() - near.len() <= MAX_KNOWN + open.len());
            let bound = 10.0 * (10.0 / near.len() as f64).sqrt().max(1.0);
            for (address, peer) in near {
                let (id, last, before) = &measured[&address];
                prop_assert_eq!(peer.id.as_ref(), Some(id));
                let rtt = peer.rtt.unwrap();
                prop_assert!(rtt == *last || rtt == *before, "{rtt}, and measured were {before} and {last}");
                prop_assert!(rtt.as_millis_f64() <= bound && peer.is_verified);
            }
            prop_assert!(open.len() <= 3 && spent.len() <= 16, "{spent:?}");
        }
    }
}

#[test]
fn unverified_offers_get_at_most_16_handshakes_in_10_s() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut agent = Agent::new(settings(), &mut random);
    let offers = |first: u8| {
        (0..16).map(move |k| Offer {
            id: id(&format!("f{first}-{k}")),
            address: IpAddr::from([10, 0, first, 10 + k]),
            coordinate: None,
            rtt_ms: Some(0.0),
            age_ms: 0,
        })
    };
    // Peers that are verified because they ask from where they answer, and offer what is not there.
    for liar in 10..30_u8 {
        let address = IpAddr::from([10, 0, 1, liar]);
        let request = Request {
            address,
            coordinate: None,
            seen: Seen::default(),
        };
        let request = serde_json::to_vec(&request).unwrap();
        let input = Input::Asked {
            from: address,
            id: id(&format!("l{liar}")),
            request: &request,
        };
        agent.handle(input, Moment(0), &mut random);
    }
    let (mut dead, mut by_liar) = (0, std::collections::BTreeMap::new());
    // The first rounds take a quarter of the time.
    for _ in 0..4 {
        let mut queue = agent.handle(Input::Round, Moment(0), &mut random);
        while let Some(output) = queue.pop() {
            let Output::Ask {
                address: IpAddr::V4(to),
                ..
            } = output
            else {
                continue;
            };
            let [_, _, third, last] = to.octets();
            let input = if third == 1 {
                let reply = Reply {
                    coordinate: None,
                    version: 1,
                    offers: offers(last).collect(),
                };
                let reply = serde_json::to_vec(&reply).unwrap();
                let input = Input::Answered {
                    address: to.into(),
                    id: id(&format!("l{last}")),
                    rtt: Micros(1),
                    reply: &reply,
                };
                queue.extend(agent.handle(input, Moment(0), &mut random));
                continue;
            } else {
                dead += 1;
                *by_liar.entry(third).or_insert(0) += 1;
                Input::Failed { address: to.into() }
            };
            queue.extend(agent.handle(input, Moment(0), &mut random));
        }
    }
    assert_eq!(dead, 16);
    assert!(by_liar.values().all(|count| *count <= 3), "{by_liar:?}");
}

#[test]
fn peer_that_asks_twice_in_a_second_is_refused() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut agent = Agent::new(settings(), &mut random);
    let from = IpAddr::from([10, 0, 0, 9]);
    let request = serde_json::to_vec(&Request {
        address: from,
        coordinate: None,
        seen: Seen::default(),
    })
    .unwrap();
    let mut ask = |now| {
        let input = Input::Asked {
            from,
            id: id("c9"),
            request: &request,
        };
        agent.handle(input, Moment(now), &mut random).remove(0)
    };
    assert!(matches!(ask(0), Output::Reply(_)));
    assert_eq!(ask(999_999), Output::Refuse);
    assert!(matches!(ask(1_000_000), Output::Reply(_)));
}
