//! Parses YAML and JSON text into values. All files are read this way.

use anyhow::bail;
use serde_json::Value;

use edgeward_decision::document::Faults;

/// Parses all documents of a text; empty ones are left out. `source` names the text in errors.
///
/// # Errors
/// The text is not YAML (JSON is YAML). The error has the line and column.
pub fn parse_all(text: &str, source: &str) -> anyhow::Result<Vec<Value>> {
    // The parser's budget protects against hostile input. These files belong to the user who runs the command.
    let options = serde_saphyr::options! { budget: None };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| anyhow::anyhow!("{source}: {error}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Parses the only document of a text; returns null if there is none.
///
/// # Errors
/// As for [`parse_all`], and if there are several documents.
pub fn parse_one(text: &str, source: &str) -> anyhow::Result<Value> {
    let mut documents = parse_all(text, source)?;
    if documents.len() > 1 {
        bail!("{source}: holds {} documents, expected one", documents.len());
    }
    Ok(documents.pop().unwrap_or_default())
}

/// Parses the only document of a configuration, with a one-line error without a source name. `off` is a string, as in
/// YAML 1.2; in manifests it is `false`, as in kubectl.
///
/// # Errors
/// As for [`parse_one`].
pub fn parse_value(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.without_snippet().to_string())?;
    match documents.len() {
        0 | 1 => Ok(documents.pop().unwrap_or_default()),
        several => Err(format!("holds {several} documents, expected one")),
    }
}

/// An error that lists all faults of a file.
pub fn faulty(source: &str, faults: &Faults) -> anyhow::Error {
    let list = faults.0.iter().map(|fault| format!("\n  {fault}")).collect::<String>();
    anyhow::anyhow!("{source}:{list}")
}
