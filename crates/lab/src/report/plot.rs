//! Plots as SVG. The style sheet colours them, in a page or in a file of their own.

use std::fmt::Write as _;

use crate::statistics::Estimate;

/// The style sheet. It follows the reader's choice of light or dark.
pub(super) const STYLE: &str = include_str!("page/style.css");

const LEFT: f64 = 46.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 24.0;

/// Waits below a millisecond are shown as one millisecond.
const LEAST: f64 = 0.001;

/// A bar with its interval, in percent.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) estimate: Estimate,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) colour: usize,
    /// Thin and grey, for comparison.
    pub(crate) is_other: bool,
    /// The line has a gap where y is not a number.
    pub(crate) points: Vec<(f64, f64)>,
    /// Distance of the interval's ends from y, for each point; empty without intervals.
    pub(crate) spread: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
    /// Logarithmic, with a mark at each point.
    AtPoints,
}

/// Lines over an x axis.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) scale: Scale,
    /// Follows each number of the x axis.
    pub(crate) unit: &'static str,
    /// Range of the y axis; by default, the range of the lines.
    pub(crate) range: Option<(f64, f64)>,
    /// Width and height inside the axes.
    pub(crate) size: (f64, f64),
    pub(crate) lines: Vec<Line>,
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

pub(super) fn legend(lines: &[Line]) -> String {
    let entry = |line: &Line| format!("<li><i class={}></i>{}", class(line.colour), escaped(&line.label));
    format!("<ul class=legend>{}</ul>", lines.iter().map(entry).collect::<String>())
}

fn element(label: &str, width: f64, height: f64, content: &str) -> String {
    format!(
        "<svg role=\"img\" viewBox=\"0 0 {width:.0} {height:.0}\" aria-label=\"{}\">{content}</svg>",
        escaped(label)
    )
}

/// Draws a plot as a file, with its legend below.
pub(crate) fn figure(plot: &Plot) -> String {
    const ROW: f64 = 18.0;
    let (width, height) = plot.outer_size();
    let legend = plot.lines.iter().enumerate().map(|(row, line)| {
        let y = height + ROW * (row + 1) as f64;
        let (class, label) = (line.class(), escaped(&line.label));
        format!(
            "<path class=\"{class}\" d=\"M{LEFT} {:.1}h26\"/><text x=\"{:.1}\" y=\"{y:.1}\">{label}</text>\n",
            y - 4.0,
            LEFT + 34.0,
        )
    });
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {:.0}\"><style>{STYLE}</style>\
         <rect class=\"back\" width=\"100%\" height=\"100%\"/>\n{}\n{}</svg>\n",
        height + ROW * (plot.lines.len() + 1) as f64,
        plot.drawn(),
        legend.collect::<String>()
    )
}

/// Plots horizontal bars from 0 % to 100 %, and a line for the bound.
pub(super) fn bars(title: &str, bars: &[Bar], bound: f64) -> String {
    const LEFT: f64 = 130.0;
    const WIDTH: f64 = 280.0;
    const ROW: f64 = 24.0;
    let x = |percent: f64| LEFT + WIDTH * percent.clamp(0.0, 100.0) / 100.0;
    let bottom = TOP + ROW * bars.len() as f64;
    let mut plot = format!("<text class=\"title\" x=\"0\" y=\"14\">{title}</text>");
    for percent in [0, 25, 50, 75, 100] {
        x_mark(&mut plot, x(f64::from(percent)), bottom, &percent.to_string());
    }
    for (row, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let middle = y + ROW / 2.0;
        let Estimate { mean, half_width } = bar.estimate;
        let half = half_width.unwrap_or(0.0);
        let _ = write!(
            plot,
            "<text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar {}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>\
             <text class=\"soft\" x=\"{:.1}\" y=\"{base:.1}\">{mean:.1}</text>",
            LEFT - 8.0,
            escaped(&bar.label),
            class(bar.colour),
            y + 4.0,
            x(mean) - LEFT,
            ROW - 8.0,
            x(mean - half),
            x(mean + half),
            x((mean + half).max(bound)) + 8.0,
            base = middle + 4.0,
        );
    }
    let at = x(bound);
    let _ = write!(
        plot,
        "<line class=\"bound\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
    );
    let values = bars
        .iter()
        .map(|bar| format!("{} {:.1} %", bar.label, bar.estimate.mean));
    let label = format!("{title}: {}", values.collect::<Vec<_>>().join(", "));
    element(&label, 480.0, bottom + 20.0, &plot)
}

/// Draws a vertical line of the grid, with its text below.
fn x_mark(plot: &mut String, at: f64, bottom: f64, text: &str) {
    let _ = write!(
        plot,
        "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
         <text class=\"soft\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
        bottom + 16.0
    );
}

impl Plot {
    pub(super) fn svg(&self) -> String {
        let (width, height) = self.outer_size();
        element(&self.title, width, height, &self.drawn())
    }

