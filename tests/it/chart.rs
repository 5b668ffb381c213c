//! The Helm chart matches the program, its own documentation and the manifests.

use edgeward_harness::chart::{Documented, defaults, documented, folder};
use edgeward_harness::prelude::*;

use crate::program::{edgeward, is_recorded};

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(&folder()).join(name)).unwrap()
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&file(name)).unwrap()
}

#[test]
fn every_value_is_documented() {
    let documented = documented().unwrap();
    let known: BTreeSet<_> = documented.iter().map(|value| value.path.clone()).collect();
    assert_eq!(
        BTreeSet::from_iter(leaves(&defaults().unwrap(), "", &documented)),
        known
    );

    let mut page = String::new();
    for value in &documented {
        let default = serde_json::to_string(&value.default).unwrap();
        // A bar ends a table cell, so it is escaped.
        let cells = [&*value.path, &*value.text, &*default].map(|cell| cell.replace('|', "\\|"));
        page += &format!("| `{}` | {} | `{}` |\n", cells[0], cells[1], cells[2]);
    }
    let readme = file("README.md");
    let (before, rest) = readme.split_once("|---|---|---|\n").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let expected = format!("{before}|---|---|---|\n{page}\n{after}");
    assert!(
        is_recorded("deploy/helm/edgeward/README.md".as_ref(), &expected),
        "deploy/helm/edgeward/README.md lags values.yaml; EDGEWARD_BLESS=1 writes it again"
    );
}

/// At each level, the schema of a map has exactly the keys of the defaults. The inside of values that are documented as a whole
/// is Kubernetes' own.
#[test]
fn values_schema_has_exactly_default_keys() {
    let schema: Value = serde_json::from_str(&file("values.schema.json")).unwrap();
    let documented = documented().unwrap();
    let mut maps = vec![(String::new(), defaults().unwrap(), schema.clone())];
    while let Some((path, values, schema)) = maps.pop() {
        let properties = schema["properties"].as_object().unwrap();
        let mut known: BTreeSet<_> = properties.keys().map(String::as_str).collect();
        // Helm's own key, shared with a parent chart.
        assert!(!path.is_empty() || known.remove("global"));
        let values = values.as_object().unwrap();
        assert_eq!(known, values.keys().map(String::as_str).collect(), "{path}");
        assert_eq!(schema["additionalProperties"], false, "{path}");
        for (key, value) in values {
            let path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            if value.is_object() && !documented.iter().any(|value| value.path == path) {
                maps.push((path, value.clone(), properties[key].clone()));
            }
        }
    }
}

/// The schema of `config` is the output of `edgeward config-schema`.
#[test]
fn chart_config_schema_matches_program() {
    let output = edgeward().arg("config-schema").output().unwrap();
    let mut settings: Value = serde_json::from_slice(&output.stdout).unwrap();
    // These keys describe the whole document; the chart's schema has its own.
    for word in ["$schema", "title"] {
        settings.as_object_mut().unwrap().remove(word).unwrap();
    }
    let schema = file("values.schema.json");
    let (before, rest) = schema.split_once("    \"config\": ").unwrap();
    let (_, after) = rest.split_once(",\n    \"certificates\": ").unwrap();
    let config = format!("{settings:#}").replace('\n', "\n    ");
    let expected = format!("{before}    \"config\": {config},\n    \"certificates\": {after}");
    assert!(
        is_recorded(&Path::new(&folder()).join("values.schema.json"), &expected),
        "the schema of the chart's values lags the configuration's; EDGEWARD_BLESS=1 writes it again"
    );
}

#[test]
fn chart_states_crate_version_and_crds() {
    let chart = yaml("Chart.yaml");
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"));
    }
    let listed: Vec<Value> =
        serde_saphyr::from_str(chart["annotations"]["artifacthub.io/crds"].as_str().unwrap()).unwrap();
    let definitions = ["sites", "slopolicies", "performanceprofiles", "clusterreports", "peers"]
        .map(|name| yaml(&format!("files/crds/{name}.yaml")));
    assert_eq!(listed.len(), definitions.len());
    for (listed, definition) in listed.iter().zip(&definitions) {
        assert_eq!(listed["kind"], definition["spec"]["names"]["kind"]);
        assert_eq!(listed["name"], definition["metadata"]["name"]);
        assert_eq!(listed["version"], definition["spec"]["versions"][0]["name"]);
    }
}

/// No manifest exists twice. The chart's templates read links to kustomize's files.
#[test]
fn chart_files_link_to_kustomize_manifests() {
    let root = workspace().canonicalize().unwrap();
    let mut folders = BTreeSet::new();
    for entry in fs::read_dir(Path::new(&folder()).join("files")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_symlink() {
            let leads_to = entry.path().canonicalize().unwrap();
            folders.insert(leads_to.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
        } else {
            assert!(["uninstall-rules.yaml", "test-rules.yaml"].contains(&&*name), "{name}");
        }
    }
    let expected = [
        "certs/cert-manager",
        "certs/self-managed",
        "deploy/base",
        "deploy/crds",
        "deploy/data",
        "deploy/groups",
        "deploy/karmada",
        "deploy/liqo",
        "deploy/monitoring",
        "deploy/moves",
        "deploy/peers",
        "deploy/reports",
        "webhook/base",
        "webhook/strict-sites",
    ];
    assert_eq!(folders, expected.map(str::to_owned).into());
}

/// Paths of all values that are not maps or are documented as a whole.
fn leaves(value: &Value, path: &str, documented: &[Documented]) -> Vec<String> {
    match value {
        Value::Object(fields) if !documented.iter().any(|value| value.path == path) => {
            let prefix = if path.is_empty() {
                String::new()
            } else {
                format!("{path}.")
            };
            let fields = fields.iter();
            fields
                .flat_map(|(key, value)| leaves(value, &format!("{prefix}{key}"), documented))
                .collect()
        }
        _ => vec![path.to_owned()],
    }
}
