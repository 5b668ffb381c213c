//! The settings' declarations say what is accepted, and the page and the schema say what is declared.

use edgeward_core::config::{Assumed, Config, Kind, Setting};
use edgeward_core::model::slo::Class;
use edgeward_harness::checkout::workspace;
use serde_json::{Value, json};

use crate::program::{edgeward, is_recorded};

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

/// What is wrong with values: faults of another sort, such as a query that nobody could wait for, are left out.
fn faults(document: &Value) -> Vec<String> {
    let faults = Config::read(document).map_or_else(|faults| faults.0, |_| vec![]);
    let faults = faults.iter().map(ToString::to_string);
    faults.filter(|fault| fault.contains(" is not ")).collect()
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
        // Those of the fields, one by one.
        let Kind::Object(fields) = &setting.kind else { continue };
        for field in *fields {
            if let (Assumed::Value(text), Assumed::Value(_)) = (&field.default, &setting.default) {
                let document = json!({setting.name: {field.name: yaml(text)}});
                assert_eq!(Config::read(&document), Ok(Config::default()), "{document}");
            }
        }
    }
    let query = json!({"query": "up"});
    let with = |mut query: Value, fields: &[Setting]| {
        for field in fields {
            if let Assumed::Value(text) = field.default {
                query[field.name] = yaml(text);
            }
        }
        Config::read(&json!({"prometheus": {"url": "https://p", "queries": {"wanRttSeconds": query}}})).unwrap()
    };
    let Kind::Object(
        [
            ..,
            Setting {
                kind: Kind::Object(queries),
                ..
            },
        ],
    ) = &setting("prometheus").kind
    else {
        panic!("no queries")
    };
    let Kind::Object(fields) = &queries[0].kind else {
        panic!("no fields")
    };
    assert_eq!(with(query.clone(), fields), with(query, &[]));
}

fn setting(name: &str) -> &'static Setting {
    Config::SETTINGS.iter().find(|setting| setting.name == name).unwrap()
}

/// Values that are accepted, and values that are not: those beside the bounds, and of other types.
fn samples(kind: &Kind) -> [Vec<Value>; 2] {
    let decimal = |thousandths: i64| json!(thousandths as f64 / 1_000.0);
    let each = |kind: &Kind, wrap: &dyn Fn(Value) -> Value| {
        samples(kind).map(|values| values.into_iter().map(wrap).collect::<Vec<_>>())
    };
    match kind {
        Kind::Boolean => [vec![json!(true), json!(false)], vec![json!("true"), json!(1)]],
        Kind::Integer(least, most) => [
            vec![json!(least), json!(most)],
            vec![json!(least - 1), json!(most + 1), json!(least.to_string()), json!(1.5)],
        ],
        Kind::Number(least, most) => [
            vec![decimal(*least), decimal(*most)],
            vec![decimal(least - 1), decimal(most + 1), json!("1")],
        ],
        Kind::Percent(least) => [
            vec![decimal(*least), json!(100)],
            vec![decimal(least - 100), json!(100.1), json!(2.25), json!("2%")],
        ],
        Kind::Duration(least, most) | Kind::LongDuration(least, most, _) => {
            let beside = |text: &str, ms: i64| format!("{}ms", milliseconds(text) + ms);
            let mut refused = vec![json!(beside(most, 1)), json!("soon"), json!(30)];
            if milliseconds(least) > 0 {
                refused.push(json!(beside(least, -1)));
            }
            [vec![json!(least), json!(most)], refused]
        }
        Kind::Word(words) => [
            words.iter().map(|word| json!(word)).collect(),
            vec![json!("anything else"), json!(1)],
        ],
        Kind::Text { what, .. } => [vec![example(what)], vec![json!(5), json!("")]],
        Kind::List(of) => {
            let [accepted, mut refused] = each(of, &|value| json!([value]));
            refused.push(json!({}));
            [[accepted, vec![json!([])]].concat(), refused]
        }
        Kind::Map(_, to) => each(to, &|value| json!({"team-a": value})),
        Kind::PerClass(to) => {
            let [mut accepted, mut refused] = [vec![], vec![]];
            for class in Class::ALL {
                let [more, others] = each(to, &|value| json!({class.as_str(): value}));
                accepted.extend(more);
                refused.extend(others);
            }
            refused.push(json!({"quick": {}}));
            [accepted, refused]
        }
        Kind::Object(fields) => {
            let required = fields.iter().filter(|field| matches!(field.default, Assumed::Required));
            let whole: serde_json::Map<_, _> = required
                .map(|field| (field.name.to_owned(), samples(&field.kind)[0][0].clone()))
                .collect();
            let with = |name: &str, value: Value| {
                let mut object = whole.clone();
                object.insert(name.to_owned(), value);
                Value::Object(object)
            };
            let [mut accepted, mut refused] = [vec![], vec![with("nobody", json!(1))]];
            for field in *fields {
                let [more, others] = each(&field.kind, &|value| with(field.name, value));
                accepted.extend(more);
                refused.extend(others);
            }
            [accepted, refused]
        }
        Kind::Either(one, other) => {
            let [[mut accepted, refused], [more, others]] = [samples(one), samples(other)];
            accepted.extend(more);
            let refused = refused.into_iter().filter(|value| !value.is_object());
            [
                accepted,
                refused.chain(others.into_iter().filter(Value::is_object)).collect(),
            ]
        }
        // Its fields are compared in `custom_resources`.
        Kind::Sites => [
            vec![json!([{"name": "here", "kind": "edge"}])],
            vec![json!([{"kind": "edge", "nobody": 1}])],
        ],
    }
}

