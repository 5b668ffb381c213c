//! Traits that the pod requires of its site or node.

use crate::excerpt::excerpt;
use crate::model::node::Node;
use crate::model::site::SiteKind;
use crate::model::snapshot::Site;
use crate::model::workload::Workload;
use crate::placement::filters::Case;
use crate::placement::filters::nodes::{self, Obstacle};
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use crate::units::Micros;

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn required_traits_are_on_a_node_or_the_site() {
        let of_node = |node: usize| -> Value {
            let label = format!("/nodes/{node}/labels/traits.edgeward.io~1SecureRuntime");
            with(fleet(0), &label, json!("true"))
        };
        let young = with(of_node(1), "/nodes/1/young", json!(true));
        let on_site = with(fleet(0), "/sites/1/traits", json!(["SecureRuntime"]));
        let missing = r#"missing_trait {"traits":"SecureRuntime"}"#;
        for (site, fleet, traits, expected) in [
            ("cloud", fleet(0), "SecureRuntime", missing),
            ("cloud", fleet(0), "SecureRuntime?", ""),
            ("cloud", of_node(1), "SecureRuntime", missing),
            ("cloud", young, "SecureRuntime", missing),
            ("cloud", on_site, "SecureRuntime", ""),
            ("edge", of_node(0), "SecureRuntime", ""),
            ("edge", of_node(1), "SecureRuntime", missing),
        ] {
            let pod = pod(json!({"traits": traits}));
            assert_eq!(
                said(missing_trait, site, &fleet, &pod),
                expected,
                "{site} {traits} {fleet}"
            );
        }
    }
}
