use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use edgeward_decision::testkit;
use serde_json::json;

const SITE: &str = "cloud";

fn at(seconds: i64) -> Moment {
    Moment(seconds * 1_000_000)
}

/// Records a measurement taken at the first of these seconds and valid until the second.
fn record(telemetry: &mut Telemetry, measurement: Measurement, seconds: (i64, i64)) {
    telemetry.record(measurement, at(seconds.0), at(seconds.1), &Config::default());
}

fn rtt(ms: u64) -> Measurement {
    Measurement::new(Input::WanRtt, SITE, 1_000 * ms)
}

fn loss(permille: u32) -> Measurement {
    Measurement::new(Input::WanLoss, SITE, permille.into())
}

fn free_cpu(millicores: u64) -> Measurement {
    Measurement::new(Input::EdgeFreeCpu, "", millicores)
}

fn measured(measurements: impl IntoIterator<Item = Measurement>) -> Telemetry {
    let mut telemetry = Telemetry::default();
    for measurement in measurements {
        record(&mut telemetry, measurement, (10, 70));
    }
    telemetry
}

#[test]
fn value_counts_until_it_is_stale_or_replaced() {
    let time = |namespace: &str, is_p95, us| {
        let (namespace, class) = (namespace.into(), Class::Batch);
        Measurement::processing(
            "edge",
            Work {
                namespace,
                class,
                is_p95,
            },
            Micros(us),
        )
    };
    let times = [
        time("", false, 7),
        time("shop", true, 9),
        time("shop", false, 8),
        time("x", true, 5),
    ];
    let mut telemetry = measured(times.into_iter().chain([free_cpu(1_500)]));
    assert_eq!(telemetry.edge_free(Input::EdgeFreeCpu, at(70)).unwrap().value, 1_500);
    assert_eq!(telemetry.edge_free(Input::EdgeFreeCpu, at(71)), None);
    assert_eq!(telemetry.edge_free(Input::EdgeFreeMemory, at(10)), None);
    let batch = |mean, p95| {
        PerClass([
            None,
            None,
            Some(ProcessingTime {
                mean: Micros(mean),
                p95: Micros(p95),
            }),
        ])
    };
    let known = [("", batch(7, 7)), ("shop", batch(8, 9)), ("x", batch(5, 5))];
    let known = known.map(|(namespace, times)| (namespace.into(), times));
    assert_eq!(telemetry.processing("edge", at(70)), known.into());
    assert_eq!(telemetry.processing("edge", at(71)), BTreeMap::new());
    assert_eq!(telemetry.processing(SITE, at(10)), BTreeMap::new());

    record(&mut telemetry, free_cpu(2), (30, 90));
    let sample = telemetry.edge_free(Input::EdgeFreeCpu, at(71)).unwrap();
    assert_eq!((sample.value, sample.as_of), (2, at(30)));
}

#[test]
fn measured_link_is_healthy_only_with_both_rtt_and_loss() {
    let state = |telemetry: &Telemetry| telemetry.link(SITE, None, at(20)).map(|link| link.state);
    assert_eq!(state(&measured([])), None);
    assert_eq!(state(&measured([rtt(20)])), Some(LinkState::Degraded));
    assert_eq!(state(&measured([loss(1)])), Some(LinkState::Degraded));
    assert_eq!(state(&measured([rtt(20), loss(1)])), Some(LinkState::Healthy));
    assert_eq!(state(&measured([rtt(100), loss(1)])), Some(LinkState::Degraded));
    assert_eq!(state(&measured([rtt(20), loss(20)])), Some(LinkState::Degraded));
    assert_eq!(state(&measured([loss(1_000)])), Some(LinkState::Unreachable));
    assert_eq!(measured([rtt(20), loss(1)]).link(SITE, None, at(71)), None);
    assert_eq!(measured([rtt(20), loss(1)]).link("far", None, at(20)), None);
}

#[test]
fn measured_link_near_its_threshold_does_not_flap() {
    let states = |numbers: &[Measurement]| {
        let mut telemetry = measured([rtt(1), loss(0)]);
        let states = numbers.iter().map(|number| {
            record(&mut telemetry, number.clone(), (10, 70));
            telemetry.link(SITE, None, at(20)).unwrap().state == LinkState::Healthy
        });
        states.collect::<Vec<_>>()
    };
    assert_eq!(
        states(&[rtt(99), rtt(100), rtt(99), rtt(90), rtt(89), rtt(99)]),
        [true, false, false, false, true, true]
    );
    assert_eq!(
        states(&[loss(19), loss(20), loss(19), loss(10), loss(9), loss(19)]),
        [true, false, false, false, true, true]
    );
}

#[test]
fn probed_link_keeps_its_age_beside_measurements() {
    let probed = testkit::link(LinkState::Healthy, 30, at(19));
    let telemetry = measured([rtt(25), loss(3)]);
    assert_eq!(
        telemetry.link(SITE, Some(probed), at(20)),
        Some(Link {
            loss: Some(Permille(3)),
            ..probed
        })
    );
    assert_eq!(telemetry.link(SITE, Some(probed), at(71)), Some(probed));
}

