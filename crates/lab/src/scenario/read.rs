//! Reads a scenario: serde checks its shape, then each value is checked. Each fault names its place.

mod fleet;
pub(super) mod numbers;
mod wan;
mod workload;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use edgeward_decision::config::Config;
use edgeward_decision::document::{Checks, Decimal, Fault, Faults, checked, parse, within, without_nulls};
use edgeward_decision::model::site::{SiteDefinition, SiteKind};
use edgeward_kube::constraints::Taint;
use edgeward_kube::node;
use edgeward_kube::node::Node;
use edgeward_kube::units::{Micros, Permille, Quantity};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::profile::StatedProfile;
use super::{Delays, Failure, Scenario, SimulatedProfile, Site, Slow};
use numbers::{MOST, five_minutes, number, quantities, seconds};
use wan::StatedWan;
use workload::StatedWorkload;
pub(super) use workload::annotate;

type Load<'l> = &'l dyn Fn(&str) -> Result<String, String>;

const MOST_NODES: i64 = 10_000;

/// A [`Scenario`] in its written form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stated {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default, deserialize_with = "seconds::<_, 0>")]
    warmup_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    duration_seconds: Micros,
    #[serde(default = "five_minutes", deserialize_with = "seconds::<_, 0>")]
    drain_seconds: Micros,
    seeds: Option<Decimal<0, 1, 10_000>>,
    replicas: Option<Decimal<0, 1, 9>>,
    #[serde(default)]
    delays: Delays,
    #[serde(default)]
    edgeward: Map<String, Value>,
    sites: Option<Vec<StatedSite>>,
    workloads: Vec<StatedWorkload>,
    #[serde(default)]
    failures: Vec<StatedFailure>,
    profile: Option<StatedProfile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatedSite {
    name: String,
    kind: Option<SiteKind>,
    speed: Option<Decimal<3, 1, 1_000_000>>,
    speed_factor: Option<Decimal<3, 1, 1_000_000>>,
    #[serde(default, deserialize_with = "number::<_, 0, MOST>")]
    cost_per_cpu_hour: f64,
    rtt_threshold_ms: Option<Value>,
    loss_threshold_pct: Option<Value>,
    nodes: Option<Vec<NodeGroup>>,
    wan: Option<StatedWan>,
    #[serde(default)]
    slow: Vec<Slow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NodeGroup {
    name: Option<String>,
    count: Option<Decimal<0, 1, MOST_NODES>>,
    allocatable: BTreeMap<String, Quantity>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatedFailure {
    #[serde(deserialize_with = "seconds::<_, 0>")]
    at_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    lasting_seconds: Micros,
    nodes: Option<Vec<String>>,
    site: Option<String>,
}

/// Reads a scenario. `load` reads the traces that it names.
///
/// # Errors
/// The first place with a wrong shape, or all values out of range.
pub fn read(document: &Value, load: Load<'_>) -> Result<Scenario, Faults> {
    read_with(document, load, None)
}

/// A fleet file (docs/reference/fleet-file.md), with its name for fault messages.
#[derive(Debug, Clone, Copy)]
pub struct Fleet<'f> {
    pub name: &'f str,
    pub document: &'f Value,
}

/// Reads a scenario on the cluster of a fleet file.
///
/// # Errors
/// Those of [`read`].
pub fn read_on(fleet: Fleet<'_>, document: &Value, load: Load<'_>) -> Result<Scenario, Faults> {
    read_with(document, load, Some(fleet))
}

fn read_with(document: &Value, load: Load<'_>, fleet: Option<Fleet<'_>>) -> Result<Scenario, Faults> {
    let stated: Stated = parse(&without_nulls(document.clone()), "")?;
    checked("", |checks| scenario(stated, checks, load, fleet))
}

fn part<T>(checks: &mut Checks<'_>, at: &str, read: impl FnOnce(&mut Checks<'_>) -> Option<T>) -> Option<T> {
    let at = within(checks.at, at);
    read(&mut Checks {
        at: &at,
        faults: checks.faults,
    })
}

