//! Whether a link is good enough, without flapping.

use crate::cluster::wan::RUN;
use crate::cluster::wan::window::{JUDGED_FROM, Window};
use crate::model::link::{Link, LinkState, Thresholds};
use crate::units::{Micros, Moment};

/// How long a link stays healthy or degraded at least. Becoming unreachable waits for nothing.
pub const DWELL: Micros = Micros::from_secs(30);

/// The link towards one site, by the probes of its endpoints.
///
/// Each endpoint has a window of its own. [`RUN`] losses in a row make it silent; [`RUN`] answers in a row end that, and
/// they are the first outcomes of a new window. Before its first [`RUN`] outcomes nothing is said about it.
///
/// The link is as good as its best endpoint, for an endpoint is one more way to the same site. It is unreachable when
/// every endpoint is silent; healthy while one that answers is within the thresholds; otherwise degraded. From degraded
/// it returns when one is below 90 % of the RTT threshold and not above half of the loss threshold. Loss is judged from
/// [`JUDGED_FROM`] outcomes on, and counts as above the threshold where it is beyond chance. A link that was unreachable is
/// judged as one that is new.
#[derive(Debug, Clone)]
pub struct LinkHealth {
    paths: Vec<Path>,
    state: Option<LinkState>,
    /// When `state` became what it is.
    since: Moment,
    /// The endpoint whose numbers count for the link.
    best: usize,
}

impl LinkHealth {
    /// A link with so many endpoints, of which nothing is known.
    pub fn new(endpoints: usize) -> Self {
        Self {
            paths: vec![Path::default(); endpoints],
            state: None,
            since: Moment::default(),
            best: 0,
        }
    }

    /// Folds in the outcome of a probe of this endpoint, which was answered after `outcome` or lost (`None`) at `at`.
    /// Outcomes come in the order of their moments. An endpoint that the link does not have is ignored.
    pub fn record(&mut self, endpoint: usize, outcome: Option<Micros>, at: Moment, thresholds: Thresholds) {
        let Some(path) = self.paths.get_mut(endpoint) else {
            return;
        };
        path.record(outcome, at);
        let limits = Limits {
            thresholds,
            recovering: self.state == Some(LinkState::Degraded),
        };
        let answering = self
            .paths
            .iter()
            .enumerate()
            .filter(|(_, path)| path.reach == Reach::Answering);
        let best = answering.min_by_key(|(_, path)| (!limits.hold(path), path.window.rtt()));
        let next = match best {
            Some((best, path)) => {
                self.best = best;
                let healthy = limits.hold(path);
                Some(if healthy {
                    LinkState::Healthy
                } else {
                    LinkState::Degraded
                })
            }
            None if self.paths.iter().all(|path| path.reach == Reach::Silent) => Some(LinkState::Unreachable),
            None => self.state,
        };
        let lasts = [self.state, next].map(|state| matches!(state, Some(LinkState::Healthy | LinkState::Degraded)));
        if next != self.state && (lasts != [true, true] || at.since(self.since) >= DWELL) {
            self.state = next;
            self.since = at;
        }
    }

    /// What a decision reads: the state, and the numbers of the best endpoint that answers, or of the one that was the
    /// best when the last fell silent. `as_of` is that endpoint's last outcome, answered or lost: a loss is a
    /// measurement. `None` before an endpoint has had [`RUN`] outcomes.
    pub fn link(&self) -> Option<Link> {
        let best = self.paths.get(self.best)?;
        Some(Link {
            state: self.state?,
            rtt: best.rtt,
            loss: best.window.loss(),
            as_of: best.last_outcome?,
        })
    }

    /// Whether so many probes of this endpoint were lost in a row that it counts as silent.
    pub fn is_silent(&self, endpoint: usize) -> bool {
        self.paths.get(endpoint).is_some_and(|path| path.reach == Reach::Silent)
    }
}

/// When an endpoint is good enough.
struct Limits {
    thresholds: Thresholds,
    /// The link is degraded, and its return takes more.
    recovering: bool,
}

impl Limits {
    fn hold(&self, path: &Path) -> bool {
        let Some(rtt) = path.window.rtt() else {
            return false;
        };
        let (most, judged) = (self.thresholds, path.window.probes() >= JUDGED_FROM);
        // In thousandths of a probe.
        let lost = 1_000 * path.window.lost() as u64;
        let bound = u64::from(most.loss.0) * path.window.probes() as u64;
        if self.recovering {
            rtt.times(10) < most.rtt.times(9) && (!judged || 2 * lost <= bound)
        } else {
            rtt < most.rtt && (!judged || !is_beyond_chance(lost, bound))
        }
    }
}

/// Whether more is lost than a link that loses `expected` on average loses by chance: more than two standard deviations of a
/// Poisson distribution. Both in thousandths of a probe.
fn is_beyond_chance(lost: u64, expected: u64) -> bool {
    lost > expected && (lost - expected).pow(2) > 4 * 1_000 * expected
}

/// Whether an endpoint answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reach {
    /// Fewer than [`RUN`] outcomes so far.
    #[default]
    Unknown,
    Answering,
    Silent,
}

/// What is known of one endpoint.
#[derive(Debug, Clone, Default)]
struct Path {
    window: Window,
    reach: Reach,
    /// Answers since the last loss.
    answers: usize,
    /// Losses since the last answer.
    losses: usize,
    /// Of the window, or of the last window that had an answer.
    rtt: Option<Micros>,
    /// When the last probe was answered or lost.
    last_outcome: Option<Moment>,
}

impl Path {
    fn record(&mut self, outcome: Option<Micros>, at: Moment) {
        self.window.push(outcome);
        self.last_outcome = Some(at);
        if outcome.is_some() {
            (self.answers, self.losses) = (self.answers.saturating_add(1), 0);
        } else {
            (self.answers, self.losses) = (0, self.losses.saturating_add(1));
        }
        match self.reach {
            _ if self.losses >= RUN => self.reach = Reach::Silent,
            Reach::Silent if self.answers >= RUN => {
                self.reach = Reach::Answering;
                self.window.keep(RUN);
            }
            Reach::Unknown if self.window.probes() >= RUN => self.reach = Reach::Answering,
            _ => {}
        }
        self.rtt = self.window.rtt().or(self.rtt);
    }
}

#[cfg(test)]
mod tests;