#[test]
fn missing_or_stale_required_input_makes_view_stale() {
    let ttl = Micros::from_secs(60);
    let is_stale = |telemetry: &Telemetry, now: Moment| now.since(telemetry.kubernetes_as_of(now, ttl)) > ttl;
    let mut telemetry = Telemetry::new(vec![Input::EdgeFreeCpu, Input::WanRtt], &[]);
    assert!(is_stale(&telemetry, at(1)));
    record(&mut telemetry, free_cpu(1), (10, 200));
    assert!(is_stale(&telemetry, at(11)));
    record(&mut telemetry, rtt(1), (10, 100));
    assert!(!is_stale(&telemetry, at(100)));
    assert!(is_stale(&telemetry, at(101)));
    record(&mut telemetry, rtt(1), (101, 300));
    assert!(!is_stale(&telemetry, at(200)));
    assert!(is_stale(&telemetry, at(201)));

    // An earlier observation keeps its age. Without required inputs, nothing changes.
    assert_eq!(telemetry.kubernetes_as_of(at(-900), ttl), at(-900));
    assert_eq!(measured([]).kubernetes_as_of(at(5), ttl), at(5));
}

fn links() -> impl Strategy<Value = Option<Link>> {
    let state = select(vec![LinkState::Healthy, LinkState::Degraded, LinkState::Unreachable]);
    let link = (state, option::of(0..300_u64), option::of(0..1_001_u32), 0..20_i64);
    let link = link.prop_map(|(state, rtt, loss, seconds)| Link {
        state,
        rtt: rtt.map(Micros::from_millis),
        loss: loss.map(Permille),
        as_of: at(seconds),
        ..Link::default()
    });
    option::of(link)
}

proptest! {
    #[test]
    fn measurements_never_make_a_link_better(
        probed in links(), rtt_ms in option::of(0..300_u64), lost in option::of(0..1_001_u32), now in 10..100_i64,
    ) {
        let telemetry = measured(rtt_ms.map(rtt).into_iter().chain(lost.map(loss)));
        let link = telemetry.link(SITE, probed, at(now));
        if let Some(probed) = probed {
            let link = link.unwrap();
            prop_assert!(link.state >= probed.state && link.rtt >= probed.rtt && link.loss >= probed.loss);
            prop_assert!(link.as_of <= probed.as_of);
        }
        if let (Some(link), true) = (link, now <= 70) {
            prop_assert!(link.rtt >= rtt_ms.map(Micros::from_millis) && link.loss >= lost.map(Permille));
        }
    }
}

#[test]
fn trait_returns_once_its_value_has_been_within_the_bound_for_long() {
    let documents =
        json!({"prometheus": {"url": "http://p", "traits": [{"name": "Fresh", "query": "age", "atMost": 60}]}});
    let config = Config::read(&documents).unwrap();
    let traits = config.prometheus.unwrap().traits;
    let mut telemetry = Telemetry::new(vec![], &traits);
    let holds = |telemetry: &Telemetry, now| {
        let mut telemetry = telemetry.clone();
        telemetry.expire(at(now));
        let [state] = &telemetry.traits(SITE)[..] else { panic!() };
        (state.holds, state.value)
    };
    assert_eq!(holds(&telemetry, 0), (false, None));
    let mut answer = |seconds: i64, value: Option<i64>| {
        let values = value.map(|value| (SITE, (1_000 * value, at(seconds))));
        telemetry.record_trait("Fresh", &values.into_iter().collect(), Micros::from_secs(60));
        let (holds, value) = holds(&telemetry, seconds);
        (holds, value.map(|value| value / 1_000))
    };
    assert_eq!(answer(10, Some(60)), (true, Some(60)));
    // Without a value the site lacks the trait, and has it again with one.
    assert_eq!(answer(20, None), (false, None));
    assert_eq!(answer(30, Some(59)), (true, Some(59)));
    // A value that crosses the bound again and again does not.
    for (seconds, value) in [(40, 61), (55, 59), (70, 61), (85, 59), (100, 59), (129, 59)] {
        assert_eq!(answer(seconds, Some(value)), (false, Some(value)), "{seconds}");
    }
    assert_eq!(answer(130, Some(59)), (true, Some(59)));
    assert_eq!(holds(&telemetry, 190), (true, Some(59_000)));
    assert_eq!(holds(&telemetry, 191), (false, None));
}

#[test]
fn answer_about_links_replaces_the_last_one_and_becomes_stale() {
    let mut telemetry = Telemetry::default();
    let links = |telemetry: &mut Telemetry, now| {
        telemetry.expire(at(now));
        let links = telemetry.links();
        let text = |(source, target, figures): (&str, &str, &LinkFigures)| {
            let bits = figures.bandwidth.map(|Bandwidth(bits)| bits);
            (format!("{source}-{target}"), figures.rtt.map(|rtt| rtt.0), bits)
        };
        links.iter().map(text).collect::<Vec<_>>()
    };
    let entry = |pair: &str, rtt, bits| (pair.to_owned(), rtt, bits);
    telemetry.record_links(
        Input::LinkRtt,
        &[(("a", "b"), 5_000), (("b", "c"), 7_000)],
        at(0),
        Micros::from_secs(60),
    );
    telemetry.record_links(Input::LinkBandwidth, &[(("a", "b"), 50)], at(0), Micros::from_secs(90));
    assert_eq!(
        links(&mut telemetry, 60),
        [entry("a-b", Some(5_000), Some(50)), entry("b-c", Some(7_000), None)]
    );
    telemetry.record_links(Input::LinkRtt, &[(("a", "b"), 6_000)], at(10), Micros::from_secs(60));
    let as_of = [(Input::LinkRtt, at(10)), (Input::LinkBandwidth, at(0))];
    assert_eq!(telemetry.links_as_of(), as_of.into());
    assert_eq!(links(&mut telemetry, 70), [entry("a-b", Some(6_000), Some(50))]);
    assert_eq!(links(&mut telemetry, 71), [entry("a-b", None, Some(50))]);
    assert_eq!(links(&mut telemetry, 91), []);
}