fn scenario(stated: Stated, checks: &mut Checks<'_>, load: Load<'_>, fleet: Option<Fleet<'_>>) -> Option<Scenario> {
    if stated.name.is_empty() {
        checks.fault("name", "is empty");
    }
    if stated.warmup_seconds >= stated.duration_seconds {
        checks.fault("warmupSeconds", "is not before durationSeconds");
    }
    let mut settings = stated.edgeward;
    if settings.remove("sites").is_some() {
        checks.fault("edgeward", "sites is not a setting here: use the field sites");
    }
    let (config, sites, initial) = match (fleet, stated.sites) {
        (Some(fleet), sites) => fleet::sites(fleet, sites.unwrap_or_default(), settings, checks, load)?,
        (None, Some(sites)) => {
            let (config, sites) = self::sites(sites, settings, checks, load)?;
            (config, sites, vec![])
        }
        (None, None) => {
            checks.fault("sites", "is missing");
            return None;
        }
    };
    let mut workloads = vec![];
    let mut names = HashSet::new();
    for (at, workload) in stated.workloads.into_iter().enumerate() {
        if !names.insert(workload.name.clone()) {
            checks.fault("workloads", format!("the name {:?} is given twice", workload.name));
        }
        workloads.extend(part(checks, &format!("workloads[{at}]"), |checks| {
            workload.read(checks, load)
        }));
    }
    workloads.extend(initial);
    let failures = stated.failures.into_iter().enumerate();
    let failures = failures.filter_map(|(at, failure)| {
        part(checks, &format!("failures[{at}]"), |checks| {
            failure.read(&sites, checks)
        })
    });
    let failures = failures.collect();
    let profile = stated
        .profile
        .and_then(|profile| SimulatedProfile::read(profile, &sites, checks));
    Some(Scenario {
        profile,
        scorer: None,
        name: stated.name,
        description: stated.description,
        warmup: stated.warmup_seconds,
        end: stated.duration_seconds,
        drain: stated.drain_seconds,
        seeds: stated.seeds.map_or(5, |seeds| seeds.0.unsigned_abs()),
        replicas: stated.replicas.map_or(3, |replicas| replicas.0 as u32),
        delays: stated.delays,
        config,
        sites,
        workloads,
        failures,
    })
}

fn config(settings: Map<String, Value>, checks: &mut Checks<'_>) -> Option<Config> {
    let read = Config::read(&Value::Object(settings));
    let Faults(faults) = match read {
        Ok(config) => return Some(config),
        Err(faults) => faults,
    };
    for Fault { path, message } in faults {
        match path.starts_with("sites") {
            true => checks.fault(path, message),
            false => checks.fault(format!("edgeward.{path}"), message),
        }
    }
    None
}

/// Returns the configuration with the sites, and the further properties of the sites in the same order.
fn sites(
    list: Vec<StatedSite>,
    mut settings: Map<String, Value>,
    checks: &mut Checks<'_>,
    load: Load<'_>,
) -> Option<(Arc<Config>, Vec<Site>)> {
    let mut stated: Vec<(Value, Option<Site>)> = vec![];
    let clouds = list.len().saturating_sub(2);
    let mut nodes_before = HashSet::new();
    for (at, of) in list.into_iter().enumerate() {
        let read = |checks: &mut Checks<'_>| site(of, checks, load, &mut nodes_before);
        let Some((site, mut definition)) = part(checks, &format!("sites[{at}]"), read) else {
            continue;
        };
        // With several clouds, each has its own label.
        if clouds > 0 && !site.is_edge() {
            definition["nodeSelector"] =
                json!({"node.role/cloud": "true", "topology.edgeward.io/site": definition["name"]});
        }
        stated.push((definition, Some(site)));
    }
    let is_edge = |(_, site): &(Value, Option<Site>)| site.as_ref().is_some_and(Site::is_edge);
    if !stated.iter().any(is_edge) {
        checks.fault("sites", "has no site of kind edge");
        return None;
    }
    let definitions = stated.iter().map(|(definition, _)| definition.clone()).collect();
    settings.insert("sites".into(), definitions);
    let config = config(settings, checks)?;
    let ordered = config.sites.iter().map(|definition| {
        let site = stated.iter_mut().find_map(|(stated, site)| {
            let is_it = stated["name"] == *definition.name;
            is_it.then(|| site.take()).flatten()
        })?;
        let nodes = site.nodes.into_iter().map(|node| labelled(node, definition));
        Some(Site {
            nodes: nodes.collect(),
            definition: Arc::clone(definition),
            ..site
        })
    });
    let sites = ordered.collect::<Option<Vec<_>>>()?;
    Some((Arc::new(config), sites))
}

/// Returns the node with the labels of its site, and with the taints that the site's pods tolerate.
fn labelled(mut node: Node, site: &SiteDefinition) -> Node {
    let own = node
        .labels
        .iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let selector = site.selector().map(|(key, value)| (key.to_owned(), value.to_owned()));
    node.labels = own.chain(selector).collect();
    let tolerated = site
        .tolerations
        .iter()
        .filter(|toleration| toleration.operator != "Exists");
    let taints = tolerated.map(|toleration| Taint {
        key: (&*toleration.key).into(),
        value: (&*toleration.value).into(),
        effect: (&*toleration.effect).into(),
    });
    node.state.taints.extend(taints);
    node
}

