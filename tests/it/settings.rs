//! The declared settings: their defaults, and the tables of `docs/reference/settings.md`.

use edgeward_core::config::{Assumed, Config, Kind, Setting};
use edgeward_harness::prelude::*;

use crate::program::is_recorded;

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[test]
fn the_declared_defaults_are_those_that_hold() {
    for setting in &Config::SETTINGS {
        let document = match setting.default {
            Assumed::Value(text) => json!({setting.name: yaml(text)}),
            Assumed::Words(_) => json!({}),
            Assumed::Required => panic!("{} cannot be left out", setting.name),
        };
        assert_eq!(Config::read(&document), Ok(Config::default()), "{document}");
        // Then sets each nested field by itself.
        let Kind::Object(fields) = &setting.kind else { continue };
        for field in *fields {
            if let (Assumed::Value(text), Assumed::Value(_)) = (&field.default, &setting.default) {
                let document = json!({setting.name: {field.name: yaml(text)}});
                assert_eq!(Config::read(&document), Ok(Config::default()), "{document}");
            }
        }
    }
    let with = |fields: &[Setting]| {
        let mut prometheus = json!({"url": "https://p", "queries": {"wanRttSeconds": "up"}});
        for field in fields {
            if let Assumed::Value(text) = field.default {
                prometheus[field.name] = yaml(text);
            }
        }
        Config::read(&json!({"prometheus": prometheus})).unwrap()
    };
    let Kind::Object(fields) = &setting("prometheus").kind else {
        panic!("no fields")
    };
    assert_eq!(with(fields), with(&[]));
}

fn setting(name: &str) -> &'static Setting {
    Config::SETTINGS.iter().find(|setting| setting.name == name).unwrap()
}

#[test]
fn every_setting_refuses_a_value_of_another_type() {
    for setting in &Config::SETTINGS {
        let document = json!({setting.name: {"nobody": [1]}});
        assert!(Config::read(&document).is_err(), "{document} is accepted");
    }
}

fn described(kind: &Kind) -> String {
    let decimal = |thousandths: &i64| (*thousandths as f64 / 1_000.0).to_string();
    match kind {
        Kind::Boolean => "boolean".into(),
        Kind::Integer(least, most) => format!("whole number, {least} to {most}"),
        Kind::Number(least, most) => format!("number, {} to {}", decimal(least), decimal(most)),
        Kind::Percent(least) => format!("number, {} to 100, at most one decimal", decimal(least)),
        Kind::Duration(least, most) => format!("duration, `{least}` to `{most}`"),
        Kind::Word([words @ .., last]) if !words.is_empty() => {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", words.join(", "))
        }
        Kind::Word(words) => format!("`{}`", words.join("`, `")),
        Kind::Text { what, .. } => (*what).into(),
        Kind::List(of) => format!("list, each {}", described(of)),
        Kind::Map(keys, _, to) => format!("map of {keys} to {}", described(to)),
        Kind::PerClass(to) => format!("map of class to {}", described(to)),
        Kind::Object(_) => "object".into(),
        Kind::Either(one, Kind::PerClass(to)) if described(one) == described(to) => {
            format!("{}, or map of class to such", described(one))
        }
        Kind::Either(Kind::Boolean, Kind::Word(words)) => {
            format!("{} or boolean", described(&Kind::Word(words)))
        }
        Kind::Either(one, other) => format!("{}, or {}", described(one), described(other)),
        Kind::Sites => "list".into(),
    }
}

fn row(place: &str, setting: &Setting) -> String {
    let default = match setting.default {
        Assumed::Value(yaml) => format!("`{yaml}`"),
        Assumed::Words(words) => words.into(),
        Assumed::Required => "*required*".into(),
    };
    format!(
        "| `{place}` | {} | {default} | {} |\n",
        described(&setting.kind),
        setting.meaning
    )
}

/// Table rows for the fields of a setting, each with its path. Fields of queries appear once.
fn rows(place: &str, kind: &Kind) -> String {
    match kind {
        Kind::Object(fields) => {
            let mut rows_of_fields = String::new();
            for (i, field) in fields.iter().enumerate() {
                let at = format!("{place}.{}", field.name);
                rows_of_fields += &row(&at, field);
                let is_last = i + 1 == fields.len();
                if place.ends_with(".queries") {
                    rows_of_fields += &if is_last {
                        rows(&format!("{place}.*"), &field.kind)
                    } else {
                        String::new()
                    };
                } else {
                    rows_of_fields += &rows(&at, &field.kind);
                }
            }
            rows_of_fields
        }
        Kind::PerClass(to) => rows(&format!("{place}.*"), to),
        _ => String::new(),
    }
}

/// The page with its tables regenerated. A comment names each table and marks its start.
fn remade(page: &str) -> String {
    let head = |what: &str| format!("| {what} | type | default | meaning |\n|---|---|---|---|\n");
    let settings: String = Config::SETTINGS
        .iter()
        .map(|setting| row(setting.name, setting))
        .collect();
    let fields = Config::SETTINGS.iter().filter(|setting| setting.name != "prometheus");
    let fields: String = fields.map(|setting| rows(setting.name, &setting.kind)).collect();
    let tables = [
        ("settings", head("setting") + &settings),
        ("fields", head("field") + &fields),
        (
            "prometheus",
            head("field") + &rows("prometheus", &setting("prometheus").kind),
        ),
    ];
    let mut page = page.to_owned();
    for (name, table) in tables {
        let mark = format!("<!-- made of crates/core/src/config/settings.rs: {name} -->\n");
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
fn the_page_is_made_of_the_declarations() {
    let path = workspace().join("docs/reference/settings.md");
    let made = remade(&std::fs::read_to_string(&path).unwrap());
    assert!(
        is_recorded(&path, &made),
        "docs/reference/settings.md lags; EDGEWARD_BLESS=1 writes it again"
    );
}
