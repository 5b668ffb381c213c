//! edgeward on a real control plane, for minutes of load or of quiet. Run by `cargo xtask soak` alone.

mod burst;
mod liqo;
mod live;
mod load;
mod memory;
mod profiles;
mod rollout;

use std::process::ExitCode;

use edgeward_harness::clusters::{self, Suite, Test};
use edgeward_harness::side_by_side::Needs::{Machine, Peering};
use edgeward_harness::tables;

/// What takes long by nature, or tells something only of a machine that does nothing else.
const TESTS: &[Test] = &[
    ("live::five_quiet_minutes", Machine, live::five_quiet_minutes),
    ("rollout::three_in_a_row", Machine, rollout::three_in_a_row),
    (
        "burst::fills_the_edge_again_and_again",
        Machine,
        burst::fills_the_edge_again_and_again,
    ),
    ("burst::beside_a_slow_webhook", Machine, burst::beside_a_slow_webhook),
    (
        "load::rolling_restart_at_a_steady_rate",
        Machine,
        load::restarts::rolling_restart_at_a_steady_rate,
    ),
    ("load::leader_is_lost", Machine, load::restarts::leader_is_lost),
    ("load::one_is_frozen", Machine, load::restarts::one_is_frozen),
    (
        "load::rotation_files_at_a_steady_rate",
        Machine,
        load::rotation::rotation_files_at_a_steady_rate,
    ),
    (
        "load::rotation_self_managed",
        Machine,
        load::rotation::rotation_self_managed,
    ),
    (
        "load::rotation_cert_manager",
        Machine,
        load::rotation::rotation_cert_manager,
    ),
    ("load::closed_by_scheduler", Machine, load::closing::closed_by_scheduler),
    ("load::hostile_clients", Machine, load::hostile::hostile_clients),
    ("memory::hostile_pods", Machine, memory::hostile_pods),
    ("load::hostile_bodies", Machine, load::hostile_bodies::hostile_bodies),
    (
        "profiles::refreshed_beside_a_load",
        Machine,
        profiles::refreshed_beside_a_load,
    ),
    ("liqo::elastic_cluster", Peering, liqo::elastic_cluster),
    ("liqo::frozen_api_server", Peering, liqo::frozen_api_server),
    ("liqo::full_near_cloud", Peering, liqo::full_near_cloud),
];

/// They use few of the rights.
static SUITE: Suite = Suite {
    target: "soak",
    edgeward: env!("CARGO_BIN_EXE_edgeward"),
    tests: TESTS,
    uses_every_right: false,
    peering: liqo::NEAR_AND_FAR,
    measures: false,
};

fn main() -> ExitCode {
    let ended = clusters::run(&SUITE);
    tables::print();
    ended
}
