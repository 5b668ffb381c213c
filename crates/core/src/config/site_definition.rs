//! What an operator writes down about a site, in the configuration and in the fleet file alike.

use std::collections::{BTreeMap, HashSet};

use crate::config::declaration::{self, Read as _};
use crate::document::Field;
use crate::model::constraints::{Toleration, is_label_key, is_label_value, is_subdomain};
use crate::model::link::OwnThresholds;
use crate::model::liqo::{NOT_ALLOWED, REMOTE_CLUSTER_ID, VIRTUAL_NODE};
use crate::model::ties::{Tie, Ties};
use crate::model::traits;
use crate::units::{CostPerHour, Permille};

use crate::model::site::{SiteDefinition, SiteKind, SiteSource};

/// RTT thresholds, of a site and of all.
pub(super) const RTT_THRESHOLD: declaration::Kind = declaration::Kind::Number(1, 60_000_000);

/// Loss thresholds, of a site and of all.
pub(super) const LOSS_THRESHOLD: declaration::Kind = declaration::Kind::Percent(100);

const SPEED_FACTOR: declaration::Kind = declaration::Kind::Number(1, 1_000_000);

/// What a `kind` stands for, where the site does not say otherwise.
#[derive(Clone, Copy)]
struct Kind {
    kind: SiteKind,
    selector: (&'static str, &'static str),
    toleration: Option<(&'static str, &'static str, &'static str)>,
    storage_class: Option<&'static str>,
}

const EDGE: Kind = Kind {
    kind: SiteKind::Edge,
    selector: ("node.role/edge", "true"),
    toleration: None,
    storage_class: None,
};
const CLOUD: Kind = Kind {
    kind: SiteKind::Cloud,
    selector: ("node.role/cloud", "true"),
    toleration: Some(("cloud", "cloud", "NoSchedule")),
    storage_class: None,
};
const LIQO: Kind = Kind {
    kind: SiteKind::Cloud,
    selector: VIRTUAL_NODE,
    toleration: Some((NOT_ALLOWED, "true", "NoExecute")),
    storage_class: Some("liqo"),
};

/// The most that an hour may cost.
const MAX_COST: u32 = 1_000_000;

/// The last place in an order.
const MAX_ORDER: i64 = 1_000_000;

/// The fields that [`read`] takes.
pub(crate) const FIELDS: [&str; 14] = [
    "name",
    "kind",
    "labels",
    "costPerHour",
    "order",
    "nodeSelector",
    "tolerations",
    "runtimeClassName",
    "speedFactor",
    "supports",
    "traits",
    "storageClasses",
    "rttThresholdMs",
    "lossThresholdPct",
];

/// Reads a site's definition from its [`FIELDS`]; a cloud that does not say its order has this one.
pub(crate) fn read(
    [
        name,
        kind,
        labels,
        cost,
        order,
        selector,
        tolerations,
        runtime_class,
        speed,
        supports,
        traits,
        storage_classes,
        rtt,
        loss,
    ]: [Field<'_>; 14],
    default_order: u32,
) -> Option<SiteDefinition> {
    let name = label(&name.required(), "a site name", |name| {
        !name.is_empty() && is_label_value(name)
    });
    let stated = kind
        .required()
        .word(&[("edge", EDGE), ("cloud", CLOUD), ("liqo", LIQO)]);
    let mut site = by_default(name.unwrap_or_default(), stated.unwrap_or(EDGE));
    let pairs = labels.entries().into_iter().flatten();
    site.labels = pairs
        .filter_map(|(key, value)| selector_pair(key, &value))
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    site.cost = cost.millionths(MAX_COST).map(CostPerHour);
    if site.kind == SiteKind::Cloud {
        site.order = order.integer(0..=MAX_ORDER).map_or(default_order, |order| order as u32);
    }
    let pairs = selector.entries();
    let is_everywhere = pairs.as_ref().is_some_and(Vec::is_empty);
    if is_everywhere {
        selector.fault("is empty, which every node would carry".into());
    }
    if let Some(pairs) = pairs {
        let pairs = pairs.iter().filter_map(|(key, value)| selector_pair(key, value));
        site.selector = pairs.collect();
    }
    if let Some(list) = tolerations.list() {
        site.tolerations = list.iter().filter_map(toleration).collect();
    }
    site.speed.read(&speed, &SPEED_FACTOR);
    site.supports = ties(&supports, site.is_of_liqo());
    if let Some(list) = traits.list() {
        site.traits = list.iter().filter_map(trait_name).collect();
    }
    if let Some(list) = storage_classes.list() {
        site.storage_classes = list.iter().filter_map(storage_class).collect();
    }
    site.runtime_class = self::runtime_class(&runtime_class).map(str::to_owned);
    site.thresholds.rtt.read(&rtt, &RTT_THRESHOLD);
    site.thresholds.loss.read(&loss, &LOSS_THRESHOLD);
    if stated.is_some() && site.kind == SiteKind::Edge {
        for field in [&rtt, &loss].into_iter().filter(|field| field.is_present()) {
            field.fault("is not for the edge site, which no WAN leads to".into());
        }
        if storage_classes.is_present() {
            storage_classes.fault("is not for the edge site, where volumes of every class are made".into());
        }
    }
    if stated.is_some() && site.kind == SiteKind::Edge && order.is_present() {
        order.fault("is not for the edge site, which is no cloud to choose".into());
    }
    (name.is_some() && stated.is_some() && !is_everywhere).then_some(site)
}

/// Whether these definitions make a fleet: names are unique and exactly one is the edge. `list` is where they stand.
pub(crate) fn check_fleet<'s, 'd: 's>(
    list: &Field<'_>,
    sites: impl Iterator<Item = (&'s Field<'d>, &'s SiteDefinition)>,
) {
    let mut names = HashSet::new();
    let mut edges = 0;
    for (field, site) in sites {
        if !names.insert(&site.name) {
            field.fault(format!("the name {:?} is taken by an earlier site", site.name));
        }
        edges += usize::from(site.kind == SiteKind::Edge);
    }
    if edges != 1 {
        list.fault(format!("has {edges} sites of kind edge; there must be exactly one"));
    }
}

/// A string that the API server would accept where a placement puts it. One that it would not makes it refuse every pod
/// placed there.
fn label<'d>(field: &Field<'d>, what: &str, is_valid: impl FnOnce(&str) -> bool) -> Option<&'d str> {
    let text = field.string()?;
    if !is_valid(text) {
        field.fault(format!(
            "{text:?} is not {what}: letters, digits, `-`, `_` and `.`, at most 63"
        ));
        return None;
    }
    Some(text)
}

