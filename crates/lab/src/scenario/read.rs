//! Reads a scenario. Every fault is reported with its place.

mod fleet;
pub(super) mod numbers;
mod wan;
mod workload;

use std::collections::HashSet;
use std::sync::Arc;

use crate::document::{self, Fault, Faults, Field};
use edgeward_core::config::Config;
use edgeward_core::model::constraints::Taint;
use edgeward_core::model::node::Node;
use edgeward_core::model::site::SiteDefinition;
use edgeward_core::units::{Micros, Permille};
use edgeward_core::wire::node;
use serde_json::{Map, Value, json};

use super::{Delays, Failure, Scenario, SimulatedProfile, Site};
use crate::random::Distribution;
use numbers::{distribution, number, quantities, seconds};
pub(super) use workload::annotate;
use workload::workload;

type Load<'l> = &'l dyn Fn(&str) -> Result<String, String>;

const MOST_NODES: i64 = 10_000;

/// Reads a scenario; `load` reads the traces that it names.
///
/// # Errors
/// Every fault, with its place.
pub fn read(document: &Value, load: Load<'_>) -> Result<Scenario, Faults> {
    document::read(document, |root| scenario(&root, document, load, None))
}

/// A fleet file (docs/fleet-file.md), with the name that faults call it by.
#[derive(Debug, Clone, Copy)]
pub struct Fleet<'f> {
    pub name: &'f str,
    pub document: &'f Value,
}

/// Reads a scenario whose cluster is that of a fleet file.
///
/// # Errors
/// Every fault, with its place.
pub fn read_on(fleet: Fleet<'_>, document: &Value, load: Load<'_>) -> Result<Scenario, Faults> {
    document::read(document, |root| scenario(&root, document, load, Some(fleet)))
}

fn scenario(root: &Field<'_>, document: &Value, load: Load<'_>, fleet: Option<Fleet<'_>>) -> Option<Scenario> {
    let [
        name,
        description,
        warmup,
        duration,
        drain,
        seeds,
        replicas,
        delays,
        edgeward,
        sites,
        workloads,
        failures,
        profile,
    ] = root.object([
        "name",
        "description",
        "warmupSeconds",
        "durationSeconds",
        "drainSeconds",
        "seeds",
        "replicas",
        "delays",
        "edgeward",
        "sites",
        "workloads",
        "failures",
        "profile",
    ])?;
    let name = name.required().non_empty_string().unwrap_or_default();
    let end = seconds(&duration.required(), 1);
    let warmup_time = seconds(&warmup, 0).unwrap_or_default();
    if end.is_some_and(|end| warmup_time >= end) {
        warmup.fault("is not before durationSeconds".into());
    }
    let settings = settings(&edgeward, document);
    let (config, sites, initial) = match fleet {
        None => {
            let (config, sites) = self::sites(&sites.required(), settings, load)?;
            (config, sites, vec![])
        }
        Some(fleet) => fleet::sites(fleet, &sites, settings, load)?,
    };
    let workloads: Vec<_> = workloads
        .required()
        .list()?
        .iter()
        .map(|field| workload(field, load))
        .collect();
    let mut names = HashSet::new();
    for workload in workloads.iter().flatten() {
        if !names.insert(workload.name.clone()) {
            root.fault(format!("workloads: the name {:?} is there twice", workload.name));
        }
    }
    let failures: Vec<_> = failures
        .list()
        .unwrap_or_default()
        .iter()
        .map(|field| failure(field, &sites))
        .collect();
    let simulated = profile
        .is_present()
        .then(|| SimulatedProfile::read(&profile, document, &sites));
    Some(Scenario {
        profile: simulated.flatten(),
        name: name.to_owned(),
        description: description.string().unwrap_or_default().to_owned(),
        warmup: warmup_time,
        end: end?,
        drain: seconds(&drain, 0).unwrap_or(Micros::from_secs(300)),
        seeds: seeds.integer(1..=10_000).unwrap_or(5).unsigned_abs(),
        replicas: u32::try_from(replicas.integer(1..=9).unwrap_or(3)).ok()?,
        delays: self::delays(&delays),
        config,
        sites,
        workloads: workloads
            .into_iter()
            .chain(initial.into_iter().map(Some))
            .collect::<Option<_>>()?,
        failures: failures.into_iter().collect::<Option<_>>()?,
    })
}

