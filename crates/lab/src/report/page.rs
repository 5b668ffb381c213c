//! The HTML report: one self-contained page with tables and plots as inline SVG. The only script selects one of several
//! loads. Without scripts, the page shows all loads.

use std::collections::BTreeSet;

use edgeward_decision::model::slo::Class;

use super::plot::{Bar, Line, Plot, STYLE, Scale, bars, escaped, legend};
use super::{MEASURES, Measure, relaxed, table};
use crate::experiment::{AtLoad, Experiment, Results};
use crate::outcome::{Outcome, Tick};
use crate::policy::Policy;
use crate::scenario::Scenario;
use crate::statistics::{Estimate, estimate};

const SLIDER: &str = include_str!("page/slider.js");

const OVER_THE_LOAD: [&str; 3] = ["attainment", "cloudFraction", "cost"];

pub fn page(experiment: &Experiment) -> String {
    let loads = &experiment.loads[..];
    let Some(first) = loads.first() else {
        return String::new();
    };
    let mut body = introduction(&first.scenario, &first.results, experiment.is_incomplete);
    match loads {
        [only] => body += &sections("h2", &only.scenario, &only.results),
        loads => {
            let note = "Each policy in colour before the others in grey. Bands are intervals of 95 % over seeds.";
            body += &section("h2", "Over the load", note, &over_the_load(loads));
            body += &slider(loads);
            for AtLoad {
                factor,
                scenario,
                results,
            } in loads
            {
                body += &format!(
                    "<div data-load={factor}><h2>Load × {factor}</h2>{}</div>",
                    sections("h3", scenario, results)
                );
            }
            body += &format!("<script>{SLIDER}</script>");
        }
    }
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escaped(&first.scenario.name)
    )
}

fn introduction(scenario: &Scenario, results: &Results, is_incomplete: bool) -> String {
    let seeds = results.relaxed.len();
    let plural = if seeds == 1 { "seed" } else { "seeds" };
    let early = if is_incomplete {
        " The experiment was ended early."
    } else {
        ""
    };
    format!(
        "<h1>{}</h1><p>{}</p><p class=note>{seeds} {plural}; {:.0} s of load after {:.0} s of warmup; {} replicas of edgeward.{early}</p>",
        escaped(&scenario.name),
        escaped(&scenario.description),
        (scenario.end - scenario.warmup).0 as f64 / 1e6,
        scenario.warmup.0 as f64 / 1e6,
        scenario.replicas,
    )
}

fn sections(head: &str, scenario: &Scenario, results: &Results) -> String {
    let attained = "Share of what was asked for with a time that was met in time. Whiskers are intervals of 95 % over seeds; the dashed line is the bound <em>relaxed</em>, which no policy can exceed.";
    let waited =
        "Of the pods that got a node, the share that had it so many seconds after creation; the mean of the seeds.";
    let course = "Of the first seed. Each policy has the same arrivals, service times and WAN.";
    [
        section(head, "Attainment", attained, &attainment(results)),
        section(
            head,
            "Numbers",
            "Means over seeds, ± half the interval of 95 %.",
            &numbers(results),
        ),
        section(head, "Waiting", waited, &waiting(results)),
        section(head, "The course of one run", course, &timelines(scenario, results)),
        section(
            head,
            "Decisions",
            "Reasons of edgeward's decisions, mean over seeds.",
            &reasons(results),
        ),
    ]
    .concat()
}

fn section(head: &str, title: &str, note: &str, content: &str) -> String {
    format!("<section><{head}>{title}</{head}><p class=note>{note}</p>{content}</section>")
}

fn slider(loads: &[AtLoad]) -> String {
    // Start with the scenario's own load if it is among the loads.
    let first = loads.iter().position(|load| load.factor >= 1.0).unwrap_or(0);
    format!(
        "<div class=slider hidden><label for=load>Load shown below</label>\
         <input type=range id=load min=0 max={} step=1 data-first={first}><output id=factor for=load></output></div>",
        loads.len() - 1
    )
}

