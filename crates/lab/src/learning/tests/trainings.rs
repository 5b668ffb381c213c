//! Trainings learn, and their plan determines them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::gym::{Agent as _, Baseline, Gym, Mode, Protocol, Settings, Summary, play};
use crate::learning::memory::Schedule;
use crate::learning::training::Learner;
use crate::learning::world::World;
use crate::learning::{Algorithm, Plan, Policy, Training};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::DeepsetsPpo, Algorithm::DeepsetsDqn, Algorithm::MlpA2c];

fn plan(algorithm: Algorithm, steps: u64) -> Plan {
    Plan {
        algorithm,
        settings: Settings::parse("observation=fresh,reward=cost,distinct-padding=true,scaled=true").unwrap(),
        seed: 1,
        environment_seed: None,
        steps,
    }
}

fn training(plan: Plan) -> Training {
    early(Training::new(plan).unwrap())
}

fn early(mut training: Training) -> Training {
    if let Learner::OffPolicy(learner) = &mut training.learner {
        learner.schedule = Schedule {
            starts: 20,
            every: 5,
            copies: 50,
        };
    }
    training
}

fn bytes(training: &Training, folder: &Path) -> Vec<u8> {
    training.save(folder).unwrap();
    fs::read(folder.join("checkpoint.safetensors")).unwrap()
}

#[test]
fn short_training_beats_random_baseline() {
    let mut training = Training::new(plan(Algorithm::DeepsetsPpo, 24_000)).unwrap();
    while !training.is_over() {
        training.advance().unwrap();
    }
    let mut policy = training.policy().unwrap();
    let settings = policy.settings(4).unwrap();
    let reward = |agent: &mut dyn crate::gym::Agent| {
        let played = play(&mut Gym::new(&settings, 42), agent, Protocol::TwoResets, 30);
        Summary::of(&played).reward.unwrap().mean
    };
    let learnt = reward(&mut policy);
    policy.finish().unwrap();
    let random = reward(&mut Baseline::Random.agent(1));
    assert!(learnt > random + 250.0, "{learnt} is not much more than {random}");
}

#[test]
fn resumed_training_equals_uninterrupted_one() {
    // Covers both kinds of learners, networks and optimisers.
    for algorithm in ALGORITHMS {
        let plan = plan(algorithm, 2_400);
        let (whole, parts) = (tempdir().unwrap(), tempdir().unwrap());
        let (whole, parts) = (whole.path(), parts.path());
        let mut training_of = training(plan.clone());
        training_of.advance().unwrap();
        training_of.save(parts).unwrap();
        let mut resumed = early(Training::resume(parts).unwrap());
        assert_eq!(resumed.plan(), &plan);
        assert_eq!(resumed.steps(), training_of.steps());
        assert!(!resumed.is_over());
        assert!(
            bytes(&resumed, parts) == bytes(&training_of, whole),
            "{}",
            algorithm.as_str()
        );
        let before = bytes(&resumed, parts);
        for training in [&mut training_of, &mut resumed] {
            while !training.is_over() {
                training.advance().unwrap();
            }
        }
        assert!(
            bytes(&resumed, parts) == bytes(&training_of, whole),
            "{}",
            algorithm.as_str()
        );
        assert!(before != bytes(&resumed, parts));
        let episodes = |training: &Training| {
            training
                .episodes()
                .map(|(at, episode)| (at, *episode))
                .collect::<Vec<_>>()
        };
        assert_eq!(episodes(&resumed), episodes(&training_of));
    }
}

#[test]
fn masked_training_takes_only_allowed_actions() {
    for algorithm in [
        Algorithm::DeepsetsPpo,
        Algorithm::DeepsetsDqn,
        Algorithm::MlpMaskablePpo,
    ] {
        // With requests that stay, clusters often have no room.
        let mut plan = plan(algorithm, 1_600);
        plan.settings.mode = Mode::Stay;
        let mut training = training(plan.clone());
        training.advance().unwrap();
        let mut forbidden = 0;
        let mut world = World::new(&plan);
        // The replay fails if the mask forbids an action.
        world
            .replay(training.world.history(), |_, _, world| {
                forbidden += world.masks.iter().filter(|may| !**may).count()
            })
            .unwrap();
        assert!(forbidden > 1_000, "{forbidden}");
    }
}

