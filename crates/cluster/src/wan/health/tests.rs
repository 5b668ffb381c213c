use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

use super::*;

const THRESHOLDS: Thresholds = Thresholds {
    rtt: Micros::from_millis(100),
    loss: Permille(20),
};

/// A link that is probed every 2 s.
struct Probed {
    health: LinkHealth,
    now: Moment,
    changes: Vec<(i64, LinkState)>,
}

impl Probed {
    fn new(endpoints: usize) -> Self {
        Self {
            health: LinkHealth::new(endpoints),
            now: Moment(0),
            changes: vec![],
        }
    }

    /// Records one round of probes: an outcome in milliseconds, or a loss, for each endpoint.
    fn round<const N: usize>(&mut self, outcomes: [Option<u64>; N]) -> &mut Self {
        self.now = Moment(self.now.0 + 2_000_000);
        for (endpoint, outcome) in outcomes.into_iter().enumerate() {
            let before = self.state();
            let outcome = outcome.map(Micros::from_millis);
            self.health.record(endpoint, outcome, false, self.now, THRESHOLDS);
            if self.state() != before {
                self.changes
                    .extend(self.state().map(|state| (self.now.0 / 1_000_000, state)));
            }
        }
        self
    }

    fn rounds<const N: usize>(&mut self, count: usize, outcomes: [Option<u64>; N]) -> &mut Self {
        for _ in 0..count {
            self.round(outcomes);
        }
        self
    }

    fn state(&self) -> Option<LinkState> {
        self.health.link().map(|link| link.state)
    }

    fn link(&self) -> Link {
        self.health.link().unwrap()
    }
}

#[test]
fn jitter_average_and_p95_follow_the_answers() {
    let mut link = Probed::new(1);
    link.rounds(5, [Some(20)]);
    assert_eq!(
        (link.link().jitter, link.link().average_rtt),
        (Some(Micros(0)), Some(Micros::from_millis(20)))
    );
    link.round([Some(50)]);
    let first = link.link();
    // A probe every 2 s counts for 1 − e^(−2/30) of the average.
    assert_eq!(
        (first.jitter, first.average_rtt),
        (Some(Micros(6_000)), Some(Micros(21_935)))
    );
    link.round([None]);
    assert_eq!(
        (link.link().jitter, link.link().average_rtt),
        (first.jitter, first.average_rtt)
    );
    // Nineteen of the twenty answers are no slower than 20 ms, but not of twenty-one.
    link.rounds(14, [Some(20)]);
    assert_eq!(link.link().rtt_p95, Some(Micros::from_millis(20)));
    link.round([Some(60)]);
    assert_eq!(link.link().rtt_p95, Some(Micros::from_millis(50)));
    link.rounds(60, [Some(50)]);
    let settled = link.link().average_rtt.unwrap();
    assert!((49_000..=50_000).contains(&settled.0), "{settled}");
}

#[test]
fn link_has_no_state_before_five_outcomes() {
    let mut link = Probed::new(1);
    assert_eq!(link.rounds(4, [Some(20)]).health.link(), None);
    assert_eq!(
        link.round([Some(20)]).link(),
        Link {
            state: LinkState::Healthy,
            rtt: Some(Micros::from_millis(20)),
            rtt_p95: Some(Micros::from_millis(20)),
            loss: Some(Permille(0)),
            jitter: Some(Micros(0)),
            average_rtt: Some(Micros::from_millis(20)),
            source: LinkSource::Probe,
            as_of: Moment(10_000_000),
        }
    );
    assert_eq!(Probed::new(0).health.link(), None);
}

#[test]
fn loss_is_not_judged_before_fifty_probes() {
    let mut link = Probed::new(1);
    link.rounds(4, [None]).round([Some(20)]);
    assert_eq!(link.changes, [(10, LinkState::Healthy)]);
    assert_eq!(link.link().loss, Some(Permille(800)));
    link.rounds(44, [Some(20)]);
    assert_eq!(
        (link.health.paths[0].window.probes(), link.state()),
        (49, Some(LinkState::Healthy))
    );
    // The fiftieth probe.
    link.round([Some(20)]);
    assert_eq!(link.changes, [(10, LinkState::Healthy), (100, LinkState::Degraded)]);
}

#[test]
fn loss_degrades_beyond_chance_and_recovers_at_half_threshold() {
    let mut link = Probed::new(1);
    link.rounds(WINDOW, [Some(20)]);
    for _ in 0..4 {
        link.round([None]).rounds(10, [Some(20)]);
    }
    assert_eq!(
        (link.link().loss, link.state()),
        (Some(Permille(40)), Some(LinkState::Healthy))
    );
    link.round([None]);
    assert_eq!(
        (link.link().loss, link.state()),
        (Some(Permille(50)), Some(LinkState::Degraded))
    );
    // First all but two losses have left the window, then all but the last.
    link.rounds(WINDOW - 12, [Some(20)]);
    assert_eq!(
        (link.link().loss, link.state()),
        (Some(Permille(20)), Some(LinkState::Degraded))
    );
    link.rounds(1, [Some(20)]);
    assert_eq!(
        (link.link().loss, link.state()),
        (Some(Permille(10)), Some(LinkState::Healthy))
    );
}

