//! The state of a link, without flapping.

use std::collections::VecDeque;

use crate::wan::{CONFIRMATION_STEP, RUN};
use edgeward_decision::model::link::{Link, LinkSource, LinkState, Thresholds};
use edgeward_kube::units::{Micros, Moment, Permille};

/// The shortest time for which a link stays healthy or degraded. It becomes unreachable at once.
const DWELL: Micros = Micros::from_secs(30);

/// The most outcomes in a window.
const WINDOW: usize = 100;

/// The time of whose answers the RTT p95 is taken. A service that is placed stays, so a busy minute should count for longer than
/// the window.
const HISTORY: Micros = Micros::from_secs(1_800);

/// The most answers of which the RTT p95 is taken.
const MOST_ANSWERS: usize = 900;

/// The time constant of the average RTT.
const AVERAGED_OVER: Micros = Micros::from_secs(30);

/// The number of outcomes from which loss is judged. With fewer, a single loss looks like a bad link.
const JUDGED_FROM: usize = 50;

/// The link towards one site, by the probes of its endpoints.
///
/// Each endpoint has its own window of outcomes. [`RUN`] losses in a row make it silent. [`RUN`] answers in a row end that,
/// and are the first outcomes of a new window. Before its first [`RUN`] outcomes, nothing is known about it. Confirming
/// probes of an answering endpoint are not in the window, because several of them fall into one short outage.
///
/// The link is as good as its best endpoint, because each endpoint is another way to the site. The link is unreachable if
/// every endpoint is silent, healthy if an answering endpoint is within the thresholds, and otherwise degraded. It recovers
/// when an endpoint is below 90 % of the RTT threshold and not above half of the loss threshold. A link that was
/// unreachable is judged like a new one.
///
/// Loss counts from `JUDGED_FROM` outcomes on. It exceeds the threshold if it does so by more than chance.
#[derive(Debug, Clone)]
pub struct LinkHealth {
    paths: Vec<Path>,
    state: Option<LinkState>,
    /// When `state` last changed.
    since: Moment,
    /// The endpoint whose numbers count for the link.
    best: usize,
}

impl LinkHealth {
    /// A link with this number of endpoints, without outcomes.
    pub fn new(endpoints: usize) -> Self {
        Self {
            paths: vec![Path::default(); endpoints],
            state: None,
            since: Moment::default(),
            best: 0,
        }
    }

