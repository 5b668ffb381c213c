//! Traits that the pod requires of its site or node.

use serde_json::Value;

use crate::model::report::Source;
use crate::model::site::SiteKind;
use crate::model::snapshot::Site;
use crate::model::traits::Bound;
use crate::model::workload::Workload;
use crate::placement::filters::Case;
use crate::placement::filters::nodes::{self, Obstacle};
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::excerpt::excerpt;
use edgeward_kube::node::Node;
use edgeward_kube::units::Micros;

/// The most bytes of the missing traits that a refusal shows.
const SHOWN: usize = 100;

pub(super) fn missing_trait(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let traits = case.workload.traits()?;
    let site = found.site;
    if !traits.is_unreadable() && nodes::nearest_obstacle(case, found) != Some(Obstacle::Traits) {
        return None;
    }
    let missing = traits.missing(&site.definition, site.nodes()).join(", ");
    Some(Refusal::new(RefusalCode::MissingTrait).with("traits", excerpt(missing, SHOWN)))
}

/// Whether the site lacks a required trait that is measured there, or that is trusted to the report of its cluster.
pub(in crate::placement) fn is_lost(case: &Case<'_, '_>, site: &Site) -> bool {
    let traits = case.workload.traits();
    traits.is_some_and(|traits| traits.lost(&site.definition).next().is_some()) || unreported(case, site).is_some()
}

/// The first required trait that is measured at the site and that it does not have now.
pub(super) fn lost_trait(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let lost = case.workload.traits()?.lost(&found.site.definition).next()?;
    let number = |thousandths: i64| match thousandths % 1_000 {
        0 => Value::from(thousandths / 1_000),
        _ => Value::from(thousandths as f64 / 1_000.0),
    };
    let (name, bound) = match lost.bound {
        Bound::AtMost(most) => ("atMost", most),
        Bound::AtLeast(least) => ("atLeast", least),
    };
    let refusal = Refusal::new(RefusalCode::LostTrait).with("trait", &*lost.name);
    let refusal = refusal.with("value", lost.value.map(number));
    Some(refusal.with(name, number(bound)))
}

pub(super) fn unreported_trait(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let missing = unreported(case, found.site)?;
    let refusal = Refusal::new(RefusalCode::LostTrait).with("trait", missing);
    Some(refusal.with("source", "report"))
}

/// The first required trait that the site's definition trusts to the report of its cluster, and that not all nodes there have.
fn unreported<'c>(case: &Case<'c, '_>, site: &Site) -> Option<&'c str> {
    let (source, report) = (site.definition.report.as_ref()?, site.report.as_ref()?);
    if report.source == Source::Karmada {
        return None;
    }
    let has = |traits: &[String], name: &str| traits.iter().any(|known| known == name);
    let mut required = case.workload.traits()?.names();
    required.find(|name| has(&source.trust_traits, name) && !has(&report.traits, name))
}

/// How many of the pod's optional traits the site lacks.
pub(super) fn missing_optional(workload: &Workload<'_>, site: &Site, fitting: &[&Node]) -> usize {
    let rtt = match site.kind() {
        SiteKind::Edge => Some(Micros(0)),
        SiteKind::Cloud => site.link.and_then(|link| link.rtt),
    };
    let traits = workload.traits();
    traits.map_or(0, |traits| {
        traits.missing_optional(&site.definition, fitting.iter().copied(), rtt)
    })
}
