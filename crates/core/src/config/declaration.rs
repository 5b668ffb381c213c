//! How a setting is declared, and read as declared.

use crate::document::Field;
use crate::units::{Micros, Permille};

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
    /// This value, as YAML.
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
    /// The same, and why it may be no shorter, which a fault says.
    LongDuration(&'static str, &'static str, &'static str),
    /// One of these.
    Word(&'static [&'static str]),
    /// A string.
    Text {
        /// What it is, in words.
        what: &'static str,
        /// Regular expression that it matches, as JSON schemas have it; what it matches need not be accepted.
        pattern: &'static str,
    },
    /// A list of such.
    List(&'static Kind),
    /// A map to such, by keys that are called so.
    Map(&'static str, &'static Kind),
    /// A map to such, by workload class.
    PerClass(&'static Kind),
    /// These fields and no others.
    Object(&'static [Setting]),
    /// One or the other.
    Either(&'static Kind, &'static Kind),
    /// The definitions of sites.
    Sites,
}

impl Kind {
    /// A whole number within its bounds.
    pub(super) fn integer<T: TryFrom<i64>>(&self, field: &Field<'_>) -> Option<T> {
        let Self::Integer(least, most) = *self else { return None };
        T::try_from(field.integer(least..=most)?).ok()
    }

    /// A number within its bounds, in thousandths.
    fn thousandths<T: TryFrom<i64>>(&self, field: &Field<'_>) -> Option<T> {
        let Self::Number(least, most) = *self else { return None };
        T::try_from(field.thousandths(least..=most)?).ok()
    }

    /// A duration within its bounds.
    fn duration(&self, field: &Field<'_>) -> Option<Micros> {
        let (least, most, why) = match *self {
            Self::Duration(least, most) => (least, most, None),
            Self::LongDuration(least, most, why) => (least, most, Some(why)),
            _ => return None,
        };
        let why = why.map_or_else(String::new, |why| format!("; {why}"));
        let expected = format!("a duration from {least} to {most}, such as 60s or 1m30s{why}");
        field.typed(&expected, |value| {
            let text = if *value == 0 { "0s" } else { value.as_str()? };
            Micros::parse(text).filter(|us| (Micros::parse(least)..=Micros::parse(most)).contains(&Some(*us)))
        })
    }
}

/// What can be read from a field: the type of the place decides how.
pub(crate) trait Read {
    /// Takes over what `field` says, which is of this kind or a fault. What it does not say stays as it is.
    fn read(&mut self, field: &Field<'_>, kind: &Kind);
}

impl Read for bool {
    fn read(&mut self, field: &Field<'_>, _: &Kind) {
        *self = field.boolean().unwrap_or(*self);
    }
}

impl Read for u32 {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        *self = kind.integer(field).unwrap_or(*self);
    }
}

impl Read for usize {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        *self = kind.integer(field).unwrap_or(*self);
    }
}

/// The thousandths of a number.
impl Read for u64 {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        *self = kind.thousandths(field).unwrap_or(*self);
    }
}

/// Of a duration, or of a number of milliseconds.
impl Read for Micros {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        let read = match kind {
            Kind::Number(..) => kind.thousandths(field).map(Self),
            _ => kind.duration(field),
        };
        *self = read.unwrap_or(*self);
    }
}

/// A percentage or a number.
impl Read for Permille {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        let read = match *kind {
            Kind::Percent(least) => field.percent(least),
            _ => kind.thousandths(field).map(Self),
        };
        *self = read.unwrap_or(*self);
    }
}

impl<T: Read + Default> Read for Option<T> {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        if field.is_present() {
            self.get_or_insert_default().read(field, kind);
        }
    }
}

/// One of the words of an enum that `words!` declares.
macro_rules! read_words {
    ($($name:ident),+) => {
        $(impl Read for $name {
            fn read(&mut self, field: &Field<'_>, _: &Kind) {
                *self = field.word(&Self::BY_WORD).unwrap_or(*self);
            }
        })+
    };
}
pub(super) use read_words;

/// Declares the fields that a document may have for a type: the place that each is read into, its name, kind, default
/// and meaning. Without places, they are declared for a reader of the type's own.
macro_rules! settings {
    ($target:ident: $($($place:ident).+ = $name:literal, $kind:expr, $default:expr, $meaning:expr;)+) => {
        settings! { $target: $($name, $kind, $default, $meaning;)+ }

        impl $target {
            /// Takes over what each of these fields says, which are in the order of the names.
            pub(super) fn take(&mut self, fields: &[Field<'_>; Self::NAMES.len()]) {
                let mut fields = fields.iter().zip(&Self::SETTINGS);
                $(
                    if let Some((field, declared)) = fields.next() {
                        self.$($place).+.read(field, &declared.kind);
                    }
                )+
            }
        }

        impl Read for $target {
            fn read(&mut self, field: &Field<'_>, _: &Kind) {
                if let Some(fields) = field.object(Self::NAMES) {
                    self.take(&fields);
                }
            }
        }
    };
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
