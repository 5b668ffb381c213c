//! Results and gradients of networks, and steps of optimisers.

use candle_core::{Device, Tensor, Var};

use crate::gym::FEATURES;
use crate::learning::network::{Network, Shape, equivariant};
use crate::learning::optimiser::{Method, Optimiser};
use crate::learning::rollout::{advantages, log_softmax, masked};
use crate::random::{Purpose, Stream};

fn stream(seed: u64) -> Stream {
    Stream::new(seed, Purpose::Learning, 0, 0)
}

fn network(shape: Shape) -> Network {
    Network::new(shape, &mut stream(7)).unwrap()
}

fn sets(batch: usize, rows: usize) -> Tensor {
    let mut stream = stream(11);
    let numbers: Vec<f32> = (0..batch * rows * FEATURES).map(|_| stream.normal() as f32).collect();
    Tensor::from_vec(numbers, (batch, rows, FEATURES), &Device::Cpu).unwrap()
}

fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
    assert!(found.iter().zip(expected).all(near), "{found:?} and not {expected:?}");
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn network_sizes_match_published_ones() {
    assert_eq!(network(Shape::SetActor).size(), 9_600);
    assert_eq!(network(Shape::SetCritic).size(), 21_889);
    assert_eq!(
        network(Shape::FlatActor { actions: 6 }).size(),
        64 * 61 + 64 * 65 + 6 * 65
    );
}

#[test]
fn row_order_permutes_actor_and_keeps_critic_value() {
    let (actor, critic) = (network(Shape::SetActor), network(Shape::SetCritic));
    for rows in [3, 6, 18] {
        let before = sets(2, rows);
        let order: Vec<u32> = (0..rows as u32).map(|row| (row * 5 + 1) % rows as u32).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let order = match sorted.windows(2).all(|pair| pair[0] < pair[1]) {
            true => order,
            false => (0..rows as u32).rev().collect(),
        };
        let order = Tensor::from_vec(order, rows, &Device::Cpu).unwrap();
        let after = before.index_select(&order, 1).unwrap();
        let moved = actor.infer(&before).unwrap().index_select(&order, 1).unwrap();
        close(&flat(&actor.infer(&after).unwrap()), &flat(&moved));
        assert_ne!(flat(&moved), flat(&actor.infer(&before).unwrap()));
        close(
            &flat(&critic.infer(&after).unwrap()),
            &flat(&critic.infer(&before).unwrap()),
        );
    }
}

/// Recomputes the published networks row by row in double precision.
#[test]
fn network_outputs_match_published_formula() {
    type Rows = Vec<Vec<f64>>;
    let relu = |x: f64| x.max(0.0);
    let elu = |x: f64| if x > 0.0 { x } else { x.exp() - 1.0 };
    let weights = |network: &Network| -> Vec<Rows> {
        let parameters = network.parameters().map(|(_, own)| own.to_vec2::<f32>().unwrap());
        let widened = |row: &Vec<f32>| row.iter().map(|x| f64::from(*x)).collect();
        parameters.map(|rows| rows.iter().map(widened).collect()).collect()
    };
    let product = |weight: &Rows, x: &[f64]| -> Vec<f64> {
        let inner = |row: &Vec<f64>| row.iter().zip(x).map(|(a, b)| a * b).sum();
        weight.iter().map(inner).collect()
    };
    let layer = |rows: &Rows, own: &Rows, common: &Rows, activation: &dyn Fn(f64) -> f64| -> Rows {
        let largest: Vec<f64> = (0..rows[0].len())
            .map(|column| rows.iter().map(|row| row[column]).fold(f64::NEG_INFINITY, f64::max))
            .collect();
        let shared = product(common, &largest);
        let of = |row: &Vec<f64>| {
            product(own, row)
                .iter()
                .zip(&shared)
                .map(|(a, b)| activation(a - b))
                .collect()
        };
        rows.iter().map(of).collect()
    };
    let observation = sets(1, 6);
    let rows = observation.squeeze(0).unwrap().to_vec2::<f32>().unwrap();
    let rows: Rows = rows
        .iter()
        .map(|row| row.iter().map(|x| f64::from(*x)).collect())
        .collect();

    let actor = network(Shape::SetActor);
    let w = weights(&actor);
    let x = layer(&rows, &w[0], &w[1], &relu);
    let x = layer(&x, &w[2], &w[3], &elu);
    let x = layer(&x, &w[4], &w[5], &|x| x);
    let expected: Vec<f32> = x.iter().map(|row| row[0] as f32).collect();
    close(&flat(&actor.infer(&observation).unwrap()), &expected);

    let critic = network(Shape::SetCritic);
    let w = weights(&critic);
    let x = layer(&rows, &w[0], &w[1], &elu);
    let x = layer(&x, &w[2], &w[3], &elu);
    let x = layer(&x, &w[4], &w[5], &elu);
    let mean: Vec<f64> = (0..64)
        .map(|column| x.iter().map(|row| row[column]).sum::<f64>() / 6.0)
        .collect();
    let plus = |x: Vec<f64>, bias: &Rows| -> Vec<f64> { x.iter().zip(&bias[0]).map(|(a, b)| a + b).collect() };
    let x: Vec<f64> = plus(product(&w[6], &mean), &w[7]).into_iter().map(elu).collect();
    let expected = plus(product(&w[8], &x), &w[9])[0] as f32;
    close(&flat(&critic.infer(&observation).unwrap()), &[expected]);
}

