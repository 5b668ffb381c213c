//! Computes scores from metrics. Each value is normalised, and the equation is evaluated for each site, or for each of
//! its nodes. A site gets no score if a value is unknown.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use edgeward_decision::config::Config;
use edgeward_decision::model::cost_map::watts;
use edgeward_decision::model::link::{Link, LinkState};
use edgeward_decision::model::scores::{MAX_MISSING, Score, SiteScore};
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_decision::placement::estimate;
use edgeward_kube::node::Node;
use edgeward_kube::units::{Micros, Moment};

use crate::profile::{Aggregate, BuiltIn, By, Metric, Profile, Source};

/// One series in the answer of a Prometheus server.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Labels of the series.
    pub labels: BTreeMap<String, String>,
    /// Value of the series.
    pub value: f64,
    /// Time of the value.
    pub at: Moment,
}

/// The last usable answer to a query. If the newest answer could not be used, the text says why.
pub type Answer<'a> = (&'a [Series], Option<&'a str>);

/// Scores of one profile for the sites of one snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// Scores by site.
    pub scores: BTreeMap<Box<str>, SiteScore>,
    /// The sites without a score, each with the cause.
    pub unscored: BTreeMap<Box<str>, String>,
}

/// Value of a metric at one place, and its time.
type Sample = (f64, Moment);

/// A metric with its values.
struct Column<'p> {
    metric: &'p Metric,
    /// Values of a query by the name of a site or node. `None` if several series name the same place.
    found: HashMap<&'p str, Option<Sample>>,
    /// Why the newest answer to the query could not be used.
    fault: Option<&'p str>,
}

/// Scores the sites of the snapshot with this profile. `answers` returns the last answer to a query, or `None` if it
/// was never asked. Cost: a pass over the series of each answer, and the equation for each site, or for each of its
/// usable nodes if a metric is per node.
pub fn score<'p>(
    profile: &'p Profile,
    snapshot: &'p Snapshot,
    config: &Config,
    answers: impl Fn(&str) -> Option<Answer<'p>>,
    now: Moment,
) -> Evaluation {
    let columns = profile.metrics.iter();
    let reader = Reader {
        profile,
        snapshot,
        columns: columns.map(|metric| Column::of(metric, snapshot, &answers)).collect(),
        config,
        now,
    };
    let mut evaluation = Evaluation::default();
    for site in &snapshot.sites {
        match reader.score(site) {
            Ok(score) => drop(evaluation.scores.insert(site.name().into(), score)),
            Err(cause) => drop(evaluation.unscored.insert(site.name().into(), cause)),
        }
    }
    evaluation
}