fn delays(field: &Field<'_>) -> Delays {
    let fields = field
        .is_present()
        .then(|| field.object(["watchMs", "persistMs", "patchMs", "cycleMs", "bindMs", "startMs"]))
        .flatten();
    let [watch, persist, patch, cycle, bind, start] = fields.map_or([const { None }; 6], |fields| fields.map(Some));
    let number_or = |field: Option<Field<'_>>, least, default| {
        field
            .and_then(|field| number(&field, least, 60_000_000))
            .unwrap_or(default)
    };
    let drawn = |field: Option<Field<'_>>, default| field.and_then(|field| distribution(&field)).unwrap_or(default);
    Delays {
        watch: drawn(watch, Distribution::LogNormal(5.0, 0.8)),
        persist: number_or(persist, 1, 3.0),
        patch: number_or(patch, 1, 10.0),
        cycle: number_or(cycle, 1, 1.0),
        bind: drawn(bind, Distribution::LogNormal(6.0, 0.5)),
        start: drawn(start, Distribution::LogNormal(800.0, 0.4)),
    }
}

/// The settings of edgeward that a scenario states.
fn settings(edgeward: &Field<'_>, document: &Value) -> Map<String, Value> {
    let mut settings = document
        .get("edgeward")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    if edgeward.is_present() && !edgeward.is_object() {
        edgeward.fault("is not an object".into());
    }
    if settings.remove("sites").is_some() {
        edgeward.fault("sites is not a setting here: it is stated at sites".into());
    }
    settings
}

/// The configuration of these settings; `anywhere` is a place of the document.
fn config(settings: Map<String, Value>, anywhere: &Field<'_>) -> Option<Config> {
    let report = |Fault { path, message }| {
        let place = match path.starts_with("sites") {
            true => path,
            false => format!("edgeward.{path}"),
        };
        anywhere.clone().called(&place).fault(message);
    };
    let read = Config::read(&Value::Object(settings));
    read.map_err(|Faults(faults)| faults.into_iter().for_each(report)).ok()
}

/// The configuration with the sites, and what else is known of these, in its order.
fn sites(list: &Field<'_>, mut settings: Map<String, Value>, load: Load<'_>) -> Option<(Arc<Config>, Vec<Site>)> {
    let fields = list.list()?;
    let mut stated: Vec<(Value, Option<Site>)> = vec![];
    let clouds = fields.len().saturating_sub(2);
    let mut nodes_before = HashSet::new();
    for field in &fields {
        let Some((site, mut definition)) = site(field, load, &mut nodes_before) else {
            continue;
        };
        // Of several clouds each has a label of its own.
        if clouds > 0 && !site.is_edge() && definition.get("nodeSelector").is_none() {
            let selector = json!({"node.role/cloud": "true", "topology.edgeward.io/site": definition["name"]});
            definition.insert("nodeSelector".into(), selector);
        }
        stated.push((Value::Object(definition), Some(site)));
    }
    let definitions = stated.iter().map(|(definition, _)| definition.clone()).collect();
    settings.insert("sites".into(), definitions);
    let config = config(settings, list)?;
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

/// The node with the labels of its site, and the taints that its site's pods tolerate.
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
    node.taints.extend(taints);
    node
}

const SITE_FIELDS: [&str; 9] = [
    "name",
    "kind",
    "speed",
    "speedFactor",
    "costPerCpuHour",
    "rttThresholdMs",
    "lossThresholdPct",
    "nodes",
    "wan",
];

fn permille(number: f64) -> Permille {
    Permille((number * 1_000.0).round() as u32)
}

