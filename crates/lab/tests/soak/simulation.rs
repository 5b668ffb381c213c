//! Runs one load on the control plane and in the simulation. If they disagree, the simulation is wrong.

mod on_kwok;
mod pods;

use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use edgeward_decision::document::Faults;
use edgeward_decision::model::slo::Class;
use edgeward_harness::prelude::*;
use edgeward_harness::scripts::TooBusy;
use edgeward_harness::tables::Table;
use edgeward_lab::load::Load;
use edgeward_lab::outcome::{Attained, Outcome};
use edgeward_lab::policy::Policy;
use edgeward_lab::run::{paths, run};
use edgeward_lab::scenario::{self, Scenario};
use edgeward_lab::units::{Unit, Units};

/// The seed of the load. With this seed, the simulated runs differ by a point at most.
const SEED: u64 = 4;

/// The seeds of the simulated runs. They change the draws of the cluster, but not the load.
const RUNS: std::ops::RangeInclusive<u64> = 1..=40;

/// The largest allowed difference of the share of pods in the cloud, in percentage points.
const MOST: f64 = 3.0;

/// A compared figure, in percent or in seconds.
type Figure<'f> = (String, Box<dyn Fn(&Outcome) -> Option<f64> + 'f>);

e2e! { "simulation::cloud_share_matches_kwok_cluster", Machine, cloud_share_matches_kwok_cluster }
/// Both sides have equal arrivals, pods and service times. The control plane runs real Jobs and Deployments with three
/// replicas of edgeward. Its share of pods in the cloud must match the simulation.
fn cloud_share_matches_kwok_cluster(fixture: &Fixture<'_>) -> Result<()> {
    let scenario = scenario()?;
    let (load, paths) = (Load::new(&scenario, SEED), paths(&scenario, SEED));
    let units = Units::new(&scenario, &load);
    let simulated = RUNS.map(|seed| {
        run(
            &scenario,
            &load,
            &paths,
            seed,
            Policy::Edgeward,
            &AtomicBool::new(false),
        )
    });
    let simulated: Vec<_> = simulated.collect::<Option<_>>().context("it was told to stop")?;

    let (real, lateness) = on_kwok::outcome(fixture, &scenario, &load, &paths, &units)?;
    println!("simulation: on average, {lateness}");
    let mut in_cloud = None;
    for (name, figure) in figures(&units) {
        let found: Vec<f64> = simulated.iter().filter_map(&figure).collect();
        let (Some(real), false) = (figure(&real), found.is_empty()) else {
            continue;
        };
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        let (least, most) = found.iter().fold((f64::MAX, f64::MIN), |(least, most), value| {
            (least.min(*value), most.max(*value))
        });
        let difference = real - mean;
        in_cloud.get_or_insert(difference);
        let cells = [real, mean, least, most, difference].map(|value| format!("{value:.1}"));
        let range = format!("{} to {}", cells[2], cells[3]);
        println!(
            "simulation: {name}: {} on kwok, {} simulated, {range}",
            cells[0], cells[1]
        );
        Table::Simulation.row(&name, &[&cells[0], &cells[1], &range, &cells[4]]);
    }
    let difference = in_cloud.context("no pod got a node")?;
    if difference.abs() > MOST {
        let words = format!("the shares in the cloud differ by {difference:.1} points, more than {MOST}");
        ensure!(!lateness.is_too_much(), TooBusy(format!("{words}; {lateness}")));
        bail!(words);
    }
    Ok(())
}

fn scenario() -> Result<Scenario> {
    let document = serde_saphyr::from_str(include_str!("simulation/scenario.yaml"))?;
    let none = |name: &str| Err(format!("{name}: there are no files"));
    scenario::read(&document, &none).map_err(|Faults(faults)| anyhow!("{faults:?}"))
}

fn figures(units: &Units) -> Vec<Figure<'_>> {
    let percent = |share: Option<f64>| share.map(|share| 100.0 * share);
    let mut found: Vec<Figure<'_>> = vec![(
        "in the cloud, %".to_owned(),
        Box::new(move |outcome| percent(outcome.cloud_fraction())),
    )];
    for class in Class::ALL {
        found.push((
            format!("in the cloud, {}, %", class.as_str()),
            Box::new(move |outcome| percent(outcome.cloud_fraction_of(&[class]))),
        ));
    }
    for class in Class::ALL {
        found.push((
            format!("deadlines met, {}, %", class.as_str()),
            Box::new(move |outcome| percent(deadlines(outcome, units, class).share())),
        ));
    }
    let mean = |sum: f64, count: usize| (count > 0).then(|| sum / count as f64);
    found.push((
        "pods that got a node".to_owned(),
        Box::new(|outcome| Some(outcome.waits.len() as f64)),
    ));
    found.push((
        "until a pod had its node, s".to_owned(),
        Box::new(move |outcome| mean(outcome.waits.iter().sum(), outcome.waits.len())),
    ));
    found.push((
        "pods that were gated".to_owned(),
        Box::new(|outcome| Some(outcome.gated as f64)),
    ));
    found.push((
        "pods that were unschedulable".to_owned(),
        Box::new(|outcome| Some(outcome.unschedulable as f64)),
    ));
    found
}

fn deadlines(outcome: &Outcome, units: &Units, class: Class) -> Attained {
    let mut found = Attained::default();
    for ((unit, of), met) in units.list.iter().zip(&outcome.units) {
        if matches!(unit, Unit::Task(_)) && *of == class {
            found.asked += 1;
            found.met += u64::from(*met);
        }
    }
    found
}
