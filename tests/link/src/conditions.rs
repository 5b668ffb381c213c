//! What the link does to packets at a moment, and the words that change it.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Conditions {
    /// Least time from a request to its answer; half of it on either way.
    pub rtt: Duration,
    /// What a round trip takes longer at most, evenly distributed; half of it on either way. Packets never overtake.
    pub jitter: Duration,
    /// Probability, 0 to 1, that a packet is lost on the way forth.
    pub loss: f64,
    pub outage: Outage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outage {
    #[default]
    None,
    Cut,
    /// It is cut for a period from `since` on, whole for the next, and so on.
    Flapping {
        period: Duration,
        since: Instant,
    },
}

impl Conditions {
    /// Whether the link is cut at `now`.
    pub fn is_cut(&self, now: Instant) -> bool {
        match self.outage {
            Outage::None => false,
            Outage::Cut => true,
            Outage::Flapping { period, since } => {
                let passed = now.saturating_duration_since(since);
                (passed.as_nanos() / period.as_nanos().max(1)).is_multiple_of(2)
            }
        }
    }
}

/// One line of what the link is told.
///
/// | line | effect |
/// |---|---|
/// | `rtt 150ms jitter 5ms loss 5%` | sets what it names, in any order, and leaves the rest |
/// | `cut` | nothing passes any more, not even what is on its way |
/// | `flap 3s` | cut for 3 s from now on, whole for 3 s, and so on |
/// | `heal` | ends `cut` and `flap` |
/// | `seed 7` | starts the schedules of losses and jitter again |
/// | `counts` | answers with [`Counts`](crate::link::Counts) of both ways |
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {
    /// New values; `None` leaves the old one.
    Shape {
        /// See [`Conditions::rtt`].
        rtt: Option<Duration>,
        /// See [`Conditions::jitter`].
        jitter: Option<Duration>,
        /// See [`Conditions::loss`].
        loss: Option<f64>,
    },
    /// See [`Outage::Cut`].
    Cut,
    /// See [`Outage::Flapping`].
    Flap(Duration),
    /// See [`Outage::None`].
    Heal,
    Seed(u64),
    Counts,
}

impl FromStr for Command {
    type Err = Error;

    /// Fails on anything else, naming the word.
    fn from_str(line: &str) -> Result<Self> {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["cut"] => Ok(Self::Cut),
            ["heal"] => Ok(Self::Heal),
            ["counts"] => Ok(Self::Counts),
            ["flap", period] => {
                let period = duration(period)?;
                ensure!(!period.is_zero(), "`flap 0ms` has no period");
                Ok(Self::Flap(period))
            }
            ["seed", seed] => {
                let seed = seed.parse();
                Ok(Self::Seed(seed.context("`seed` takes a whole number")?))
            }
            [] => bail!("an empty line says nothing"),
            ref words => shape(words),
        }
    }
}

fn shape(words: &[&str]) -> Result<Command> {
    let (mut rtt, mut jitter, mut loss) = (None, None, None);
    for pair in words.chunks(2) {
        match *pair {
            ["rtt", value] => rtt = Some(duration(value)?),
            ["jitter", value] => jitter = Some(duration(value)?),
            ["loss", value] => loss = Some(share(value)?),
            [word, ..] => bail!("`{word}`: known are rtt, jitter, loss with a value, cut, flap, heal, seed, counts"),
            [] => {}
        }
    }
    Ok(Command::Shape { rtt, jitter, loss })
}

fn duration(text: &str) -> Result<Duration> {
    let number = |digits: &str| digits.parse::<u32>().ok().map(u64::from);
    let millis = text.strip_suffix("ms").and_then(number).map(Duration::from_millis);
    let seconds = || text.strip_suffix('s').and_then(number).map(Duration::from_secs);
    millis
        .or_else(seconds)
        .with_context(|| format!("`{text}` is no time such as 150ms or 3s"))
}

fn share(text: &str) -> Result<f64> {
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<f64>().ok());
    percent
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .with_context(|| format!("`{text}` is no share such as 5%, 0% to 100%"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_table_says() {
        let ms = Duration::from_millis;
        let shape = |rtt, jitter, loss| Command::Shape { rtt, jitter, loss };
        for (line, command) in [
            (
                "rtt 150ms jitter 5ms loss 5%",
                shape(Some(ms(150)), Some(ms(5)), Some(0.05)),
            ),
            ("loss 0.5% rtt 2s", shape(Some(ms(2000)), None, Some(0.005))),
            (" cut ", Command::Cut),
            ("flap 3s", Command::Flap(ms(3000))),
            ("heal", Command::Heal),
            ("seed 7", Command::Seed(7)),
            ("counts", Command::Counts),
        ] {
            assert_eq!(line.parse::<Command>().unwrap(), command, "{line}");
        }
    }

    #[test]
    fn a_line_that_says_nothing_clear_is_refused_with_the_word() {
        for (line, word) in [
            ("", "empty"),
            ("rtt", "`rtt`"),
            ("rtt 20ms loss", "`loss`"),
            ("rtt 20", "`20`"),
            ("rtt -1ms", "`-1ms`"),
            ("loss 101%", "`101%`"),
            ("loss NaN%", "`NaN%`"),
            ("loss 5", "`5`"),
            ("delay 20ms", "`delay`"),
            ("flap 0s", "no period"),
            ("seed x", "`seed`"),
        ] {
            let error = line.parse::<Command>().unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn a_flapping_link_is_cut_in_every_other_period_and_starts_cut() {
        let since = Instant::now();
        let conditions = Conditions {
            outage: Outage::Flapping {
                period: Duration::from_secs(3),
                since,
            },
            ..Conditions::default()
        };
        let cut = [0, 2_999, 3_000, 5_999, 6_000, 9_000].map(|ms| conditions.is_cut(since + Duration::from_millis(ms)));
        assert_eq!(cut, [true, true, false, false, true, false]);
    }
}
