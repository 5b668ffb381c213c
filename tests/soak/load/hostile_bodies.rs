//! Request bodies that need as much memory as possible when they are parsed.

use edgeward::testkit::{BODY_LIMIT, ORDINARY_BODY};
use edgeward_harness::hostile_bodies::pressure::{Limits, MOST_KIB, press};
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;

const SEEDS: u64 = 300;

e2e! { "load::hostile_bodies", Machine, hostile_bodies }
/// Searches like `mixed_request_bodies_stay_within_192_mib`, over a wider range.
fn hostile_bodies(fixture: &Fixture<'_>) -> Result<()> {
    let node = json!({"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 9}});
    let fleet = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": [node]});
    let edgeward = fixture.edgeward(&fleet)?;
    let limits = Limits {
        body: BODY_LIMIT,
        ordinary: ORDINARY_BODY,
    };
    let resident = fixture.runtime.block_on(press(&edgeward.target()?, limits, 0..SEEDS))?;
    let [before, most] = [resident.before, resident.most].map(|kib| kib / 1024);
    Table::HostileBodies.row("MiB resident before", &[&before]);
    Table::HostileBodies.row("at most", &[&most]);
    ensure!(resident.most <= MOST_KIB, "{resident:?}");
    Ok(())
}
