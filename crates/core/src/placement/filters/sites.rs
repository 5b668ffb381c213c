//! The sites at which the pod may run, by its own annotation or by its policy.

use crate::excerpt::excerpt;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

/// How many bytes of the pod's sites a refusal shows.
const SHOWN: usize = 100;

pub(super) fn not_in_sites(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let sites = case.workload.sites()?;
    let definition = &found.site.definition;
    // Where Liqo tells clusters apart, a site of all virtual nodes could be any of them.
    let is_of_any = case.room.snapshot.offloadings.is_some() && definition.is_of_all_virtual_nodes();
    if !is_of_any && sites.allows(definition) {
        return None;
    }
    Some(Refusal::new(RefusalCode::NotInSites).with("sites", excerpt(sites, SHOWN)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn sites_by_name_and_label() {
        let fleet: Value = with(fleet(0), "/sites/1/labels", json!({"region": "eu"}));
        for (sites, edge, cloud) in [
            ("edge", "", r#"not_in_sites {"sites":"edge"}"#),
            ("cloud", r#"not_in_sites {"sites":"cloud"}"#, ""),
            ("region=eu", r#"not_in_sites {"sites":"region in (eu)"}"#, ""),
            ("region!=eu", "", r#"not_in_sites {"sites":"region notin (eu)"}"#),
            ("edge,cloud", "", ""),
        ] {
            let pod = pod(json!({"sites": sites}));
            assert_eq!(said(not_in_sites, "edge", &fleet, &pod), edge, "{sites}");
            assert_eq!(said(not_in_sites, "cloud", &fleet, &pod), cloud, "{sites}");
        }
        assert_eq!(said(not_in_sites, "cloud", &fleet, &pod(json!({}))), "");
    }
}
