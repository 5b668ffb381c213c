//! The values of the chart, as values.yaml documents them.

use serde_json::Value;

/// A value that operators may set.
#[derive(Debug, Clone)]
pub(crate) struct Documented {
    /// `certificates.files.ca`.
    pub(crate) path: String,
    /// What holds without it.
    pub(crate) default: Value,
    /// What `# --` says in front of it.
    pub(crate) text: String,
}

/// values.yaml.
pub(crate) fn defaults() -> Value {
    serde_saphyr::from_str(include_str!("../../deploy/helm/edgeward/values.yaml")).expect("values.yaml is YAML")
}

/// Every value with `# --` in front of it, in their order.
pub(crate) fn documented() -> Vec<Documented> {
    let (text, defaults) = (include_str!("../../deploy/helm/edgeward/values.yaml"), defaults());
    let (mut values, mut parents, mut comment) = (Vec::new(), Vec::<(usize, &str)>::new(), None::<String>);
    for line in text.lines() {
        let (indent, words) = (line.len() - line.trim_start().len(), line.trim_start());
        if let Some(first) = words.strip_prefix("# -- ") {
            comment = Some(first.to_owned());
        } else if let Some(more) = words.strip_prefix("# ") {
            comment = comment.map(|comment| format!("{comment} {more}"));
        } else if let Some((key, _)) = words.split_once(':').filter(|_| !words.starts_with("- ")) {
            parents.retain(|(at, _)| *at < indent);
            parents.push((indent, key));
            if let Some(text) = comment.take() {
                let path: Vec<_> = parents.iter().map(|(_, key)| *key).collect();
                let default = defaults.pointer(&format!("/{}", path.join("/")));
                values.push(Documented {
                    path: path.join("."),
                    default: default.expect("values.yaml has it").clone(),
                    text,
                });
            }
        }
    }
    values
}

/// The paths of all values that are no maps, or are documented as a whole.
pub(crate) fn leaves(value: &Value, path: &str, documented: &[Documented]) -> Vec<String> {
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
