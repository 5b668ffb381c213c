//! `edgeward config-schema`: the configuration as a JSON schema.

use edgeward_decision::config::Config;
use serde_json::{Value, json};

use super::print;

pub(super) fn run() -> anyhow::Result<()> {
    let mut schema = Config::schema();
    adapt(&mut schema);
    schema["title"] = json!("Configuration of edgeward");
    print(&format!("{schema:#}\n"))
}

/// Removes what only edgeward and the API server use, and the links of Markdown.
fn adapt(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.starts_with("x-") && !["format", "writeOnly", "title"].contains(&&**name));
            fields.values_mut().for_each(adapt);
            if let Some(Value::String(meaning)) = fields.get_mut("description") {
                *meaning = without_links(&meaning.replace('\n', " "));
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(adapt),
        _ => {}
    }
}

/// Replaces each Markdown link `[text](target)` by its text.
fn without_links(markdown: &str) -> String {
    let mut pieces = markdown.split("](");
    let first = pieces.next().unwrap_or_default().to_owned();
    let text = pieces.fold(first, |text, piece| {
        text + piece.split_once(')').map_or(piece, |(_, rest)| rest)
    });
    text.replacen('[', "", markdown.matches("](").count())
}
