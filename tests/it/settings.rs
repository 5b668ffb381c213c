//! The settings: their defaults, and the tables of `docs/reference/settings.md`.

use edgeward_decision::config::Config;
use edgeward_decision::document::schema::allowed;
use edgeward_decision::model::slo::Class;
use edgeward_harness::prelude::*;

use crate::program::is_recorded;

fn settings() -> Value {
    Config::schema()["properties"].take()
}

#[test]
fn schema_defaults_match_config_defaults() {
    for (name, setting) in settings().as_object().unwrap() {
        let document = json!({name: setting["default"]});
        assert_eq!(Config::read(&document), Ok(Config::default()), "{document}");
        for (field, schema) in setting["properties"].as_object().into_iter().flatten() {
            // Then sets each nested field by itself.
            let document = json!({name: {field: schema["default"]}});
            if !["prometheus", "ocm", "karmada", "report", "peers"].contains(&&**name) {
                assert_eq!(Config::read(&document), Ok(Config::default()), "{document}");
            }
        }
    }
}

#[test]
fn every_setting_refuses_a_value_of_another_type() {
    for name in settings().as_object().unwrap().keys() {
        let document = json!({name: {"nobody": [1]}});
        assert!(Config::read(&document).is_err(), "{document} is accepted");
    }
}

/// Description of a valid value in the table.
fn described(schema: &Value) -> String {
    if let (Some(alternatives), None) = (schema["anyOf"].as_array(), schema["title"].as_str()) {
        return alternatives.iter().map(described).collect::<Vec<_>>().join(", or ");
    }
    let words = schema["enum"].as_array().into_iter().flatten();
    let words: Vec<_> = words.map(|word| format!("`{}`", word.as_str().unwrap())).collect();
    let (of_class, others) = (&schema["properties"][Class::WORDS[0]], &schema["additionalProperties"]);
    match &words[..] {
        _ if schema["items"]["type"] == "object" => "list of maps".to_owned(),
        _ if schema["items"].is_object() => format!("list, each {}", described(&schema["items"])),
        _ if of_class.is_object() => format!("map from class to {}", described(of_class)),
        _ if others.is_object() => {
            let (keys, values) = (described(&schema["propertyNames"]), described(others));
            format!("map from {keys} to {values}")
        }
        [words @ .., last] if !words.is_empty() => format!("{} or {last}", words.join(", ")),
        _ => {
            let allowed = allowed(schema).replace(", such as 60s or 1m30s", "");
            let articles = ["a ", "an ", "the "];
            let bare = articles.iter().find_map(|article| allowed.strip_prefix(article));
            bare.unwrap_or(&allowed).to_owned()
        }
    }
}

fn row(place: &str, schema: &Value, is_required: bool) -> String {
    let default = match (&schema["default"], &schema["x-default"]) {
        _ if is_required => "*required*".to_owned(),
        (_, Value::String(words)) => words.clone(),
        (Value::Null, _) => "none".to_owned(),
        (Value::String(text), _) => format!("`{text}`"),
        (value, _) => format!("`{value}`"),
    };
    let meaning = schema["description"].as_str().unwrap().replace('\n', " ");
    format!("| `{place}` | {} | {default} | {meaning} |\n", described(schema))
}

/// The rows of the fields of a setting, each with its path. Fields of classes have one row.
fn rows(place: &str, schema: &Value) -> String {
    let of_class = &schema["properties"][Class::WORDS[0]];
    if of_class.is_object() {
        return rows(&format!("{place}.*"), of_class);
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let fields = fields.map(|(name, field)| {
        let at = format!("{place}.{name}");
        row(&at, field, required.contains(&json!(name))) + &rows(&at, field)
    });
    fields.collect()
}

/// The page with its tables regenerated. A comment names each table and marks its start.
fn remade(page: &str) -> String {
    let head = |what: &str| format!("| {what} | type | default | meaning |\n|---|---|---|---|\n");
    let all = settings();
    let each = || all.as_object().unwrap().iter();
    let of_settings: String = each().map(|(name, setting)| row(name, setting, false)).collect();
    let fields = each().filter(|(name, _)| *name != "prometheus");
    let of_fields: String = fields.map(|(name, setting)| rows(name, setting)).collect();
    let tables = [
        ("settings", head("setting") + &of_settings),
        ("fields", head("field") + &of_fields),
        ("prometheus", head("field") + &rows("prometheus", &all["prometheus"])),
    ];
    let mut page = page.to_owned();
    for (name, table) in tables {
        let mark = format!("<!-- made of crates/decision/src/config.rs: {name} -->\n");
        let (before, after) = page.split_once(&mark).unwrap_or_else(|| panic!("no {mark}"));
        let rest = after
            .lines()
            .skip_while(|line| line.starts_with('|'))
            .collect::<Vec<_>>()
            .join("\n");
        page = format!("{before}{mark}{table}{rest}\n");
    }
    page
}

#[test]
fn settings_page_matches_schema() {
    let path = workspace().join("docs/reference/settings.md");
    let made = remade(&std::fs::read_to_string(&path).unwrap());
    assert!(
        is_recorded(&path, &made),
        "docs/reference/settings.md lags; EDGEWARD_BLESS=1 writes it again"
    );
}
