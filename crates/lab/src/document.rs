//! Reads a document field by field and collects every fault with its path, instead of stopping at the first.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use serde_json::Value;

pub(crate) use edgeward_core::document::{Fault, Faults};
use edgeward_core::units::Quantity;

/// Reads a whole document: `read` gets its root, and its result stands only if no fault was reported.
pub(crate) fn read<T>(document: &Value, read: impl FnOnce(Field<'_>) -> Option<T>) -> Result<T, Faults> {
    let faults = RefCell::new(Vec::new());
    let root = Field {
        path: String::new(),
        value: Some(document),
        faults: &faults,
    };
    let result = read(root.clone());
    if result.is_none() && faults.borrow().is_empty() {
        root.fault("cannot be read".into());
    }
    match (result, faults.into_inner()) {
        (Some(value), faults) if faults.is_empty() => Ok(value),
        (_, faults) => Err(Faults(faults)),
    }
}

/// One place of a document, present or not. The typed readers return `None` for an absent or null field, and for
/// one of another type after reporting that as a fault.
#[derive(Clone)]
pub(crate) struct Field<'d> {
    path: String,
    value: Option<&'d Value>,
    faults: &'d RefCell<Vec<Fault>>,
}

impl<'d> Field<'d> {
    /// The same place under another name: `config.yaml` reads better than `["config.yaml"]` before a dot.
    pub(crate) fn called(self, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
    }

    pub(crate) fn fault(&self, message: String) {
        self.faults.borrow_mut().push(Fault {
            path: self.path.clone(),
            message,
        });
    }

    pub(crate) fn is_present(&self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    pub(crate) fn is_object(&self) -> bool {
        self.value.is_some_and(Value::is_object)
    }

    pub(crate) fn is_list(&self) -> bool {
        self.value.is_some_and(Value::is_array)
    }

    /// The same place, reported as a fault if nothing is there.
    pub(crate) fn required(self) -> Self {
        if !self.is_present() {
            self.fault("is missing".into());
        }
        self
    }

    /// What `convert` makes of the value; the fault says that it is not `expected`.
    pub(crate) fn typed<T>(&self, expected: &str, convert: impl FnOnce(&'d Value) -> Option<T>) -> Option<T> {
        let value = self.value.filter(|value| !value.is_null())?;
        let converted = convert(value);
        if converted.is_none() {
            self.fault(format!("{} is not {expected}", shown(value)));
        }
        converted
    }

    pub(crate) fn string(&self) -> Option<&'d str> {
        self.typed("a string", Value::as_str)
    }

    pub(crate) fn non_empty_string(&self) -> Option<&'d str> {
        self.typed("a non-empty string", |value| {
            value.as_str().filter(|text| !text.is_empty())
        })
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self) -> Option<bool> {
        self.typed("true or false", Value::as_bool)
    }

    /// A whole number within `range`.
    pub(crate) fn integer(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let expected = match (*range.start(), *range.end()) {
            (start, i64::MAX) => format!("a whole number of at least {start}"),
            (start, end) => format!("a whole number from {start} to {end}"),
        };
        self.typed(&expected, |value| {
            value.as_i64().filter(|number| range.contains(number))
        })
    }

    /// A number of at most three decimals, within `range`; both the range and the result in thousandths.
    pub(crate) fn thousandths(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let expected = format!(
            "a number from {} to {} with at most three decimals",
            decimal(*range.start()),
            decimal(*range.end())
        );
        self.typed(&expected, |value| {
            let Value::Number(number) = value else { return None };
            to_thousandths(&number.to_string()).filter(|number| range.contains(number))
        })
    }

