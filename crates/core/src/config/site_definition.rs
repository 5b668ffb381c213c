//! What an operator writes down about a site: in the configuration, in a Site and in a fleet file alike.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::{self, Checks, Decimal, Fault};
use crate::model::constraints::{EFFECTS, Toleration, is_label_key, is_label_value, is_subdomain};
use crate::model::endpoint::Endpoint;
use crate::model::link::OwnThresholds;
use crate::model::liqo::{NOT_ALLOWED, REMOTE_CLUSTER_ID, VIRTUAL_NODE};
use crate::model::site::{SiteDefinition, SiteKind, SiteSource};
use crate::model::ties::{Tie, Ties};
use crate::model::traits;
use crate::units::{CostPerHour, Micros, Permille};

/// A site as it is written.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct WrittenSite {
    name: String,
    kind: Kind,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    cost_per_hour: Option<Decimal<6, 0, 1_000_000_000_000>>,
    order: Option<Decimal<0, 0, 1_000_000>>,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Option<Vec<Toleration<'static>>>,
    runtime_class_name: Option<String>,
    speed_factor: Option<Decimal<3, 1, 1_000_000>>,
    supports: Option<Vec<Tie>>,
    traits: Option<Vec<String>>,
    storage_classes: Option<Vec<String>>,
    rtt_threshold_ms: Option<Decimal<3, 1, 60_000_000>>,
    loss_threshold_pct: Option<Decimal<1, 1, 1_000>>,
    probes: Option<Vec<String>>,
}

/// What a site is, and what holds where it does not say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Edge,
    Cloud,
    Liqo,
}

impl Kind {
    /// The definition of a site of which nothing else is said.
    fn site(self, name: &str) -> SiteDefinition {
        let (selector, toleration) = match self {
            Self::Edge => (("node.role/edge", "true"), None),
            Self::Cloud => (("node.role/cloud", "true"), Some(("cloud", "cloud", "NoSchedule"))),
            Self::Liqo => (VIRTUAL_NODE, Some((NOT_ALLOWED, "true", "NoExecute"))),
        };
        let toleration = toleration.map(|(key, value, effect)| Toleration {
            key: key.into(),
            operator: "Equal".into(),
            value: value.into(),
            effect: effect.into(),
            seconds: None,
        });
        SiteDefinition {
            name: name.to_owned(),
            kind: if self == Self::Edge {
                SiteKind::Edge
            } else {
                SiteKind::Cloud
            },
            labels: BTreeMap::new(),
            cost: None,
            order: 0,
            selector: vec![(selector.0.to_owned(), selector.1.to_owned())],
            tolerations: toleration.into_iter().collect(),
            speed: Permille::ONE,
            supports: Ties::default(),
            traits: vec![],
            storage_classes: (self == Self::Liqo).then(|| "liqo".to_owned()).into_iter().collect(),
            runtime_class: None,
            thresholds: OwnThresholds::default(),
            probes: vec![],
            source: SiteSource::Config,
        }
    }
}

/// Reads a site that stands at this path; a cloud that does not say its order has this one.
pub(crate) fn read(site: &Value, default_order: u32, at: &str, faults: &mut Vec<Fault>) -> Option<SiteDefinition> {
    let written = document::parse::<WrittenSite>(site, at);
    let written = written.map_err(|fault| faults.push(fault)).ok()?;
    let mut checks = Checks { at, faults };
    written.check(&mut checks);
    let site = written.definition(default_order, &mut checks);
    let is_lost = |tie: &&Tie| site.is_of_liqo() && Tie::LOST_BY_LIQO.contains(tie);
    for tie in site.supports.iter().filter(is_lost) {
        let message = format_args!("{:?} does not survive offloading by Liqo", tie.as_str());
        checks.fault("supports", message);
    }
    Some(site)
}

/// What is allowed in names and labels.
const LABEL: &str = "letters, digits, `-`, `_` and `.`, at most 63";

