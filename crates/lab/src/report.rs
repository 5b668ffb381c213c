//! Reports of an experiment: a table, JSON and a page.

mod json;
mod page;
pub(crate) mod plot;
mod table;

pub use json::json;
pub use page::page;
pub use table::table;

use edgeward_decision::model::slo::{Class, PerClass};

use crate::experiment::Results;
use crate::outcome::{Attained, Outcome};
use crate::policy::Policy;
use crate::statistics::{Estimate, estimate};

struct Measure {
    /// Name in JSON.
    key: &'static str,
    title: &'static str,
    /// Factor from the value to the number in the table: 100 for shares.
    scale: f64,
    decimals: usize,
    of: fn(&Outcome) -> Option<f64>,
}

const MEASURES: [Measure; 9] = [
    Measure {
        key: "attainment",
        title: "attained %",
        scale: 100.0,
        decimals: 1,
        of: |run| run.attained().share(),
    },
    Measure {
        key: "attainmentLatency",
        title: "latency %",
        scale: 100.0,
        decimals: 1,
        of: |run| run.attainment[Class::Latency].share(),
    },
    Measure {
        key: "attainmentThroughput",
        title: "throughput %",
        scale: 100.0,
        decimals: 1,
        of: |run| run.attainment[Class::Throughput].share(),
    },
    Measure {
        key: "attainmentBatch",
        title: "batch %",
        scale: 100.0,
        decimals: 1,
        of: |run| run.attainment[Class::Batch].share(),
    },
    Measure {
        key: "cloudFraction",
        title: "cloud %",
        scale: 100.0,
        decimals: 1,
        of: |run| run.cloud_fraction(),
    },
    Measure {
        key: "cost",
        title: "cost",
        scale: 1.0,
        decimals: 2,
        of: |run| Some(run.cost),
    },
    Measure {
        key: "edgeUtilisation",
        title: "edge used %",
        scale: 100.0,
        decimals: 1,
        of: |run| Some(run.edge_utilisation),
    },
    Measure {
        key: "gatedSeconds",
        title: "gated s",
        scale: 1.0,
        decimals: 1,
        of: |run| (run.gated > 0).then(|| run.gated_seconds / run.gated as f64),
    },
    Measure {
        key: "unschedulableSeconds",
        title: "unschedulable s",
        scale: 1.0,
        decimals: 1,
        of: |run| (run.unschedulable > 0).then(|| run.unschedulable_seconds / run.unschedulable as f64),
    },
];

/// The first measures are attainments. The bound `relaxed` has these as well.
const ATTAINMENTS: usize = 4;

impl Measure {
    fn estimate(&self, results: &Results, policy: Policy) -> Option<Estimate> {
        let base = |seed: &u64| match results.against {
            None => Some(0.0),
            Some(against) => (self.of)(results.runs.get(&against)?.get(seed)?),
        };
        let runs = results.runs.get(&policy)?.iter();
        let values = runs.filter_map(|(seed, run)| Some((self.of)(run)? - base(seed)?));
        estimate(&values.collect::<Vec<_>>())
    }
}

/// The attainments of the bound `relaxed`, in the order of the measures.
fn relaxed(results: &Results) -> [Option<Estimate>; ATTAINMENTS] {
    let of = |share: &dyn Fn(&PerClass<Attained>) -> Option<f64>| {
        estimate(&results.relaxed.values().filter_map(share).collect::<Vec<_>>())
    };
    let [latency, throughput, batch] = Class::ALL.map(|class| of(&|bound| bound[class].share()));
    let all = of(&|bound| Attained::of_all(bound).share());
    [all, latency, throughput, batch]
}