fn milliseconds(duration: &str) -> i64 {
    let unit = duration.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: i64 = duration.strip_suffix(unit).unwrap().parse().unwrap();
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
    number * units.iter().find(|(name, _)| *name == unit).unwrap().1
}

fn example(what: &str) -> Value {
    let examples = [
        ("DNS domain", "acme.dev"),
        ("name of a namespace", "team-a"),
        ("name of a RuntimeClass", "liqo"),
        ("path", "/etc/edgeward/token"),
        ("PromQL", "up"),
        ("`http://` or", "https://prometheus.monitoring.svc:9090"),
    ];
    let found = examples.iter().find(|(start, _)| what.starts_with(start));
    json!(found.unwrap_or_else(|| panic!("no example of {what}")).1)
}

#[test]
fn each_bound_is_where_it_is_declared() {
    for setting in &Config::SETTINGS {
        let [accepted, refused] = samples(&setting.kind);
        for value in accepted {
            let document = json!({setting.name: value});
            assert_eq!(faults(&document), [""; 0], "{document}");
        }
        for value in refused {
            let document = json!({setting.name: value});
            assert!(!faults(&document).is_empty(), "{document} is accepted");
        }
    }
}

#[test]
fn objects_have_the_declared_fields() {
    fn check(kind: &Kind, wrap: &dyn Fn(Value) -> Value) {
        match kind {
            Kind::Object(fields) => {
                let document = wrap(json!({"nobody": 1}));
                let names: Vec<_> = fields.iter().map(|field| field.name).collect();
                let expected = format!(".nobody: is not a field here; there are {}", names.join(", "));
                let found = faults(&document);
                assert!(found.iter().any(|fault| fault.ends_with(&expected)), "{found:?}");
                for field in *fields {
                    check(&field.kind, &|value| wrap(json!({field.name: value})));
                }
            }
            Kind::PerClass(to) => check(to, &|value| wrap(json!({"batch": value}))),
            Kind::Either(_, other) => check(other, wrap),
            _ => {}
        }
    }
    for setting in &Config::SETTINGS {
        check(&setting.kind, &|value| json!({setting.name: value}));
    }
}