/// The name of a trait.
fn trait_name(field: &Field<'_>) -> Option<String> {
    let name = field.string()?;
    if !traits::is_trait_name(name) {
        field.fault(format!("{name:?} is not {}", traits::NAME));
    }
    Some(name.to_owned())
}

/// The name of a RuntimeClass.
pub(super) fn runtime_class<'d>(field: &Field<'d>) -> Option<&'d str> {
    let name = field.string()?;
    if !is_subdomain(name) {
        field.fault(format!(
            "{name:?} is not the name of a RuntimeClass: lower-case letters, digits, `-` and `.`"
        ));
    }
    Some(name)
}

fn selector_pair(key: &str, value: &Field<'_>) -> Option<(String, String)> {
    if !is_label_key(key) {
        value.fault("is not a label key: `[domain/]name`".into());
    }
    let value = label(value, "a label value", is_label_value)?;
    Some((key.to_owned(), value.to_owned()))
}

fn default_toleration((key, value, effect): (&'static str, &'static str, &'static str)) -> Toleration<'static> {
    Toleration {
        key: key.into(),
        operator: "Equal".into(),
        value: value.into(),
        effect: effect.into(),
        seconds: None,
    }
}

fn toleration(field: &Field<'_>) -> Option<Toleration<'static>> {
    let [key, operator, value, effect] = field.object(["key", "operator", "value", "effect"])?;
    let operator = operator
        .word(&[("Equal", "Equal"), ("Exists", "Exists")])
        .unwrap_or("Equal");
    let stated_key = label(&key, "a taint key", |key| key.is_empty() || is_label_key(key));
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned().into();
    let toleration = Toleration {
        key: text(stated_key),
        operator: operator.into(),
        value: text(label(&value, "a taint value", is_label_value)),
        effect: self::effect(&effect).unwrap_or_default().into(),
        seconds: None,
    };
    if operator == "Equal" && (!key.is_present() || stated_key == Some("")) {
        key.fault("may be empty only with operator Exists".into());
    }
    if operator == "Exists" && !toleration.value.is_empty() {
        value.fault("must be empty with operator Exists".into());
    }
    Some(toleration)
}

pub(crate) fn effect(field: &Field<'_>) -> Option<&'static str> {
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    field.word(&effects.map(|effect| (effect, effect)))
}

fn ties(field: &Field<'_>, is_liqo: bool) -> Ties {
    let tie = |field: Field<'_>| {
        let tie = field.word(&Tie::BY_WORD)?;
        if is_liqo && Tie::LOST_BY_LIQO.contains(&tie) {
            field.fault(format!("{:?} does not survive offloading by Liqo", tie.as_str()));
        }
        Some(tie)
    };
    field.list().into_iter().flatten().filter_map(tie).collect()
}

fn storage_class(field: &Field<'_>) -> Option<String> {
    let name = field.string()?;
    if !is_subdomain(name) {
        field.fault(format!(
            "{name:?} is not the name of a StorageClass: lower-case letters, digits, `-` and `.`"
        ));
    }
    Some(name.to_owned())
}

/// The definition that `kind` stands for when nothing else is said.
fn by_default(name: &str, kind: Kind) -> SiteDefinition {
    let (key, value) = kind.selector;
    SiteDefinition {
        name: name.to_owned(),
        kind: kind.kind,
        labels: BTreeMap::new(),
        cost: None,
        order: 0,
        selector: vec![(key.to_owned(), value.to_owned())],
        tolerations: kind.toleration.map(default_toleration).into_iter().collect(),
        speed: Permille::ONE,
        supports: Ties::default(),
        traits: vec![],
        storage_classes: kind.storage_class.map(str::to_owned).into_iter().collect(),
        runtime_class: None,
        thresholds: OwnThresholds::default(),
        probes: vec![],
        source: SiteSource::Config,
    }
}

impl SiteDefinition {
    /// By which a fleet is sorted: the edge first, then the clouds by name.
    pub(crate) fn order(&self) -> (bool, &str) {
        (self.kind != SiteKind::Edge, &self.name)
    }

    /// The site of the virtual nodes of one remote cluster of Liqo, called by its id.
    pub fn of_cluster(id: &str) -> Self {
        let mut site = by_default(id, LIQO);
        site.selector.insert(0, (REMOTE_CLUSTER_ID.to_owned(), id.to_owned()));
        site.source = SiteSource::Liqo;
        site
    }

    /// The site `edge` as nobody has changed it: nodes with the label `node.role/edge: "true"`.
    pub fn edge() -> Self {
        by_default("edge", EDGE)
    }

    /// The site `cloud` as nobody has changed it: nodes with the label `node.role/cloud: "true"` and the taint
    /// `cloud=cloud:NoSchedule`.
    pub fn cloud() -> Self {
        by_default("cloud", CLOUD)
    }
}
