//! Standalone figures: SVG with a light background and its own style.

use std::fmt::Write as _;

use crate::report::plot::{escaped, number, round_up};

#[derive(Debug, Clone)]
pub struct Line {
    pub label: String,
    /// Index of the colour. Corresponding lines of different panels share it.
    pub colour: usize,
    /// Whether the line is dashed, as lines for comparison are.
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
    /// Distance of the interval's ends from y, for each point; empty without intervals.
    pub spread: Vec<f64>,
}

#[derive(Debug, Clone)]
pub struct Panel {
    pub title: String,
    pub x: String,
    /// Whether the x axis is logarithmic to base 2, with a mark at each point.
    pub doubling: bool,
    pub lines: Vec<Line>,
}

const COLOURS: [&str; 6] = ["#1f6feb", "#c2410c", "#15803d", "#7c3aed", "#6b7280", "#b45309"];
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
const LEGEND: f64 = HEIGHT + 12.0;
const ROW: f64 = 18.0;

/// Draws the panels side by side, with the legends below.
pub fn figure(panels: &[Panel]) -> String {
    let rows = panels.iter().map(|panel| panel.lines.len()).max().unwrap_or(0);
    let (width, height) = (WIDTH * panels.len() as f64, LEGEND + ROW * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#1f2328\">\
         <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n"
    );
    for (place, panel) in panels.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(svg, "<g transform=\"translate({:.0} 0)\">", WIDTH * place as f64);
        panel.draw(&mut svg);
        svg += "</g>\n";
    }
    svg + "</svg>\n"
}

impl Panel {
    fn draw(&self, svg: &mut String) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let xs = points().map(|(x, _)| *x);
        let (first, last) = xs.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        let (first, last) = if first <= last { (first, last) } else { (0.0, 1.0) };
        let first = if self.doubling { first } else { first.min(0.0) };
        let (least, most) = self
            .lines
            .iter()
            .flat_map(Line::ends)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), y| (a.min(y), b.max(y)));
        let (least, most) = if least <= most { (least, most) } else { (0.0, 1.0) };
        let step = step_of((most - least).max(1e-9) / 5.0);
        let (low, high) = (
            (least / step).floor() * step,
            ((most / step).ceil() * step).max(least + step),
        );

        let right = WIDTH - RIGHT;
        let bottom = HEIGHT - BOTTOM;
        let place = |x: f64| if self.doubling { x.max(1e-9).log2() } else { x };
        let x = |value: f64| {
            let whole = (place(last) - place(first)).max(1e-9);
            LEFT + (right - LEFT) * (place(value) - place(first)) / whole
        };
        let y = |value: f64| bottom - (bottom - TOP) * (value.clamp(low, high) - low) / (high - low);

        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\" font-weight=\"600\">{}</text>",
            escaped(&self.title)
        );
        let marks = ((high - low) / step).round() as usize;
        for mark in 0..=marks {
            let value = low + step * mark as f64;
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#d0d7de\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y(value) + 4.0,
                number(value),
                at = y(value),
            );
        }
        for mark in self.marks(first, last) {
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {bottom}v5\" stroke=\"#57606a\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 20.0,
                number(mark),
                at = x(mark),
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#57606a\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            bottom + 40.0,
            escaped(&self.x)
        );
        for (row, line) in self.lines.iter().enumerate() {
            line.draw(svg, row, &x, &y);
        }
    }

    fn marks(&self, first: f64, last: f64) -> Vec<f64> {
        if self.doubling {
            let mut marks: Vec<f64> = self
                .lines
                .iter()
                .flat_map(|line| line.points.iter().map(|(x, _)| *x))
                .collect();
            marks.sort_by(f64::total_cmp);
            marks.dedup();
            return marks;
        }
        let step = step_of((last - first).max(1e-9) / 5.0);
        let marks = ((last - first) / step + 1e-9).floor() as usize;
        (0..=marks).map(|mark| first + step * mark as f64).collect()
    }
}

impl Line {
    fn ends(&self) -> impl Iterator<Item = f64> {
        let spread = self.spread.iter().copied().chain(std::iter::repeat(0.0));
        let points = self.points.iter().zip(spread);
        points.flat_map(|((_, y), spread)| [y - spread, y + spread])
    }

    fn draw(&self, svg: &mut String, row: usize, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) {
        let colour = COLOURS[self.colour % COLOURS.len()];
        let dash = if self.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let list = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            let points: Vec<String> = points.map(|(px, py)| format!("{:.1},{:.1}", x(px), y(py))).collect();
            points.join(" ")
        };
        if self.spread.len() == self.points.len() {
            let pairs = || self.points.iter().zip(&self.spread);
            let upper = pairs().map(|((x, y), spread)| (*x, y + spread));
            let lower = pairs().map(|((x, y), spread)| (*x, y - spread)).rev();
            let band = list(&mut upper.chain(lower));
            let _ = writeln!(
                svg,
                "<polygon points=\"{band}\" fill=\"{colour}\" fill-opacity=\"0.15\"/>"
            );
        }
        let path = list(&mut self.points.iter().copied());
        let at = LEGEND + ROW * row as f64;
        let _ = writeln!(
            svg,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>\
             <path d=\"M{LEFT} {at}h26\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT + 34.0,
            at + 4.0,
            escaped(&self.label)
        );
        // A line with many points has no dots.
        if self.points.len() <= 12 {
            for (px, py) in &self.points {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>",
                    x(*px),
                    y(*py)
                );
            }
        }
    }
}

/// Rounds up to the next number of the sequence 1, 2, 5, 10, …, with a tolerance for rounding errors.
fn step_of(value: f64) -> f64 {
    round_up(value * (1.0 - 1e-9))
}
