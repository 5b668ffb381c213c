//! Memory limits of the program, for any input.

use edgeward::testkit::{BODY_LIMIT, ORDINARY_BODY};
use edgeward_harness::hostile_bodies::pressure::{Limits, MOST_KIB, press};
use edgeward_harness::process::memory_kib;

use crate::process::Process;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn mixed_request_bodies_stay_within_192_mib() {
    let mut process = Process::start();
    process.discard_log();
    let limits = Limits {
        body: BODY_LIMIT,
        ordinary: ORDINARY_BODY,
    };
    let resident = press(&process.target(), limits, 0..10).await.unwrap();
    assert!(resident.most <= MOST_KIB, "{resident:?}");
}

/// With transparent huge pages, each of many threads would take 2 MiB for a few small allocations.
#[test]
fn replica_runs_without_huge_pages() {
    let process = Process::start();
    assert_eq!(memory_kib(process.child.id(), "THP_enabled").unwrap(), 0);
}
