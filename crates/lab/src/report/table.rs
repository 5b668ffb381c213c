//! The table for the terminal.

use super::{MEASURES, Measure, relaxed};
use crate::experiment::{AtLoad, Experiment, Results};
use crate::statistics::Estimate;

/// Returns a block for each load, with a row for each policy. Intervals are 95 % intervals over the seeds.
pub fn table(experiment: &Experiment) -> String {
    let loads = &experiment.loads;
    let title = |load: &AtLoad| match (&loads[..], load.factor) {
        ([_], 1.0) => load.scenario.name.clone(),
        (_, factor) => format!("{}, load × {factor}", load.scenario.name),
    };
    let blocks = loads.iter().map(|load| block(&title(load), &load.results));
    blocks.collect::<Vec<_>>().join("\n")
}

fn block(title: &str, results: &Results) -> String {
    let titles = MEASURES.iter().map(|measure| measure.title.to_owned());
    let mut rows = vec![std::iter::once("policy".to_owned()).chain(titles).collect()];
    for policy in results.runs.keys() {
        let cells = MEASURES
            .iter()
            .map(|measure| cell(measure, measure.estimate(results, *policy)));
        rows.push(std::iter::once(policy.to_string()).chain(cells).collect());
    }
    if results.against.is_none() {
        let bounds = MEASURES.iter().zip(relaxed(results));
        let bounds = bounds.map(|(measure, estimate)| cell(measure, estimate));
        rows.push(std::iter::once("relaxed (bound)".to_owned()).chain(bounds).collect());
    }
    let seeds = results.relaxed.len();
    let runs = if seeds == 1 {
        "1 seed".to_owned()
    } else {
        format!("{seeds} seeds, ± half the 95 % interval")
    };
    let incomplete = if results.is_incomplete { ", ended early" } else { "" };
    let against = results.against.map(|policy| format!(", differences from {policy}"));
    let against = against.unwrap_or_default();
    format!("{title}: {runs}{against}{incomplete}\n\n{}", aligned(&rows))
}

pub(super) fn cell(measure: &Measure, estimate: Option<Estimate>) -> String {
    let Some(Estimate { mean, half_width }) = estimate else {
        return "–".to_owned();
    };
    let number = |value: f64| format!("{:.*}", measure.decimals, value * measure.scale);
    match half_width {
        Some(half_width) => format!("{} ± {}", number(mean), number(half_width)),
        None => number(mean),
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