/// Whether a document is as the schema has it; the parts of JSON schemas that ours uses, but patterns.
fn is_valid(document: &Value, schema: &Value) -> bool {
    let listed = |name: &str| schema[name].as_array().into_iter().flatten();
    let is_type = match schema["type"].as_str() {
        None => true,
        Some("object") => document.is_object(),
        Some("array") => document.is_array(),
        Some("string") => document.is_string(),
        Some("boolean") => document.is_boolean(),
        Some("integer") => document.is_i64(),
        Some("number") => document.is_number(),
        Some(other) => panic!("a type {other}"),
    };
    let within = |name: &str, fits: fn(&f64, &f64) -> bool| {
        let bound = schema[name].as_f64();
        bound
            .zip(document.as_f64())
            .is_none_or(|(bound, number)| fits(&number, &bound))
    };
    let fields = document.as_object().into_iter().flatten().all(|(name, value)| {
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Null | Value::Bool(true)) => true,
            (Value::Null, Value::Bool(false)) => false,
            (Value::Null, others) => is_valid(value, others),
            (own, _) => is_valid(value, own),
        }
    });
    let elements = document.as_array().into_iter().flatten();
    is_type
        && within("minimum", f64::ge)
        && within("maximum", f64::le)
        && (schema["enum"].is_null() || listed("enum").any(|word| word == document))
        && schema.get("const").is_none_or(|only| only == document)
        && (schema["anyOf"].is_null() || listed("anyOf").any(|schema| is_valid(document, schema)))
        && listed("required").all(|name| document.get(name.as_str().unwrap()).is_some())
        && fields
        && (schema["items"].is_null() || elements.clone().all(|element| is_valid(element, &schema["items"])))
}

#[test]
fn the_schema_accepts_what_is_accepted() {
    let output = edgeward().arg("config-schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    for setting in &Config::SETTINGS {
        let [accepted, _] = samples(&setting.kind);
        for value in accepted {
            let document = json!({setting.name: value});
            assert!(is_valid(&document, &schema), "{document}");
        }
    }
    let site =
        json!({"name": "c", "kind": "cloud", "probes": ["icmp://c"], "supports": ["hostPort"], "speedFactor": 1.5});
    for document in [
        yaml(include_str!("../../deploy/base/config.yaml")),
        json!({"sites": [site]}),
    ] {
        assert!(is_valid(&document, &schema), "{document}");
    }
    for document in [
        json!({"nobody": 1}),
        json!({"replicas": 0}),
        json!({"replicas": 101}),
        json!({"rttThresholdMs": 60_000.5}),
        json!({"lossThresholdPct": "2%"}),
        json!({"explain": "loud"}),
        json!({"holdClasses": ["bulk"]}),
        json!({"holdLimits": {"quick": "1s"}}),
        json!({"waitForTerminating": 30}),
        json!({"maxPriority": {"team-a": 11}}),
        json!({"probing": {"probes": "5"}}),
        json!({"models": {"batch": {"gamma": 1}}}),
        json!({"prometheus": {"queries": {}}}),
        json!({"sites": [{"name": "c", "kind": "moon"}]}),
        json!({"sites": [{"kind": "cloud"}]}),
    ] {
        assert!(!is_valid(&document, &schema), "{document}");
        assert!(Config::read(&document).is_err(), "{document}");
    }
}

/// What a value may be, as the table says it.
fn described(kind: &Kind) -> String {
    let decimal = |thousandths: &i64| (*thousandths as f64 / 1_000.0).to_string();
    match kind {
        Kind::Boolean => "boolean".into(),
        Kind::Integer(least, most) => format!("whole number, {least} to {most}"),
        Kind::Number(least, most) => format!("number, {} to {}", decimal(least), decimal(most)),
        Kind::Percent(least) => format!("number, {} to 100, at most one decimal", decimal(least)),
        Kind::Duration(least, most) | Kind::LongDuration(least, most, _) => format!("duration, `{least}` to `{most}`"),
        Kind::Word([words @ .., last]) if !words.is_empty() => {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", words.join(", "))
        }
        Kind::Word(words) => format!("`{}`", words.join("`, `")),
        Kind::Text { what, .. } => (*what).into(),
        Kind::List(of) => format!("list, each {}", described(of)),
        Kind::Map(keys, to) => format!("map of {keys} to {}", described(to)),
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

/// The rows of the fields within a setting, each by its place; those of queries once.
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

/// The page with its tables made again, each between a comment that names it and the end of the table.
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
    let path = workspace().join("docs/configuration.md");
    let made = remade(&std::fs::read_to_string(&path).unwrap());
    assert!(
        is_recorded(&path, &made),
        "docs/configuration.md lags; EDGEWARD_BLESS=1 writes it again"
    );
}
