//! How documents are read: their shape by serde, and what is wrong with their values with the place of each.

pub mod schema;
pub mod texts;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::model::endpoint::without_user;
use edgeward_kube::excerpt::{LONGEST_NAME, excerpt};
use edgeward_kube::units::{CostPerHour, Micros, Permille};

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

impl Faults {
    /// What was read of a document, unless it has faults.
    pub(crate) fn or<T>(faults: Vec<Fault>, read: T) -> Result<T, Self> {
        if faults.is_empty() { Ok(read) } else { Err(Self(faults)) }
    }
}

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
        let path = match error.path().iter().next() {
            Some(_) => within(at, error.path()),
            None => at.to_owned(),
        };
        Fault::new(path, excerpt(without_user(&error.inner().to_string()), LONGEST_NAME))
    })
}

/// A place within another one, or within the document.
pub fn within(at: &str, place: impl fmt::Display) -> String {
    let separator = if at.is_empty() { "" } else { "." };
    format!("{at}{separator}{place}")
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
        self.faults.push(Fault::new(within(self.at, field), message));
    }
}

/// What is made of an object at this place, if it has no faults.
///
/// # Errors
/// Every fault that was found meanwhile.
pub fn checked<T>(at: &str, make: impl FnOnce(&mut Checks<'_>) -> Option<T>) -> Result<T, Faults> {
    let mut faults = vec![];
    let made = make(&mut Checks {
        at,
        faults: &mut faults,
    });
    made.filter(|_| faults.is_empty()).ok_or(Faults(faults))
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
        Err(format!("{number} is not {}", Self::allowed()))
    }
}

/// For fields of another type that documents state as such a number: the attribute `with` of serde and schemars.
impl<const DECIMALS: u32, const LEAST: i64, const MOST: i64> Decimal<DECIMALS, LEAST, MOST> {
    /// Description of a valid number, for messages.
    fn allowed() -> String {
        let unit = f64::from(10_u32.pow(DECIMALS));
        let [least, most] = [LEAST as f64 / unit, MOST as f64 / unit];
        match DECIMALS {
            0 => format!("a whole number from {least} to {most}"),
            1 => format!("a number from {least} to {most} with at most one decimal"),
            6 => format!("a number from {least} to {most} with at most six decimals"),
            _ => format!("a number from {least} to {most} with at most three decimals"),
        }
    }

    /// Reads the number and converts it.
    pub fn deserialize<'de, T: From<Self>, D: Deserializer<'de>>(stated: D) -> Result<T, D::Error> {
        <Self as Deserialize>::deserialize(stated).map(T::from)
    }

    /// Writes a value as its number.
    pub fn serialize<T: Copy + Into<Self>, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        let number: Self = (*value).into();
        Serialize::serialize(&number, serializer)
    }
}

macro_rules! stated_as_decimal {
    ($($unit:ty, $number:ty, $of:expr, $amount:expr;)+) => {$(
        impl<const DECIMALS: u32, const LEAST: i64, const MOST: i64> From<Decimal<DECIMALS, LEAST, MOST>> for $unit {
            fn from(number: Decimal<DECIMALS, LEAST, MOST>) -> Self {
                $of(number.0 as $number)
            }
        }

        impl<const DECIMALS: u32, const LEAST: i64, const MOST: i64> From<$unit> for Decimal<DECIMALS, LEAST, MOST> {
            fn from(unit: $unit) -> Self {
                Self($amount(unit) as i64)
            }
        }
    )+};
}

stated_as_decimal! {
    Micros, u64, Micros, |time: Micros| time.0;
    Permille, u32, Permille, |ratio: Permille| ratio.0;
    CostPerHour, u64, CostPerHour, |cost: CostPerHour| cost.0;
    u64, u64, |number| number, |number| number;
}

/// `x-decimals` is for the check of documents and for the rules in CEL.
impl<const DECIMALS: u32, const LEAST: i64, const MOST: i64> JsonSchema for Decimal<DECIMALS, LEAST, MOST> {
    fn schema_name() -> Cow<'static, str> {
        format!("Decimal_{DECIMALS}_{LEAST}_{MOST}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": Self::allowed(),
            "type": if DECIMALS == 0 { "integer" } else { "number" },
            "minimum": Self(LEAST),
            "maximum": Self(MOST),
            "x-decimals": DECIMALS,
        })
    }
}

/// Schema of a duration as Go prints it, with bounds in milliseconds. Only `with` attributes of schemars name it.
pub struct Span<const LEAST: u64, const MOST: u64>;

/// A second, in the bounds of a [`Span`].
pub const SECOND: u64 = 1_000;

/// A day, in the bounds of a [`Span`].
pub const DAY: u64 = 86_400 * SECOND;

/// Zero needs no unit.
impl<const LEAST: u64, const MOST: u64> JsonSchema for Span<LEAST, MOST> {
    fn schema_name() -> Cow<'static, str> {
        format!("Span_{LEAST}_{MOST}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let bounds = [LEAST, MOST].map(|ms| Micros::from_millis(ms).to_text());
        let title = format!("a duration from {} to {}, such as 60s or 1m30s", bounds[0], bounds[1]);
        let mut schema =
            json!({"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$", "maxLength": 32, "x-duration": bounds});
        if LEAST == 0 {
            schema = json!({"anyOf": [{"enum": [0]}, schema]});
        }
        schema["title"] = title.into();
        Schema::try_from(schema).unwrap_or_default()
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

/// A value as a message shows it: short, and never a whole subtree.
pub fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn number_beyond_its_bounds_or_decimals_is_refused() {
        let read = |value: Value| parse::<Decimal<3, 1, 60_000_000>>(&value, "rttMs").map(|number| number.0);
        assert_eq!(read(json!(0.001)), Ok(1));
        assert_eq!(read(json!(60_000)), Ok(60_000_000));
        for value in [json!(0), json!(60_000.001), json!(0.0015)] {
            let expected = format!("rttMs: {value} is not a number from 0.001 to 60000 with at most three decimals");
            assert_eq!(read(value).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn number_is_written_as_it_was_read() {
        for number in [json!(22), json!(0.1), json!(-3.125)] {
            let read: Decimal<3, -60_000_000, 60_000_000> = parse(&number, "").unwrap();
            assert_eq!(json!(read), number);
        }
    }
}
