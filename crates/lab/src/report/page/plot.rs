//! Plots as SVG.

use std::fmt::Write as _;

/// A bar with its interval.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) colour: &'static str,
    /// In percent.
    pub(super) value: f64,
    pub(super) half_width: Option<f64>,
}

/// A line, in one piece or several.
pub(super) struct Curve {
    pub(super) label: String,
    pub(super) colour: &'static str,
    pub(super) points: Vec<Vec<(f64, f64)>>,
}

/// The axis at the bottom, and its unit.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scale {
    Linear(&'static str),
    Logarithmic(&'static str),
}

/// Colours that people with any sight tell apart, on light and on dark. Source: Okabe and Ito.
const COLOURS: [&str; 7] = [
    "#888888", "#56b4e9", "#e69f00", "#cc79a7", "#009e73", "#0072b2", "#d55e00",
];

/// The colour of this number.
pub(super) fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// Text as HTML has it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Horizontal bars from 0 % to 100 %, and a bound.
pub(super) fn bars(title: &str, bars: &[Bar], bound: f64) -> String {
    const LEFT: f64 = 130.0;
    const WIDTH: f64 = 280.0;
    const ROW: f64 = 24.0;
    const TOP: f64 = 26.0;
    let x = |percent: f64| LEFT + WIDTH * percent.clamp(0.0, 100.0) / 100.0;
    let bottom = TOP + ROW * bars.len() as f64;
    let mut svg = format!(
        "<svg role=img width=480 viewBox=\"0 0 480 {:.0}\" aria-label=\"{title}\"><text x=0 y=14 font-weight=600>{title}</text>",
        bottom + 20.0
    );
    for percent in [0, 25, 50, 75, 100] {
        let at = x(f64::from(percent));
        let _ = write!(
            svg,
            "<line class=grid x1={at:.1} x2={at:.1} y1={TOP} y2={bottom} /><text class=soft x={at:.1} y={:.1} text-anchor=middle>{percent}</text>",
            bottom + 14.0
        );
    }
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let middle = y + ROW / 2.0;
        let _ = write!(
            svg,
            "<text x={:.1} y={:.1} text-anchor=end>{}</text><rect x={LEFT} y={:.1} width={:.1} height={:.1} fill=\"{}\" />",
            LEFT - 8.0,
            middle + 4.0,
            escaped(&bar.label),
            y + 4.0,
            x(bar.value) - LEFT,
            ROW - 8.0,
            bar.colour,
        );
        let end = bar.half_width.map_or(bar.value, |half| bar.value + half);
        if let Some(half) = bar.half_width {
            let _ = write!(
                svg,
                "<line class=whisker x1={:.1} x2={:.1} y1={middle} y2={middle} />",
                x(bar.value - half),
                x(bar.value + half)
            );
        }
        let _ = write!(
            svg,
            "<text class=soft x={:.1} y={:.1}>{:.1}</text>",
            x(end.max(bound)) + 8.0,
            middle + 4.0,
            bar.value
        );
    }
    let at = x(bound);
    let _ = write!(
        svg,
        "<line class=bound x1={at:.1} x2={at:.1} y1={TOP} y2={bottom} /></svg>"
    );
    svg
}

/// Lines over one axis. `most` is the end of the other; as high as the highest point without it.
pub(super) fn curves(title: &str, curves: &[Curve], scale: Scale, most: Option<f64>) -> String {
    const LEFT: f64 = 56.0;
    const WIDTH: f64 = 660.0;
    const TOP: f64 = 28.0;
    const HEIGHT: f64 = 170.0;
    let points = || curves.iter().flat_map(|curve| curve.points.iter().flatten());
    let highest = points().map(|(_, y)| *y).fold(0.0, f64::max);
    let top = most.unwrap_or_else(|| round_up(highest));
    let last = points().map(|(x, _)| *x).fold(0.0, f64::max);
    // Below a millisecond nobody waits.
    const LEAST: f64 = 0.001;
    let (marks, unit): (Vec<f64>, &str) = match scale {
        Scale::Linear(unit) => {
            let end = round_up(last);
            (
                (0..=5)
                    .map(|step| end * f64::from(step) / 5.0)
                    .filter(|mark| *mark <= last * 1.001)
                    .collect(),
                unit,
            )
        }
        Scale::Logarithmic(unit) => {
            let decades = (-3..=6).map(|power| 10_f64.powi(power));
            (
                decades.take_while(|mark| *mark <= last.max(LEAST) * 10.0).collect(),
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
    let mut svg = format!(
        "<svg role=img width=900 viewBox=\"0 0 900 {:.0}\" aria-label=\"{title}\"><text x=0 y=14 font-weight=600>{title}</text>",
        bottom + 24.0
    );
    for mark in &marks {
        let at = x(*mark);
        let _ = write!(
            svg,
            "<line class=grid x1={at:.1} x2={at:.1} y1={TOP} y2={bottom} /><text class=soft x={at:.1} y={:.1} text-anchor=middle>{} {unit}</text>",
            bottom + 16.0,
            number(*mark)
        );
    }
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let at = y(value);
        let _ = write!(
            svg,
            "<line class=grid x1={LEFT} x2={:.1} y1={at:.1} y2={at:.1} /><text class=soft x={:.1} y={:.1} text-anchor=end>{}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            at + 4.0,
            number(value)
        );
    }
    for (row, curve) in curves.iter().enumerate() {
        for piece in curve.points.iter().filter(|piece| !piece.is_empty()) {
            let points: String = piece
                .iter()
                .map(|(px, py)| format!("{:.1},{:.1} ", x(*px), y(py.min(top))))
                .collect();
            let _ = write!(
                svg,
                "<polyline class=curve stroke=\"{}\" points=\"{}\" />",
                curve.colour,
                points.trim_end()
            );
        }
        let at = TOP + 10.0 + 18.0 * row as f64;
        let _ = write!(
            svg,
            "<rect x={:.1} y={:.1} width=12 height=4 fill=\"{}\" /><text x={:.1} y={:.1}>{}</text>",
            LEFT + WIDTH + 14.0,
            at - 6.0,
            curve.colour,
            LEFT + WIDTH + 32.0,
            at,
            escaped(&curve.label)
        );
    }
    svg += "</svg>";
    svg
}

/// The next of 1, 2, 5, 10 … that is not less.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

/// With as many digits as it needs.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
