//! Plots as SVG.

use std::fmt::Write as _;

use crate::statistics::Estimate;

/// A bar with its interval, in percent.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) estimate: Estimate,
}

/// A line of one or more pieces.
pub(super) struct Curve {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) points: Vec<Vec<(f64, f64)>>,
}

pub(super) struct Series {
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, Estimate)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Scale {
    Linear(&'static str),
    Logarithmic(&'static str),
}

fn class(colour: usize) -> String {
    const COLOURS: usize = 7;
    format!("c{}", colour % COLOURS)
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

pub(super) fn legend(curves: &[Curve]) -> String {
    let entry = |curve: &Curve| format!("<li><i class={}></i>{}", class(curve.colour), escaped(&curve.label));
    format!("<ul class=legend>{}</ul>", curves.iter().map(entry).collect::<String>())
}

fn svg(label: &str, width: f64, height: f64) -> String {
    format!(
        "<svg role=img viewBox=\"0 0 {width:.0} {height:.0}\" aria-label=\"{}\">",
        escaped(label)
    )
}

/// Plots horizontal bars from 0 % to 100 %, and a line for the bound.
pub(super) fn bars(title: &str, bars: &[Bar], bound: f64) -> String {
    const LEFT: f64 = 130.0;
    const WIDTH: f64 = 280.0;
    const ROW: f64 = 24.0;
    const TOP: f64 = 26.0;
    let x = |percent: f64| LEFT + WIDTH * percent.clamp(0.0, 100.0) / 100.0;
    let bottom = TOP + ROW * bars.len() as f64;
    let values = bars
        .iter()
        .map(|bar| format!("{} {:.1} %", bar.label, bar.estimate.mean));
    let label = format!("{title}: {}", values.collect::<Vec<_>>().join(", "));
    let mut plot = svg(&label, 480.0, bottom + 20.0);
    // Writing to a string does not fail.
    let _ = write!(plot, "<text class=title x=0 y=14>{title}</text>");
    for percent in [0, 25, 50, 75, 100] {
        let at = x(f64::from(percent));
        let _ = write!(
            plot,
            "<line class=grid x1={at:.1} x2={at:.1} y1={TOP} y2={bottom} /><text class=soft x={at:.1} y={:.1} text-anchor=middle>{percent}</text>",
            bottom + 14.0
        );
    }
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let middle = y + ROW / 2.0;
        let Estimate { mean, half_width } = bar.estimate;
        let _ = write!(
            plot,
            "<text x={:.1} y={:.1} text-anchor=end>{}</text><rect class=\"bar {}\" x={LEFT} y={:.1} width={:.1} height={:.1} />",
            LEFT - 8.0,
            middle + 4.0,
            escaped(&bar.label),
            class(bar.colour),
            y + 4.0,
            x(mean) - LEFT,
            ROW - 8.0,
        );
        if let Some(half) = half_width {
            let _ = write!(
                plot,
                "<line class=whisker x1={:.1} x2={:.1} y1={middle} y2={middle} />",
                x(mean - half),
                x(mean + half)
            );
        }
        let end = half_width.map_or(mean, |half| mean + half);
        let _ = write!(
            plot,
            "<text class=soft x={:.1} y={:.1}>{mean:.1}</text>",
            x(end.max(bound)) + 8.0,
            middle + 4.0,
        );
    }
    let at = x(bound);
    let _ = write!(
        plot,
        "<line class=bound x1={at:.1} x2={at:.1} y1={TOP} y2={bottom} /></svg>"
    );
    plot
}

/// Plots lines. `most` is the end of the y axis; by default, the axis ends above the highest point.
pub(super) fn curves(title: &str, curves: &[Curve], scale: Scale, most: Option<f64>) -> String {
    const LEFT: f64 = 44.0;
    const WIDTH: f64 = 448.0;
    const TOP: f64 = 26.0;
    const HEIGHT: f64 = 160.0;
    // Waits below a millisecond are shown as one millisecond.
    const LEAST: f64 = 0.001;
    let points = || curves.iter().flat_map(|curve| curve.points.iter().flatten());
    let highest = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let top = most.unwrap_or_else(|| round_up(highest));
    let last = points().map(|(x, _)| *x).fold(0.0, f64::max);
    let (marks, unit): (Vec<f64>, &str) = match scale {
        Scale::Linear(unit) => {
            let end = round_up(last);
            let marks = (0..=5).map(|step| end * f64::from(step) / 5.0);
            (marks.filter(|mark| *mark <= last * 1.001).collect(), unit)
        }
        Scale::Logarithmic(unit) => {
            let decades = (-3..=6).map(|power| 10_f64.powi(power));
            (
                decades.take_while(|mark| *mark < last.max(LEAST) * 10.0).collect(),
                unit,
            )
        }
    };
    let end = marks.last().copied().unwrap_or(1.0).max(last);
    let x = |value: f64| match scale {
        Scale::Linear(_) => LEFT + WIDTH * value / end.max(f64::MIN_POSITIVE),
        Scale::Logarithmic(_) => {
            let place = (value.max(LEAST) / LEAST).log10() / (end.max(10.0 * LEAST) / LEAST).log10();
            LEFT + WIDTH * place
        }
    };
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / top.max(f64::MIN_POSITIVE));
    let bottom = TOP + HEIGHT;
    let mut plot = svg(title, LEFT + WIDTH + 28.0, bottom + 24.0);
    let _ = write!(plot, "<text class=title x=0 y=14>{title}</text>");
    for mark in &marks {
        let at = x(*mark);
        let _ = write!(
            plot,
            "<line class=grid x1={at:.1} x2={at:.1} y1={TOP} y2={bottom} /><text class=soft x={at:.1} y={:.1} text-anchor=middle>{} {unit}</text>",
            bottom + 16.0,
            number(*mark)
        );
    }
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        grid_line(&mut plot, LEFT, WIDTH, y(value), value);
    }
    for curve in curves {
        for piece in curve.points.iter().filter(|piece| !piece.is_empty()) {
            let points = polyline(piece.iter().map(|(px, py)| (x(*px), y(py.min(top)))));
            let _ = write!(
                plot,
                "<polyline class=\"curve {}\" points=\"{points}\" />",
                class(curve.colour)
            );
        }
    }
    plot += "</svg>";
    plot
}