fn site(field: &Field<'_>, load: Load<'_>, names: &mut HashSet<String>) -> Option<(Site, Map<String, Value>)> {
    let [
        name,
        kind,
        speed,
        stated_speed,
        cost,
        rtt_threshold,
        loss_threshold,
        nodes,
        wan,
    ] = field.object(SITE_FIELDS)?;
    let site_name = name.clone().required().non_empty_string()?;
    let is_edge = kind
        .clone()
        .required()
        .word(&[("edge", true), ("cloud", false), ("liqo", false)])?;
    let speed = number(&speed, 1, 1_000_000).unwrap_or(1.0);
    let mut definition = Map::new();
    definition.insert("name".into(), site_name.into());
    definition.insert("kind".into(), kind.string()?.into());
    definition.insert(
        "speedFactor".into(),
        number(&stated_speed, 1, 1_000_000).unwrap_or(speed).into(),
    );
    for (key, field) in [("rttThresholdMs", rtt_threshold), ("lossThresholdPct", loss_threshold)] {
        if let Some(number) = number(&field, 0, i64::MAX) {
            definition.insert(key.into(), number.into());
        }
    }
    let mut list = vec![];
    for group in nodes.required().list()? {
        list.extend(node_group(&group, site_name, list.len()).unwrap_or_default());
    }
    for node in &list {
        if !names.insert(node.name.to_string()) {
            field.fault(format!("the node {:?} is there twice", node.name));
        }
    }
    let wan = match (is_edge, wan.is_present()) {
        (true, false) => None,
        (true, true) => {
            wan.fault("is not for the edge site, which no WAN leads to".into());
            None
        }
        (false, _) => wan::wan(&wan.required(), load),
    };
    let site = Site {
        // The configuration's reader says more.
        definition: Arc::new(match is_edge {
            true => SiteDefinition::edge(),
            false => SiteDefinition::cloud(),
        }),
        speed: permille(speed),
        cost: number(&cost, 0, i64::MAX).unwrap_or(0.0),
        nodes: list,
        wan,
    };
    Some((site, definition))
}

fn node_group(field: &Field<'_>, site: &str, before: usize) -> Option<Vec<Node>> {
    let [name, count, allocatable, labels] = field.object(["name", "count", "allocatable", "labels"])?;
    let number = count.integer(1..=MOST_NODES).unwrap_or(1);
    let named = name.non_empty_string();
    let resources = quantities(&allocatable.required())?;
    let labels: Map<_, _> = labels
        .string_map()
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    let nodes = (0..number).map(|at| {
        let name = match (named, number) {
            (Some(name), 1) => name.to_owned(),
            (Some(name), _) => format!("{name}-{at}"),
            (None, _) => format!("{site}-{}", before as i64 + at),
        };
        let object = json!({
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        node::from_json(&object.to_string())
    });
    match nodes.collect::<Result<Vec<_>, _>>() {
        Ok(nodes) => Some(nodes),
        Err(error) => {
            field.fault(format!("makes no node: {error}"));
            None
        }
    }
}

fn failure(field: &Field<'_>, sites: &[Site]) -> Option<Failure> {
    let [at, lasting, nodes, site] = field.object(["atSeconds", "lastingSeconds", "nodes", "site"])?;
    let all: Vec<&Node> = sites.iter().flat_map(|site| &site.nodes).collect();
    let mut failing = vec![];
    for field in nodes.list().unwrap_or_default() {
        let name = field.string()?;
        match all.iter().position(|node| *node.name == *name) {
            Some(at) => failing.push(at),
            None => field.fault(format!("{name:?} is not a node")),
        }
    }
    let stated = site.string();
    let number = stated.and_then(|name| sites.iter().position(|site| site.definition.name == name));
    if let (Some(name), None) = (stated, number) {
        site.fault(format!("{name:?} is not a site"));
    }
    if stated.is_some() == nodes.is_present() {
        field.fault("states not exactly one of nodes and site".into());
    }
    if let Some(number) = number {
        let before: usize = sites[..number].iter().map(|site| site.nodes.len()).sum();
        failing.extend(before..before + sites[number].nodes.len());
    }
    Some(Failure {
        at: seconds(&at.required(), 0)?,
        lasts: seconds(&lasting.required(), 1)?,
        nodes: failing,
        site: number.filter(|number| !sites[*number].is_edge()),
    })
}

#[cfg(test)]
mod tests;
