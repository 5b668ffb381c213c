//! The current behaviour of the link, and the commands that change it.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Conditions {
    /// Least round-trip time from a request to its answer, half in each direction.
    pub rtt: Duration,
    /// Largest extra round-trip time, evenly distributed, half in each direction. Packets never overtake each other.
    pub jitter: Duration,
    /// Probability (0 to 1) that a packet is lost on the way forth.
    pub loss: f64,
    pub outage: Outage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Outage {
    #[default]
    None,
    Cut,
    /// The link is cut for a period from `since` on, whole for the next period, and so on.
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

/// One line of input.
///
/// | line | effect |
/// |---|---|
/// | `rtt 150ms jitter 5ms loss 5%` | sets the named values, in any order, and keeps the others |
/// | `cut` | nothing passes any more, including packets in flight |
/// | `flap 3s` | cut for 3 s from now on, whole for 3 s, and so on |
/// | `heal` | ends `cut` and `flap` |
/// | `seed 7` | restarts the random numbers for losses and jitter |
/// | `counts` | answers with [`Counts`](crate::link::Counts) of both directions |
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Command {
    /// New values; `None` keeps the old one.
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

    /// Fails on any other input, and names the wrong word.
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
