//! Runs several policies on the same seeds and collects their results.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use edgeward_decision::model::slo::PerClass;

use crate::load::Load;
use crate::outcome::{Attained, Outcome};
use crate::policy::Policy;
use crate::run::{paths, run};
use crate::scenario::Scenario;
use crate::units::{Units, relaxed};

#[derive(Debug, Clone)]
pub struct Plan {
    pub policies: Vec<Policy>,
    pub seeds: Vec<u64>,
    pub threads: usize,
}

#[derive(Debug, Default)]
pub struct Results {
    pub runs: BTreeMap<Policy, BTreeMap<u64, Outcome>>,
    /// The bound `relaxed` of each seed with at least one finished run.
    pub relaxed: BTreeMap<u64, PerClass<Attained>>,
    pub is_incomplete: bool,
    /// Reports show the differences from this policy.
    pub against: Option<Policy>,
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
                found.relaxed.insert(seed, units.by_class(&bound));
                found.runs.entry(policy).or_default().insert(seed, outcome);
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
