//! Discovery of peers over a simulated network.

use edgeward_lab::peers::{Measured, Plan, Topology, flocky, run};

fn plan(rounds: u64) -> Plan {
    Plan {
        range_ms: 10.0,
        rounds,
        seed: 1,
        hostile: 0.0,
        loss: 0.0,
        churn: 0.0,
        partition: 0..0,
    }
}

fn mean(rounds: &[Measured], value: fn(&Measured) -> f64) -> f64 {
    rounds.iter().map(value).sum::<f64>() / rounds.len() as f64
}

#[test]
fn cold_start_finds_peers_with_few_pings() {
    let topology = Topology::uniform(75, 1);
    let rounds = run(&topology, &plan(15));
    assert!(rounds[1].accuracy >= 0.97, "{rounds:?}");
    assert!(rounds[9].accuracy >= 0.999, "{rounds:?}");
    let pings = mean(&rounds[10..], |round| round.pings);
    assert!(pings <= 4.0, "{pings}");
    assert_eq!(rounds, run(&topology, &plan(15)), "a seed decides a run");
}

#[test]
fn published_flocky_pings_every_node() {
    let last = *flocky(&Topology::uniform(75, 1), 10.0, 15, 1).last().unwrap();
    assert!(last.accuracy > 0.999 && last.pings > 70.0, "{last:?}");
}

#[test]
fn hostile_peers_do_not_hide_honest_ones() {
    let hostile = Plan {
        hostile: 0.3,
        ..plan(12)
    };
    let rounds = run(&Topology::uniform(75, 1), &hostile);
    assert!(rounds[9].accuracy >= 0.99, "{rounds:?}");
}

#[test]
fn partition_heals_within_five_rounds() {
    let cut = Plan {
        partition: 11..31,
        ..plan(35)
    };
    let rounds = run(&Topology::uniform(75, 1), &cut);
    assert!(rounds[29].accuracy < 0.7 && rounds[34].accuracy >= 0.99, "{rounds:?}");
}

#[test]
fn churn_leaves_few_dead_entries() {
    let churn = Plan {
        churn: 0.002,
        ..plan(60)
    };
    let rounds = run(&Topology::uniform(75, 1), &churn);
    let dead = mean(&rounds[10..], |round| round.dead);
    assert!(dead > 0.0 && dead <= 0.01, "{dead}");
}
