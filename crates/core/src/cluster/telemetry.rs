//! What was measured elsewhere and asked from a Prometheus server: values with the time for which they hold.
//!
//! `sources::prometheus` fills a [`Telemetry`] in; how it becomes part of a snapshot is here. `docs/guide/clouds.md`
//! is for operators.

use std::collections::BTreeMap;

use crate::config::{Config, Input};
use crate::model::link::{Link, LinkState};
use crate::model::slo::{Class, PerClass};
use crate::units::{Micros, Moment, Permille};

/// A value, and when it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Millicores, bytes, microseconds or thousandths, by its input.
    pub value: u64,
    /// When it was true.
    pub as_of: Moment,
    /// Until when it counts.
    pub until: Moment,
    /// Whether it is over its threshold: from the threshold on, until it is well below.
    is_over: bool,
}

/// One measured value and the place that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// What was asked for.
    pub input: Input,
    /// The site; empty for the edge as a whole.
    pub site: String,
    /// The class, for [`Input::Processing`].
    pub class: Option<Class>,
    /// Millicores, bytes, microseconds or thousandths, by the input.
    pub value: u64,
}

/// Everything measured elsewhere. A value stays until a newer one replaces it or it is stale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Telemetry {
    required: Vec<Input>,
    samples: BTreeMap<(Input, String, Option<Class>), Sample>,
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
        let Measurement {
            input,
            site,
            class,
            value,
        } = measurement;
        let thresholds = config.thresholds(&site);
        let (threshold, margin) = match input {
            Input::WanRtt => (thresholds.rtt.0, 90),
            Input::WanLoss => (thresholds.loss.0.into(), 50),
            Input::EdgeFreeCpu | Input::EdgeFreeMemory | Input::Processing => (u64::MAX, 100),
        };
        let key = (input, site, class);
        let was_over = self.samples.get(&key).is_some_and(|before| before.is_over);
        let percent = if was_over { margin } else { 100 };
        let is_over = u128::from(value) * 100 >= u128::from(threshold) * percent;
        let sample = Sample {
            value,
            as_of,
            until,
            is_over,
        };
        self.samples.insert(key, sample);
    }

    fn fresh(&self, input: Input, site: &str, class: Option<Class>, now: Moment) -> Option<&Sample> {
        let sample = self.samples.get(&(input, site.to_owned(), class))?;
        (now <= sample.until).then_some(sample)
    }

    /// CPU or memory that was free at the edge as a whole: an upper bound on what the nodes' free amounts add up to, less everything
    /// bound or reserved after its `as_of`.
    pub fn edge_free(&self, input: Input, now: Moment) -> Option<&Sample> {
        self.fresh(input, "", None, now)
    }

    /// Mean processing times at the site, of the classes for which one was measured.
    pub fn processing(&self, site: &str, now: Moment) -> PerClass<Option<Micros>> {
        let mean = |class| self.fresh(Input::Processing, site, Some(class), now);
        PerClass(Class::ALL.map(|class| Some(Micros(mean(class)?.value))))
    }

    /// The link to a cloud site, by probes and measurements together: of each number and of the state the worse
    /// counts. What is not measured, or is stale, is ignored, and the age is that of the probes; but where a site is not
    /// probed, the link is what was measured, and a number that is missing makes it degraded. Where everything is lost,
    /// nothing answers.
    pub fn link(&self, site: &str, probed: Option<Link>, now: Moment) -> Option<Link> {
        let of_wan = |input| self.fresh(input, site, None, now);
        let measured = [Input::WanRtt, Input::WanLoss].map(of_wan);
        let samples = || measured.into_iter().flatten();
        let Some(measured_from) = samples().map(|sample| sample.as_of).min() else {
            return probed;
        };
        let is_over = samples().any(|sample| sample.is_over);
        let rtt = measured[0].map(|rtt| Micros(rtt.value));
        let loss = measured[1]
            .and_then(|loss| u32::try_from(loss.value).ok())
            .map(Permille);
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
        let samples = self.samples.iter().filter(|((of, ..), _)| *of == input);
        samples.map(|(_, sample)| sample.until).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
