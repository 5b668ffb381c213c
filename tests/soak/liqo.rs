//! A near and a far cloud behind the real Liqo.

mod elastic;
mod frozen;
mod full;
mod home;
mod report;

use edgeward_harness::control_plane::FailureDetection;
use edgeward_harness::peering::{Cloud, Layout, Provider};
use edgeward_harness::prelude::*;

/// The edge has room for 40 pods of 200m. The virtual nodes promise room for 120 and for 300, and the clouds have it.
pub(crate) const NEAR_AND_FAR: Layout = Layout {
    clouds: &[
        Cloud {
            id: NEAR,
            virtual_nodes: &[(NEAR, 24)],
            nodes: &[8, 8, 8],
        },
        Cloud {
            id: FAR,
            virtual_nodes: &[(FAR, 60)],
            nodes: &[16, 16, 16, 16],
        },
    ],
    detection: FailureDetection::AsDefault,
};

const NEAR: &str = "near";
const FAR: &str = "far";

/// The sites as a user configures them. This test cannot produce a distance, so the far cloud has slower CPUs instead.
fn config(fixture: &Fixture<'_>) -> Value {
    let edge = json!({"name": "edge", "kind": "edge"});
    let clouds = fixture.providers().iter().map(|provider| {
        let mut site = provider.site();
        site["speedFactor"] = json!(if provider.id == FAR { 0.5 } else { 1.0 });
        site
    });
    let sites: Vec<_> = std::iter::once(edge).chain(clouds).collect();
    json!({"sites": sites})
}

fn near_and_far<'run>(fixture: &Fixture<'run>) -> anyhow::Result<[&'run Provider; 2]> {
    match fixture.providers() {
        [near, far] => Ok([near, far]),
        others => anyhow::bail!("{} clouds", others.len()),
    }
}

/// SLO annotations that every site meets.
fn slo() -> Value {
    json!({"slo.example.io/class": "throughput", "slo.example.io/deadlineMs": "60000"})
}
