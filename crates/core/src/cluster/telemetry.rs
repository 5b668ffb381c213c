//! What was measured elsewhere and asked from a Prometheus server: values with the time for which they hold.
//!
//! `sources::prometheus` fills a [`Telemetry`] in; how it becomes part of a snapshot is here. `docs/prometheus.md`
//! is for operators.

use std::collections::BTreeMap;

use crate::config::{Config, Input};
use crate::model::link::{Link, LinkState};
use crate::model::slo::{Class, PerClass};
use crate::units::{Bytes, Micros, Millicores, Moment, Permille};

/// A value, and when it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<T> {
    /// The value.
    pub value: T,
    /// When it was true.
    pub as_of: Moment,
    /// Until when it counts.
    pub until: Moment,
}

impl<T> Sample<T> {
    /// The sample, unless it is stale.
    pub fn fresh(&self, now: Moment) -> Option<&Self> {
        (now <= self.until).then_some(self)
    }
}

/// One measured value and the place that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measurement {
    /// [`Input::EdgeFreeCpu`].
    EdgeFreeCpu(Millicores),
    /// [`Input::EdgeFreeMemory`].
    EdgeFreeMemory(Bytes),
    /// [`Input::Processing`] at this site.
    Processing(String, Class, Micros),
    /// [`Input::WanRtt`] of this site.
    WanRtt(String, Micros),
    /// [`Input::WanLoss`] of this site.
    WanLoss(String, Permille),
}

/// Everything measured elsewhere. A value stays until a newer one replaces it or it is stale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Telemetry {
    required: Vec<Input>,
    edge_free_cpu: Option<Sample<Millicores>>,
    edge_free_memory: Option<Sample<Bytes>>,
    processing: BTreeMap<String, PerClass<Option<Sample<Micros>>>>,
    wan: BTreeMap<String, Wan>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wan {
    rtt: Option<Sample<Judged<Micros>>>,
    loss: Option<Sample<Judged<Permille>>>,
}

/// A number, and whether it is over its threshold: from the threshold on, until it is well below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Judged<T> {
    value: T,
    over: bool,
}

impl Telemetry {
    /// Nothing measured yet. `required` are the inputs without which the view of the cluster counts as stale.
    pub fn new(required: Vec<Input>) -> Self {
        Self {
            required,
            ..Self::default()
        }
    }

    /// Takes in a value that was true at `as_of` and counts until `until`. RTT and loss are judged by the thresholds that
    /// `config` has for the site, with the margins that the probes have: over from the threshold, no longer below 90 % of it for RTT and
    /// half of it for loss.
    pub fn record(&mut self, measurement: Measurement, as_of: Moment, until: Moment, config: &Config) {
        fn sample<T>(value: T, as_of: Moment, until: Moment) -> Option<Sample<T>> {
            Some(Sample { value, as_of, until })
        }
        match measurement {
            Measurement::EdgeFreeCpu(cpu) => self.edge_free_cpu = sample(cpu, as_of, until),
            Measurement::EdgeFreeMemory(memory) => self.edge_free_memory = sample(memory, as_of, until),
            Measurement::Processing(site, class, time) => {
                self.processing.entry(site).or_default()[class] = sample(time, as_of, until);
            }
            Measurement::WanRtt(site, rtt) => {
                let threshold = config.thresholds(&site).rtt;
                let wan = self.wan.entry(site).or_default();
                let was_over = wan.rtt.is_some_and(|rtt| rtt.value.over);
                let over = if was_over {
                    rtt.times(10) >= threshold.times(9)
                } else {
                    rtt >= threshold
                };
                wan.rtt = sample(Judged { value: rtt, over }, as_of, until);
            }
            Measurement::WanLoss(site, loss) => {
                let threshold = config.thresholds(&site).loss;
                let wan = self.wan.entry(site).or_default();
                let was_over = wan.loss.is_some_and(|loss| loss.value.over);
                let over = if was_over {
                    loss.0.saturating_mul(2) >= threshold.0
                } else {
                    loss >= threshold
                };
                wan.loss = sample(Judged { value: loss, over }, as_of, until);
            }
        }
    }