fn aggregated(scores: &[f64], how: Aggregate) -> f64 {
    match how {
        Aggregate::Mean => scores.iter().sum::<f64>() / scores.len() as f64,
        Aggregate::Max => scores.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

impl<'p> Column<'p> {
    fn of(metric: &'p Metric, snapshot: &'p Snapshot, answers: &impl Fn(&str) -> Option<Answer<'p>>) -> Self {
        let mut column = Self {
            metric,
            found: HashMap::new(),
            fault: None,
        };
        let Source::PromQl(query, by) = &metric.source else {
            return column;
        };
        let Some((series, fault)) = answers(query) else {
            column.fault = Some("not asked yet");
            return column;
        };
        column.fault = fault;
        let nodes = match by {
            By::Instance => by_address(snapshot),
            By::Site | By::Node => HashMap::new(),
        };
        for series in series {
            let Some(label) = series.labels.get(by.as_str()) else {
                continue;
            };
            let sample = Some((series.value, series.at));
            match by {
                By::Site | By::Node => column.add(label, sample),
                By::Instance => match nodes.get(without_port(label)).map(Vec::as_slice) {
                    Some([node]) => column.add(node, sample),
                    // Several nodes have this address, so the series is ambiguous.
                    Some(several) => several.iter().for_each(|node| column.add(node, None)),
                    None => {}
                },
            }
        }
        column
    }

    fn add(&mut self, place: &'p str, sample: Option<Sample>) {
        self.found
            .entry(place)
            .and_modify(|known| *known = None)
            .or_insert(sample);
    }

    /// Maps a value to the range from 0 to 1.
    fn normalised(&self, value: f64) -> f64 {
        let Metric { norm_min, norm_max, .. } = *self.metric;
        ((value - norm_min) / (norm_max - norm_min)).clamp(0.0, 1.0)
    }
}

/// Why a metric of energy has no value.
const NO_ENERGY: &str = "the energy is not stated (energy), or the traffic not measured";

struct Reader<'r, 'p> {
    profile: &'p Profile,
    snapshot: &'p Snapshot,
    columns: Vec<Column<'p>>,
    config: &'r Config,
    now: Moment,
}

impl Reader<'_, '_> {
    /// Returns the score of this site, or why it has none.
    fn score(&self, site: &Site) -> Result<SiteScore, String> {
        let is_of_nodes = self.columns.iter().any(|column| column.metric.source.is_of_nodes());
        let places: Vec<Option<&Node>> = if is_of_nodes {
            site.usable_nodes().map(Some).collect()
        } else {
            vec![None]
        };
        if places.is_empty() {
            return Err("it has no usable node".to_owned());
        }
        let (mut rows, mut as_of) = (Vec::with_capacity(places.len()), self.now);
        for place in places {
            let (row, at) = self.row(site, place)?;
            as_of = as_of.min(at);
            rows.push(row);
        }
        let asks = |of: BuiltIn| {
            self.columns
                .iter()
                .any(|column| column.metric.source == Source::BuiltIn(of))
        };
        let variants = match (asks(BuiltIn::MissingOptionalTraits), asks(BuiltIn::ComponentPresent)) {
            (_, true) => 2 * (MAX_MISSING + 1),
            (true, false) => MAX_MISSING + 1,
            (false, false) => 1,
        };
        let of_variant = |variant: usize| {
            let missing = (variant % (MAX_MISSING + 1)) as f64;
            let has_component = f64::from(variant <= MAX_MISSING);
            for (at, column) in self.columns.iter().enumerate() {
                let value = match column.metric.source {
                    Source::BuiltIn(BuiltIn::MissingOptionalTraits) => column.normalised(missing),
                    Source::BuiltIn(BuiltIn::ComponentPresent) => column.normalised(has_component),
                    _ => continue,
                };
                rows.iter_mut().for_each(|row| row[at] = value);
            }
            let of_nodes = self.profile.equation.evaluate(rows.iter().map(Vec::as_slice));
            let of_nodes: Option<Vec<f64>> = of_nodes.into_iter().collect();
            Score::of(aggregated(&of_nodes?, self.profile.aggregate))
        };
        let by_missing = (0..variants).map(of_variant).collect::<Option<Arc<[Score]>>>();
        let by_missing = by_missing.ok_or("the equation gives no finite number")?;
        Ok(SiteScore { by_missing, as_of })
    }

    /// Returns the normalised value of each metric at this node of the site, or at the site, and the time of the oldest
    /// value. The error tells why a value is not known.
    fn row(&self, site: &Site, node: Option<&Node>) -> Result<(Vec<f64>, Moment), String> {
        let mut as_of = self.now;
        let mut row = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let name = &column.metric.name;
            let at_node = node.filter(|_| column.metric.source.is_of_nodes());
            let place = match at_node {
                Some(node) => format!(" for node {}", node.name),
                None => String::new(),
            };
            let (value, at) = self
                .sample(column, site, at_node)
                .map_err(|fault| format!("{name}: {fault}{place}"))?;
            if !value.is_finite() {
                return Err(format!("{name}: {value} is no number{place}"));
            }
            if self.now.since(at) > self.profile.staleness {
                let age = self.now.since(at).0 / 1_000_000;
                let fault = column.fault.map_or_else(String::new, |fault| format!("; {fault}"));
                return Err(format!("{name}: {age} s old, and stale{place}{fault}"));
            }
            as_of = as_of.min(at);
            row.push(column.normalised(value));
        }
        Ok((row, as_of))
    }

    fn sample(&self, column: &Column<'_>, site: &Site, node: Option<&Node>) -> Result<Sample, String> {
        let now = |value: f64| (value, self.now);
        let number = |text: Option<&str>, what: &str, key: &str| {
            let text = text.ok_or_else(|| format!("no {what} {key}"))?;
            text.parse().map(now).map_err(|_| format!("{what} {key} is no number"))
        };
        match (&column.metric.source, node) {
            (Source::PromQl(_, by), _) => {
                let place = node.map_or(site.name(), |node| &node.name);
                match column.found.get(place) {
                    Some(Some(sample)) => Ok(*sample),
                    Some(None) => Err("ambiguous: several series".to_owned()),
                    None => Err(match column.fault {
                        Some(fault) => fault.to_owned(),
                        None => format!("no series with its label {}", by.as_str()),
                    }),
                }
            }
            (Source::NodeLabel(key), Some(node)) => number(node.labels.get(key), "label", key),
            (Source::NodeAnnotation(key), Some(node)) => number(node.profiled.annotations.get(key), "annotation", key),
            (Source::BuiltIn(BuiltIn::FreeCpu), Some(node)) => {
                Ok(now((node.allocatable.cpu - node.charges.used.cpu).0.max(0) as f64 / 1e3))
            }
            (Source::BuiltIn(BuiltIn::FreeMemory), Some(node)) => {
                Ok(now((node.allocatable.memory - node.charges.used.memory).0.max(0) as f64))
            }
            (Source::BuiltIn(BuiltIn::Pods), Some(node)) => Ok(now(node.charges.pods as f64)),
            (Source::BuiltIn(BuiltIn::MissingOptionalTraits | BuiltIn::ComponentPresent), _) => Ok(now(0.0)),
            (Source::BuiltIn(BuiltIn::CostPerHour), _) => match site.definition.cost {
                Some(cost) => Ok(now(cost.0 as f64 / 1e6)),
                None => Err("its cost is not stated (costPerHour)".to_owned()),
            },
            (Source::BuiltIn(BuiltIn::LinkWatts), _) => self.with_edge(site, |edge| {
                let power = |from, to| self.snapshot.microwatts(from, to);
                Some(watts(power(edge, site)?.saturating_add(power(site, edge)?)))
            }),
            (Source::BuiltIn(BuiltIn::NetworkWatts), _) => {
                let power = self.snapshot.network_microwatts(site);
                power.map(|power| now(watts(power))).ok_or_else(|| NO_ENERGY.to_owned())
            }
            (Source::BuiltIn(BuiltIn::FlowJoules), _) => self.with_edge(site, |edge| {
                let energy = |site: &Site| Some(site.definition.energy?.of_a_gigabyte());
                Some(energy(edge)? + energy(site)?)
            }),
            (Source::BuiltIn(BuiltIn::Rtt), _) => self.of_link(site, |link| Some(link.rtt?.as_millis_f64())),
            (Source::BuiltIn(BuiltIn::Loss), _) => self.of_link(site, |link| Some(f64::from(link.loss?.0) / 10.0)),
            (Source::Eta(class), _) => {
                let eta = estimate::eta_of_class(*class, site, self.config);
                match site.kind() {
                    SiteKind::Edge => eta
                        .map(|eta| now(eta.as_millis_f64()))
                        .ok_or_else(|| "not known".to_owned()),
                    SiteKind::Cloud => self.of_link(site, |_| eta.map(Micros::as_millis_f64)),
                }
            }
            (Source::NodeLabel(_) | Source::NodeAnnotation(_) | Source::BuiltIn(_), _) => Err("not known".to_owned()),
        }
    }

    /// Reads the energy of the way between the edge and the site. Returns 0 at the edge.
    fn with_edge(&self, site: &Site, read: impl Fn(&Site) -> Option<f64>) -> Result<Sample, String> {
        let value = match site.kind() {
            SiteKind::Edge => Some(0.0),
            SiteKind::Cloud => self.snapshot.edge().and_then(read),
        };
        value.map(|value| (value, self.now)).ok_or_else(|| NO_ENERGY.to_owned())
    }

    /// Reads a value of the link to the site. Returns 0 at the edge.
    fn of_link(&self, site: &Site, read: impl Fn(Link) -> Option<f64>) -> Result<Sample, String> {
        if site.kind() == SiteKind::Edge {
            return Ok((0.0, self.now));
        }
        let link = site.link.filter(|link| link.state != LinkState::Unreachable);
        let link = link.ok_or_else(|| "nothing is known of its WAN".to_owned())?;
        let value = read(link).ok_or_else(|| "not measured".to_owned())?;
        Ok((value, link.as_of))
    }
}

/// Returns the nodes of all sites by their names and addresses.
fn by_address(snapshot: &Snapshot) -> HashMap<&str, Vec<&str>> {
    let mut nodes = HashMap::<&str, Vec<&str>>::new();
    for node in snapshot.sites.iter().flat_map(Site::nodes) {
        let names = node
            .profiled
            .addresses
            .iter()
            .map(|address| &**address)
            .chain([&*node.name]);
        for name in names {
            let known = nodes.entry(name).or_default();
            if !known.contains(&&*node.name) {
                known.push(&node.name);
            }
        }
    }
    nodes
}

/// Returns the host of `host:port`. An IPv6 address must be in brackets, or have no port.
fn without_port(instance: &str) -> &str {
    if let Some((address, _)) = instance.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    match instance.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => instance,
    }
}

#[cfg(test)]
mod tests;
