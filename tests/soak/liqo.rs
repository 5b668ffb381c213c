//! A near and a far cloud behind the real Liqo.

mod elastic;
mod frozen;
mod full;

use edgeward_harness::control_plane::FailureDetection;
use edgeward_harness::peering::{Cloud, Layout, Provider};
use edgeward_harness::prelude::*;

/// Beside an edge with room for 40 pods of 200m, the virtual nodes promise room for 120 and for 300, which there is.
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

/// The sites, as a user states them. No distance is to be had here, so the far cloud is one of slower CPUs.
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

/// Annotations of a pod that runs anywhere in time.
fn slo() -> Value {
    json!({"slo.example.io/class": "throughput", "slo.example.io/deadlineMs": "60000"})
}