/// Percentage of time that a link with this loss rate (per mille) is not healthy.
fn unhealthy_share(permille: u64) -> usize {
    const PROBES: usize = 50_000;
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut link = Probed::new(1);
    let unhealthy = (0..PROBES).filter(|_| {
        let is_lost = random.random_range(0..1_000) < permille;
        link.round([Some(20).filter(|_| !is_lost)]).state() != Some(LinkState::Healthy)
    });
    unhealthy.count() * 100 / PROBES
}

#[test]
fn random_loss_degrades_link_only_above_threshold() {
    for (permille, expected) in [(2, 0..=0), (5, 0..=0), (10, 0..=5), (50, 80..=100), (100, 99..=100)] {
        let share = unhealthy_share(permille);
        assert!(expected.contains(&share), "{permille} of a thousand: {share} %");
    }
}

#[test]
fn rtt_degrades_at_threshold_and_recovers_below_nine_tenths() {
    let mut link = Probed::new(1);
    link.rounds(30, [Some(99)]);
    assert_eq!(link.changes, [(10, LinkState::Healthy)]);
    link.rounds(5, [Some(100)]);
    assert_eq!(link.changes[1..], [(70, LinkState::Degraded)]);
    link.rounds(50, [Some(90)]);
    assert_eq!(link.changes.len(), 2);
    link.rounds(5, [Some(89)]);
    assert_eq!(link.changes[2..], [(172, LinkState::Healthy)]);
}

#[test]
fn five_losses_make_link_unreachable_and_keep_last_rtt() {
    let mut link = Probed::new(1);
    link.rounds(5, [Some(20)]).rounds(4, [None]);
    assert_eq!(link.state(), Some(LinkState::Healthy));
    link.round([None]);
    assert_eq!(link.changes, [(10, LinkState::Healthy), (20, LinkState::Unreachable)]);
    // Holds even when the window has no answer left.
    link.rounds(2 * WINDOW, [None]);
    assert_eq!(
        link.link(),
        Link {
            state: LinkState::Unreachable,
            rtt: Some(Micros::from_millis(20)),
            rtt_p95: Some(Micros::from_millis(20)),
            loss: Some(Permille(1_000)),
            jitter: None,
            average_rtt: Some(Micros::from_millis(20)),
            source: LinkSource::Probe,
            as_of: link.now,
        }
    );
}

#[test]
fn five_answers_end_unreachable_and_start_a_new_window() {
    let mut link = Probed::new(1);
    link.rounds(80, [Some(20)])
        .rounds(5, [None])
        .rounds(4, [Some(30)])
        .round([None]);
    link.rounds(4, [Some(30)]);
    assert_eq!(link.state(), Some(LinkState::Unreachable));
    link.round([Some(30)]);
    assert_eq!(link.state(), Some(LinkState::Healthy));
    assert_eq!(link.health.paths[0].window.probes(), 5);
    assert_eq!(
        (link.link().loss, link.link().rtt),
        (Some(Permille(0)), Some(Micros::from_millis(30)))
    );
    // The link is judged like a new one: only by its RTT, with the threshold included.
    link.rounds(5, [None]).rounds(5, [Some(95)]);
    assert_eq!(link.state(), Some(LinkState::Healthy));
    link.rounds(5, [None]).rounds(5, [Some(100)]);
    assert_eq!(link.state(), Some(LinkState::Degraded));
}

#[test]
fn link_is_as_good_as_its_best_endpoint() {
    let mut link = Probed::new(2);
    link.rounds(20, [Some(40), Some(20)]);
    assert_eq!(link.link().rtt, Some(Micros::from_millis(20)));
    // The better endpoint falls silent. The other one now counts for the link, which stays healthy.
    link.rounds(5, [Some(40), None]);
    assert!(link.health.is_silent(1));
    assert_eq!(
        (link.link().rtt, link.link().loss),
        (Some(Micros::from_millis(40)), Some(Permille(0)))
    );
    assert_eq!(link.changes, [(10, LinkState::Healthy)]);
    // The link is unreachable when no endpoint answers.
    link.rounds(5, [None, None]);
    assert_eq!(
        (link.state(), link.link().rtt),
        (Some(LinkState::Unreachable), Some(Micros::from_millis(40)))
    );
    // One answering endpoint makes the link reachable again.
    link.rounds(5, [None, Some(30)]);
    assert_eq!(
        (link.state(), link.link().rtt),
        (Some(LinkState::Healthy), Some(Micros::from_millis(30)))
    );
}

