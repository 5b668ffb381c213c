//! One self-contained page: tables and plots as inline SVG, without scripts and without anything from elsewhere.

mod plot;

use std::fmt::Write as _;

use edgeward_core::model::slo::Class;

use super::{MEASURES, Measure, relaxed};
use crate::experiment::{Results, RunResult};
use crate::outcome::Tick;
use crate::policy::Policy;
use crate::scenario::Scenario;
use crate::statistics::{Estimate, estimate};
use plot::{Bar, Curve, Scale, bars, colour, curves, escaped};

/// How the page looks: it follows the reader's choice of light and dark.
const STYLE: &str = include_str!("page/style.css");

/// The page as HTML.
pub fn page(scenario: &Scenario, results: &Results) -> String {
    let mut body = String::new();
    let seeds = results.relaxed.len();
    let plural = if seeds == 1 { "seed" } else { "seeds" };
    let early = if results.is_incomplete {
        " The experiment was ended early."
    } else {
        ""
    };
    // Writing to a string does not fail.
    let _ = write!(
        body,
        "<h1>{}</h1><p>{}</p><p class=note>{seeds} {plural}; {:.0} s of load after {:.0} s of warmup; {} replicas of edgeward.{early}</p>",
        escaped(&scenario.name),
        escaped(&scenario.description),
        (scenario.end - scenario.warmup).0 as f64 / 1e6,
        scenario.warmup.0 as f64 / 1e6,
        scenario.replicas,
    );
    body += &section(
        "Attainment",
        "Share of what was asked for with a time that was met in time. Whiskers are intervals of 95 % over seeds; the line is the bound <em>relaxed</em>, which no policy can exceed.",
        &attainment(results),
    );
    body += &section(
        "Numbers",
        "Means over seeds, ± half the interval of 95 %.",
        &numbers(results),
    );
    body += &section(
        "Waiting",
        "Share of the pods that had their node after so many seconds from creation, all seeds together.",
        &waiting(results),
    );
    body += &section(
        "The course of one run",
        "Of the first seed. Each policy has the same arrivals, service times and WAN.",
        &timelines(results),
    );
    body += &section(
        "Decisions",
        "Reasons of edgeward's decisions, mean over seeds.",
        &reasons(results),
    );
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escaped(&scenario.name)
    )
}

fn section(title: &str, note: &str, content: &str) -> String {
    format!("<section><h2>{title}</h2><p class=note>{note}</p>{content}</section>")
}

fn attainment(results: &Results) -> String {
    let bounds = relaxed(results);
    let plots = MEASURES.iter().zip(bounds).filter_map(|(measure, bound)| {
        let bound = bound?;
        let bars_of = results.runs.keys().filter_map(|policy| {
            let Estimate { mean, half_width } = measure.estimate(results, *policy)?;
            Some(Bar {
                label: policy.to_string(),
                colour: colour(*policy as usize),
                value: mean * measure.scale,
                half_width: half_width.map(|half| half * measure.scale),
            })
        });
        let bars_of: Vec<_> = bars_of.collect();
        let title = match measure.key {
            "attainment" => "all classes".to_owned(),
            _ => measure.title.trim_end_matches(" %").to_owned(),
        };
        Some(bars(&title, &bars_of, bound.mean * measure.scale))
    });
    format!("<div class=row>{}</div>", plots.collect::<String>())
}

fn numbers(results: &Results) -> String {
    let cell = |measure: &Measure, estimate: Option<Estimate>| match estimate {
        None => "<td>–".to_owned(),
        Some(Estimate { mean, half_width }) => {
            let number = |value: f64| format!("{:.*}", measure.decimals, value * measure.scale);
            let half = half_width.map(|half| format!(" <small>± {}</small>", number(half)));
            format!("<td>{}{}", number(mean), half.unwrap_or_default())
        }
    };
    let heads: String = MEASURES
        .iter()
        .map(|measure| format!("<th>{}", measure.title))
        .collect();
    let rows: String = results
        .runs
        .keys()
        .map(|policy| {
            let cells = MEASURES
                .iter()
                .map(|measure| cell(measure, measure.estimate(results, *policy)));
            format!("<tr><th>{policy}{}", cells.collect::<String>())
        })
        .collect();
    let bound = MEASURES
        .iter()
        .zip(relaxed(results))
        .map(|(measure, bound)| cell(measure, bound));
    let bound: String = bound.collect();
    format!("<div class=wide><table><tr><th>policy{heads}{rows}<tr><th>relaxed (bound){bound}</table></div>")
}