/// Plots a small panel, one of several of one shape: a number with its interval over the load. The series `own` is drawn
/// last, above the others. The axes end at the last load and at `most`.
pub(super) fn panel(label: &str, title: &str, decimals: usize, own: usize, series: &[Series], most: f64) -> String {
    const LEFT: f64 = 40.0;
    const WIDTH: f64 = 216.0;
    const TOP: f64 = 24.0;
    const HEIGHT: f64 = 64.0;
    let loads: Vec<f64> = series
        .iter()
        .flat_map(|series| series.points.iter().map(|(load, _)| *load))
        .collect();
    let first = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let last = loads.iter().copied().fold(0.0, f64::max);
    let x = |load: f64| LEFT + WIDTH * (load - first) / (last - first).max(f64::MIN_POSITIVE);
    let y = |value: f64| TOP + HEIGHT * (1.0 - value.clamp(0.0, most) / most.max(f64::MIN_POSITIVE));
    let bottom = TOP + HEIGHT;
    let own = &series[own];
    let rounded = |value: f64| format!("{value:.decimals$}");
    let values = own.points.iter().map(|(load, Estimate { mean, half_width })| {
        let half = half_width.map(|half| format!(" ± {}", rounded(half)));
        format!(
            "{}{} at load × {}",
            rounded(*mean),
            half.unwrap_or_default(),
            number(*load)
        )
    });
    let mut plot = svg(
        &format!("{label}, {title}: {}", values.collect::<Vec<_>>().join(", ")),
        300.0,
        bottom + 20.0,
    );
    let _ = write!(plot, "<text class=title x=0 y=14>{title}</text>");
    for value in [0.0, most / 2.0, most] {
        grid_line(&mut plot, LEFT, WIDTH, y(value), value);
    }
    for (load, _) in &own.points {
        let at = x(*load);
        let _ = write!(
            plot,
            "<text class=soft x={at:.1} y={:.1} text-anchor=middle>×{}</text>",
            bottom + 16.0,
            number(*load)
        );
    }
    let means = |series: &Series| polyline(series.points.iter().map(|(load, value)| (x(*load), y(value.mean))));
    for other in series {
        let _ = write!(plot, "<polyline class=other points=\"{}\" />", means(other));
    }
    let edge = |sign: f64| {
        let points = own.points.iter();
        points.map(move |(load, value)| (x(*load), y(value.mean + sign * value.half_width.unwrap_or(0.0))))
    };
    let colour = class(own.colour);
    let _ = write!(
        plot,
        "<polygon class=\"band {colour}\" points=\"{}\" /><polyline class=\"curve {colour}\" points=\"{}\" />",
        polyline(edge(-1.0).chain(edge(1.0).rev())),
        means(own)
    );
    for (load, value) in &own.points {
        let _ = write!(
            plot,
            "<circle class=\"bar {colour}\" cx={:.1} cy={:.1} r=3 />",
            x(*load),
            y(value.mean)
        );
    }
    if let Some((load, value)) = own.points.last() {
        let _ = write!(
            plot,
            "<text x={:.1} y={:.1}>{}</text>",
            x(*load) + 8.0,
            y(value.mean) + 4.0,
            rounded(value.mean)
        );
    }
    plot += "</svg>";
    plot
}

/// Draws a horizontal line across the plot, with its value to the left.
fn grid_line(plot: &mut String, left: f64, width: f64, at: f64, value: f64) {
    let _ = write!(
        plot,
        "<line class=grid x1={left} x2={:.1} y1={at:.1} y2={at:.1} /><text class=soft x={:.1} y={:.1} text-anchor=end>{}</text>",
        left + width,
        left - 6.0,
        at + 4.0,
        number(value)
    );
}

fn polyline(points: impl Iterator<Item = (f64, f64)>) -> String {
    let points: Vec<_> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    points.join(" ")
}

/// Rounds up to the next number of the sequence 1, 2, 5, 10, …
pub(crate) fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, expected) in [
            (0.0, 1.0),
            (0.7, 1.0),
            (1.0, 1.0),
            (13.0, 20.0),
            (230.0, 500.0),
            (999.0, 1_000.0),
        ] {
            assert_eq!(round_up(value), expected);
        }
        assert_eq!([number(0.001), number(2.5), number(100.0)], ["0.001", "2.5", "100"]);
    }
}