    fn outer_size(&self) -> (f64, f64) {
        (LEFT + self.size.0 + RIGHT, TOP + self.size.1 + BOTTOM)
    }

    fn drawn(&self) -> String {
        let (width, height) = self.size;
        let (right, bottom) = (LEFT + width, TOP + height);
        let (low, step, high) = self.y_axis();
        let marks = self.x_marks();
        let (first, last) = extent(marks.iter().copied().chain(self.xs()).map(|x| self.scale.place(x)));
        let x = |value: f64| LEFT + width * (self.scale.place(value) - first) / (last - first).max(f64::MIN_POSITIVE);
        let y = |value: f64| bottom - height * (value.clamp(low, high) - low) / (high - low);
        let mut svg = format!("<text class=\"title\" x=\"0\" y=\"14\">{}</text>", escaped(&self.title));
        for mark in marks {
            x_mark(
                &mut svg,
                x(mark),
                bottom,
                format!("{} {}", number(mark), self.unit).trim_end(),
            );
        }
        for mark in 0..=((high - low) / step).round() as usize {
            let value = low + step * mark as f64;
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y(value) + 4.0,
                number(value),
                at = y(value),
            );
        }
        for line in &self.lines {
            line.draw(&mut svg, |(px, py)| (x(px), y(py)));
        }
        svg
    }

    fn xs(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x)
    }

    fn x_marks(&self) -> Vec<f64> {
        let last = self.xs().fold(0.0, f64::max);
        match self.scale {
            Scale::Linear => {
                let step = round_up(last / 5.0);
                (0..=5)
                    .map(|mark| step * f64::from(mark))
                    .filter(|mark| *mark <= last * 1.001)
                    .collect()
            }
            Scale::Logarithmic => {
                let decades = (-3..=6).map(|power| 10_f64.powi(power));
                decades.take_while(|mark| *mark < last.max(LEAST) * 10.0).collect()
            }
            Scale::AtPoints => {
                let mut marks: Vec<f64> = self.xs().collect();
                marks.sort_by(f64::total_cmp);
                marks.dedup();
                marks
            }
        }
    }

    /// Returns the least mark of the y axis, the distance between two marks, and the highest mark.
    fn y_axis(&self) -> (f64, f64, f64) {
        let ends = || self.lines.iter().flat_map(Line::ends);
        let (least, most) = self.range.unwrap_or_else(|| extent(ends()));
        let span = if most > least { most - least } else { 1.0 };
        // The factor allows for rounding errors.
        let step = round_up(span / (self.size.1 / 32.0).floor() * (1.0 - 1e-9));
        let low = (least / step).floor() * step;
        (low, step, ((most / step).ceil() * step).max(low + step))
    }
}

impl Line {
    fn ends(&self) -> impl Iterator<Item = f64> {
        let spread = self.spread.iter().copied().chain(std::iter::repeat(0.0));
        let points = self.points.iter().zip(spread);
        points.flat_map(|((_, y), spread)| [y - spread, y + spread])
    }

    fn class(&self) -> String {
        let stroke = if self.is_other { "other" } else { "curve" };
        format!("{stroke} {}", class(self.colour))
    }

    fn draw(&self, svg: &mut String, place: impl Fn((f64, f64)) -> (f64, f64)) {
        let list = |points: &[(f64, f64)]| {
            let places = points.iter().map(|point| place(*point));
            places
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let colour = class(self.colour);
        if !self.spread.is_empty() {
            let pairs = || self.points.iter().zip(&self.spread);
            let upper = pairs().map(|((x, y), spread)| (*x, y + spread));
            let lower = pairs().map(|((x, y), spread)| (*x, y - spread)).rev();
            let band = list(&upper.chain(lower).collect::<Vec<_>>());
            let _ = write!(svg, "<polygon class=\"band {colour}\" points=\"{band}\"/>");
        }
        for piece in self.points.split(|(_, y)| y.is_nan()).filter(|piece| !piece.is_empty()) {
            let _ = write!(svg, "<polyline class=\"{}\" points=\"{}\"/>", self.class(), list(piece));
        }
        // A line with many points has no dots.
        if self.points.len() <= 12 && !self.is_other {
            for point in &self.points {
                let (x, y) = place(*point);
                let _ = write!(
                    svg,
                    "<circle class=\"bar {colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"
                );
            }
        }
    }
}

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic | Self::AtPoints => value.max(LEAST).log10(),
        }
    }
}

/// Returns the least and the highest number; 0 and 1 without numbers.
fn extent(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
    if ends.0 <= ends.1 { ends } else { (0.0, 1.0) }
}

/// Rounds up to the next number of the sequence 1, 2, 5, 10, …
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let decade = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, expected) in [(0.0, 1.0), (0.7, 1.0), (13.0, 20.0), (230.0, 500.0), (999.0, 1_000.0)] {
            assert_eq!(round_up(value), expected);
        }
        assert_eq!([number(0.001), number(2.5), number(100.0)], ["0.001", "2.5", "100"]);
    }
}
