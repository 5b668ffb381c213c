//! The environment against what the published code does, and what holds for every state of it.

use super::*;

fn gym(settings: Settings) -> Gym {
    let mut gym = Gym::new(&settings, 42);
    gym.reset();
    gym
}

fn mask(gym: &Gym) -> Vec<bool> {
    let mut mask = vec![false; gym.actions()];
    gym.mask(&mut mask);
    mask
}

fn observe(gym: &Gym) -> Vec<[f32; FEATURES]> {
    let mut numbers = vec![0.0; gym.actions() * FEATURES];
    gym.observe(&mut numbers);
    let rows = numbers.chunks_exact(FEATURES);
    rows.map(|row| std::array::from_fn(|column| row[column])).collect()
}

fn assert_close(found: impl IntoIterator<Item = f64>, expected: &[f64]) {
    let found: Vec<_> = found.into_iter().collect();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }
}

#[test]
fn the_first_episode_begins_as_published() {
    let gym = gym(Settings::default());
    assert_eq!(gym.latencies(), [134.5, 226.5, 185.5, 293.5]);
    let types: Vec<_> = gym.types().iter().map(|kind| kind.name).collect();
    assert_eq!(types, ["fog_tier_2", "edge_tier_1", "edge_tier_2", "fog_tier_1"]);
    assert_close(
        gym.used().iter().map(|used| used.0),
        &[0.008760753157, 0.030857898414, 0.136609790648, 0.148952431182],
    );
    assert_close(
        gym.used().iter().map(|used| used.1),
        &[0.193501946487, 0.065165071628, 0.074091941207, 0.093911162255],
    );
    let request = gym.request();
    assert_eq!((request.deployment.name, request.replicas), ("ditto-mongo-db", 6));
    assert_close([request.duration, gym.now()], &[0.315179202133, 0.000915772674]);
    assert_eq!(mask(&gym), [true, false, true, true, true, true]);
}

/// Deploys in the first cluster, spreads, rejects, deploys twice: reward, latencies, next request and its duration, and what
/// was expected of the accepted one.
#[test]
fn five_steps_are_as_published() {
    let mut gym = gym(Settings::default());
    let mut sum = 0.0;
    for (action, reward, latencies, expected, name, replicas, duration) in [
        (
            0,
            1.0,
            [115.25, 158.75, 244.25, 203.0],
            159.75,
            "service-command-router",
            4,
            0.878914682,
        ),
        (
            4,
            1.0,
            [119.5, 163.0, 224.5, 127.5],
            126.1875,
            "ditto-things-search",
            6,
            0.320936191,
        ),
        (5, -1.0, [119.5, 163.0, 224.5, 127.5], 0.0, "artemis", 6, 3.995756271),
        (
            2,
            -1.0,
            [119.25, 146.75, 210.5, 130.0],
            273.25,
            "ditto-swagger-ui",
            4,
            0.129633603,
        ),
        (
            1,
            1.0,
            [125.5, 120.75, 187.0, 121.25],
            180.5,
            "ditto-things-search",
            3,
            1.64486584,
        ),
    ] {
        assert_eq!(gym.step(action), Step { reward, episode: None });
        assert_eq!(gym.latencies(), latencies);
        let request = gym.request();
        assert_eq!((request.deployment.name, request.replicas), (name, replicas));
        assert!((request.duration - duration).abs() < 1e-8);
        sum += expected;
    }
    // The mean over the episode holds the single ones: nothing else is accepted.
    let episode = (5..EPISODE_STEPS).filter_map(|_| gym.step(5).episode).next().unwrap();
    assert_close([episode.latency.unwrap()], &[sum / 4.0]);
    assert_close([episode.rejected], &[96.0]);
}

#[test]
fn a_stale_observation_shows_the_last_request_where_it_ran() {
    let mut gym = gym(Settings::default());
    let first = observe(&gym);
    assert_eq!(
        first[0],
        [
            0.008760753,
            4.0,
            0.19350195,
            16.0,
            134.5,
            6.0,
            0.2,
            0.5,
            200.0,
            0.3151792
        ]
    );
    assert_eq!(
        first[4],
        [-1.0, -1.0, -1.0, -1.0, -1.0, 6.0, 0.2, 0.5, 200.0, 0.3151792]
    );
    assert_eq!(first[5], first[4]);
    gym.step(0);
    let next = observe(&gym);
    assert_eq!(
        next[0],
        [1.2087607, 4.0, 3.193502, 16.0, 159.75, 6.0, 0.2, 0.5, 200.0, 0.3151792]
    );
}

#[test]
fn a_fresh_observation_shows_the_request_that_is_to_be_placed() {
    let mut gym = gym(Settings {
        observation: Observation::Fresh,
        distinct_padding: true,
        scaled: true,
        ..Settings::default()
    });
    gym.step(0);
    let rows = observe(&gym);
    let asked = [4.0 / 8.0, 0.15 / 8.0, 0.2 / 32.0, 300.0 / 500.0, 0.8789147];
    let clusters = [
        0.008760753 / 8.0,
        4.0 / 8.0,
        0.19350195 / 32.0,
        16.0 / 32.0,
        115.25 / 500.0,
    ];
    for (row, expected) in [(0, clusters), (4, [-2.0; 5]), (5, [-1.0; 5])] {
        let pairs = rows[row].iter().zip(expected.iter().chain(&asked));
        assert!(
            pairs
                .into_iter()
                .all(|(found, expected)| (found - expected).abs() < 1e-6),
            "{:?}",
            rows[row]
        );
    }
}

/// A row of the table of docs/lab-gym.md, in cents.
fn row(baseline: Baseline, reward: RewardKind, episodes: usize) -> [String; 4] {
    let settings = Settings {
        reward,
        ..Settings::default()
    };
    let mut gym = Gym::new(&settings, 42);
    Summary::of(&play(&mut gym, &mut baseline.agent(1), Protocol::OneReset, episodes)).cells()
}

#[test]
fn resource_greedy_has_its_row_of_table_vii() {
    assert_eq!(
        row(Baseline::ResourceGreedy, RewardKind::Cost, 2000),
        ["909.22 ± 490.67", "2.43 ± 4.21", "6.65 ± 5.02", "29.99 ± 15.29"]
    );
}