#[test]
fn a2c_chooses_among_all_actions() {
    let mut plan = plan(Algorithm::MlpA2c, 1_600);
    plan.settings.mode = Mode::Stay;
    let mut training = training(plan.clone());
    training.advance().unwrap();
    let (mut policy, mut gym) = (training.policy().unwrap(), Gym::new(&plan.settings, 42));
    let mut refused = 0;
    for _ in 0..100 {
        let action = policy.act(&gym);
        refused += usize::from(action < 4 && gym.is_full(action));
        gym.step(action);
    }
    assert!(refused > 0, "the policy chose no full cluster");
    plan.algorithm = Algorithm::MlpMaskablePpo;
    let replayed = World::new(&plan).replay(training.world.history(), |_, _, _| ());
    let error = replayed.unwrap_err().to_string();
    assert!(error.contains("was forbidden in step"), "{error}");
}

/// Before anything is learned, an update computes the log probabilities that the policy acted with, under the mask of
/// each step.
#[test]
fn first_update_sees_acting_probabilities() {
    let mut plan = plan(Algorithm::DeepsetsPpo, 1_600);
    plan.settings.mode = Mode::Stay;
    let mut training = Training::new(plan).unwrap();
    let Training {
        world,
        learner: Learner::OnPolicy(learner),
        stream,
        ..
    } = &mut training
    else {
        panic!("it learns from what it does");
    };
    let samples = learner.act(world, stream).unwrap();
    let count = samples.actions.len();
    assert_eq!(count, 800);
    let observations = Tensor::from_slice(&samples.observations, (count, 6, 10), &Device::Cpu).unwrap();
    let mask: Vec<u8> = samples.masks.iter().map(|may| u8::from(*may)).collect();
    let mask = Tensor::from_vec(mask, (count, 6), &Device::Cpu).unwrap();
    let logarithms = learner
        .logarithms(&observations, &mask)
        .unwrap()
        .to_vec2::<f32>()
        .unwrap();
    for (at, (action, logarithm)) in samples.actions.iter().zip(&samples.logarithms).enumerate() {
        assert!(samples.masks[at * 6 + action]);
        let found = logarithms[at][*action];
        assert!((found - logarithm).abs() < 1e-4, "{at}: {found} and not {logarithm}");
    }
    assert!(samples.masks.iter().any(|may| !may));
}

#[test]
fn target_network_is_copied_every_50_iterations() {
    let mut training = training(plan(Algorithm::DeepsetsDqn, 1_600));
    let Training {
        world,
        learner: Learner::OffPolicy(learner),
        stream,
        ..
    } = &mut training
    else {
        panic!("it learns from what it remembers");
    };
    let mut differed = Vec::new();
    for iteration in 0..120 {
        learner.update(world, stream).unwrap();
        let numbers = |network: &crate::learning::Network| {
            let parameters = network.parameters();
            parameters
                .map(|(_, own)| own.flatten_all().unwrap().to_vec1::<f32>().unwrap())
                .collect::<Vec<_>>()
        };
        if numbers(&learner.actor) != numbers(&learner.target) {
            differed.push(iteration);
        }
    }
    // It learns every fifth iteration from 25 on. At 50 and 100 it learns first and copies afterwards.
    let expected: Vec<_> = (25..50).chain(55..100).chain(105..120).collect();
    assert_eq!(differed, expected);
}

#[test]
fn exploration_reaches_minimum_halfway() {
    let training = Training::new(plan(Algorithm::DeepsetsDqn, 1_600_000)).unwrap();
    let Learner::OffPolicy(learner) = &training.learner else {
        panic!("it learns from what it remembers");
    };
    for (iteration, expected) in [(0, 1.0), (50_000, 0.525), (100_000, 0.05), (199_999, 0.05)] {
        assert!((learner.exploration(iteration) - expected).abs() < 1e-9, "{iteration}");
    }
}

