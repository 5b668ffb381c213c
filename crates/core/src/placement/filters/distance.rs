//! The pod's limit on the RTT of its site. A cloud with an unknown RTT is too far. The edge never is.

use crate::model::site::SiteKind;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn too_far(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let bound = case.workload.traits()?.distance()?;
    if found.site.kind() == SiteKind::Edge {
        return None;
    }
    let rtt = found.site.link.and_then(|link| link.rtt);
    if rtt.is_some_and(|rtt| rtt < bound) {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::DistanceLimit).with("rttMs", rtt);
    Some(refusal.with("boundMs", bound))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn rtt_below_the_pods_limit_passes() {
        let pod = |limit: &str| pod(json!({"traits": format!("SoftDistanceLimit={limit}")}));
        let unmeasured = with(fleet(0), "/sites/1/wan", json!(null));
        for (site, fleet, pod, expected) in [
            ("cloud", fleet(0), no_limit(), ""),
            ("cloud", fleet(0), pod("26ms"), ""),
            (
                "cloud",
                fleet(0),
                pod("25ms"),
                r#"distance_limit {"boundMs":25,"rttMs":25}"#,
            ),
            (
                "cloud",
                unmeasured,
                pod("26ms"),
                r#"distance_limit {"boundMs":26,"rttMs":null}"#,
            ),
            ("edge", fleet(0), pod("1ms"), ""),
        ] {
            assert_eq!(said(too_far, site, &fleet, &pod), expected, "{pod}");
        }
    }

    fn no_limit() -> Value {
        pod(json!({}))
    }
}
