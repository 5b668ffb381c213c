//! What an operator writes down about a site, in the configuration and in the fleet file alike.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::document::Field;
use crate::model::constraints::{Toleration, is_label_key, is_label_value, is_subdomain};
use crate::model::link::OwnThresholds;
use crate::model::ties::{Tie, Ties};
use crate::units::{Micros, Permille};

use crate::model::site::{SiteDefinition, SiteKind};

/// The RTT thresholds that can be set, in microseconds.
pub(crate) const RTT_THRESHOLD: RangeInclusive<i64> = 1..=60_000_000;

/// The lowest loss threshold that can be set.
pub(crate) const LOSS_THRESHOLD: Permille = Permille(1);

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
    let site_name = label(&name.required(), "a site name", |name| {
        !name.is_empty() && is_label_value(name)
    });
    let defaults = kind
        .required()
        .word(&[("edge", EDGE), ("cloud", CLOUD), ("liqo", LIQO)]);
    let selector = match selector.entries() {
        Some(pairs) if pairs.is_empty() => {
            selector.fault("is empty, which every node would carry".into());
            None
        }
        Some(pairs) => Some(
            pairs
                .iter()
                .filter_map(|(key, value)| selector_pair(key, value))
                .collect(),
        ),
        None => defaults.map(|d| vec![(d.selector.0.to_owned(), d.selector.1.to_owned())]),
    };
    let tolerations = match tolerations.list() {
        Some(list) => list.iter().filter_map(toleration).collect(),
        None => defaults
            .and_then(|d| d.toleration)
            .map(default_toleration)
            .into_iter()
            .collect(),
    };
    let speed = speed
        .thousandths(1..=1_000_000)
        .map_or(Permille(1_000), |factor| Permille(factor as u32));
    let supports = ties(&supports);
    let runtime_class = runtime_class.string().filter(|name| {
        let is_name = is_subdomain(name);
        if !is_name {
            runtime_class.fault(format!(
                "{name:?} is not the name of a RuntimeClass: lower-case letters, digits, `-` and `.`"
            ));
        }
        is_name
    });
    let thresholds = OwnThresholds {
        rtt: rtt.thousandths(RTT_THRESHOLD).map(|us| Micros(us as u64)),
        loss: loss.percent(LOSS_THRESHOLD),
    };
    if defaults.is_some_and(|kind| kind.kind == SiteKind::Edge) {
        for field in [&rtt, &loss].into_iter().filter(|field| field.is_present()) {
            field.fault("is not for the edge site, which no WAN leads to".into());
        }
    }
    Some(SiteDefinition {
        name: site_name?.to_owned(),
        kind: defaults?.kind,
        selector: selector?,
        tolerations,
        speed,
        supports,
        runtime_class: runtime_class.map(str::to_owned),
        thresholds,
        probes: vec![],
    })
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
    let words = Tie::ALL.map(|tie| (tie.as_str(), tie));
    field
        .list()
        .into_iter()
        .flatten()
        .filter_map(|field| field.word(&words))
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
    pub(crate) fn rank(&self) -> (bool, &str) {
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
