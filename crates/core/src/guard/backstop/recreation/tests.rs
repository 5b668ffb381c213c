use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::cache::Contribution;
use crate::keys::Keys;
use crate::model::pod_record::StuckPod;
use crate::wire::pod::Pod;

const SECOND: i64 = 1_000_000;

fn at(second: i64) -> Moment {
    Moment(second * SECOND)
}

/// A pod of one of these owners that is stuck since this second; so many are its owner's.
fn candidate(owner: &str, since: i64, siblings: u32, is_replaced: bool) -> Candidate {
    let text = json!({
        "metadata": {"ownerReferences": [{"kind": "ReplicaSet", "uid": owner, "controller": true}]}, "spec": {"containers": []},
    })
    .to_string();
    let workload = Pod::from_json(&text)
        .unwrap()
        .workload("shop".into(), &Keys::new("example.io"));
    Candidate {
        pod: Arc::new(StuckPod {
            uid: "u".into(),
            name: "p".into(),
            resource_version: "1".into(),
            workload: workload.into_owned(),
            placement: Arc::default(),
            is_replaced,
            decision: None,
            reason: None,
        }),
        since: at(since),
        contribution: Contribution::default(),
        siblings,
    }
}

#[test]
fn an_owner_loses_a_tenth_and_at_least_one() {
    for (siblings, most) in [(1, 1), (9, 1), (10, 1), (20, 2), (55, 5)] {
        let mut recreation = Recreation::default();
        let one = candidate("a", 0, siblings, true);
        for lost in 0..most {
            assert!(recreation.allows(&one, at(100)), "{lost} of {siblings}");
            recreation.record_deletion(&one, at(100));
        }
        assert!(!recreation.allows(&one, at(159)));
        assert!(recreation.allows(&candidate("b", 0, siblings, true), at(159)));
        assert!(recreation.allows(&one, at(160)));
    }
    assert!(!Recreation::default().allows(&candidate("a", 0, 50, false), at(100)));
}

#[test]
fn an_owner_whose_pods_come_to_stand_no_better_is_asked_ever_more_seldom() {
    let mut recreation = Recreation::default();
    let mut deletions: Vec<i64> = vec![];
    // Each is stuck again as soon as it can be, for a day.
    let mut since = 0;
    for second in (30..86_400).step_by(5) {
        let one = candidate("a", since, 1, true);
        if second - since >= 30 && recreation.allows(&one, at(second)) {
            recreation.record_deletion(&one, at(second));
            deletions.push(second);
            since = second + 1;
        }
    }
    let pauses: Vec<_> = deletions.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses[..7], [60, 120, 240, 480, 960, 1920, 3600]);
    assert!(pauses[7..].iter().all(|pause| *pause == 3600), "{pauses:?}");
    // After a while without, it begins again.
    let last = *deletions.last().unwrap();
    recreation.record_deletion(&candidate("b", 0, 1, true), at(last + 7_200));
    assert!(recreation.allows(&candidate("a", last + 1, 1, true), at(last + 7_200)));
    recreation.record_deletion(&candidate("a", last + 1, 1, true), at(last + 7_200));
    assert!(recreation.allows(&candidate("a", last + 1, 1, true), at(last + 7_260)));
}

#[test]
fn however_many_are_stuck_they_are_recreated_ever_more_seldom() {
    for pods in [2_u32, 3, 100] {
        let mut recreation = Recreation::default();
        let mut deletions: Vec<i64> = vec![];
        // Each pod and its successors are stuck as soon as they are created, for two days; those go first that have been for longest.
        let mut stuck = vec![0; pods as usize];
        let one = candidate("a", 0, pods, true);
        for second in (30..2 * 86_400).step_by(5) {
            stuck.sort_unstable();
            for since in stuck.iter_mut().filter(|since| second - **since >= 30) {
                let one = Candidate {
                    since: at(*since),
                    ..one.clone()
                };
                if recreation.allows(&one, at(second)) {
                    recreation.record_deletion(&one, at(second));
                    deletions.push(second);
                    *since = second + 1;
                }
            }
        }
        let tenth = (pods as usize / 10).max(1);
        let within = |from: i64, to: i64| deletions.iter().filter(|at| (from..to).contains(at)).count();
        // First each is deleted once, at full speed.
        let turns = i64::from(pods.div_ceil(u32::try_from(tenth).unwrap()));
        assert_eq!(within(30, 30 + 60 * turns), pods as usize, "{pods}: {deletions:?}");
        // In the end only so many in an hour.
        for hour in 24..48 {
            let lost = within(hour * 3_600, (hour + 1) * 3_600);
            assert!(lost <= tenth, "{pods}: {lost} in hour {hour}");
        }
        assert!(within(24 * 3_600, 48 * 3_600) > 20 * tenth);
    }
}

proptest! {
    /// Whatever is asked for whom and when: in no minute does an owner lose more than a tenth of its pods, but for one.
    #[test]
    fn no_minute_takes_too_many(asked in prop::collection::vec((0_i64..20, 0_usize..3, 0_i64..100), 1..200)) {
        const SIBLINGS: [u32; 3] = [3, 30, 90];
        let mut recreation = Recreation::default();
        let mut lost: [Vec<i64>; 3] = Default::default();
        let mut now = 1_000;
        for (pause, owner, age) in asked {
            now += pause;
            let one = candidate(["a", "b", "c"][owner], now - age, SIBLINGS[owner], true);
            if recreation.allows(&one, at(now)) {
                recreation.record_deletion(&one, at(now));
                lost[owner].push(now);
            }
        }
        for (lost, siblings) in lost.iter().zip(SIBLINGS) {
            for first in lost {
                let within = lost.iter().filter(|at| (*first..first + 60).contains(*at)).count();
                prop_assert!(within <= (siblings as usize / 10).max(1), "{within} of {siblings}: {lost:?}");
            }
        }
    }
}
