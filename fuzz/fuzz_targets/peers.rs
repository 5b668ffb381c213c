//! Peers send anything: the agent contacts only allowed addresses, keeps its bounds, and believes only its own handshakes.
#![no_main]

use std::collections::BTreeMap;
use std::net::IpAddr;

use arbitrary::Arbitrary;
use edgeward_decision::model::report::Report;
use edgeward_kube::units::{Micros, Moment};
use edgeward_peers::agent::{MAX_KNOWN, MAX_NEAR};
use edgeward_peers::message::MAX_BYTES;
use edgeward_peers::{Agent, ClusterId, Input, Output, Settings};

#[derive(Debug, Arbitrary)]
enum Step<'a> {
    Round,
    Answered {
        open: u8,
        id: u8,
        rtt_ms: u16,
        reply: &'a [u8],
    },
    Failed {
        open: u8,
    },
    Asked {
        from: u8,
        id: u8,
        request: &'a [u8],
    },
    Reported(&'a [u8]),
}

fn id(number: u8) -> ClusterId {
    ClusterId::parse(&format!("c{number}")).expect("a name")
}

fn settings() -> Settings {
    Settings {
        id: id(0),
        address: IpAddr::from([10, 0, 0, 0]),
        domain: "edge.test".to_owned(),
        denied: [id(1)].into(),
        allowed_cidrs: vec!["10.0.0.0/24".parse().expect("a network")],
        own_ranges: vec!["10.0.0.240/28".parse().expect("a network")],
        seeds: vec![IpAddr::from([10, 0, 0, 2])],
        max_rtt: Micros::from_millis(20),
    }
}

libfuzzer_sys::fuzz_target!(|steps: Vec<Step<'_>>| {
    let mut random = fastrand::Rng::with_seed(7);
    let mut agent = Agent::new(settings(), &mut random);
    let (mut open, mut measured) = (Vec::<IpAddr>::new(), BTreeMap::new());
    let take = |open: &mut Vec<IpAddr>, which: u8| {
        let index = usize::from(which).checked_rem(open.len())?;
        Some(open.swap_remove(index))
    };
    for (step, second) in steps.iter().zip(0..) {
        let input = match *step {
            Step::Round => Input::Round,
            Step::Answered {
                open: which,
                id: number,
                rtt_ms,
                reply,
            } => {
                let Some(address) = take(&mut open, which) else {
                    continue;
                };
                let rtt = Micros::from_millis(rtt_ms.into());
                measured.insert(address, rtt);
                Input::Answered {
                    address,
                    id: id(number),
                    rtt,
                    reply,
                }
            }
            Step::Failed { open: which } => {
                let Some(address) = take(&mut open, which) else {
                    continue;
                };
                Input::Failed { address }
            }
            Step::Asked {
                from,
                id: number,
                request,
            } => Input::Asked {
                from: IpAddr::from([10, 0, 0, from]),
                id: id(number),
                request,
            },
            Step::Reported(report) => {
                let report = serde_json::from_slice::<Report>(report).map(Report::within_limits);
                drop(report.map(|report| serde_json::to_vec(&report).expect("JSON")));
                continue;
            }
        };
        for output in agent.handle(input, Moment(second * 1_000_000), &mut random) {
            match output {
                Output::Ask { address, request } => {
                    let IpAddr::V4(v4) = address else { panic!("{address}") };
                    let [10, 0, 0, last] = v4.octets() else {
                        panic!("{address}")
                    };
                    assert!((1..240).contains(&last) && request.len() <= MAX_BYTES && !open.contains(&address));
                    open.push(address);
                }
                Output::Reply(reply) => assert!(reply.len() <= MAX_BYTES),
                Output::Refuse => {}
            }
        }
        let near: Vec<_> = agent.peers().filter(|(_, peer)| peer.is_near()).collect();
        assert!(near.iter().all(|(address, _)| measured.contains_key(address)));
        assert!(near.len() <= MAX_NEAR && agent.peers().count() <= MAX_NEAR + MAX_KNOWN + 1);
    }
});
