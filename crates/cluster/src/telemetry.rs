//! Measurements from a Prometheus server: values with the time for which they hold.
//!
//! `src/prometheus.rs` fills a [`Telemetry`]. This module makes it part of a snapshot. `docs/guide/clouds.md` is for
//! operators.

use std::collections::BTreeMap;

use edgeward_decision::config::{Config, Input};
use edgeward_decision::model::link::{Link, LinkState};
use edgeward_decision::model::slo::{Class, PerClass};
use edgeward_kube::units::{Micros, Moment, Permille};

/// A value, and when it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Millicores, bytes, microseconds or thousandths, depending on the input.
    pub value: u64,
    /// When the value was true.
    pub as_of: Moment,
    /// Until when the value counts.
    pub until: Moment,
    /// Whether the value is over its threshold: from the threshold on, until it is well below.
    is_over: bool,
}

/// One measured value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// The input that was queried.
    pub input: Input,
    /// The site; empty for the edge as a whole.
    pub site: String,
    /// The class, for [`Input::Processing`].
    pub class: Option<Class>,
    /// Millicores, bytes, microseconds or thousandths, depending on the input.
    pub value: u64,
}

impl Measurement {
    /// A value of a site, or of the edge as a whole where `site` is empty.
    pub fn new(input: Input, site: &str, class: Option<Class>, value: u64) -> Self {
        let site = site.to_owned();
        Self {
            input,
            site,
            class,
            value,
        }
    }
}

/// All measurements. A value stays until a newer one replaces it or it is stale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Telemetry {
    required: Vec<Input>,
    samples: BTreeMap<(Input, String, Option<Class>), Sample>,
}

impl Telemetry {
    /// Starts without measurements. The view of the cluster counts as stale without the `required` inputs.
    pub fn new(required: Vec<Input>) -> Self {
        Self {
            required,
            ..Self::default()
        }
    }

    /// Records a value that was true at `as_of` and counts until `until`. RTT and loss are judged by the thresholds that
    /// `config` has for the site, with the margins of the probes. A value is over from the threshold on, until it is below
    /// 90 % of the RTT threshold or half of the loss threshold.
    pub fn record(&mut self, measurement: Measurement, as_of: Moment, until: Moment, config: &Config) {
        let value = measurement.value;
        let thresholds = config.thresholds(&measurement.site);
        let (threshold, margin) = match measurement.input {
            Input::WanRtt => (thresholds.rtt.0, 90),
            Input::WanLoss => (thresholds.loss.0.into(), 50),
            Input::EdgeFreeCpu | Input::EdgeFreeMemory | Input::Processing => (u64::MAX, 100),
        };
        let key = (measurement.input, measurement.site, measurement.class);
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

    /// CPU or memory that was free at the edge as a whole. Less everything bound or reserved after its `as_of`, it is an
    /// upper bound on the sum of the nodes' free amounts.
    pub fn edge_free(&self, input: Input, now: Moment) -> Option<&Sample> {
        self.fresh(input, "", None, now)
    }

    /// Mean processing times at the site, for each class with a measurement.
    pub fn processing(&self, site: &str, now: Moment) -> PerClass<Option<Micros>> {
        let mean = |class| self.fresh(Input::Processing, site, Some(class), now);
        PerClass(Class::ALL.map(|class| Some(Micros(mean(class)?.value))))
    }

    /// The link to a cloud site, from probes and measurements together.
    ///
    /// The worse of both counts, for the state and for each number. Missing or stale measurements are ignored, and the age
    /// is the age of the probes. A site without probes has the measured link, which is degraded if a number is missing. A
    /// loss of 100 % makes the link unreachable.
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

    /// When the view of the cluster was true, if its events were seen at `seen`. A stale required input makes the view
    /// stale: it is older than `ttl` from the moment at which the input stopped counting.
    pub fn kubernetes_as_of(&self, seen: Moment, ttl: Micros) -> Moment {
        let required = self.required.iter().map(|input| self.until(*input).before(ttl));
        required.fold(seen, Moment::min)
    }

    /// Until when this input has a value for any place; the start of the process if it has none.
    fn until(&self, input: Input) -> Moment {
        let samples = self.samples.iter().filter(|((of, ..), _)| *of == input);
        samples.map(|(_, sample)| sample.until).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