    /// A Kubernetes quantity, written as a string or a number.
    pub(crate) fn quantity(&self) -> Option<Quantity> {
        let value = self.value.filter(|value| !value.is_null())?;
        let parsed = match value {
            Value::String(text) => Quantity::parse(text),
            other => Quantity::parse(&shown(other)),
        };
        parsed.map_err(|error| self.fault(error.to_string())).ok()
    }

    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        let expected = match &names[..] {
            [only] => format!("{only:?}, the only value allowed"),
            names => format!("one of {}", names.join(", ")),
        };
        self.typed(&expected, |value| {
            let text = value.as_str()?;
            words.iter().find(|(name, _)| *name == text).map(|&(_, word)| word)
        })
    }

    pub(crate) fn list(&self) -> Option<Vec<Field<'d>>> {
        let elements = self.typed("a list", Value::as_array)?.iter().enumerate();
        let field = |(i, value)| self.at(format!("{}[{i}]", self.path), Some(value));
        Some(elements.map(field).collect())
    }

    /// The entries of a map with keys of the document's own choice.
    pub(crate) fn entries(&self) -> Option<Vec<(&'d str, Field<'d>)>> {
        let entries = self.typed("a map", Value::as_object)?.iter();
        let entry = |(key, value): (&'d String, _)| (key.as_str(), self.at(self.child(key), Some(value)));
        Some(entries.map(entry).collect())
    }

    pub(crate) fn string_map(&self) -> Option<Vec<(&'d str, &'d str)>> {
        let entries = self.entries()?.into_iter();
        let entry = |(key, field): (_, Field<'d>)| Some((key, field.string()?));
        Some(entries.filter_map(entry).collect())
    }

    pub(crate) fn object<const N: usize>(&self, fields: [&str; N]) -> Option<[Field<'d>; N]> {
        let map = self.typed("an object", Value::as_object)?;
        for key in map.keys().filter(|key| !fields.contains(&key.as_str())) {
            let message = format!(
                "is not a field here{}; there are {}",
                meant(key, &fields),
                fields.join(", ")
            );
            self.at(self.child(key), None).fault(message);
        }
        let field = |key: &str| self.at(self.child(key), map.get(key));
        Some(fields.map(field))
    }

    fn at(&self, path: String, value: Option<&'d Value>) -> Field<'d> {
        Field {
            path,
            value,
            faults: self.faults,
        }
    }

    fn child(&self, key: &str) -> String {
        let plain = key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        match (&*self.path, plain) {
            ("", true) => key.to_owned(),
            (path, true) => format!("{path}.{key}"),
            (path, false) => format!("{path}[{key:?}]"),
        }
    }
}

/// The field that an unknown one looks like: it has the same beginning, whatever the case.
fn meant(key: &str, known: &[&str]) -> String {
    const LEAST: usize = 4;
    let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
    let key = plain(key);
    let is_like = |name: &str| key.len() >= LEAST && (name.starts_with(&key) || key.starts_with(name));
    match known.iter().find(|name| is_like(&plain(name))) {
        Some(name) => format!(", perhaps {name} is meant"),
        None => String::new(),
    }
}

/// A value as a message shows it: short, and never a whole subtree.
fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        scalar => scalar.to_string(),
    }
}

fn decimal(thousandths: i64) -> String {
    (thousandths as f64 / 1_000.0).to_string()
}

/// `12.5` to `12500`; `None` for more than three decimals.
fn to_thousandths(text: &str) -> Option<i64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > 3 || !decimals.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude: i64 = format!("{}{decimals:0<3}", whole.trim_start_matches('-'))
        .parse()
        .ok()?;
    Some(if whole.starts_with('-') { -magnitude } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults(document: Value, with: impl FnOnce(Field<'_>) -> Option<()>) -> Vec<String> {
        match read(&document, with) {
            Ok(()) => vec![],
            Err(Faults(faults)) => faults.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn every_fault_with_its_path() {
        let document = json!({"a": [1, "x"], "b": {"node.role/edge": 5}, "c": 12.3456, "d": "z", "oops": 1});
        let found = faults(document, |root| {
            let [a, b, c, d, e] = root.object(["a", "b", "c", "d", "e"])?;
            a.list()?.iter().for_each(|element| {
                element.string();
            });
            b.string_map();
            c.thousandths(0..=100_000);
            d.word(&[("x", 1), ("y", 2)]);
            e.required().boolean();
            Some(())
        });
        assert_eq!(
            found,
            [
                "oops: is not a field here; there are a, b, c, d, e",
                "a[0]: 1 is not a string",
                "b[\"node.role/edge\"]: 5 is not a string",
                "c: 12.3456 is not a number from 0 to 100 with at most three decimals",
                "d: \"z\" is not one of x, y",
                "e: is missing",
            ]
        );
    }

    #[test]
    fn an_unknown_field_is_told_the_one_that_it_looks_like() {
        for (key, expected) in [
            ("rttThreshold", ", perhaps rttThresholdMs is meant"),
            ("RTT_threshold_ms", ", perhaps rttThresholdMs is meant"),
            ("sitesOfAll", ", perhaps sites is meant"),
            ("rtt", ""),
            ("threshold", ""),
        ] {
            let found = faults(json!({key: 1}), |root| {
                root.object(["sites", "rttThresholdMs"]).map(|_| ())
            });
            let expected = format!("{key}: is not a field here{expected}; there are sites, rttThresholdMs");
            assert_eq!(found, [expected]);
        }
    }

    #[test]
    fn decimals_are_exact() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12.5", Some(12_500)),
            ("-0.001", Some(-1)),
            ("0.0001", None),
            ("1e3", None),
            ("9223372036854775", Some(9_223_372_036_854_775_000)),
            ("9223372036854776", None),
        ] {
            assert_eq!(to_thousandths(text), expected, "{text}");
        }
    }

    #[test]
    fn nothing_read_is_a_fault_too() {
        assert_eq!(
            faults(json!([]), |root| root.object(["a"]).map(|_| ())),
            ["a list is not an object"]
        );
        assert_eq!(
            faults(json!(null), |root| root.object(["a"]).map(|_| ())),
            ["cannot be read"]
        );
    }
}