fn permille(number: Decimal<3, 1, 1_000_000>) -> Permille {
    Permille(number.0 as u32)
}

fn site(
    stated: StatedSite,
    checks: &mut Checks<'_>,
    load: Load<'_>,
    names: &mut HashSet<String>,
) -> Option<(Site, Value)> {
    let (Some(kind), Some(groups)) = (stated.kind, stated.nodes) else {
        checks.fault(if stated.kind.is_none() { "kind" } else { "nodes" }, "is missing");
        return None;
    };
    let is_edge = kind == SiteKind::Edge;
    let mut definition = json!({"name": stated.name, "kind": kind.as_str()});
    for (key, value) in [
        (
            "speedFactor",
            stated.speed_factor.or(stated.speed).map(|speed| json!(speed)),
        ),
        (
            "costPerHour",
            (stated.cost_per_cpu_hour > 0.0).then(|| json!(stated.cost_per_cpu_hour)),
        ),
        ("rttThresholdMs", stated.rtt_threshold_ms),
        ("lossThresholdPct", stated.loss_threshold_pct),
    ] {
        if let Some(value) = value {
            definition[key] = value;
        }
    }
    let mut nodes: Vec<Node> = vec![];
    for (at, group) in groups.into_iter().enumerate() {
        match group.nodes(&stated.name, nodes.len()) {
            Ok(more) => nodes.extend(more),
            Err(error) => checks.fault(format!("nodes[{at}]"), format!("is not a valid node: {error}")),
        }
    }
    for node in &nodes {
        if !names.insert(node.name.to_string()) {
            checks.fault("nodes", format!("the node {:?} is given twice", node.name));
        }
    }
    let wan = match (is_edge, stated.wan) {
        (true, None) => None,
        (true, Some(_)) => {
            checks.fault("wan", "is not for the edge site, which no WAN leads to");
            None
        }
        (false, None) => {
            checks.fault("wan", "is missing");
            None
        }
        (false, Some(wan)) => part(checks, "wan", |checks| wan.read(checks, load)),
    };
    let site = Site {
        // A stand-in: `sites` replaces it with the definition that the configuration's reader returns.
        definition: Arc::new(match is_edge {
            true => SiteDefinition::edge(),
            false => SiteDefinition::cloud(),
        }),
        speed: stated.speed.map_or(Permille::ONE, permille),
        cost: stated.cost_per_cpu_hour,
        nodes,
        wan,
        slow: stated.slow,
    };
    Some((site, definition))
}

impl NodeGroup {
    fn nodes(self, site: &str, before: usize) -> Result<Vec<Node>, String> {
        let count = self.count.map_or(1, |count| count.0);
        let mut allocatable = quantities(&self.allocatable);
        allocatable.entry("pods").or_insert("110".into());
        let nodes = (0..count).map(|at| {
            let name = match (&self.name, count) {
                (Some(name), 1) => name.clone(),
                (Some(name), _) => format!("{name}-{at}"),
                (None, _) => format!("{site}-{}", before as i64 + at),
            };
            let object = json!({
                "metadata": {"name": name, "labels": self.labels},
                "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
            });
            node::from_json(&object.to_string()).map_err(|error| error.to_string())
        });
        nodes.collect()
    }
}

impl StatedFailure {
    fn read(self, sites: &[Site], checks: &mut Checks<'_>) -> Option<Failure> {
        let all: Vec<&Node> = sites.iter().flat_map(|site| &site.nodes).collect();
        if self.nodes.is_some() == self.site.is_some() {
            checks.fault("nodes", "needs exactly one of nodes and site");
        }
        let mut failing = vec![];
        for (at, name) in self.nodes.into_iter().flatten().enumerate() {
            match all.iter().position(|node| *node.name == *name) {
                Some(node) => failing.push(node),
                None => checks.fault(format!("nodes[{at}]"), format!("{name:?} is not a node")),
            }
        }
        let mut failed = None;
        if let Some(name) = self.site {
            failed = sites.iter().position(|site| site.definition.name == name);
            if failed.is_none() {
                checks.fault("site", format!("{name:?} is not a site"));
            }
        }
        if let Some(number) = failed {
            let before: usize = sites[..number].iter().map(|site| site.nodes.len()).sum();
            failing.extend(before..before + sites[number].nodes.len());
        }
        Some(Failure {
            at: self.at_seconds,
            lasts: self.lasting_seconds,
            nodes: failing,
            site: failed.filter(|number| !sites[*number].is_edge()),
        })
    }
}

#[cfg(test)]
mod tests;