#[test]
fn plan_json_round_trips_and_refuses_faults() {
    let mut plan = plan(Algorithm::MlpA2c, 1);
    for environment_seed in [None, Some(42)] {
        plan.environment_seed = environment_seed;
        assert_eq!(serde_json::from_value::<Plan>(json!(plan)).unwrap(), plan);
    }
    assert_eq!(plan.environment_seeds(), [42; 8]);
    for (field, value, expected) in [
        ("environment", Value::from("clusters=200"), "clusters: 200 is not"),
        (
            "algorithm",
            Value::from("sarsa"),
            "unknown variant `sarsa`, expected one of `deepsets-ppo`",
        ),
        ("colour", Value::from(1), "unknown field `colour`"),
    ] {
        let mut document = json!(plan);
        document[field] = value;
        let error = serde_json::from_value::<Plan>(document).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    plan.steps = 0;
    assert!(plan.validate().unwrap_err().to_string().starts_with("steps: 0 is not"));
}

#[test]
fn environment_seeds_of_all_plans_differ() {
    let mut all: Vec<u64> = (0..50)
        .flat_map(|seed| {
            let mut plan = plan(Algorithm::DeepsetsPpo, 1);
            plan.seed = seed;
            plan.environment_seeds()
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 400);
    assert!(!all.contains(&42));
}

#[test]
fn faulty_checkpoint_is_refused_with_cause() {
    let place = tempdir().unwrap();
    let place = place.path();
    let path = place.join("checkpoint.safetensors");
    let refused = |expected: &str| {
        for error in [Training::resume(place).map(|_| ()), Policy::load(place).map(|_| ())] {
            let error = format!("{:#}", error.unwrap_err());
            assert!(error.contains(expected), "{error} is not about {expected}");
        }
    };
    refused("training.json");
    Training::new(plan(Algorithm::DeepsetsPpo, 800))
        .unwrap()
        .save(place)
        .unwrap();
    let good = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    refused("checkpoint.safetensors");
    fs::write(&path, &good[..good.len() / 2]).unwrap();
    refused("is not a checkpoint");
    let change = |change: &dyn Fn(&mut HashMap<String, Tensor>)| {
        let mut tensors = candle_core::safetensors::load_buffer(&good, &Device::Cpu).unwrap();
        change(&mut tensors);
        candle_core::safetensors::save(&tensors, &path).unwrap();
    };
    let put = |name: &'static str, tensor: Tensor| {
        change(&move |tensors| {
            tensors.insert(name.to_owned(), tensor.clone());
        });
    };
    change(&|tensors| {
        tensors.remove("actor.first.own");
    });
    refused("actor.first.own: is missing");
    put(
        "actor.first.own",
        Tensor::zeros((64, 9), candle_core::DType::F32, &Device::Cpu).unwrap(),
    );
    refused("actor.first.own: has the shape [64, 9], but the plan needs [64, 10]");
    put(
        "actor.third.own",
        Tensor::full(f32::NAN, (1, 64), &Device::Cpu).unwrap(),
    );
    refused("actor.third.own: NaN is not finite");
    put(
        "actor.third.own",
        Tensor::zeros((1, 64), candle_core::DType::F64, &Device::Cpu).unwrap(),
    );
    refused("actor.third.own: has numbers of type F64");
    change(&|_| ());
    let plan_file = place.join("training.json");
    let own = fs::read_to_string(&plan_file).unwrap();
    fs::write(&plan_file, own.replace("deepsets-ppo", "deepsets-dqn")).unwrap();
    refused("not the plan of training.json");
    fs::write(&plan_file, own).unwrap();
    // Only a training needs the following tensors.
    let resumed = |expected: &str| {
        let error = format!("{:#}", Training::resume(place).map(|_| ()).unwrap_err());
        assert!(error.contains(expected), "{error} is not about {expected}");
        Policy::load(place).unwrap();
    };
    put("actions", Tensor::new(&[0_u8; 7], &Device::Cpu).unwrap());
    resumed("actions: 7 is not a multiple of the 8 environments");
    put("actions", Tensor::new(&[9_u8; 8], &Device::Cpu).unwrap());
    resumed("actions: 9 was forbidden in step 0");
    put("more", Tensor::new(&[0_u8; 7], &Device::Cpu).unwrap());
    resumed("more: the plan has no such tensor");
}
