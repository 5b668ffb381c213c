//! Reads documents of other programs, field by field.

use edgeward_decision::document::{shown, within};
use edgeward_decision::model::link::Bandwidth;
use edgeward_kube::constraints::is_dns_label;
use edgeward_kube::units::Quantity;
use serde_json::{Map, Value};

use crate::cli::findings::Findings;

/// A value of a document, and its place for findings.
#[derive(Debug, Clone)]
pub(super) struct Field<'v> {
    /// The document and the path in it, such as `CodecoApp shop: spec.appName`.
    pub(super) place: String,
    pub(super) value: &'v Value,
}

impl<'v> Field<'v> {
    /// The document, by its kind, namespace and name.
    pub(super) fn document(document: &'v Value) -> Self {
        let of = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let name = of(&document["metadata"]["name"]);
        let name = match document["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name,
        };
        Self {
            place: format!("{} {name}:", of(&document["kind"])),
            value: document,
        }
    }

    /// The field of this object, or null.
    pub(super) fn get(&self, key: &str) -> Self {
        let place = match self.place.strip_suffix(':') {
            Some(_) => format!("{} {key}", self.place),
            None => within(&self.place, key),
        };
        Self {
            place,
            value: &self.value[key],
        }
    }

    /// The elements of this list. Reports a value that is no list.
    pub(super) fn items(&self, findings: &mut Findings) -> Vec<Self> {
        let list = match self.value {
            Value::Array(list) => list,
            Value::Null => return vec![],
            _ => {
                self.lost("is not a list", findings);
                return vec![];
            }
        };
        let items = list.iter().enumerate();
        let item = |(i, value)| Self {
            place: format!("{}[{i}]", self.place),
            value,
        };
        items.map(item).collect()
    }

    /// The fields of this object. None if it is absent. Reports a value that is no object.
    pub(super) fn object(&self, findings: &mut Findings) -> Map<String, Value> {
        if !self.value.is_object() && !self.value.is_null() {
            self.lost("is not an object", findings);
        }
        self.value.as_object().cloned().unwrap_or_default()
    }

    /// The text or number. `None` if it is absent or empty. Reports any other value.
    pub(super) fn text(&self, findings: &mut Findings) -> Option<String> {
        match self.value {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null => None,
            _ => {
                self.lost("is not a text", findings);
                None
            }
        }
    }

    /// The text or number. Reports any other value, and that there is none.
    pub(super) fn required(&self, findings: &mut Findings) -> Option<String> {
        if self.value.is_null() || self.value == "" {
            findings.lost(&format!("{} is missing", self.place));
        }
        self.text(findings)
    }

    /// The billionths of a quantity. Reports what is no quantity, or a negative one.
    pub(super) fn nanos(&self, unit: &str, findings: &mut Findings) -> Option<i128> {
        let text = self.text(findings)?;
        let nanos = Quantity::parse(&text).ok().map(Quantity::nanos);
        let nanos = nanos.filter(|nanos| *nanos >= 0);
        if nanos.is_none() {
            self.lost(&format!("is not a number of {unit}"), findings);
        }
        nanos
    }

    /// The bandwidth in bits per second. Reports any other value.
    pub(super) fn bandwidth(&self, findings: &mut Findings) -> Option<u64> {
        let bandwidth = Bandwidth::try_from(self.text(findings)?);
        if let Err(fault) = &bandwidth {
            findings.lost(&format!("{}: {fault}", self.place));
        }
        bandwidth.ok().map(|bandwidth| bandwidth.0)
    }

    /// `name` as a DNS label, which is made from this field. Reports a name that is none, or has become one by `--fix`.
    pub(super) fn label(&self, name: &str, findings: &mut Findings) -> Option<String> {
        let label = dns_label(name);
        if label == name && is_dns_label(name) {
            return Some(label);
        }
        let fault = format!("{}: {name:?} is not a DNS label", self.place);
        if !is_dns_label(&label) {
            findings.lost(&fault);
            return None;
        }
        findings
            .fixable(&format!("{fault}: --fix writes {label}"))
            .then_some(label)
    }

    /// Reports each field of this object that is not among `known`, which spaces separate.
    pub(super) fn report_unknown(&self, known: &str, findings: &mut Findings) {
        for key in self.value.as_object().into_iter().flat_map(|object| object.keys()) {
            if !known.split(' ').any(|known| known == key) {
                self.get(key).lost("is an unknown field", findings);
            }
        }
    }

    /// Reports each of these fields that has a value, because edgeward has nothing like it.
    pub(super) fn report_unmatched(&self, keys: &str, findings: &mut Findings) {
        for field in keys.split(' ').map(|key| self.get(key)) {
            let is_empty = match field.value {
                Value::Object(fields) => fields.is_empty(),
                value => value.is_null() || value == "",
            };
            if !is_empty {
                field.lost("has no equal in edgeward", findings);
            }
        }
    }

    /// Reports the value, which only the user can settle.
    pub(super) fn lost(&self, fault: &str, findings: &mut Findings) {
        findings.lost(&self.finding(fault));
    }

    /// Reports the value, which `--fix` settles. Returns whether to settle it.
    pub(super) fn fixable(&self, fault: &str, findings: &mut Findings) -> bool {
        findings.fixable(&self.finding(fault))
    }

    fn finding(&self, fault: &str) -> String {
        format!("{}: {} {fault}", self.place, shown(self.value))
    }
}

/// The name in lower case, with `-` for all but letters and digits. A DNS label stays as it is.
pub(super) fn dns_label(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let dashed = lower.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    dashed.trim_matches('-').to_owned()
}
