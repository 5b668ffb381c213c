//! The JSON report.

use serde_json::{Map, Value, json as value};

use super::{MEASURES, relaxed};
use crate::experiment::{Experiment, Results};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::statistics::Estimate;

/// Returns the results as JSON: for each load and policy, the measures with their intervals, and each run.
pub fn json(experiment: &Experiment) -> Value {
    let loads = &experiment.loads;
    let scenario = loads.first().map(|load| &load.scenario);
    value!({
        "scenario": scenario.map(|scenario| &scenario.name),
        "description": scenario.map(|scenario| &scenario.description),
        "incomplete": experiment.is_incomplete,
        "loads": loads.iter().map(|load| load_json(load.factor, &load.results)).collect::<Vec<_>>(),
    })
}

fn load_json(factor: f64, results: &Results) -> Value {
    let policies = results.runs.iter().map(|(policy, runs)| {
        let measures = MEASURES.iter().filter_map(|measure| {
            let estimate = measure.estimate(results, *policy)?;
            Some((measure.key.to_owned(), estimate_json(estimate)))
        });
        let runs: Vec<_> = runs.iter().map(|(seed, run)| run_json(*seed, run)).collect();
        value!({"policy": policy.as_str(), "measures": measures.collect::<Map<_, _>>(), "runs": runs})
    });
    let bound = MEASURES
        .iter()
        .zip(relaxed(results))
        .filter_map(|(measure, estimate)| Some((measure.key.to_owned(), estimate_json(estimate?))));
    value!({
        "loadFactor": factor,
        "against": results.against.map(Policy::as_str),
        "seeds": results.relaxed.keys().collect::<Vec<_>>(),
        "policies": policies.collect::<Vec<_>>(),
        "relaxed": bound.collect::<Map<_, _>>(),
    })
}

fn estimate_json(Estimate { mean, half_width }: Estimate) -> Value {
    value!({"mean": rounded(mean), "halfWidth": half_width.map(rounded)})
}

/// Rounds to six decimals. Further digits carry no information.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

fn run_json(seed: u64, run: &Outcome) -> Value {
    let measures = MEASURES
        .iter()
        .map(|measure| (measure.key.to_owned(), (measure.of)(run).map(rounded).into()));
    let (pods, waits) = (&run.pods, run.wait_percentiles());
    value!({
        "seed": seed,
        "measures": measures.collect::<Map<_, Value>>(),
        "asked": run.attained().asked,
        "met": run.attained().met,
        "decisions": run.decisions,
        "gated": run.gated,
        "unschedulable": run.unschedulable,
        "preempted": run.preempted,
        "moved": run.moved,
        "reasons": run.reasons,
        "pods": {
            "created": pods.created, "blocked": pods.blocked, "done": pods.done, "deleted": pods.deleted,
            "running": pods.running, "pending": pods.pending, "gated": pods.gated,
        },
        "waitSeconds": {
            "p50": rounded(waits[50]), "p95": rounded(waits[95]), "p99": rounded(waits[99]), "max": rounded(waits[100]),
        },
    })
}
