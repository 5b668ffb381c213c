//! edgeward on a real control plane. etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as processes on
//! loopback. kwok provides nodes that only simulate their pods.
//!
//! `EDGEWARD_CONTROL_PLANE=<dir>` uses ready-made binaries. `EDGEWARD_BLESS=1` rewrites the golden files.

#[macro_use]
extern crate edgeward_harness;

mod auction;
mod certificates;
mod commands;
mod configuration;
mod confined;
mod cost_map;
mod data;
mod extender;
mod gated;
mod golden;
mod groups;
mod install;
mod leader;
mod links;
mod liqo;
mod live;
mod load;
mod measured_traits;
mod neighbourhoods;
mod ocm;
mod placement;
mod profiles;
mod reports;
mod scorer;

use std::process::ExitCode;

use edgeward_harness::clusters::{self, Suite};
use edgeward_harness::control_plane::FailureDetection;
use edgeward_harness::peering::{Cloud, Layout};

static SUITE: Suite = Suite {
    target: "e2e",
    edgeward: env!("CARGO_BIN_EXE_edgeward"),
    uses_every_right: true,
    peering: Layout {
        clouds: &[Cloud {
            id: "cloud",
            virtual_nodes: &[("cloud", 64), ("cloud-2", 64)],
            nodes: &[64, 64],
        }],
        detection: FailureDetection::Fast,
    },
    measures: false,
};

fn main() -> ExitCode {
    clusters::run(&SUITE)
}
