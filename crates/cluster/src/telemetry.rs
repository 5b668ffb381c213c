//! Measurements from a Prometheus server: values with the time for which they hold.
//!
//! `src/prometheus.rs` fills a [`Telemetry`]. This module makes it part of a snapshot. `docs/guide/clouds.md` is for
//! operators.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use edgeward_decision::config::{Config, Input, MeasuredTrait};
use edgeward_decision::model::link::{Bandwidth, Link, LinkFigures, LinkSource, LinkState, Links};
use edgeward_decision::model::slo::{Class, PerClass};
use edgeward_decision::model::snapshot::ProcessingTime;
use edgeward_decision::model::traits::Measured;
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

/// When the oldest value of an answer about links was true, and until when the answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LinkTimes {
    as_of: Moment,
    until: Moment,
}

/// Whose processing time is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work<N = Box<str>> {
    /// The namespace; empty for all of them together.
    pub namespace: N,
    /// The class.
    pub class: Class,
    /// Whether the time is the p95 and not the mean.
    pub is_p95: bool,
}

/// One measured value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    /// The input that was queried.
    pub input: Input,
    /// The site; empty for the edge as a whole.
    pub site: String,
    /// Whose time it is, for [`Input::Processing`].
    pub work: Option<Work>,
    /// Millicores, bytes, microseconds or thousandths, depending on the input.
    pub value: u64,
}

impl Measurement {
    /// A value of a site, or of the edge as a whole where `site` is empty.
    pub fn new(input: Input, site: &str, value: u64) -> Self {
        Self {
            input,
            site: site.to_owned(),
            work: None,
            value,
        }
    }

    /// A processing time at a site.
    pub fn processing(site: &str, work: Work, value: Micros) -> Self {
        Self {
            work: Some(work),
            ..Self::new(Input::Processing, site, value.0)
        }
    }
}

/// All measurements. A value stays until a newer one replaces it or it is stale.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Telemetry {
    required: Vec<Input>,
    samples: BTreeMap<(Input, String, Option<Work>), Sample>,
    /// What is measured between sites. Snapshots share it.
    links: Arc<Links>,
    /// The times of the answers about links.
    link_times: BTreeMap<Input, LinkTimes>,
    /// The measured traits, with their values by site.
    traits: Vec<(MeasuredTrait, BTreeMap<String, TraitSample>)>,
}

/// The value of a measured trait at a site.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TraitSample {
    /// In thousandths. `None` if the last answer had no usable value.
    value: Option<i64>,
    as_of: Moment,
    until: Moment,
    /// When a value must have been within the bound again for the site to have the trait.
    barred_until: Moment,
}

impl Telemetry {
    /// Starts without measurements. The view of the cluster counts as stale without the `required` inputs.
    pub fn new(required: Vec<Input>, traits: &[MeasuredTrait]) -> Self {
        let traits = traits.iter().map(|measured| (measured.clone(), BTreeMap::new()));
        Self {
            required,
            traits: traits.collect(),
            ..Self::default()
        }
    }

    /// Records the answer for a measured trait: values in thousandths by site, and when each was true. Sites without a value
    /// do not have the trait. The values count for `staleness`, and so long does a value beyond the bound keep the trait away.
    pub fn record_trait(&mut self, name: &str, values: &BTreeMap<&str, (i64, Moment)>, staleness: Micros) {
        let Some((measured, sites)) = self.traits.iter_mut().find(|(measured, _)| measured.name == name) else {
            return;
        };
        sites.values_mut().for_each(|sample| sample.value = None);
        for (site, (value, as_of)) in values {
            let sample = sites.entry((*site).to_owned()).or_default();
            let is_beyond = !measured.bound().holds(*value);
            *sample = TraitSample {
                value: Some(*value),
                as_of: *as_of,
                until: as_of.after(staleness),
                barred_until: if is_beyond {
                    as_of.after(staleness)
                } else {
                    sample.barred_until
                },
            };
        }
    }

    /// Records the answer about links: a value for each source and target, in the unit of [`LinkFigures`]. Pairs that the
    /// answer leaves out have none. Cost: a pass over all measured pairs.
    pub fn record_links(&mut self, input: Input, values: &[((&str, &str), u64)], as_of: Moment, staleness: Micros) {
        let values = values.iter().map(|(pair, value)| (*pair, Cell::new(Some(*value))));
        self.set_links(input, &values.collect());
        let until = as_of.after(staleness);
        self.link_times.insert(input, LinkTimes { as_of, until });
    }

    /// Replaces all that this input tells about links, and takes the values.
    fn set_links(&mut self, input: Input, values: &HashMap<(&str, &str), Cell<Option<u64>>>) {
        let links = Arc::make_mut(&mut self.links);
        links.retain(|source, target, figures| {
            set(figures, input, values.get(&(source, target)).and_then(Cell::take));
            *figures != LinkFigures::default()
        });
        for ((source, target), new) in values {
            if let Some(value) = new.take() {
                set(links.entry(source, target).or_default(), input, Some(value));
            }
        }
    }

    /// What is measured between sites.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// When the oldest value of each answer about links was true.
    pub fn links_as_of(&self) -> BTreeMap<Input, Moment> {
        let times = self.link_times.iter();
        times.map(|(input, times)| (*input, times.as_of)).collect()
    }