#[test]
fn maximum_gradient_goes_to_first_equal_row() {
    let sets = Var::new(&[[[1.0_f32, 5.0], [2.0, 5.0], [2.0, 0.0]]], &Device::Cpu).unwrap();
    let nothing = Tensor::new(&[[0.0_f32, 0.0]], &Device::Cpu).unwrap();
    let weights = Tensor::new(&[[10.0_f32, 100.0]], &Device::Cpu).unwrap();
    let result = equivariant(&sets, &nothing, &weights).unwrap();
    let gradients = result.sum_all().unwrap().backward().unwrap();
    let expected = [0.0, -300.0, -30.0, 0.0, 0.0, 0.0];
    assert_eq!(flat(gradients.get(&sets).unwrap()), expected);
}

/// Compares the gradient of every parameter with the slope between two nearby results.
#[test]
fn gradients_match_numeric_slopes() {
    for shape in [
        Shape::SetActor,
        Shape::SetCritic,
        Shape::FlatActor { actions: 6 },
        Shape::FlatCritic { actions: 6 },
    ] {
        let (network, sets) = (network(shape), sets(5, 6));
        let loss = || {
            let result = network.forward(&sets).unwrap();
            let weights: Vec<f32> = (0..result.elem_count()).map(|at| (at as f32 * 0.7).sin()).collect();
            let weights = Tensor::from_vec(weights, result.shape(), &Device::Cpu).unwrap();
            (result * weights).unwrap().sum_all().unwrap()
        };
        let gradients = loss().backward().unwrap();
        let value = || f64::from(loss().to_scalar::<f32>().unwrap());
        for (name, parameter) in network.parameters() {
            let gradient = flat(gradients.get(parameter).unwrap());
            let before = flat(parameter);
            // The slope along the gradient is the gradient's length. This one number covers all components.
            let length = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            let at = |step: f64| {
                let moved = before
                    .iter()
                    .zip(&gradient)
                    .map(|(x, slope)| x + (step * f64::from(*slope) / length) as f32);
                let moved = Tensor::from_vec(moved.collect(), parameter.shape(), &Device::Cpu).unwrap();
                parameter.set(&moved).unwrap();
                value()
            };
            let step = 2e-3;
            let slope = (at(step) - at(-step)) / (2.0 * step);
            at(0.0);
            assert!(length > 1e-4, "{shape:?} {name}: {length}");
            assert!(
                (slope - length).abs() < 0.02 * length + 2e-3,
                "{shape:?} {name}: {slope} and not {length}"
            );
        }
    }
}