#[test]
fn slower_lossless_endpoint_beats_a_faster_lossy_one() {
    let mut link = Probed::new(2);
    for k in 0..60 {
        // The first endpoint is faster but loses every tenth probe.
        link.round([(k % 10 != 0).then_some(10), Some(50)]);
    }
    assert_eq!(
        (link.state(), link.link().rtt),
        (Some(LinkState::Healthy), Some(Micros::from_millis(50)))
    );
}

/// Outcomes in milliseconds, or lost, in runs. Independent random outcomes would never produce such runs.
fn outcomes() -> impl Strategy<Value = Vec<Option<u64>>> {
    let outcome = prop_oneof![
        Just(None),
        Just(Some(20)),
        Just(Some(95)),
        Just(Some(300)),
        (0..200_u64).prop_map(Some)
    ];
    let run = (outcome, 1..30_usize).prop_map(|(outcome, count)| vec![outcome; count]);
    proptest::collection::vec(run, 1..30).prop_map(|runs| runs.concat())
}

proptest! {
    #[test]
    fn no_sequence_makes_a_link_flap(first in outcomes(), second in outcomes(), gap_ms in 1..10_000_i64) {
        let mut health = LinkHealth::new(2);
        // Time and state of the last change.
        let mut last: Option<(Moment, LinkState)> = None;
        for k in 0..first.len().max(second.len()) {
            let now = Moment(k as i64 * gap_ms * 1_000);
            for (endpoint, outcomes) in [&first, &second].into_iter().enumerate() {
                let Some(outcome) = outcomes.get(k) else { continue };
                health.record(endpoint, outcome.map(Micros::from_millis), false, now, THRESHOLDS);
                let Some(state) = health.link().map(|link| link.state) else { continue };
                if let Some((since, before)) = last.filter(|(_, before)| *before != state) {
                    let dwells = before != LinkState::Unreachable && state != LinkState::Unreachable;
                    prop_assert!(!dwells || now.since(since) >= DWELL, "{before:?} to {state:?} after {:?}", now.since(since));
                }
                if last.is_none_or(|(_, before)| before != state) {
                    last = Some((now, state));
                }
            }
        }
    }

    #[test]
    fn link_is_unreachable_from_five_losses_to_five_answers(outcomes in outcomes()) {
        let mut health = LinkHealth::new(1);
        let mut unreachable = false;
        for k in 0..outcomes.len() {
            health.record(0, outcomes[k].map(Micros::from_millis), false, Moment(k as i64 * 2_000_000), THRESHOLDS);
            let run = outcomes[..=k].last_chunk::<RUN>();
            unreachable = match run {
                Some(run) if run.iter().all(Option::is_none) => true,
                Some(run) if run.iter().all(Option::is_some) => false,
                _ => unreachable,
            };
            let state = health.link().map(|link| link.state);
            prop_assert_eq!(state.is_some(), k + 1 >= RUN);
            prop_assert_eq!(state == Some(LinkState::Unreachable), unreachable);
        }
    }

    #[test]
    fn state_after_dwell_time_agrees_with_rtt_and_loss(outcomes in outcomes()) {
        let mut health = LinkHealth::new(1);
        for (k, outcome) in outcomes.iter().enumerate() {
            // The probes are so far apart that every state has lasted long enough.
            health.record(0, outcome.map(Micros::from_millis), false, Moment(k as i64 * 30_000_000), THRESHOLDS);
            let Some(link) = health.link() else { continue };
            let judged = health.paths[0].window.probes() >= JUDGED_FROM;
            let loss = link.loss.filter(|_| judged).unwrap_or_default();
            let rtt = link.rtt.unwrap_or_default();
            match link.state {
                // More than three of 50 probes, or more than four of 100.
                LinkState::Healthy => prop_assert!(rtt < THRESHOLDS.rtt && loss <= Permille(60), "{link:?}"),
                LinkState::Degraded => prop_assert!(rtt >= Micros::from_millis(90) || loss >= Permille(10), "{link:?}"),
                LinkState::Unreachable => {}
            }
        }
    }

    #[test]
    fn any_endpoint_that_answers_makes_a_link_reachable(first in outcomes(), second in outcomes()) {
        let mut health = LinkHealth::new(2);
        for k in 0..first.len().min(second.len()) {
            for (endpoint, outcomes) in [&first, &second].into_iter().enumerate() {
                let outcome = outcomes[k].map(Micros::from_millis);
                health.record(endpoint, outcome, false, Moment(k as i64 * 2_000_000), THRESHOLDS);
            }
            let state = health.link().map(|link| link.state);
            let silent = health.is_silent(0) && health.is_silent(1);
            prop_assert_eq!(state == Some(LinkState::Unreachable), silent);
        }
    }
}

