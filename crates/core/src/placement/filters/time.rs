//! The deadline and the latency target. An unknown time misses neither: the WAN filter has refused that site already.

use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use crate::units::Micros;

pub(super) fn deadline_missed(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (deadline, eta) = (case.slo().deadline?, found.estimate.eta()?);
    let gated_for = case.gated_for();
    if gated_for + eta <= deadline {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::Deadline)
        .with("etaMs", eta)
        .with("boundMs", deadline);
    match gated_for {
        Micros(0) => Some(refusal),
        gated_for => Some(refusal.with("gatedMs", gated_for)),
    }
}

pub(super) fn latency_target_missed(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (target, latency) = (case.slo().latency_target?, found.estimate.latency()?);
    if latency <= target {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::LatencyTarget).with("latencyMs", latency);
    Some(refusal.with("boundMs", target))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn time_above_its_bound_is_late() {
        // By the model 270 ms of processing, and 50 ms over the WAN.
        let unmeasured: Value = with(fleet(0), "/sites/1/wan", json!(null));
        for (site, fleet, slo, expected) in [
            ("edge", fleet(0), json!({"deadlineMs": "270"}), ""),
            (
                "edge",
                fleet(0),
                json!({"deadlineMs": "269"}),
                r#"deadline {"boundMs":269,"etaMs":270}"#,
            ),
            ("cloud", fleet(0), json!({"deadlineMs": "320"}), ""),
            (
                "cloud",
                fleet(0),
                json!({"deadlineMs": "319"}),
                r#"deadline {"boundMs":319,"etaMs":320}"#,
            ),
            ("cloud", fleet(0), json!({}), ""),
            ("cloud", unmeasured, json!({"deadlineMs": "1"}), ""),
        ] {
            assert_eq!(
                said(deadline_missed, site, &fleet, &pod(slo.clone())),
                expected,
                "{site} {slo}"
            );
        }
        for (target, expected) in [
            ("320", ""),
            ("319", r#"latency_target {"boundMs":319,"latencyMs":320}"#),
        ] {
            let pod = pod(json!({"latencyTargetMs": target}));
            assert_eq!(
                said(latency_target_missed, "cloud", &fleet(0), &pod),
                expected,
                "{target}"
            );
        }
    }
}
