use serde_json::json;

use super::*;
use crate::testkit::{of_network, scorer, with};

/// Numbers of a fixed sequence, without any library.
fn numbers() -> impl FnMut() -> i64 {
    let mut state = 1_u64;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as i64
    }
}

fn network(mut weight: impl FnMut() -> i16) -> Network {
    let mut row = || std::array::from_fn(|_| weight());
    let [first_bias, second_bias, last_weights, last] = [(); 4].map(|()| row());
    let mut rows = || std::array::from_fn(|_| row());
    let [first_weights, second_weights, mean_weights] = [(); 3].map(|()| rows());
    Network {
        first_weights,
        first_bias,
        second_weights,
        mean_weights,
        second_bias,
        last_weights,
        last_bias: last[0],
    }
}

fn clouds(count: usize, mut number: impl FnMut() -> i64) -> Vec<Features> {
    let mut cloud = || std::array::from_fn(|_| number() % (MAX_FEATURE + 1));
    (0..count).map(|_| cloud()).collect()
}

/// Recorded on x86-64. Any other machine must compute the same.
#[test]
fn scores_are_the_same_on_every_machine() {
    let mut number = numbers();
    let scorer = of_network(network(|| (number() % 4_096 - 2_048) as i16));
    assert_eq!(
        scorer.scores(&clouds(5, &mut number)).of,
        [37_079, 28_221, 30_382, 43_384, 25_528]
    );
    let widest = of_network(network(|| i16::MAX));
    assert_eq!(widest.scores(&[[MAX_FEATURE; WIDTH]; 32]).of, [134_246_399; 32]);
    let mut sign = false;
    let alternating = of_network(network(|| {
        sign = !sign;
        if sign { i16::MAX } else { i16::MIN }
    }));
    assert_eq!(alternating.scores(&clouds(3, number)).of, [67_139_583; 3]);
}

/// The definition of the network, in floating point.
#[test]
fn scores_equal_the_network_in_floating_point() {
    let mut number = numbers();
    let network = network(|| (number() % 2_048 - 1_024) as i16);
    let clouds = clouds(8, number);
    let float = |weight: i16| f64::from(weight) / ONE as f64;
    let layer = |inputs: &[(&[f64; WIDTH], &[[i16; WIDTH]; WIDTH])], bias: &[i16; WIDTH]| -> [f64; WIDTH] {
        std::array::from_fn(|o| {
            let products = inputs
                .iter()
                .flat_map(|(values, weights)| (0..WIDTH).map(move |i| values[i] * float(weights[i][o])));
            (products.sum::<f64>() + float(bias[o])).max(0.0)
        })
    };
    let first = clouds.iter().map(|cloud| {
        layer(
            &[(&cloud.map(|value| value as f64 / ONE as f64), &network.first_weights)],
            &network.first_bias,
        )
    });
    let first: Vec<_> = first.collect();
    let mean = std::array::from_fn(|i| first.iter().map(|values| values[i]).sum::<f64>() / 8.0);
    for (score, values) in network.scores(&clouds).into_iter().zip(&first) {
        let second = layer(
            &[(values, &network.second_weights), (&mean, &network.mean_weights)],
            &network.second_bias,
        );
        let products = second
            .iter()
            .zip(network.last_weights)
            .map(|(value, weight)| value * float(weight));
        let expected = products.sum::<f64>() + float(network.last_bias);
        let found = score as f64 / ONE as f64;
        assert!((found - expected).abs() < 0.01, "{found} {expected}");
    }
}

#[test]
fn clouds_in_another_order_get_the_same_scores() {
    let mut number = numbers();
    let scorer = of_network(network(|| (number() % 4_096 - 2_048) as i16));
    let mut clouds = clouds(7, number);
    let mut scores = scorer.scores(&clouds).of;
    assert!(scores.iter().any(|score| *score != scores[0]), "{scores:?}");
    clouds.rotate_left(3);
    scores.rotate_left(3);
    assert_eq!(scorer.scores(&clouds).of, scores);
}

#[test]
fn value_beyond_the_trained_range_is_clamped_and_told() {
    let mut scorer = scorer("costOverDearest", 4_096);
    scorer.ranges[9] = [1_000, 2_000];
    let of = |value: i64| std::array::from_fn(|i| if i == 9 { value } else { 0 });
    let within = scorer.scores(&[of(1_000), of(2_000)]);
    assert_eq!(
        (within.of, within.outside),
        (vec![1_000, 2_000], vec![[false; WIDTH]; 2])
    );
    let beyond = scorer.scores(&[of(999), of(2_000)]);
    assert_eq!(beyond.of, [1_000, 2_000]);
    assert_eq!(beyond.outside, [std::array::from_fn(|i| i == 9), [false; WIDTH]]);
}

#[test]
fn file_is_read_as_it_was_written() {
    let scorer = scorer("priority", 1);
    let pretty = serde_json::to_string_pretty(&scorer).unwrap();
    assert_eq!(Scorer::read(&pretty), Ok(scorer));
}

#[test]
fn faulty_file_is_refused_with_field_and_value() {
    let good = json!(scorer("priority", 1));
    for (pointer, value, expected) in [
        ("/schemaVersion", json!(2), "schemaVersion: 2 is not 1"),
        (
            "/features/4",
            json!("queue"),
            "features[4]: \"queue\" is not \"queueOverBound\"",
        ),
        ("/features/-", json!("more"), "features: has 17 names, not 16"),
        ("/ranges/2", json!([5, 4]), "ranges[2]: 5 is above 4"),
        (
            "/margin",
            json!(-1),
            "margin: invalid value: integer `-1`, expected u32",
        ),
        (
            "/network/firstWeights/3/2",
            json!(40_000),
            "network.firstWeights[3][2]: invalid value: integer `40000`, expected i16",
        ),
        (
            "/network/firstBias",
            json!([1]),
            "network.firstBias: invalid length 1, expected an array of length 16",
        ),
        ("/sha256", json!("ab"), "sha256: \"ab\" is not "),
        ("/network/lastBias", json!(7), "sha256: "),
        ("/more", json!(7), "more: unknown field `more`"),
    ] {
        let mut faulty = good.clone();
        match faulty.pointer_mut(pointer) {
            Some(place) => *place = value,
            None => faulty = with(faulty, pointer, value),
        }
        let error = Scorer::read(&faulty.to_string()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let error = |text: &str| Scorer::read(text).unwrap_err().to_string();
    assert!(error("no").starts_with("is not JSON: "));
    assert_eq!(error(&" ".repeat(65_537)), "has more than 65536 bytes");
}
