//! Runs several policies on the same seeds and collects their results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use edgeward_decision::model::slo::{Class, PerClass};

use crate::load::Load;
use crate::outcome::{Attained, Outcome, Pods, Tick};
use crate::policy::Policy;
use crate::run::{paths, run};
use crate::scenario::Scenario;
use crate::statistics::quantile;
use crate::units::{Units, relaxed};

#[derive(Debug, Clone)]
pub struct Plan {
    pub policies: Vec<Policy>,
    pub seeds: Vec<u64>,
    pub threads: usize,
}

#[derive(Debug, Default)]
pub struct Results {
    pub runs: BTreeMap<Policy, BTreeMap<u64, RunResult>>,
    /// The bound `relaxed` of each seed with at least one finished run.
    pub relaxed: BTreeMap<u64, PerClass<Attained>>,
    pub is_incomplete: bool,
}

/// The results of a scenario at one or more loads. Incomplete if the experiment was stopped.
#[derive(Debug)]
pub struct Experiment {
    pub loads: Vec<AtLoad>,
    pub is_incomplete: bool,
}

#[derive(Debug)]
pub struct AtLoad {
    pub factor: f64,
    pub scenario: Scenario,
    pub results: Results,
}

/// An [`Outcome`] reduced to what reports show.
#[derive(Debug, Clone)]
pub struct RunResult {
    /// See [`Outcome::attainment`].
    pub attainment: PerClass<Attained>,
    /// See [`Outcome::cloud_fraction`].
    pub cloud_fraction: Option<f64>,
    /// See [`Outcome::cost`].
    pub cost: f64,
    /// See [`Outcome::edge_utilisation`].
    pub edge_utilisation: f64,
    pub gated: u64,
    /// Mean time that a gated pod was gated, in seconds.
    pub gated_seconds: f64,
    pub unschedulable: u64,
    /// Mean time that an unschedulable pod was unschedulable, in seconds.
    pub unschedulable_seconds: f64,
    /// Percentiles 0 to 100 of [`Outcome::waits`], in seconds.
    pub wait_percentiles: Vec<f64>,
    /// See [`Outcome::reasons`].
    pub reasons: BTreeMap<&'static str, u64>,
    /// See [`Outcome::decisions`].
    pub decisions: u64,
    /// See [`Outcome::preempted`].
    pub preempted: u64,
    /// See [`Outcome::pods`].
    pub pods: Pods,
    /// See [`Outcome::timeline`].
    pub timeline: Vec<Tick>,
}

impl RunResult {
    fn new(outcome: Outcome) -> Self {
        let cloud_fraction = outcome.cloud_fraction();
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let mut waits = outcome.waits;
        waits.sort_unstable_by(f64::total_cmp);
        Self {
            attainment: outcome.attainment,
            cloud_fraction,
            cost: outcome.cost,
            edge_utilisation: outcome.edge_utilisation,
            gated: outcome.gated,
            gated_seconds: mean(outcome.gated_seconds.iter().sum(), outcome.gated),
            unschedulable: outcome.unschedulable,
            unschedulable_seconds: mean(outcome.unschedulable_seconds, outcome.unschedulable),
            wait_percentiles: (0..=100)
                .map(|percent| quantile(&waits, f64::from(percent) / 100.0))
                .collect(),
            reasons: outcome.reasons,
            decisions: outcome.decisions,
            preempted: outcome.preempted,
            pods: outcome.pods,
            timeline: outcome.timeline,
        }
    }

    pub fn attained(&self) -> Attained {
        all(&self.attainment)
    }
}

pub fn all(attainment: &PerClass<Attained>) -> Attained {
    let classes = Class::ALL.into_iter().map(|class| attainment[class]);
    classes.fold(Attained::default(), Attained::and)
}

/// Counts the units of each class, and the met units among them.
fn by_class(units: &Units, met: &[bool]) -> PerClass<Attained> {
    let mut found = PerClass::<Attained>::default();
    for ((_, class), met) in units.list.iter().zip(met) {
        found[*class].asked += 1;
        found[*class].met += u64::from(*met);
    }
    found
}

/// Runs every policy on every seed of the plan, until all runs are done or `stop` is set. After each run it reports the
/// number of finished runs and of all runs.
///
/// # Errors
/// A run met a unit that the bound `relaxed` says cannot be met. This means that the simulation is wrong.
pub fn carry_out(
    scenario: &Scenario,
    plan: &Plan,
    stop: &AtomicBool,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Results, String> {
    let all: Vec<(u64, Policy)> = plan
        .seeds
        .iter()
        .flat_map(|seed| plan.policies.iter().map(move |policy| (*seed, *policy)))
        .collect();
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let results = Mutex::new(Ok(Results::default()));
    let work = || {
        while let Some(&(seed, policy)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let (load, paths) = (Load::new(scenario, seed), paths(scenario, seed));
            let Some(outcome) = run(scenario, &load, &paths, seed, policy, stop) else {
                return;
            };
            let units = Units::new(scenario, &load);
            let bound = relaxed(scenario, &load, &paths, seed, &units);
            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(found) = &mut *results {
                let over = outcome.units.iter().zip(&bound).position(|(met, bound)| *met && !bound);
                if let Some(unit) = over {
                    let unit = units.list[unit];
                    *results = Err(format!("seed {seed}: {policy} met {unit:?}, beyond the bound relaxed"));
                    return;
                }
                found.relaxed.insert(seed, by_class(&units, &bound));
                let runs = found.runs.entry(policy).or_default();
                runs.insert(seed, RunResult::new(outcome));
            }
            drop(results);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, all.len());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.clamp(1, all.len().max(1)) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    results.is_incomplete = done.into_inner() < all.len();
    Ok(results)
}

/// Carries out the plan at each of these load factors. See [`carry_out`].
///
/// # Errors
/// Those of [`carry_out`].
pub fn at_loads(
    scenario: &Scenario,
    factors: &[f64],
    plan: &Plan,
    stop: &AtomicBool,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Experiment, String> {
    let mut experiment = Experiment {
        loads: vec![],
        is_incomplete: false,
    };
    for (number, factor) in factors.iter().enumerate() {
        let scenario = scenario.at_load(*factor);
        let before = |all: usize| number * all;
        let progress = |done, all| progress(before(all) + done, factors.len() * all);
        let results = carry_out(&scenario, plan, stop, progress)?;
        experiment.is_incomplete = results.is_incomplete;
        if !results.runs.is_empty() {
            experiment.loads.push(AtLoad {
                factor: *factor,
                scenario,
                results,
            });
        }
        if experiment.is_incomplete {
            break;
        }
    }
    Ok(experiment)
}
