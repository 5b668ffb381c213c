//! Statistics over the rounds of a benchmark.

use std::fmt;

/// The median of one number per round, with a confidence interval of at least 93 %. The interval holds for any distribution
/// (order statistics) and is the narrowest between two of the numbers. With ten rounds it runs from the second smallest number
/// to the second largest, with five from the smallest to the largest. With fewer rounds there is none.
pub(crate) struct Median {
    median: f64,
    interval: Option<(f64, f64)>,
}

impl Median {
    /// Needs at least one number, and no NaN.
    pub(crate) fn of(numbers: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
        let count = sorted.len();
        Self {
            median: f64::midpoint(at(count.saturating_sub(1) / 2), at(count / 2)),
            interval: left_out(count).map(|out| (at(out), at(count - 1 - out))),
        }
    }
}

fn left_out(count: usize) -> Option<usize> {
    let (mut outside, mut ways, mut out) = (0.0, 2.0 / (count as f64).exp2(), None);
    for at in 0..count / 2 {
        outside += ways;
        if outside > 0.07 {
            break;
        }
        out = Some(at);
        ways *= (count - at) as f64 / (at + 1) as f64;
    }
    out
}

/// Formats median and interval like a number: `{:+.2}` gives `+0.31 (+0.25 to +0.40)`.
impl fmt::Display for Median {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.median.fmt(f)?;
        let Some((low, high)) = self.interval else {
            return Ok(());
        };
        f.write_str(" (")?;
        low.fmt(f)?;
        f.write_str(" to ")?;
        high.fmt(f)?;
        f.write_str(")")
    }
}