impl WrittenSite {
    /// What the API server would not accept on a pod is refused here: else it refuses every pod that is placed there.
    fn check(&self, checks: &mut Checks<'_>) {
        let name = &self.name;
        if name.is_empty() || !is_label_value(name) {
            checks.fault("name", format_args!("{name:?} is not a site name: {LABEL}"));
        }
        let labels = self.labels.iter().flatten();
        let labels = labels.map(|(key, value)| ("labels", &**key, &**value));
        let selector = self.node_selector.iter().flatten();
        let selector = selector.map(|(key, value)| ("nodeSelector", &**key, &**value));
        for (map, key, value) in labels.chain(selector) {
            check_label(checks, map, key, value);
        }
        if self.node_selector.as_ref().is_some_and(BTreeMap::is_empty) {
            checks.fault("nodeSelector", "is empty, which every node would carry");
        }
        for (i, toleration) in self.tolerations.iter().flatten().enumerate() {
            check_toleration(checks, &format!("tolerations[{i}]"), toleration);
        }
        let runtime_class = self
            .runtime_class_name
            .iter()
            .map(|name| ("runtimeClassName", "RuntimeClass", name));
        let storage_classes = self.storage_classes.iter().flatten();
        let storage_classes = storage_classes.map(|name| ("storageClasses", "StorageClass", name));
        for (field, kind, name) in runtime_class.chain(storage_classes) {
            if !is_subdomain(name) {
                checks.fault(field, not_a_class(kind, name));
            }
        }
        for name in self.traits.iter().flatten().filter(|name| !traits::is_trait_name(name)) {
            checks.fault("traits", format_args!("{name:?} is not {}", traits::NAME));
        }
        if self.kind == Kind::Edge {
            let stated = [
                ("rttThresholdMs", self.rtt_threshold_ms.is_some()),
                ("lossThresholdPct", self.loss_threshold_pct.is_some()),
                ("probes", self.probes.is_some()),
                ("storageClasses", self.storage_classes.is_some()),
                ("order", self.order.is_some()),
            ];
            for (field, _) in stated.into_iter().filter(|(_, is_stated)| *is_stated) {
                checks.fault(field, "is for a cloud, and not for the edge site");
            }
        }
    }

    /// What it does not state is that of its kind.
    fn definition(self, default_order: u32, checks: &mut Checks<'_>) -> SiteDefinition {
        let by_default = self.kind.site(&self.name);
        let is_cloud = by_default.kind == SiteKind::Cloud;
        let order = self.order.map_or(default_order, |order| order.0 as u32);
        let selector = self.node_selector.map(|selector| selector.into_iter().collect());
        let speed = self.speed_factor.map(|factor| Permille(factor.0 as u32));
        SiteDefinition {
            labels: self.labels.unwrap_or_default(),
            cost: self.cost_per_hour.map(|cost| CostPerHour(cost.0 as u64)),
            order: if is_cloud { order } else { 0 },
            selector: selector.unwrap_or(by_default.selector),
            tolerations: self.tolerations.unwrap_or(by_default.tolerations),
            speed: speed.unwrap_or(by_default.speed),
            supports: self.supports.into_iter().flatten().collect(),
            traits: self.traits.unwrap_or_default(),
            storage_classes: self.storage_classes.unwrap_or(by_default.storage_classes),
            runtime_class: self.runtime_class_name,
            thresholds: OwnThresholds {
                rtt: self.rtt_threshold_ms.map(|ms| Micros(ms.0 as u64)),
                loss: self.loss_threshold_pct.map(|percent| Permille(percent.0 as u32)),
            },
            probes: endpoints(&self.probes.unwrap_or_default(), checks),
            ..by_default
        }
    }

    /// How a site is written that is defined so; without what the WAN is probed by.
    pub(crate) fn of(site: &SiteDefinition) -> Self {
        let is_of_liqo = site.is_of_liqo();
        Self {
            name: site.name.clone(),
            kind: match site.kind {
                SiteKind::Edge => Kind::Edge,
                SiteKind::Cloud if is_of_liqo => Kind::Liqo,
                SiteKind::Cloud => Kind::Cloud,
            },
            labels: Some(site.labels.clone()).filter(|labels| !labels.is_empty()),
            cost_per_hour: site.cost.map(|cost| Decimal(cost.0 as i64)),
            order: Some(Decimal(site.order.into())).filter(|order| order.0 > 0),
            node_selector: Some(site.selector.iter().cloned().collect()),
            tolerations: Some(site.tolerations.clone()),
            runtime_class_name: site.runtime_class.clone(),
            speed_factor: Some(Decimal(site.speed.0.into())),
            supports: some_of(site.supports.iter().copied()),
            traits: some_of(site.traits.iter().cloned()),
            storage_classes: Some(site.storage_classes.clone()).filter(|classes| is_of_liqo || !classes.is_empty()),
            rtt_threshold_ms: site.thresholds.rtt.map(|rtt| Decimal(rtt.signed())),
            loss_threshold_pct: site.thresholds.loss.map(|loss| Decimal(loss.0.into())),
            probes: None,
        }
    }
}

