//! What an operator writes down about a site, in the configuration and in the fleet file alike.

use std::collections::HashSet;

use crate::config::declaration::{self, Read as _};
use crate::document::Field;
use crate::model::constraints::{Toleration, is_label_key, is_label_value, is_subdomain};
use crate::model::link::OwnThresholds;
use crate::model::ties::{Tie, Ties};
use crate::units::Permille;

use crate::model::site::{SiteDefinition, SiteKind};

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
}

const EDGE: Kind = Kind {
    kind: SiteKind::Edge,
    selector: ("node.role/edge", "true"),
    toleration: None,
};
const CLOUD: Kind = Kind {
    kind: SiteKind::Cloud,
    selector: ("node.role/cloud", "true"),
    toleration: Some(("cloud", "cloud", "NoSchedule")),
};
const LIQO: Kind = Kind {
    kind: SiteKind::Cloud,
    selector: ("liqo.io/type", "virtual-node"),
    toleration: Some(("virtual-node.liqo.io/not-allowed", "true", "NoExecute")),
};

/// The fields that [`read`] takes.
pub(crate) const FIELDS: [&str; 9] = [
    "name",
    "kind",
    "nodeSelector",
    "tolerations",
    "runtimeClassName",
    "speedFactor",
    "supports",
    "rttThresholdMs",
    "lossThresholdPct",
];

/// Reads a site's definition from its [`FIELDS`].
pub(crate) fn read(
    [
        name,
        kind,
        selector,
        tolerations,
        runtime_class,
        speed,
        supports,
        rtt,
        loss,
    ]: [Field<'_>; 9],
) -> Option<SiteDefinition> {
    let name = label(&name.required(), "a site name", |name| {
        !name.is_empty() && is_label_value(name)
    });
    let stated = kind
        .required()
        .word(&[("edge", EDGE), ("cloud", CLOUD), ("liqo", LIQO)]);
    let mut site = by_default(name.unwrap_or_default(), stated.unwrap_or(EDGE));
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
    site.supports = ties(&supports);
    site.runtime_class = runtime_class.string().map(str::to_owned);
    if let Some(name) = site.runtime_class.as_ref().filter(|name| !is_subdomain(name)) {
        runtime_class.fault(format!(
            "{name:?} is not the name of a RuntimeClass: lower-case letters, digits, `-` and `.`"
        ));
    }
    site.thresholds.rtt.read(&rtt, &RTT_THRESHOLD);
    site.thresholds.loss.read(&loss, &LOSS_THRESHOLD);
    if stated.is_some() && site.kind == SiteKind::Edge {
        for field in [&rtt, &loss].into_iter().filter(|field| field.is_present()) {
            field.fault("is not for the edge site, which no WAN leads to".into());
        }
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

fn ties(field: &Field<'_>) -> Ties {
    field
        .list()
        .into_iter()
        .flatten()
        .filter_map(|field| field.word(&Tie::BY_WORD))
        .collect()
}

/// The definition that `kind` stands for when nothing else is said.
fn by_default(name: &str, kind: Kind) -> SiteDefinition {
    let (key, value) = kind.selector;
    SiteDefinition {
        name: name.to_owned(),
        kind: kind.kind,
        selector: vec![(key.to_owned(), value.to_owned())],
        tolerations: kind.toleration.map(default_toleration).into_iter().collect(),
        speed: Permille::ONE,
        supports: Ties::default(),
        runtime_class: None,
        thresholds: OwnThresholds::default(),
        probes: vec![],
    }
}

impl SiteDefinition {
    /// By which a fleet is sorted: the edge first, then the clouds by name.
    pub(crate) fn order(&self) -> (bool, &str) {
        (self.kind != SiteKind::Edge, &self.name)
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
