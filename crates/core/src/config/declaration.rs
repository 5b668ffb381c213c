//! How a setting is declared, and read as declared.

use serde_json::{Map, Value};

use crate::document::{Fault, decimal, shown, within};
use crate::excerpt::{LONGEST_NAME, excerpt};
use crate::model::endpoint::without_user;
use crate::model::slo::Class;
use crate::units::Micros;

/// A setting, or a field of one.
#[derive(Debug)]
pub struct Setting {
    /// Its key in the document.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// What holds without it.
    pub default: Assumed,
    /// What it does, in Markdown; links are relative to `docs`.
    pub meaning: &'static str,
}

/// What holds where nothing is set.
#[derive(Debug)]
pub enum Assumed {
    /// This value, as YAML; of a map as JSON.
    Value(&'static str),
    /// Something that is no value, in words.
    Words(&'static str),
    /// Nothing: it has to be set.
    Required,
}

/// What a value may be. Bounds belong to it.
#[derive(Debug)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number, from one to the other.
    Integer(i64, i64),
    /// A number of at most three decimals; the bounds in thousandths.
    Number(i64, i64),
    /// A percentage of at most one decimal, from so many thousandths to 100.
    Percent(i64),
    /// A duration as Go prints it, from one to the other.
    Duration(&'static str, &'static str),
    /// One of these.
    Word(&'static [&'static str]),
    /// A string.
    Text {
        /// What it is, in words.
        what: &'static str,
        /// Regular expression that it matches, as JSON schemas have it; what it matches need not be accepted.
        pattern: &'static str,
        /// Whether it is accepted.
        is: fn(&str) -> bool,
    },
    /// A list of such.
    List(&'static Kind),
    /// A map to such, by keys that are called so, and are accepted.
    Map(&'static str, fn(&str) -> bool, &'static Kind),
    /// A map to such, by workload class.
    PerClass(&'static Kind),
    /// These fields and no others.
    Object(&'static [Setting]),
    /// One or the other.
    Either(&'static Kind, &'static Kind),
    /// The definitions of sites.
    Sites,
}

impl Setting {
    /// What is stated, before what is not: the entries of a map keep their defaults one by one.
    fn completed(&self, stated: &Value) -> Value {
        match (&self.default, stated) {
            (Assumed::Value(text), Value::Object(_)) => merged(serde_json::from_str(text).unwrap_or_default(), stated),
            _ => stated.clone(),
        }
    }
}

fn merged(defaults: Value, stated: &Value) -> Value {
    match (defaults, stated) {
        (Value::Object(mut defaults), Value::Object(stated)) => {
            for (key, value) in stated {
                let default = defaults.remove(key).unwrap_or_default();
                defaults.insert(key.clone(), merged(default, value));
            }
            defaults.into()
        }
        (_, stated) => stated.clone(),
    }
}

impl Kind {
    /// The value in the units of the program: durations in µs, numbers in thousandths, percentages in tenths, maps by class as
    /// lists. What is of another kind is a fault, and left out.
    pub(super) fn read(&self, value: &Value, at: &str, faults: &mut Vec<Fault>) -> Option<Value> {
        let read = match (self, value) {
            (Self::Object(settings), Value::Object(fields)) => {
                let names: Vec<_> = settings.iter().map(|setting| setting.name).collect();
                refuse_others(fields, &names, at, faults);
                let mut read = Map::new();
                for setting in *settings {
                    let at = within(at, setting.name);
                    let stated = fields.get(setting.name);
                    if stated.is_none() && matches!(setting.default, Assumed::Required) {
                        faults.push(Fault::new(&at, "is missing"));
                    }
                    let value = stated.and_then(|stated| setting.kind.read(&setting.completed(stated), &at, faults));
                    read.extend(value.map(|value| (setting.name.to_owned(), value)));
                }
                Some(read.into())
            }
            (Self::PerClass(to), Value::Object(fields)) => {
                refuse_others(fields, &Class::WORDS, at, faults);
                let of_class = |class| to.read(&fields[class], &within(at, class), faults);
                Some(Class::WORDS.map(of_class).into_iter().flatten().collect())
            }
            (Self::Map(keys, is_key, to), Value::Object(fields)) => {
                let mut read = Map::new();
                for (key, value) in fields {
                    if !is_key(key) {
                        faults.push(Fault::new(within(at, key), format_args!("{key:?} is no {keys}")));
                    }
                    let value = to.read(value, &within(at, key), faults);
                    read.extend(value.map(|value| (key.clone(), value)));
                }
                Some(read.into())
            }
            (Self::List(of), Value::Array(list)) => {
                let elements = list.iter().enumerate();
                let read = elements.filter_map(|(i, element)| of.read(element, &format!("{at}[{i}]"), faults));
                Some(read.collect())
            }
            (Self::Either(_, other), Value::Object(_)) => return other.read(value, at, faults),
            // Read by what knows sites.
            (Self::Sites, Value::Array(_)) => return None,
            _ => self.scalar(value),
        };
        if read.is_none() {
            let value = excerpt(without_user(&shown(value)), LONGEST_NAME);
            faults.push(Fault::new(at, format_args!("{value} is {}", self.expected())));
        }
        read
    }

    /// A value that has no parts.
    fn scalar(&self, value: &Value) -> Option<Value> {
        match *self {
            Self::Boolean => value.as_bool().map(Value::from),
            Self::Integer(least, most) => {
                let number = value.as_i64().filter(|number| (least..=most).contains(number));
                number.map(Value::from)
            }
            Self::Number(least, most) => {
                let number = thousandths(value).filter(|number| (least..=most).contains(number));
                number.map(Value::from)
            }
            Self::Percent(least) => {
                let is_valid = |number: &i64| number % 100 == 0 && (least..=100_000).contains(number);
                let number = thousandths(value).filter(is_valid);
                number.map(|number| (number / 100).into())
            }
            Self::Duration(least, most) => {
                let text = if *value == 0 { "0s" } else { value.as_str()? };
                let bounds = Micros::parse(least)..=Micros::parse(most);
                let duration = Micros::parse(text).filter(|duration| bounds.contains(&Some(*duration)));
                duration.map(|Micros(us)| us.into())
            }
            Self::Word(words) => value.as_str().filter(|word| words.contains(word)).map(Value::from),
            Self::Text { is, .. } => value.as_str().filter(|text| is(text)).map(Value::from),
            Self::Either(one, Self::PerClass(_)) => one.scalar(value).map(|value| vec![value; 3].into()),
            Self::Either(one, other) => one.scalar(value).or_else(|| other.scalar(value)),
            Self::List(_) | Self::Map(..) | Self::PerClass(_) | Self::Object(_) | Self::Sites => None,
        }
    }

    /// What a value is not that is none of this kind.
    fn expected(&self) -> String {
        match self {
            Self::Boolean => "not true or false".into(),
            Self::Integer(least, most) => format!("not a whole number from {least} to {most}"),
            Self::Number(least, most) => format!(
                "not a number from {} to {} with at most three decimals",
                decimal(*least),
                decimal(*most)
            ),
            Self::Percent(least) => {
                let least = decimal(*least);
                format!("not a percentage from {least} to 100 with at most one decimal")
            }
            Self::Duration(least, most) => format!("not a duration from {least} to {most}, such as 60s or 1m30s"),
            Self::Word(words) => format!("not one of {}", words.join(", ")),
            Self::Text { what, .. } => format!("no {what}"),
            Self::List(_) | Self::Sites => "not a list".into(),
            Self::Map(..) | Self::PerClass(_) | Self::Object(_) => "not a map".into(),
            Self::Either(one, Self::PerClass(_)) => one.expected(),
            Self::Either(one, other) => format!("{}, and {}", one.expected(), other.expected()),
        }
    }
}

fn refuse_others(fields: &Map<String, Value>, names: &[&str], at: &str, faults: &mut Vec<Fault>) {
    for key in fields.keys().filter(|key| !names.contains(&key.as_str())) {
        let message = format_args!("is not a field here; there are {}", names.join(", "));
        faults.push(Fault::new(within(at, key), message));
    }
}

/// `12.5` as 12500; `None` for more than three decimals.
fn thousandths(value: &Value) -> Option<i64> {
    let scaled = value.as_f64()? * 1_000.0;
    let whole = scaled.round();
    ((scaled - whole).abs() < 1e-6).then_some(whole as i64)
}

/// Declares the fields that a document may have for a type: their names, kinds, defaults and meanings.
macro_rules! settings {
    ($target:ident: $($name:expr, $kind:expr, $default:expr, $meaning:expr;)+) => {
        impl $target {
            /// The names of the fields.
            pub const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];
            /// The fields, in the order of the names.
            pub const SETTINGS: [Setting; Self::NAMES.len()] =
                [$(Setting { name: $name, kind: $kind, default: $default, meaning: $meaning }),+];
        }
    };
}
pub(super) use settings;
