//! Reads a document field by field and collects every fault with its path, instead of stopping at the first.

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::units::{Micros, Permille, Quantity};

/// Something wrong at one place of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, such as `sites[1].wan.rttMs`; empty for the document itself.
    pub path: String,
    /// What is wrong, with the value and what is allowed.
    pub message: String,
}

impl Fault {
    /// Something wrong at this place.
    pub fn new(path: impl Into<String>, message: impl fmt::Display) -> Self {
        Self {
            path: path.into(),
            message: message.to_string(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.path {
            "" => f.write_str(&self.message),
            path => write!(f, "{path}: {}", self.message),
        }
    }
}

/// Every fault of one document, in the order of its fields; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{fault}")?;
        }
        Ok(())
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

/// Reads a document, or the part of one that is at this path.
///
/// # Errors
/// The first place that is not of the shape of `T`.
pub fn parse<'d, T: Deserialize<'d>>(document: &'d Value, at: &str) -> Result<T, Fault> {
    serde_path_to_error::deserialize(document).map_err(|error| {
        let path = match (at, &*error.path().to_string()) {
            (at, ".") => at.to_owned(),
            ("", path) => path.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        Fault::new(path, error.inner())
    })
}

/// The document without what is null: that is as good as absent.
pub fn without_nulls(document: Value) -> Value {
    match document {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(list) => list.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

/// Collects what is wrong with the values of one object.
pub struct Checks<'f> {
    /// Where the object is.
    pub at: &'f str,
    /// What was found.
    pub faults: &'f mut Vec<Fault>,
}

impl Checks<'_> {
    /// Reports a fault of this field.
    pub fn fault(&mut self, field: impl fmt::Display, message: impl fmt::Display) {
        self.faults.push(Fault::new(format!("{}.{field}", self.at), message));
    }
}

/// A number within bounds, of at most so many decimals: bounds and number in units of the last decimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Decimal<const DECIMALS: u32, const LEAST: i64, const MOST: i64>(pub i64);

impl<const DECIMALS: u32, const LEAST: i64, const MOST: i64> TryFrom<f64> for Decimal<DECIMALS, LEAST, MOST> {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let unit = f64::from(10_u32.pow(DECIMALS));
        let [least, most] = [LEAST as f64, MOST as f64];
        let scaled = (number * unit).round();
        let is_exact = (number * unit - scaled).abs() < 1e-3;
        if is_exact && (least..=most).contains(&scaled) {
            return Ok(Self(scaled as i64));
        }
        let [least, most] = [least / unit, most / unit];
        Err(match DECIMALS {
            0 => format!("{number} is not a whole number from {least} to {most}"),
            1 => format!("{number} is not a number from {least} to {most} with at most one decimal"),
            _ => format!("{number} is not a number from {least} to {most} with at most {DECIMALS} decimals"),
        })
    }
}

/// An integer where it is whole.
impl<const DECIMALS: u32, const LEAST: i64, const MOST: i64> Serialize for Decimal<DECIMALS, LEAST, MOST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unit = 10_i64.pow(DECIMALS);
        match self.0 % unit {
            0 => serializer.serialize_i64(self.0 / unit),
            _ => serializer.serialize_f64(self.0 as f64 / unit as f64),
        }
    }
}