/// The mean of each percentile over the runs.
fn waiting(results: &Results) -> String {
    let lines = results.runs.iter().map(|(policy, runs)| {
        let point = |percent: usize| {
            let waits: Vec<_> = runs.values().map(|run| run.wait_percentiles[percent]).collect();
            let mean = estimate(&waits).map_or(0.0, |estimate| estimate.mean);
            (mean, percent as f64)
        };
        Curve {
            label: policy.to_string(),
            colour: colour(*policy as usize),
            points: vec![(0..=100).map(point).collect()],
        }
    });
    curves(
        "pods bound, %",
        &lines.collect::<Vec<_>>(),
        Scale::Logarithmic("s"),
        Some(100.0),
    )
}

fn timelines(results: &Results) -> String {
    let first = |runs: &std::collections::BTreeMap<u64, RunResult>| runs.values().next().cloned();
    let runs: Vec<(Policy, RunResult)> = results
        .runs
        .iter()
        .filter_map(|(policy, runs)| Some((*policy, first(runs)?)))
        .collect();
    let of = |value: &dyn Fn(&Tick) -> f64| -> Vec<Curve> {
        let line = |(policy, run): &(Policy, RunResult)| Curve {
            label: policy.to_string(),
            colour: colour(*policy as usize),
            points: vec![run.timeline.iter().map(|tick| (tick.at, value(tick))).collect()],
        };
        runs.iter().map(line).collect()
    };
    let time = Scale::Linear("s");
    let mut plots = curves(
        "edge CPU taken, %",
        &of(&|tick| 100.0 * tick.edge_used),
        time,
        Some(100.0),
    );
    plots += &curves("pods held", &of(&|tick| tick.held as f64), time, None);
    plots += &curves(
        "pods placed without a node",
        &of(&|tick| (tick.waiting_at_edge + tick.waiting_in_clouds) as f64),
        time,
        None,
    );
    let to_clouds = of(&|tick| {
        let all = tick.to_edge + tick.to_clouds;
        if all == 0 {
            0.0
        } else {
            100.0 * tick.to_clouds as f64 / all as f64
        }
    });
    plots += &curves("decisions for a cloud, %", &to_clouds, time, Some(100.0));
    if let Some((_, run)) = runs.first() {
        plots += &curves("RTT, ms (a gap: nothing passes)", &wan(&run.timeline), time, None);
    }
    plots
}

/// The RTT of each cloud, in pieces between outages.
fn wan(timeline: &[Tick]) -> Vec<Curve> {
    let clouds = timeline.first().map_or(0, |tick| tick.rtt.len());
    let line = |cloud: usize| {
        let pieces = timeline.split(|tick| tick.rtt[cloud].is_none());
        let points = pieces.map(|piece| {
            piece
                .iter()
                .filter_map(|tick| Some((tick.at, tick.rtt[cloud]?)))
                .collect()
        });
        Curve {
            label: format!("cloud {}", cloud + 1),
            colour: colour(cloud),
            points: points.collect(),
        }
    };
    (0..clouds).map(line).collect()
}

fn reasons(results: &Results) -> String {
    let policies: Vec<_> = [Policy::Edgeward, Policy::EdgewardPending]
        .into_iter()
        .filter_map(|policy| Some((policy, results.runs.get(&policy)?)))
        .collect();
    let mut names: Vec<&str> = policies
        .iter()
        .flat_map(|(_, runs)| runs.values().flat_map(|run| run.reasons.keys().copied()))
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return "<p>edgeward was not among the policies.</p>".to_owned();
    }
    let heads: String = policies.iter().map(|(policy, _)| format!("<th>{policy}")).collect();
    let rows = names.iter().map(|name| {
        let cells = policies.iter().map(|(_, runs)| {
            let counts: Vec<_> = runs
                .values()
                .map(|run| run.reasons.get(name).copied().unwrap_or(0) as f64)
                .collect();
            format!("<td>{:.1}", estimate(&counts).map_or(0.0, |estimate| estimate.mean))
        });
        format!("<tr><th><code>{name}</code>{}", cells.collect::<String>())
    });
    let rows: String = rows.collect();
    let classes = Class::ALL.map(Class::as_str).join(", ");
    format!(
        "<div class=wide><table><tr><th>reason{heads}{rows}</table></div><p class=note>Classes: {classes}. What a reason means is in docs/decision.md.</p>"
    )
}
