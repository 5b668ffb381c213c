//! The parser of SLO annotations, compared with the table that also tests the ValidatingAdmissionPolicy.

use std::collections::{BTreeMap, BTreeSet};

use edgeward_decision::keys::Keys;
use edgeward_decision::model::slo::parse;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    managed: Option<String>,
    says: BTreeMap<String, String>,
    #[serde(default)]
    faults: Vec<String>,
    #[serde(default)]
    unknown: BTreeSet<String>,
}

#[test]
fn slo_parser_matches_fault_table() {
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("../golden/slo/table.yaml")).unwrap();
    assert!(rows.len() > 70, "only {} rows", rows.len());
    let keys = Keys::new("example.io");
    for row in rows {
        let annotations: Vec<_> = row
            .says
            .iter()
            .map(|(name, value)| (format!("{}{name}", keys.slo_prefix), value.as_str()))
            .collect();
        let annotations = annotations.iter().map(|(key, value)| (key.as_str(), *value));
        let (_, intent) = parse(annotations, row.managed.as_deref(), &keys);
        let (faults, unknown) = intent.map_or_else(Default::default, |intent| (intent.faults, intent.unknown_keys));
        let name = |key: &str| key.rsplit('/').next().unwrap_or(key).to_owned();
        let faults: Vec<_> = faults.iter().map(|fault| name(&fault.key)).collect();
        let unknown: BTreeSet<_> = unknown.iter().map(|key| name(key)).collect();
        assert_eq!((&faults, &unknown), (&row.faults, &row.unknown), "{row:?}");
    }
}