#[test]
fn initial_parameters_match_published_code() {
    let actor = network(Shape::SetActor);
    for (name, parameter) in actor.parameters() {
        let most = 1.0 / (parameter.dim(1).unwrap() as f32).sqrt();
        let numbers = flat(parameter);
        assert!(numbers.iter().all(|x| x.abs() <= most), "{name}");
        assert!(numbers.iter().any(|x| x.abs() > 0.9 * most), "{name}");
    }
    let flat_actor = network(Shape::FlatActor { actions: 6 });
    let (_, hidden) = flat_actor
        .parameters()
        .find(|(name, _)| *name == "second.weight")
        .unwrap();
    let product = hidden.matmul(&hidden.t().unwrap()).unwrap();
    let unit = (Tensor::eye(64, candle_core::DType::F32, &Device::Cpu).unwrap() * 2.0).unwrap();
    close(&flat(&product), &flat(&unit));
}

#[test]
fn masked_actions_have_zero_probability() {
    let logits = Var::new(&[[1.0_f32, 2.0, 3.0]], &Device::Cpu).unwrap();
    let mask = Tensor::new(&[[1_u8, 0, 1]], &Device::Cpu).unwrap();
    let logarithms = log_softmax(&masked(&logits, &mask).unwrap()).unwrap();
    let chances: Vec<f32> = flat(&logarithms).iter().map(|x| x.exp()).collect();
    let of = |x: f32| x.exp() / (1.0_f32.exp() + 3.0_f32.exp());
    close(&chances, &[of(1.0), 0.0, of(3.0)]);
    let gradients = logarithms
        .narrow(1, 0, 1)
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    close(&flat(gradients.get(&logits).unwrap()), &[1.0 - of(1.0), 0.0, -of(3.0)]);
}

#[test]
fn advantages_match_hand_calculation() {
    // Two environments, three steps. An episode of the first environment ends with its second step.
    let rewards = [1.0, 0.0, 2.0, 1.0, 3.0, 0.0];
    let values = [0.5, 1.0, 1.0, 0.0, 2.0, 4.0];
    let done = [false, false, true, false, false, false];
    let found = advantages(&rewards, &values, &done, &[4.0, 2.0], 0.5, 0.5);
    // First environment: 3 + 0.5 × 4 - 2 = 3; 2 - 1 = 1, because the episode ended; 1 + 0.5 × 1 - 0.5 + 0.25 × 1 =
    // 1.25.
    // Second: 0 + 0.5 × 2 - 4 = -3; 1 + 0.5 × 4 - 0 + 0.25 × -3 = 2.25; 0 + 0 - 1 + 0.25 × 2.25 = -0.4375.
    assert_eq!(found, [1.25, -0.4375, 1.0, 2.25, 3.0, -3.0]);
}

#[test]
fn first_optimiser_steps_match_expected_values() {
    let step = |method: Method, longest: Option<f64>, times: usize| {
        let x = Var::new(&[1.0_f32, -1.0], &Device::Cpu).unwrap();
        let mut optimiser = Optimiser::new(method, vec![x.clone()]);
        for _ in 0..times {
            let weights = Tensor::new(&[3.0_f32, -4.0], &Device::Cpu).unwrap();
            let gradients = (x.as_tensor() * weights)
                .unwrap()
                .sum_all()
                .unwrap()
                .backward()
                .unwrap();
            optimiser.step(&[&gradients], longest).unwrap();
        }
        flat(&x)
    };
    let adam = Method::Adam {
        rate: 0.1,
        epsilon: 0.0,
    };
    close(&step(adam, None, 1), &[0.9, -0.9]);
    close(&step(adam, None, 3), &[0.7, -0.7]);
    // Adam ignores the length of a gradient, unless epsilon is of that size: 0.3 / (0.3 + 0.3) and 0.4 / (0.4 + 0.3).
    let method = Method::Adam {
        rate: 1.0,
        epsilon: 0.3,
    };
    close(&step(method, Some(0.5), 1), &[1.0 - 0.5, -1.0 + 0.4 / 0.7]);
    // The second moment is 0.01 × the square.
    let method = Method::RmsProp {
        rate: 0.1,
        epsilon: 0.0,
    };
    close(&step(method, None, 1), &[0.0, 0.0]);
}