/// Reads a whole document: `read` gets its root, and its result stands only if no fault was reported.
pub fn read<T>(document: &Value, read: impl FnOnce(Field<'_>) -> Option<T>) -> Result<T, Faults> {
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
pub struct Field<'d> {
    path: String,
    value: Option<&'d Value>,
    faults: &'d RefCell<Vec<Fault>>,
}

impl<'d> Field<'d> {
    /// The same place under another name: `config.yaml` reads better than `["config.yaml"]` before a dot.
    pub fn called(self, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
    }

    /// Where this is, as faults name it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reports a fault at this place.
    pub fn fault(&self, message: String) {
        self.faults.borrow_mut().push(Fault {
            path: self.path.clone(),
            message,
        });
    }

    /// Reports these faults.
    pub fn report(&self, faults: Vec<Fault>) {
        self.faults.borrow_mut().extend(faults);
    }

    /// Whether there is a value.
    pub fn is_present(&self) -> bool {
        self.value.is_some_and(|value| !value.is_null())
    }

    /// Whether there is a map.
    pub fn is_object(&self) -> bool {
        self.value.is_some_and(Value::is_object)
    }

    /// Whether there is a list.
    pub fn is_list(&self) -> bool {
        self.value.is_some_and(Value::is_array)
    }

    /// The same place, reported as a fault if nothing is there.
    pub fn required(self) -> Self {
        if !self.is_present() {
            self.fault("is missing".into());
        }
        self
    }

    /// What `convert` makes of the value; the fault says that it is not `expected`.
    pub fn typed<T>(&self, expected: &str, convert: impl FnOnce(&'d Value) -> Option<T>) -> Option<T> {
        let value = self.value.filter(|value| !value.is_null())?;
        let converted = convert(value);
        if converted.is_none() {
            self.fault(format!("{} is not {expected}", shown(value)));
        }
        converted
    }

    /// A string.
    pub fn string(&self) -> Option<&'d str> {
        self.typed("a string", Value::as_str)
    }

    /// A string that says something.
    pub fn non_empty_string(&self) -> Option<&'d str> {
        self.typed("a non-empty string", |value| {
            value.as_str().filter(|text| !text.is_empty())
        })
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        self.typed("true or false", Value::as_bool)
    }

    /// A whole number within `range`.
    pub fn integer(&self, range: RangeInclusive<i64>) -> Option<i64> {
        let expected = match (*range.start(), *range.end()) {
            (start, i64::MAX) => format!("a whole number of at least {start}"),
            (start, end) => format!("a whole number from {start} to {end}"),
        };
        self.typed(&expected, |value| {
            value.as_i64().filter(|number| range.contains(number))
        })
    }

    /// A number of at most three decimals, within `range`; both the range and the result in thousandths.
    pub fn thousandths(&self, range: RangeInclusive<i64>) -> Option<i64> {
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

    /// A number of at most six decimals from 0 to `most`, in millionths.
    pub fn millionths(&self, most: u32) -> Option<u64> {
        let expected = format!("a number from 0 to {most} with at most six decimals");
        self.typed(&expected, |value| {
            let millionths = value.as_f64()? * 1e6;
            let is_whole = (millionths - millionths.round()).abs() < 1e-3;
            let is_valid = is_whole && (0.0..=f64::from(most) * 1e6).contains(&millionths);
            is_valid.then_some(millionths.round() as u64)
        })
    }

    /// A finite number.
    pub fn number(&self) -> Option<f64> {
        self.typed("a number", |value| value.as_f64().filter(|number| number.is_finite()))
    }

    /// A duration as Go prints it, from one to the other.
    pub fn duration(&self, least: &str, most: &str) -> Option<Micros> {
        let bounds = Micros::parse(least)..=Micros::parse(most);
        self.typed(
            &format!("a duration from {least} to {most}, such as 60s or 1m30s"),
            |value| {
                let text = if *value == 0 { "0s" } else { value.as_str()? };
                Micros::parse(text).filter(|duration| bounds.contains(&Some(*duration)))
            },
        )
    }

    /// A percentage with at most one decimal, from so many thousandths to 100.
    pub fn percent(&self, least: i64) -> Option<Permille> {
        let expected = format!("a percentage from {} to 100 with at most one decimal", decimal(least));
        self.typed(&expected, |value| {
            let Value::Number(number) = value else { return None };
            let thousandths = to_thousandths(&number.to_string())?;
            let is_valid = thousandths % 100 == 0 && (least..=100_000).contains(&thousandths);
            is_valid.then_some(Permille((thousandths / 100) as u32))
        })
    }

    /// A Kubernetes quantity, written as a string or a number.
    pub fn quantity(&self) -> Option<Quantity> {
        let value = self.value.filter(|value| !value.is_null())?;
        let parsed = match value {
            Value::String(text) => Quantity::parse(text),
            other => Quantity::parse(&shown(other)),
        };
        parsed.map_err(|error| self.fault(error.to_string())).ok()
    }

    /// One of the given words.
    pub fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
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

    /// The elements of a list.
    pub fn list(&self) -> Option<Vec<Field<'d>>> {
        let elements = self.typed("a list", Value::as_array)?.iter().enumerate();
        let field = |(i, value)| self.at(format!("{}[{i}]", self.path), Some(value));
        Some(elements.map(field).collect())
    }

    /// The entries of a map with keys of the document's own choice.
    pub fn entries(&self) -> Option<Vec<(&'d str, Field<'d>)>> {
        let entries = self.typed("a map", Value::as_object)?.iter();
        let entry = |(key, value): (&'d String, _)| (key.as_str(), self.at(self.child(key), Some(value)));
        Some(entries.map(entry).collect())
    }

    /// A map of strings to strings.
    pub fn string_map(&self) -> Option<Vec<(&'d str, &'d str)>> {
        let entries = self.entries()?.into_iter();
        let entry = |(key, field): (_, Field<'d>)| Some((key, field.string()?));
        Some(entries.filter_map(entry).collect())
    }

    /// An object with these fields and no others.
    pub fn object<const N: usize>(&self, fields: [&str; N]) -> Option<[Field<'d>; N]> {
        let (fields, []) = self.object_with(fields, [], &[])?;
        Some(fields)
    }

    /// The same of fields that are named in two places, where some names are looked for here that belong elsewhere: each
    /// with what to say of it.
    pub(super) fn object_with<const N: usize, const M: usize>(
        &self,
        fields: [&str; N],
        more: [&str; M],
        elsewhere: &[(&str, &str)],
    ) -> Option<([Field<'d>; N], [Field<'d>; M])> {
        let map = self.typed("an object", Value::as_object)?;
        let known = [&fields[..], &more].concat();
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let place = elsewhere.iter().find(|(name, _)| name == key);
            let message = match place {
                Some((_, place)) => format!("is not a field here: {place}"),
                None => format!(
                    "is not a field here{}; there are {}",
                    meant(key, &known),
                    known.join(", ")
                ),
            };
            self.at(self.child(key), None).fault(message);
        }
        let field = |key: &str| self.at(self.child(key), map.get(key));
        Some((fields.map(field), more.map(field)))
    }

    /// Another place of the same document.
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