fn window(outcomes: impl IntoIterator<Item = Option<u64>>) -> Window {
    let mut window = Window::default();
    outcomes
        .into_iter()
        .for_each(|outcome| window.push(outcome.map(Micros)));
    window
}

#[test]
fn window_without_answers_has_no_rtt() {
    let empty = Window::default();
    assert_eq!((empty.loss(), empty.rtt()), (None, None));
    let lost = window([None; 3]);
    assert_eq!((lost.loss(), lost.rtt()), (Some(Permille(1_000)), None));
}

#[test]
fn rtt_is_mean_of_last_five_answers() {
    let answers = [900, 10, 20, 30, 40].map(Some);
    assert_eq!(window(answers).rtt(), Some(Micros(200)));
    assert_eq!(
        window(answers.into_iter().chain([None, Some(50), None])).rtt(),
        Some(Micros(30))
    );
    assert_eq!(window([Some(7), None, Some(8)]).rtt(), Some(Micros(7)));
}

proptest! {
    #[test]
    fn window_counts_only_the_last_hundred_probes(outcomes in proptest::collection::vec(proptest::option::of(0..1_000_000_u64), 0..300)) {
        let all = window(outcomes.clone());
        let last: Vec<Option<u64>> = outcomes[outcomes.len().saturating_sub(WINDOW)..].to_vec();
        prop_assert_eq!(all.probes(), last.len());
        let lost = last.iter().filter(|outcome| outcome.is_none()).count();
        prop_assert_eq!(all.loss().map(|loss| loss.0 as usize), (lost * 1_000).checked_div(last.len()));
        let answered: Vec<u64> = last.iter().copied().flatten().collect();
        prop_assert_eq!(all.rtt().is_some(), !answered.is_empty());
        if let Some(rtt) = all.rtt() {
            let (least, most) = (answered.iter().min().unwrap(), answered.iter().max().unwrap());
            prop_assert!((*least..=*most).contains(&rtt.0));
        }
    }
}

#[test]
fn first_outcome_that_contradicts_the_state_is_confirmed_at_once() {
    let mut link = Probed::new(1);
    let timeout = Micros::from_secs(4);
    let mut confirms = |outcome| {
        link.round([outcome]);
        link.health.begins_confirmation(0, link.now, timeout)
    };
    // Nothing is known before the fifth outcome.
    assert!(
        ![Some(20), None, Some(20), Some(20), Some(20)]
            .into_iter()
            .any(&mut confirms)
    );
    assert!(confirms(None));
    // The probes that confirm it take a second and the timeout.
    assert!(!confirms(Some(20)) && !confirms(None));
    assert!(!confirms(Some(20)) && confirms(None));
    assert!(![None; 4].into_iter().any(&mut confirms));
    assert!(confirms(Some(20)), "silent");
    assert!(!confirms(Some(20)));
    assert!(
        !link.health.begins_confirmation(1, link.now, timeout),
        "no such endpoint"
    );
}

/// The four probes that confirm a loss all fall into an outage of a few seconds.
#[test]
fn confirming_losses_make_silent_but_count_as_no_loss() {
    let confirming = |link: &mut Probed, outcome: Option<u64>| {
        link.now = link.now.after(CONFIRMATION_STEP);
        let outcome = outcome.map(Micros::from_millis);
        link.health.record(0, outcome, true, link.now, THRESHOLDS);
    };
    let mut link = Probed::new(1);
    link.rounds(99, [Some(20)]).round([None]);
    [None, None, None, Some(20)]
        .into_iter()
        .for_each(|outcome| confirming(&mut link, outcome));
    assert_eq!(
        (link.state(), link.link().loss),
        (Some(LinkState::Healthy), Some(Permille(10)))
    );
    link.round([None]);
    [None; 4].into_iter().for_each(|outcome| confirming(&mut link, outcome));
    assert_eq!(link.state(), Some(LinkState::Unreachable));
    link.round([Some(50)]);
    [Some(50); 4]
        .into_iter()
        .for_each(|outcome| confirming(&mut link, outcome));
    let found = link.link();
    assert_eq!((found.state, found.loss), (LinkState::Healthy, Some(Permille(0))));
    // Five of the 104 answers took 50 ms.
    let millis = |time| Some(Micros::from_millis(time));
    assert_eq!([found.rtt, found.rtt_p95], [millis(50), millis(20)]);
}

#[test]
fn rtt_p95_is_that_of_half_an_hour() {
    let mut link = Probed::new(1);
    link.rounds(5, [Some(90)]);
    link.now = link.now.after(HISTORY);
    link.rounds(2, [Some(20)]);
    assert_eq!(link.link().rtt_p95, Some(Micros::from_millis(20)));
}