    /// When the next answer about traits or links becomes stale.
    pub fn next_expiry(&self) -> Option<Moment> {
        let samples = self.traits.iter().flat_map(|(_, sites)| sites.values());
        let traits = samples
            .filter(|sample| sample.value.is_some())
            .map(|sample| sample.until);
        let all = traits.chain(self.link_times.values().map(|times| times.until));
        all.min().map(|until| until.after(Micros(1)))
    }

    /// Drops stale answers about traits, links and processing times. Their places and namespaces may not come again.
    pub fn expire(&mut self, now: Moment) {
        self.samples
            .retain(|(input, ..), sample| *input != Input::Processing || now <= sample.until);
        let samples = self.traits.iter_mut().flat_map(|(_, sites)| sites.values_mut());
        let stale = samples.filter(|sample| sample.until < now);
        stale.for_each(|sample| sample.value = None);
        let stale = self.link_times.extract_if(.., |_, times| times.until < now);
        let stale: Vec<_> = stale.map(|(input, _)| input).collect();
        for input in stale {
            self.set_links(input, &HashMap::new());
        }
    }

    /// The state of each measured trait at the site.
    pub fn traits(&self, site: &str) -> Vec<Measured> {
        let state = |(measured, sites): &(MeasuredTrait, BTreeMap<String, TraitSample>)| {
            let sample = sites.get(site).copied().unwrap_or_default();
            Measured {
                name: (&*measured.name).into(),
                bound: measured.bound(),
                value: sample.value,
                holds: sample.as_of >= sample.barred_until
                    && sample.value.is_some_and(|value| measured.bound().holds(value)),
            }
        };
        self.traits.iter().map(state).collect()
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
            _ => (u64::MAX, 100),
        };
        let key = (measurement.input, measurement.site, measurement.work);
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

    fn fresh(&self, input: Input, site: &str, now: Moment) -> Option<&Sample> {
        let sample = self.samples.get(&(input, site.to_owned(), None))?;
        (now <= sample.until).then_some(sample)
    }

    /// CPU or memory that was free at the edge as a whole. Less everything bound or reserved after its `as_of`, it is an
    /// upper bound on the sum of the nodes' free amounts.
    pub fn edge_free(&self, input: Input, now: Moment) -> Option<&Sample> {
        self.fresh(input, "", now)
    }

    /// Processing times at the site by namespace and class. The namespace is empty for all of them together. A p95 alone counts
    /// as the mean as well. Cost: a pass over the processing times of the site.
    pub fn processing(&self, site: &str, now: Moment) -> BTreeMap<Box<str>, PerClass<Option<ProcessingTime>>> {
        let mut times = BTreeMap::<Box<str>, PerClass<Option<ProcessingTime>>>::new();
        let first = (Input::Processing, site.to_owned(), None);
        let of_site = self.samples.range(first..);
        let of_site = of_site.take_while(|((input, place, _), _)| *input == Input::Processing && place == site);
        let of_site = of_site.filter_map(|((.., work), sample)| {
            let work = work.as_ref().filter(|_| now <= sample.until)?;
            Some((work, Micros(sample.value)))
        });
        // A mean comes before its p95.
        for (work, value) in of_site {
            let time = &mut times.entry(work.namespace.clone()).or_default()[work.class];
            let mean = time.filter(|_| work.is_p95).map_or(value, |time| time.mean);
            *time = Some(ProcessingTime { mean, p95: value });
        }
        times
    }

    /// The link to a cloud site, from probes and measurements together.
    ///
    /// The worse of both counts, for the state and for each number. Missing or stale measurements are ignored, and the age
    /// is the age of the probes. A site without probes has the measured link, which is degraded if a number is missing. A
    /// loss of 100 % makes the link unreachable.
    pub fn link(&self, site: &str, probed: Option<Link>, now: Moment) -> Option<Link> {
        let of_wan = |input| self.fresh(input, site, now);
        let measured = [Input::WanRtt, Input::WanLoss].map(of_wan);
        let samples = || measured.into_iter().flatten();
        let Some(measured_from) = samples().map(|sample| sample.as_of).min() else {
            return probed;
        };
        let is_over = samples().any(|sample| sample.is_over);
        let rtt = measured[0].map(|rtt| Micros(rtt.value));
        let loss = measured[1].and_then(|loss| permille(loss.value));
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
                source: LinkSource::Prometheus,
                as_of: measured_from,
                ..Link::default()
            },
            Some(probed) => Link {
                state: probed.state.max(state),
                rtt: probed.rtt.max(rtt),
                loss: probed.loss.max(loss),
                // These two are of the probes.
                average_rtt: probed.average_rtt.filter(|_| probed.rtt >= rtt),
                rtt_p95: probed.rtt_p95.filter(|_| probed.rtt >= rtt),
                source: if rtt > probed.rtt {
                    LinkSource::Prometheus
                } else {
                    probed.source
                },
                ..probed
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

/// Sets the figure that this input tells.
fn set(figures: &mut LinkFigures, input: Input, value: Option<u64>) {
    match input {
        Input::LinkRtt => figures.rtt = value.map(Micros),
        Input::LinkLoss => figures.loss = value.and_then(permille),
        Input::LinkBytes => figures.bytes = value,
        Input::LinkPackets => figures.packets = value,
        Input::LinkBandwidth => figures.bandwidth = value.map(Bandwidth),
        Input::EdgeFreeCpu | Input::EdgeFreeMemory | Input::Processing | Input::WanRtt | Input::WanLoss => {}
    }
}

fn permille(loss: u64) -> Option<Permille> {
    u32::try_from(loss).ok().map(Permille)
}

#[cfg(test)]
mod tests;