fn over_the_load(loads: &[AtLoad]) -> String {
    let policies: Vec<Policy> = Policy::ALL
        .into_iter()
        .filter(|policy| loads[0].results.runs.contains_key(policy))
        .collect();
    let measures = MEASURES.iter().filter(|measure| OVER_THE_LOAD.contains(&measure.key));
    let plots: Vec<(&Measure, Vec<Line>, f64)> = measures
        .map(|measure| {
            let of_policy = |policy: &Policy| {
                let values = loads.iter().filter_map(|load| {
                    let estimate = measure.estimate(&load.results, *policy)?;
                    let Estimate { mean, half_width } = estimate.scaled(measure.scale);
                    Some(((load.factor, mean), half_width.unwrap_or(0.0)))
                });
                let (points, spread) = values.unzip();
                Line {
                    spread,
                    ..line(*policy, points)
                }
            };
            let lines: Vec<_> = policies.iter().map(of_policy).collect();
            let means = lines.iter().flat_map(|line| &line.points).map(|(_, mean)| *mean);
            let most = match measure.scale {
                100.0 => 100.0,
                _ => means.fold(0.0, f64::max),
            };
            (measure, lines, most)
        })
        .collect();
    let rows = policies.iter().enumerate().map(|(row, policy)| {
        let panels = plots.iter().map(|(measure, lines, most)| {
            // The policy's own line comes last, above the others.
            let others = lines.iter().map(|line| Line {
                is_other: true,
                spread: vec![],
                ..line.clone()
            });
            let plot = Plot {
                title: measure.title.to_owned(),
                scale: Scale::AtPoints,
                unit: "×",
                range: Some((0.0, *most)),
                size: (216.0, 64.0),
                lines: others.chain([lines[row].clone()]).collect(),
            };
            plot.svg()
        });
        format!(
            "<div class=policy><h3>{policy}</h3><div class=panels>{}</div></div>",
            panels.collect::<String>()
        )
    });
    rows.collect()
}

/// A line of this policy's colour.
fn line(policy: Policy, points: Vec<(f64, f64)>) -> Line {
    Line {
        label: policy.to_string(),
        colour: policy as usize,
        points,
        ..Line::default()
    }
}

fn plot(title: &str, scale: Scale, lines: Vec<Line>, range: Option<(f64, f64)>) -> String {
    let plot = Plot {
        title: title.to_owned(),
        scale,
        unit: "s",
        range,
        size: (448.0, 160.0),
        lines,
    };
    plot.svg()
}

fn attainment(results: &Results) -> String {
    let bounds = relaxed(results);
    let plots = MEASURES.iter().zip(bounds).filter_map(|(measure, bound)| {
        let bound = bound?;
        let bars_of = results.runs.keys().filter_map(|policy| {
            Some(Bar {
                label: policy.to_string(),
                colour: *policy as usize,
                estimate: measure.estimate(results, *policy)?.scaled(measure.scale),
            })
        });
        let bars_of: Vec<_> = bars_of.collect();
        let title = match measure.key {
            "attainment" => "all classes".to_owned(),
            _ => measure.title.trim_end_matches(" %").to_owned(),
        };
        Some(bars(&title, &bars_of, bound.mean * measure.scale))
    });
    format!("<div class=plots>{}</div>", plots.collect::<String>())
}

