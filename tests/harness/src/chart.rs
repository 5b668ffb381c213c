//! The chart's values, as values.yaml documents them.

use crate::prelude::*;

pub fn folder() -> String {
    workspace().join("deploy/helm/edgeward").display().to_string()
}

#[derive(Debug, Clone)]
pub struct Documented {
    /// A path such as `certificates.files.ca`.
    pub path: String,
    pub default: Value,
    /// The text of the `# --` comment above the value.
    pub text: String,
}

pub fn defaults() -> Result<Value> {
    Ok(serde_saphyr::from_str(&text()?)?)
}

fn text() -> Result<String> {
    Ok(fs::read_to_string(Path::new(&folder()).join("values.yaml"))?)
}

/// Every value with a `# --` comment above it, in order.
pub fn documented() -> Result<Vec<Documented>> {
    let (text, defaults) = (text()?, defaults()?);
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
                    default: default.context("values.yaml has it")?.clone(),
                    text,
                });
            }
        }
    }
    Ok(values)
}