/// A list that is written only if something is in it.
pub(crate) fn some_of<T>(list: impl IntoIterator<Item = T>) -> Option<Vec<T>> {
    Some(list.into_iter().collect()).filter(|list: &Vec<T>| !list.is_empty())
}

fn check_label(checks: &mut Checks<'_>, map: &str, key: &str, value: &str) {
    if !is_label_key(key) {
        checks.fault(map, format_args!("{key:?} is not a label key: `[domain/]name`"));
    }
    if !is_label_value(value) {
        checks.fault(map, format_args!("{value:?} is not a label value: {LABEL}"));
    }
}

fn check_toleration(checks: &mut Checks<'_>, at: &str, toleration: &Toleration<'_>) {
    let (key, value) = (&*toleration.key, &*toleration.value);
    let exists = toleration.operator == "Exists";
    if !key.is_empty() && !is_label_key(key) {
        checks.fault(at, format_args!("{key:?} is not a taint key: {LABEL}"));
    }
    if !is_label_value(value) {
        checks.fault(at, format_args!("{value:?} is not a taint value: {LABEL}"));
    }
    if !["Equal", "Exists"].contains(&&*toleration.operator) {
        checks.fault(
            at,
            format_args!("operator {:?} is not one of Equal, Exists", toleration.operator),
        );
    }
    if !toleration.effect.is_empty() && !EFFECTS.contains(&&*toleration.effect) {
        let effects = EFFECTS.join(", ");
        checks.fault(
            at,
            format_args!("effect {:?} is not one of {effects}", toleration.effect),
        );
    }
    if key.is_empty() && !exists {
        checks.fault(at, "key may be empty only with operator Exists");
    }
    if exists && !value.is_empty() {
        checks.fault(at, "value must be empty with operator Exists");
    }
}

/// That this cannot be the name of an object of this kind.
fn not_a_class(kind: &str, name: &str) -> String {
    format!("{name:?} is not the name of a {kind}: lower-case letters, digits, `-` and `.`")
}

fn endpoints(probes: &[String], checks: &mut Checks<'_>) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for (i, probe) in probes.iter().enumerate() {
        match Endpoint::parse(probe) {
            Ok(endpoint) if endpoints.contains(&endpoint) => {
                checks.fault(
                    format_args!("probes[{i}]"),
                    format_args!("\"{endpoint}\" is listed twice"),
                );
            }
            Ok(endpoint) => endpoints.push(endpoint),
            Err(error) => checks.fault(format_args!("probes[{i}]"), error),
        }
    }
    endpoints
}

/// Whether these definitions make a fleet: names are unique and exactly one is the edge. `list` is where they stand.
pub(crate) fn check_fleet<'s>(
    list: &str,
    sites: impl Iterator<Item = (&'s str, &'s SiteDefinition)>,
    faults: &mut Vec<Fault>,
) {
    let mut names = HashSet::new();
    let mut edges = 0;
    for (at, site) in sites {
        if !names.insert(&site.name) {
            faults.push(Fault::new(
                at,
                format_args!("the name {:?} is taken by an earlier site", site.name),
            ));
        }
        edges += usize::from(site.kind == SiteKind::Edge);
    }
    if edges != 1 {
        let message = format_args!("has {edges} sites of kind edge; there must be exactly one");
        faults.push(Fault::new(list, message));
    }
}

impl SiteDefinition {
    /// By which a fleet is sorted: the edge first, then the clouds by name.
    pub(crate) fn order(&self) -> (bool, &str) {
        (self.kind != SiteKind::Edge, &self.name)
    }

    /// The site of the virtual nodes of one remote cluster of Liqo, called by its id.
    pub fn of_cluster(id: &str) -> Self {
        let mut site = Kind::Liqo.site(id);
        site.selector.insert(0, (REMOTE_CLUSTER_ID.to_owned(), id.to_owned()));
        site.source = SiteSource::Liqo;
        site
    }

    /// The site `edge` as nobody has changed it: nodes with the label `node.role/edge: "true"`.
    pub fn edge() -> Self {
        Kind::Edge.site("edge")
    }

    /// The site `cloud` as nobody has changed it: nodes with the label `node.role/cloud: "true"` and the taint
    /// `cloud=cloud:NoSchedule`.
    pub fn cloud() -> Self {
        Kind::Cloud.site("cloud")
    }
}