fn numbers(results: &Results) -> String {
    let cell = |measure: &Measure, estimate| format!("<td>{}", table::cell(measure, estimate));
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

/// Plots the distribution of waiting times: the mean of each percentile over the runs.
fn waiting(results: &Results) -> String {
    let lines = results.runs.iter().map(|(policy, runs)| {
        let percentiles: Vec<_> = runs.values().map(Outcome::wait_percentiles).collect();
        let point = |percent: usize| {
            let waits: Vec<_> = percentiles.iter().map(|waits| waits[percent]).collect();
            let mean = estimate(&waits).map_or(0.0, |estimate| estimate.mean);
            (mean, percent as f64)
        };
        line(*policy, (0..=100).map(point).collect())
    });
    let lines: Vec<_> = lines.collect();
    let legend = legend(&lines);
    let plot = plot("pods bound, %", Scale::Logarithmic, lines, Some((0.0, 100.0)));
    format!("{legend}<div class=plots>{plot}</div>")
}

fn timelines(scenario: &Scenario, results: &Results) -> String {
    let runs = results.runs.iter();
    let runs: Vec<(Policy, &Outcome)> = runs
        .filter_map(|(policy, runs)| Some((*policy, runs.values().next()?)))
        .collect();
    let of = |value: &dyn Fn(&Tick) -> f64| -> Vec<Line> {
        let points = |run: &Outcome| run.timeline.iter().map(|tick| (tick.at, value(tick))).collect();
        runs.iter().map(|(policy, run)| line(*policy, points(run))).collect()
    };
    let used = of(&|tick| 100.0 * tick.edge_used);
    let all = legend(&used);
    let without_node = of(&|tick| (tick.waiting_at_edge + tick.waiting_in_clouds) as f64);
    let to_clouds = runs
        .iter()
        .map(|(policy, run)| line(*policy, share_to_clouds(&run.timeline)));
    let percent = Some((0.0, 100.0));
    let mut plots = plot("edge CPU taken, %", Scale::Linear, used, percent);
    plots += &plot("pods gated", Scale::Linear, of(&|tick| tick.gated as f64), None);
    plots += &plot("pods placed without a node", Scale::Linear, without_node, None);
    plots += &plot("decisions for a cloud, %", Scale::Linear, to_clouds.collect(), percent);
    if let Some((_, run)) = runs.first() {
        let clouds = wan(scenario, &run.timeline);
        let legend = legend(&clouds);
        let plot = plot("RTT, ms (a gap: nothing passes)", Scale::Linear, clouds, None);
        plots += &format!("<div>{plot}{legend}</div>");
    }
    format!("{all}<div class=plots>{plots}</div>")
}

/// The share of decisions for a cloud, in percent. It sums several points of the time line, because one point holds too
/// few decisions.
fn share_to_clouds(timeline: &[Tick]) -> Vec<(f64, f64)> {
    const TOGETHER: usize = 8;
    let share = |ticks: &[Tick]| {
        let to_clouds: u64 = ticks.iter().map(|tick| tick.to_clouds).sum();
        let all = to_clouds + ticks.iter().map(|tick| tick.to_edge).sum::<u64>();
        (all > 0).then(|| (ticks[ticks.len() / 2].at, 100.0 * to_clouds as f64 / all as f64))
    };
    timeline.chunks(TOGETHER).filter_map(share).collect()
}

fn wan(scenario: &Scenario, timeline: &[Tick]) -> Vec<Line> {
    let clouds = timeline.first().map_or(0, |tick| tick.rtt.len());
    let line = |cloud: usize| {
        let points = timeline
            .iter()
            .map(|tick| (tick.at, tick.rtt[cloud].unwrap_or(f64::NAN)));
        Line {
            // The edge is the first site.
            label: scenario.sites[cloud + 1].definition.name.clone(),
            colour: cloud,
            points: points.collect(),
            ..Line::default()
        }
    };
    (0..clouds).map(line).collect()
}

fn reasons(results: &Results) -> String {
    let Some(runs) = results.runs.get(&Policy::Edgeward) else {
        return "<p>edgeward was not among the policies.</p>".to_owned();
    };
    let names: BTreeSet<&str> = runs.values().flat_map(|run| run.reasons.keys().copied()).collect();
    let rows = names.iter().map(|name| {
        let counts: Vec<_> = runs
            .values()
            .map(|run| run.reasons.get(name).copied().unwrap_or(0) as f64)
            .collect();
        let mean = estimate(&counts).map_or(0.0, |estimate| estimate.mean);
        format!("<tr><th><code>{name}</code><td>{mean:.1}")
    });
    let rows: String = rows.collect();
    let classes = Class::ALL.map(Class::as_str).join(", ");
    format!(
        "<div class=wide><table><tr><th>reason<th>edgeward{rows}</table></div><p class=note>Classes: {classes}. What a reason means is in docs/reference/codes.md.</p>"
    )
}
