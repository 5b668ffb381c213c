//! Training of the learned scorer.

use candle_core::{Device, Tensor};
use edgeward_decision::model::scorer::{Features, MAX_FEATURE, ONE, Provenance, Ranker as _, Scorer, WIDTH};

use crate::learning::Placement;
use crate::random::{Purpose, Stream};
use crate::scenario::{random, read};

#[test]
fn example_scorer_is_valid() {
    Scorer::read(include_str!("../../../../../examples/scorer.json")).unwrap();
}

#[test]
fn exported_scores_order_clouds_as_the_float_network() {
    let mut document = random(1, 1, Some(3));
    document["durationSeconds"] = 120.into();
    let scenario = read(&document, &|_| Err("there are no files".into())).unwrap();
    let mut training = Placement::new(1, vec![scenario]).unwrap();
    assert!(training.advance().unwrap().choices > 0);
    let mut stream = Stream::new(1, Purpose::Learning, 9, 0);
    let clouds: [Features; 40] =
        std::array::from_fn(|_| std::array::from_fn(|_| (stream.unit() * MAX_FEATURE as f64) as i64));
    let scorer = training.scorer(Provenance::default()).unwrap();
    let written = serde_json::to_string(&scorer).unwrap();
    assert_eq!(Scorer::read(&written).unwrap(), scorer);
    let unlimited = Scorer {
        ranges: [[-MAX_FEATURE, MAX_FEATURE]; WIDTH],
        ..scorer
    };
    let integers = unlimited.scores(&clouds).of;
    let numbers = clouds.iter().flatten().map(|feature| *feature as f32 / ONE as f32);
    let numbers = Tensor::from_iter(numbers, &Device::Cpu).unwrap();
    let numbers = numbers.reshape((1, clouds.len(), WIDTH)).unwrap();
    let floats = training.actor().infer(&numbers).unwrap().to_vec2::<f32>().unwrap();
    let mut compared = 0;
    for one in 0..clouds.len() {
        for other in 0..clouds.len() {
            if floats[0][one] > floats[0][other] + 0.02 {
                assert!(integers[one] > integers[other], "{one} {other}");
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared}");
}
