//! The WAN to a cloud. A cloud without a measurement counts as unreachable. The edge has no WAN.

use crate::model::link::{LinkState, Thresholds};
use crate::model::liqo::ApiServerStatus;
use crate::model::site::SiteKind;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn bad_link(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (site, config) = (found.site, case.config);
    if site.kind() == SiteKind::Edge {
        return None;
    }
    let unreachable = Refusal::new(RefusalCode::Unreachable);
    if let Some(status) = site.api_server.filter(|status| *status != ApiServerStatus::Established) {
        return Some(unreachable.with("apiServerStatus", status.as_str()));
    }
    let Some(link) = site.link.filter(|link| link.state != LinkState::Unreachable) else {
        return Some(unreachable);
    };
    let age = case.now.moment.since(link.as_of);
    if age > config.telemetry_ttl {
        let refusal = Refusal::new(RefusalCode::Stale).with("ageMs", age);
        return Some(refusal.with("telemetryCacheTTLMs", config.telemetry_ttl));
    }
    if link.state == LinkState::Healthy && link.rtt.is_some() {
        return None;
    }
    let thresholds = Thresholds::from(config).with(site.definition.thresholds);
    let refusal = Refusal::new(RefusalCode::Degraded)
        .with("rttMs", link.rtt)
        .with("rttThresholdMs", thresholds.rtt)
        .with("lossPct", link.loss)
        .with("lossThresholdPct", thresholds.loss);
    Some(refusal)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn what_is_known_of_the_wan() {
        let with_wan = |wan: Value| with(fleet(0), "/sites/1/wan", wan);
        let degraded = |rtt: u32, loss: &str| {
            format!(r#"degraded {{"lossPct":{loss},"lossThresholdPct":2,"rttMs":{rtt},"rttThresholdMs":100}}"#)
        };
        let api_server = |status: &str| with(fleet(0), "/sites/1/apiServerStatus", json!(status));
        let without = with_wan(json!(null));
        for (site, fleet, expected) in [
            ("cloud", fleet(0), String::new()),
            ("cloud", without.clone(), "unreachable".to_owned()),
            ("edge", without, String::new()),
            (
                "cloud",
                with_wan(json!({"rttMs": 100, "lossPct": 0})),
                degraded(100, "0"),
            ),
            ("cloud", with_wan(json!({"rttMs": 25, "lossPct": 3})), degraded(25, "3")),
            // An unknown loss is not a good one, unless the health is stated.
            ("cloud", with_wan(json!({"rttMs": 5})), degraded(5, "null")),
            (
                "cloud",
                with_wan(json!({"rttMs": 5, "health": "healthy"})),
                String::new(),
            ),
            (
                "cloud",
                with_wan(json!({"rttMs": 25, "lossPct": 0, "ageSeconds": 61})),
                r#"stale {"ageMs":61000,"telemetryCacheTTLMs":60000}"#.to_owned(),
            ),
            ("cloud", api_server("Established"), String::new()),
            (
                "cloud",
                api_server("Error"),
                r#"unreachable {"apiServerStatus":"Error"}"#.to_owned(),
            ),
        ] {
            assert_eq!(
                said(bad_link, site, &fleet, &pod(json!({}))),
                expected,
                "{site} {fleet}"
            );
        }
    }
}
