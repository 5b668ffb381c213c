//! Compares the environment with the published code, and checks the invariants of every state.

use super::*;

/// The environment with these fields, after a reset.
fn gym(fields: &str) -> Gym {
    let mut gym = Gym::new(&Settings::parse(fields).unwrap(), 42);
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
fn stale_observation_shows_request_just_placed() {
    let mut gym = gym("");
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
fn fresh_observation_shows_next_request() {
    let mut gym = gym("observation=fresh,distinct-padding=true,scaled=true");
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

/// Plays episodes of a baseline in the environment with these fields.
fn played(fields: &str, baseline: Baseline, episodes: usize) -> Summary {
    let mut gym = Gym::new(&Settings::parse(fields).unwrap(), 42);
    Summary::of(&play(&mut gym, &mut baseline.agent(1), Protocol::OneReset, episodes))
}

/// Kind of reward, baseline, episodes, and the cells of the row. The first row is from Table VII. The other baselines
/// draw nothing; the published code has no rows for them, so their rows come from a replay in Python.
const ROWS: &str = "\
cost    | resource-greedy | 2000 | 909.22 ± 490.67  | 2.43 ± 4.21  | 6.65 ± 5.02  | 29.99 ± 15.29
cost    | resource-greedy | 100  | 952.93 ± 435.52  | 2.68 ± 3.71  | 6.19 ± 4.45  | 31.13 ± 14.81
latency | resource-greedy | 100  | 90.00 ± 9.64     | 2.68 ± 3.71  | 6.19 ± 4.45  | 31.13 ± 14.81
cost    | min-cost        | 100  | 1371.85 ± 123.47 | 0.00 ± 0.00  | 2.28 ± 1.23  | 37.47 ± 16.06
latency | min-cost        | 100  | 89.02 ± 7.62     | 0.00 ± 0.00  | 2.28 ± 1.23  | 37.47 ± 16.06
cost    | min-cost        | 2000 | 1359.99 ± 135.89 | 0.09 ± 1.22  | 2.40 ± 1.36  | 36.83 ± 15.41
latency | min-latency     | 100  | 95.50 ± 4.60     | 0.36 ± 3.12  | 7.71 ± 5.44  | 18.60 ± 9.98
cost    | min-latency     | 100  | 828.78 ± 544.27  | 0.36 ± 3.12  | 7.71 ± 5.44  | 18.60 ± 9.98
latency | min-latency     | 2000 | 95.89 ± 4.50     | 0.14 ± 1.55  | 7.06 ± 5.15  | 19.34 ± 10.37
cost    | min-utilisation | 100  | 511.57 ± 541.37  | 0.38 ± 3.12  | 10.88 ± 5.41 | 24.57 ± 10.82
latency | min-utilisation | 100  | 93.70 ± 5.16     | 0.38 ± 3.12  | 10.88 ± 5.41 | 24.57 ± 10.82
cost    | always-spread   | 100  | 418.03 ± 353.59  | 14.56 ± 3.44 | 10.92 ± 4.16 | 212.43 ± 49.37
latency | always-spread   | 100  | -32.84 ± 40.10   | 14.56 ± 3.44 | 10.92 ± 4.16 | 212.43 ± 49.37";

#[test]
fn baselines_match_published_rows() {
    for line in ROWS.lines() {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        let [reward, baseline, episodes, ref expected @ ..] = columns[..] else {
            panic!("{line}")
        };
        let (fields, baseline) = (format!("reward={reward}"), Baseline::parse(baseline).unwrap());
        let played = played(&fields, baseline, episodes.parse().unwrap());
        assert_eq!(played.cells(), *expected, "{line}");
    }
}

/// Compares 30 episodes with the Python replay: the reward, and latency or cost.
#[test]
fn many_cluster_baselines_match_python_replay() {
    for (clusters, [nearest, latency], [cheapest, cost]) in [
        (8, [94.1, 23.4], [1436.0, 1.64]),
        (16, [91.3, 31.0], [1458.0, 1.42]),
        (32, [91.3, 29.2], [1465.0, 1.35]),
        (64, [87.2, 39.4], [1465.0, 1.35]),
        (Settings::MAX_CLUSTERS, [89.3, 35.1], [1461.0, 1.39]),
    ] {
        let play = |baseline, reward| played(&format!("clusters={clusters},reward={reward}"), baseline, 30);
        let near = play(Baseline::MinLatency, "latency");
        let cheap = play(Baseline::MinCost, "cost");
        // The tolerance is the precision of the figures.
        for (found, expected, half) in [
            (near.reward, nearest, 0.06),
            (near.latency, latency, 0.06),
            (cheap.reward, cheapest, 0.6),
            (cheap.cost, cost, 0.006),
        ] {
            let found = found.unwrap().mean;
            assert!((found - expected).abs() < half, "{clusters}: {found} is not {expected}");
        }
    }
}

/// Latency-greedy has the published means of 2,000 episodes, and random has the means of the replay, each within four
/// standard errors.
#[test]
fn random_baselines_match_reference_means() {
    for (baseline, reward, episodes, [sum, rejected, cost, latency]) in [
        (Baseline::LatencyGreedy, "latency", 2000, [89.04, 2.05, 6.67, 46.85]),
        (Baseline::Random, "cost", 100, [665.45, 20.22, 7.39, 78.54]),
    ] {
        let summary = played(&format!("reward={reward}"), baseline, episodes);
        for (found, expected) in [
            (summary.reward, sum),
            (summary.rejected, rejected),
            (summary.cost, cost),
            (summary.latency, latency),
        ] {
            let MeanStd { mean, deviation } = found.unwrap();
            let bound = 4.0 * deviation / (episodes as f64).sqrt();
            assert!(
                (mean - expected).abs() < bound,
                "{baseline}: {mean} is not {expected} ± {bound}"
            );
        }
    }
}

#[test]
fn karmada_picks_cluster_with_most_room_for_request() {
    let mut gym = gym("clusters=12,mode=stay,observation=fresh");
    let mut agent = Baseline::Karmada.agent(1);
    for _ in 0..EPISODE_STEPS {
        let mask = mask(&gym);
        let candidates = (0..gym.clusters()).filter(|cluster| mask[*cluster]);
        // Of equal clusters, `max_by_key` takes the last one.
        let best = candidates.rev().max_by_key(|cluster| gym.available_replicas(*cluster));
        let action = agent.act(&gym);
        assert_eq!(action, best.unwrap_or(gym.reject_action()));
        gym.step(action);
    }
}

#[test]
fn karmada_divided_places_by_available_replicas() {
    let mut gym = gym("reward=cost");
    let before = gym.used().to_vec();
    let available: Vec<_> = (0..4).map(|cluster| gym.available_replicas(cluster)).collect();
    assert_eq!(available, [18, 3, 7, 8]);
    let step = gym.step(Baseline::KarmadaDivided.agent(1).act(&gym));
    // The quotas of the six replicas are 3, 0.5, 1.17 and 1.33. One needs 0.2 cores.
    let shown = observe(&gym);
    let placed = before
        .iter()
        .zip(shown)
        .map(|(before, shown)| ((f64::from(shown[0]) - before.0) / 0.2).round());
    assert_eq!(placed.collect::<Vec<_>>(), [3.0, 1.0, 1.0, 1.0]);
    // The costs are 8, 1, 2 and 4: 31 / 6 on average.
    assert_eq!(step.reward, 10.83);
}

#[test]
fn karmada_divided_single_replica_is_deployed_whole() {
    let mut divided = gym("");
    while divided.request().replicas > 1 {
        divided.step(divided.reject_action());
    }
    let mut whole = divided.clone();
    divided.step(divided.divide_action());
    whole.step(Baseline::Karmada.agent(1).act(&whole));
    assert_eq!(divided.latencies(), whole.latencies());
}

/// With requests that stay, the rejected percentage equals that of a Python replay with corrected departures.
#[test]
fn staying_requests_are_rejected_like_python_replay() {
    let baselines = [Baseline::MinCost, Baseline::MinLatency, Baseline::ResourceGreedy];
    for (clusters, expected) in [
        (4, [53.9, 55.7, 72.2]),
        (8, [29.1, 30.4, 69.2]),
        (16, [3.5, 3.0, 69.6]),
        (32, [0.0, 0.0, 73.5]),
    ] {
        for (baseline, expected) in baselines.into_iter().zip(expected) {
            let played = played(&format!("clusters={clusters},mode=stay"), baseline, 100);
            let rejected = played.rejected.unwrap().mean;
            // The figures have one decimal.
            assert!((rejected - expected).abs() < 0.06, "{clusters} {baseline}: {rejected}");
        }
    }
}

/// Takes actions of all kinds, including forbidden ones, in environments of all kinds.
fn wander(mut each: impl FnMut(&Settings, &mut Gym, usize)) {
    let mut draws = Generator::new(1);
    for clusters in [1, 2, 3, 4, 9, 33, Settings::MAX_CLUSTERS] {
        for mode in Mode::ALL {
            for reward in RewardKind::ALL {
                let settings = Settings {
                    clusters,
                    mode,
                    reward,
                    ..Settings::default()
                };
                let mut gym = Gym::new(&settings, u64::from(draws.bits32()));
                gym.reset();
                for _ in 0..2 * EPISODE_STEPS {
                    // Spreading over many clusters takes long.
                    let end = if clusters > 10 { gym.clusters() } else { gym.actions() };
                    let action = match draws.below(20) {
                        0 => gym.reject_action(),
                        1 => gym.spread_action(),
                        2 => gym.divide_action(),
                        _ => draws.below(end as u32) as usize,
                    };
                    each(&settings, &mut gym, action);
                }
            }
        }
    }
}

#[test]
fn mask_allows_exactly_accepted_actions() {
    let (mut refused, mut all_full) = (0, 0);
    wander(|settings, gym, action| {
        let mask = mask(gym);
        let is_all_full = !mask[..gym.clusters()].contains(&true);
        let before = gym.used().to_vec();
        let accepted = (action < gym.clusters()).then(|| mask[action]);
        let step = gym.step(action);
        let shown = observe(gym);
        // The stale observation shows the clusters before departures.
        let is_taken = |cluster: usize| shown[cluster][0] != before[cluster].0 as f32;
        if let Some(accepted) = accepted {
            assert!((0..gym.clusters()).all(|cluster| is_taken(cluster) == (accepted && cluster == action)));
        }
        if accepted == Some(false) || action == gym.reject_action() {
            let penalty = match (is_all_full, settings.reward) {
                (false, _) => -1.0,
                (true, RewardKind::Cost) => 15.0,
                (true, _) => 1.0,
            };
            assert_eq!(step.reward, penalty);
            refused += 1;
            all_full += usize::from(is_all_full);
        }
        for (cluster, used) in gym.used().iter().enumerate() {
            let kind = gym.types()[cluster];
            assert!(
                used.0 > -1e-9 && used.0 <= 0.95 * kind.cpu + 1e-9,
                "{used:?} of {kind:?}"
            );
            assert!(
                used.1 > -1e-9 && used.1 <= 0.95 * kind.memory + 1e-9,
                "{used:?} of {kind:?}"
            );
        }
        if settings.mode == Mode::Instant {
            assert_eq!(gym.running(), 0);
        }
        if step.episode.is_some() {
            gym.reset();
            assert_eq!(gym.running(), 0);
        }
    });
    assert!(refused > 1000 && all_full > 100, "{refused} {all_full}");
}

#[test]
fn reward_follows_accepted_placement() {
    let mut accepted = 0;
    wander(|settings, gym, action| {
        let (is_accepted, cost) = match gym.types().get(action) {
            Some(kind) => (!gym.is_full(action), kind.cost),
            None => {
                gym.step(action);
                return;
            }
        };
        let step = gym.step(action);
        let shown = observe(gym);
        if !is_accepted {
            return;
        }
        accepted += 1;
        let [_, _, _, _, latency, _, _, _, threshold, _] = shown[action];
        let shares = shown[..gym.clusters()]
            .iter()
            .map(|row| (row[0] / row[1]).max(row[2] / row[3]));
        let sign = |is_good| if is_good { 1.0 } else { -1.0 };
        let expected = match settings.reward {
            RewardKind::Latency => sign(latency < threshold),
            RewardKind::Cost => 16.0 - cost,
            RewardKind::Naive => 1.0,
            RewardKind::Risk => sign(shares.fold(0.0, f32::max) <= 0.75),
            RewardKind::Binpack => f64::from(shares.fold(1.0, f32::min)),
        };
        let bound = if settings.reward == RewardKind::Binpack {
            0.00051
        } else {
            0.0
        };
        assert!((step.reward - expected).abs() <= bound, "{}: {expected}", step.reward);
    });
    assert!(accepted > 1000, "{accepted}");
}

#[test]
fn departed_request_frees_its_resources() {
    let mut gym = gym("clusters=6,mode=stay");
    let before = gym.used().to_vec();
    let mut agents = [Baseline::AlwaysSpread.agent(1), Baseline::MinUtilisation.agent(1)];
    for step in 0..60 {
        let action = agents[step % 2].act(&gym);
        gym.step(action);
    }
    assert!(gym.running() > 20, "{}", gym.running());
    let taken: f64 = gym.used().iter().map(|used| used.0).sum();
    assert!(taken > 10.0, "{taken}");
    // The mean duration is 100 arrivals. No request lasts thirty times as long.
    for _ in 0..3000 {
        gym.step(gym.reject_action());
    }
    assert_eq!(gym.running(), 0);
    for (used, before) in gym.used().iter().zip(before) {
        assert_close([used.0, used.1], &[before.0, before.1]);
    }
}

#[test]
fn vector_gym_equals_single_gyms() {
    let settings = Settings::parse("mode=stay,observation=fresh").unwrap();
    let seeds = [42, 7, 8];
    let mut several = VectorGym::new(&settings, &seeds);
    assert_eq!((several.environments(), several.actions()), (3, 6));
    let mut each = seeds.map(|seed| Gym::new(&settings, seed));
    each.iter_mut().for_each(Gym::reset);
    let mut draws = Generator::new(3);
    let mut expected = Vec::new();
    for number in 1..=2 * EPISODE_STEPS {
        let actions = seeds.map(|_| draws.below(6) as usize);
        let (mut rewards, mut done) = ([0.0; 3], [false; 3]);
        several.step(&actions, &mut rewards, &mut done);
        for (index, gym) in each.iter_mut().enumerate() {
            let step = gym.step(actions[index]);
            assert_eq!(f64::from(rewards[index]), step.reward);
            assert_eq!(done[index], number % EPISODE_STEPS == 0);
            if let Some(episode) = step.episode {
                expected.push(episode);
                gym.reset();
            }
        }
        let (mut shown, mut masks) = (vec![0.0; 3 * 6 * FEATURES], [false; 3 * 6]);
        several.observe(&mut shown);
        several.masks(&mut masks);
        assert_eq!(shown, each.iter().flat_map(observe).flatten().collect::<Vec<_>>());
        assert_eq!(masks.to_vec(), each.iter().flat_map(mask).collect::<Vec<_>>());
    }
    assert_eq!(expected.len(), 6);
    assert_eq!(several.take_episodes(), expected);
    assert_eq!(several.take_episodes(), []);
}

#[test]
fn episode_of_rejections_has_no_latency_or_cost() {
    let mut gym = gym("");
    let episode = (0..EPISODE_STEPS).filter_map(|_| gym.step(5).episode).next().unwrap();
    assert_eq!((episode.rejected, episode.latency, episode.cost), (100.0, None, None));
    let other = Episode {
        reward: 50.0,
        rejected: 0.0,
        latency: Some(20.0),
        cost: Some(2.5),
    };
    let rows = [
        Episode {
            reward: 48.0,
            ..episode
        },
        other,
    ];
    assert_eq!(
        Summary::of(&rows).to_string(),
        "reward 49.00 ± 1.00, rejected 50.00 ± 50.00 %, cost 2.50 ± 0.00, latency 20.00 ± 0.00 ms"
    );
    assert_eq!(Summary::of(&[]).cells(), ["–"; 4]);
}

/// Tests of trained policies reset at the end of an episode and before the next one.
#[test]
fn trained_agent_episodes_have_two_resets_between() {
    let settings = Settings::default();
    let mut agent = Baseline::MinCost.agent(1);
    let mut several = VectorGym::new(&settings, &[42]);
    let mut found = several.take_episodes();
    while found.is_empty() {
        let action = agent.act(&several.gyms()[0]);
        several.step(&[action], &mut [0.0], &mut [false]);
        found = several.take_episodes();
    }
    let mut gym = several.gyms()[0].clone();
    found.extend(play(&mut gym, &mut agent, Protocol::TwoResets, 2));
    let mut gym = Gym::new(&settings, 42);
    assert_eq!(play(&mut gym, &mut agent, Protocol::TwoResets, 3), found);
}