    /// CPU that was free at the edge as a whole: an upper bound on what the nodes' free CPU adds up to, less everything
    /// bound or reserved after its `as_of`.
    pub fn edge_free_cpu(&self, now: Moment) -> Option<&Sample<Millicores>> {
        self.edge_free_cpu.as_ref()?.fresh(now)
    }

    /// Memory that was free at the edge as a whole; as [`Telemetry::edge_free_cpu`].
    pub fn edge_free_memory(&self, now: Moment) -> Option<&Sample<Bytes>> {
        self.edge_free_memory.as_ref()?.fresh(now)
    }

    /// Mean processing times at the site, of the classes for which one was measured.
    pub fn processing(&self, site: &str, now: Moment) -> PerClass<Option<Micros>> {
        let classes = self.processing.get(site).copied().unwrap_or_default();
        PerClass(classes.0.map(|sample| Some(sample?.fresh(now)?.value)))
    }

    /// The link to a cloud site, by probes and measurements together: of each number and of the state the worse
    /// counts. What is not measured, or is stale, is ignored, and the age is that of the probes; but where a site is not
    /// probed, the link is what was measured, and a number that is missing makes it degraded. Where everything is lost,
    /// nothing answers.
    pub fn link(&self, site: &str, probed: Option<Link>, now: Moment) -> Option<Link> {
        let wan = self.wan.get(site);
        let rtt = wan.and_then(|wan| wan.rtt.as_ref()?.fresh(now));
        let loss = wan.and_then(|wan| wan.loss.as_ref()?.fresh(now));
        let is_over = rtt.is_some_and(|rtt| rtt.value.over) || loss.is_some_and(|loss| loss.value.over);
        let measured_from = match (rtt, loss) {
            (None, None) => return probed,
            (Some(rtt), Some(loss)) => rtt.as_of.min(loss.as_of),
            (Some(Sample { as_of, .. }), None) | (None, Some(Sample { as_of, .. })) => *as_of,
        };
        let (rtt, loss) = (rtt.map(|rtt| rtt.value.value), loss.map(|loss| loss.value.value));
        let state = if loss.is_some_and(|loss| loss >= Permille::ONE) {
            LinkState::Unreachable
        } else if is_over || (probed.is_none() && (rtt.is_none() || loss.is_none())) {
            LinkState::Degraded
        } else {
            LinkState::Healthy
        };
        Some(match probed {
            None => Link {
                state,
                rtt,
                loss,
                as_of: measured_from,
            },
            Some(probed) => Link {
                state: probed.state.max(state),
                rtt: probed.rtt.max(rtt),
                loss: probed.loss.max(loss),
                as_of: probed.as_of,
            },
        })
    }

    /// When the view of the cluster was true, where what was seen of it was at `seen`. A required input that is stale
    /// makes the view stale: it is then older than `ttl`, from the moment on at which the input stopped to count.
    pub fn kubernetes_as_of(&self, seen: Moment, ttl: Micros) -> Moment {
        let required = self.required.iter().map(|input| self.until(*input).before(ttl));
        required.fold(seen, Moment::min)
    }

    /// Until when there is a value of this input for some place; the start of the process if there is none.
    fn until(&self, input: Input) -> Moment {
        fn until<T>(sample: &Option<Sample<T>>) -> Option<Moment> {
            sample.as_ref().map(|sample| sample.until)
        }
        let of_wan = |read: fn(&Wan) -> Option<Moment>| self.wan.values().filter_map(read).max();
        let until = match input {
            Input::EdgeFreeCpu => until(&self.edge_free_cpu),
            Input::EdgeFreeMemory => until(&self.edge_free_memory),
            Input::Processing => self
                .processing
                .values()
                .flat_map(|site| &site.0)
                .filter_map(until)
                .max(),
            Input::WanRtt => of_wan(|wan| until(&wan.rtt)),
            Input::WanLoss => of_wan(|wan| until(&wan.loss)),
        };
        until.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