    /// Adds the outcome of a probe of this endpoint: answered after `outcome`, or lost if `None`. `confirms` says whether it was
    /// sent because of [`begins_confirmation`](Self::begins_confirmation). Outcomes come in the order of their times. An endpoint that
    /// the link does not have is ignored.
    pub fn record(
        &mut self,
        endpoint: usize,
        outcome: Option<Micros>,
        confirms: bool,
        at: Moment,
        thresholds: Thresholds,
    ) {
        let Some(path) = self.paths.get_mut(endpoint) else {
            return;
        };
        path.record(outcome, confirms, at);
        let is_recovering = self.state == Some(LinkState::Degraded);
        let is_good = |path: &Path| path.is_within(thresholds, is_recovering);
        let answering = self
            .paths
            .iter()
            .enumerate()
            .filter(|(_, path)| path.reach == Reach::Answering);
        let best = answering.min_by_key(|(_, path)| (!is_good(path), path.window.rtt()));
        let next = match best {
            Some((best, path)) => {
                self.best = best;
                Some(if is_good(path) {
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

    /// The link as decisions read it: its state, and the numbers of the best answering endpoint. If none answers, the
    /// numbers are those of the last best endpoint. `as_of` is the last outcome of that endpoint, answered or lost, because
    /// a loss is a measurement too. `None` until the link has a state.
    pub fn link(&self) -> Option<Link> {
        let best = self.paths.get(self.best)?;
        Some(Link {
            state: self.state?,
            rtt: best.rtt,
            rtt_p95: best.rtt_p95,
            loss: best.window.loss(),
            jitter: best.window.jitter(),
            average_rtt: best.average,
            source: LinkSource::Probe,
            as_of: best.last_outcome?,
        })
    }

    /// Whether the endpoint should be probed [`RUN`] - 1 more times, [`CONFIRMATION_STEP`] apart: its last outcome may begin a run
    /// that makes it silent, or answering again. False while such probes may still be under way, each lost after `timeout`. To be
    /// called after a probe that confirms no other.
    pub fn begins_confirmation(&mut self, endpoint: usize, now: Moment, timeout: Micros) -> bool {
        let Some(path) = self.paths.get_mut(endpoint) else {
            return false;
        };
        let (is_answer, _) = path.run;
        let is_other = match path.reach {
            Reach::Answering => !is_answer,
            Reach::Silent => is_answer,
            Reach::Unknown => false,
        };
        let begins = is_other && now > path.confirmed_by;
        if begins {
            path.confirmed_by = now.after(CONFIRMATION_STEP.times(RUN as u64 - 1) + timeout);
        }
        begins
    }

    /// Whether the endpoint is silent after a run of lost probes.
    pub fn is_silent(&self, endpoint: usize) -> bool {
        self.paths.get(endpoint).is_some_and(|path| path.reach == Reach::Silent)
    }
}

/// Whether more probes are lost than by chance on a link that loses `expected` on average. The limit is two standard
/// deviations of a Poisson distribution. Both numbers are in thousandths of a probe.
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

/// The state of one endpoint.
#[derive(Debug, Clone, Default)]
struct Path {
    window: Window,
    /// Whether the last outcomes were answers, and how many in a row were the same.
    run: (bool, usize),
    reach: Reach,
    /// The RTT of the window, or of the last window with an answer.
    rtt: Option<Micros>,
    /// The answers of the last [`HISTORY`], at most [`MOST_ANSWERS`], oldest first, and their RTTs.
    history: VecDeque<(Moment, Micros)>,
    /// The RTT that 19 of 20 of them do not exceed.
    rtt_p95: Option<Micros>,
    /// The exponential average of the RTTs, and when the last probe was answered.
    average: Option<Micros>,
    last_answer: Moment,
    /// When the last probe was answered or lost.
    last_outcome: Option<Moment>,
    /// When the last probes that confirm a change are over.
    confirmed_by: Moment,
}

impl Path {
    /// Whether the endpoint is good enough for a healthy link. A degraded link needs better numbers to recover.
    fn is_within(&self, most: Thresholds, is_recovering: bool) -> bool {
        let Some(rtt) = self.window.rtt() else { return false };
        let is_judged = self.window.probes() >= JUDGED_FROM;
        // In thousandths of a probe.
        let lost = 1_000 * self.window.lost() as u64;
        let bound = u64::from(most.loss.0) * self.window.probes() as u64;
        if is_recovering {
            rtt.times(10) < most.rtt.times(9) && (!is_judged || 2 * lost <= bound)
        } else {
            rtt < most.rtt && (!is_judged || !is_beyond_chance(lost, bound))
        }
    }

    fn record(&mut self, outcome: Option<Micros>, confirms: bool, at: Moment) {
        let is_answer = outcome.is_some();
        self.run = (is_answer, if self.run.0 == is_answer { self.run.1 + 1 } else { 1 });
        if !confirms || self.reach == Reach::Silent {
            self.window.push(outcome);
            self.history.extend(outcome.map(|rtt| (at, rtt)));
        }
        if let Some(rtt) = outcome {
            self.average = Some(self.averaged(rtt, at));
            self.last_answer = at;
        }
        self.last_outcome = Some(at);
        match self.reach {
            _ if self.run.1 >= RUN && !is_answer => self.reach = Reach::Silent,
            Reach::Silent if self.run.1 >= RUN => {
                self.reach = Reach::Answering;
                self.window.keep(RUN);
            }
            Reach::Unknown if self.window.probes() >= RUN => self.reach = Reach::Answering,
            _ => {}
        }
        self.rtt = self.window.rtt().or(self.rtt);
        let old = self
            .history
            .partition_point(|(answered, _)| at.since(*answered) >= HISTORY);
        self.history
            .drain(..old.max(self.history.len().saturating_sub(MOST_ANSWERS)));
        let mut rtts: Vec<_> = self.history.iter().map(|(_, rtt)| *rtt).collect();
        self.rtt_p95 = Micros::p95(&mut rtts);
    }

    /// The exponential average with this answer. A lost probe is no sample of it.
    fn averaged(&self, rtt: Micros, at: Moment) -> Micros {
        let Some(before) = self.average else { return rtt };
        let share = (-(at.since(self.last_answer).0 as f64) / AVERAGED_OVER.0 as f64).exp();
        Micros((before.0 as f64 * share + rtt.0 as f64 * (1.0 - share)).round() as u64)
    }
}

/// The last [`WINDOW`] outcomes of one endpoint, oldest first; `None` is a lost probe.
#[derive(Debug, Clone, Default)]
struct Window(VecDeque<Option<Micros>>);

impl Window {
    /// Adds an outcome. A full window drops its oldest one.
    fn push(&mut self, outcome: Option<Micros>) {
        self.keep(WINDOW - 1);
        self.0.push_back(outcome);
    }

    /// Drops all but the newest `count` outcomes.
    fn keep(&mut self, count: usize) {
        self.0.drain(..self.0.len().saturating_sub(count));
    }

    /// The number of outcomes.
    fn probes(&self) -> usize {
        self.0.len()
    }

    /// The number of lost probes.
    fn lost(&self) -> usize {
        self.0.iter().filter(|outcome| outcome.is_none()).count()
    }

    /// Lost probes in a thousand, rounded down; `None` if the window is empty.
    fn loss(&self) -> Option<Permille> {
        let permille = (self.lost() * 1_000).checked_div(self.probes())?;
        u32::try_from(permille).ok().map(Permille)
    }

    /// Mean difference between the RTTs of successive answers; `None` with fewer than two.
    fn jitter(&self) -> Option<Micros> {
        let answered = || self.0.iter().flatten();
        let differences = answered().zip(answered().skip(1));
        let (sum, count) = differences.fold((0, 0), |(sum, count), (one, next)| {
            (sum + one.0.abs_diff(next.0), count + 1)
        });
        sum.checked_div(count).map(Micros)
    }

    /// The RTT for decisions: the mean of the last [`RUN`] answered probes.
    fn rtt(&self) -> Option<Micros> {
        let answered = self.0.iter().rev().flatten().take(RUN);
        let add = |(sum, count), time: &Micros| (sum + u128::from(time.0), count + 1);
        let (sum, count) = answered.fold((0, 0_u128), add);
        u64::try_from(sum.checked_div(count)?).ok().map(Micros)
    }
}

#[cfg(test)]
mod tests;
