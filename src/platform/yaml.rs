//! YAML and JSON text to values: the door through which files enter the core.

use anyhow::bail;
use serde_json::Value;

use edgeward_core::document::Faults;

/// Every document of a text, empty ones left out. `source` names it in errors.
///
/// # Errors
/// The text is not YAML (JSON is); the error has line and column.
pub fn parse_all(text: &str, source: &str) -> anyhow::Result<Vec<Value>> {
    // The parser's budget defends against hostile authors; these are files of whoever runs the command.
    let options = serde_saphyr::options! { budget: None };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| anyhow::anyhow!("{source}: {error}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The only document of a text; null if there is none.
///
/// # Errors
/// As [`parse_all`]; or there are several documents.
pub fn parse_one(text: &str, source: &str) -> anyhow::Result<Value> {
    let mut documents = parse_all(text, source)?;
    if documents.len() > 1 {
        bail!("{source}: holds {} documents, expected one", documents.len());
    }
    Ok(documents.pop().unwrap_or_default())
}

/// The only document of a configuration, where whoever asks names the source: the error is one line. `off` is a word,
/// as YAML 1.2 has it; in manifests it is `false`, as for kubectl.
///
/// # Errors
/// As [`parse_one`].
pub fn parse_value(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { budget: None, strict_booleans: true };
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| error.without_snippet().to_string())?;
    match documents.len() {
        0 | 1 => Ok(documents.pop().unwrap_or_default()),
        several => Err(format!("holds {several} documents, expected one")),
    }
}

/// An error that lists every fault of a file.
pub fn faulty(source: &str, faults: &Faults) -> anyhow::Error {
    let list = faults.0.iter().map(|fault| format!("\n  {fault}")).collect::<String>();
    anyhow::anyhow!("{source}:{list}")
}
