//! Label selectors in a form in which two of them are easy to compare: each key once, with everything that is asked of it
//! together.

use crate::document::Field;
use crate::model::constraints::{is_label_key, is_label_value};

/// How many bytes of keys and values a selector may name.
pub const MAX_SELECTOR_BYTES: usize = 4096;

/// A label selector, by keys in order. Source: `apimachinery/pkg/labels`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selector<T>(Vec<(T, Requirement<T>)>);

/// What is asked of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement<T> {
    values: Values<T>,
    may_be_absent: bool,
}

/// Values of a label, in order, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Values<T> {
    Only(Vec<T>),
    AllBut(Vec<T>),
}

impl<T: Ord> Selector<T> {
    fn of(requirements: impl IntoIterator<Item = (T, Requirement<T>)>) -> Self {
        let mut requirements: Vec<_> = requirements.into_iter().collect();
        requirements.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut merged: Vec<(T, Requirement<T>)> = Vec::new();
        for (key, requirement) in requirements {
            match merged.pop() {
                Some((last, known)) if last == key => merged.push((key, known.and(requirement))),
                last => merged.extend(last.into_iter().chain([(key, requirement)])),
            }
        }
        Self(merged)
    }

    /// Whether a pod with these labels meets it.
    pub(super) fn matches(&self, label: impl Fn(&T) -> Option<T>) -> bool {
        self.0
            .iter()
            .all(|(key, requirement)| requirement.passes(label(key).as_ref()))
    }

    /// Whether any pod can meet it.
    pub(super) fn is_satisfiable(&self) -> bool {
        self.0.iter().all(|(_, requirement)| requirement.is_satisfiable())
    }

    /// Whether there can be a pod that meets both, each of which some pod can meet. Cost: a pass over both.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let mut others = other.0.iter().peekable();
        self.0.iter().all(|(key, requirement)| {
            while others.next_if(|(other, _)| other < key).is_some() {}
            let same = others.peek().filter(|(other, _)| other == key);
            same.is_none_or(|(_, other)| requirement.overlaps(other))
        })
    }

    /// The keys of which it demands some values, and these.
    pub(super) fn demands(&self) -> impl Iterator<Item = (&T, &[T])> {
        self.0.iter().filter_map(|(key, requirement)| match requirement {
            Requirement {
                values: Values::Only(values),
                may_be_absent: false,
            } => Some((key, values.as_slice())),
            _ => None,
        })
    }

    /// The values of this label with which a pod may meet it, if these are some and not all but some.
    pub(super) fn only(&self, key: &T) -> Option<&[T]> {
        let at = self.0.binary_search_by(|(one, _)| one.cmp(key)).ok()?;
        match &self.0[at].1.values {
            Values::Only(values) => Some(values),
            Values::AllBut(_) => None,
        }
    }

    /// Keys and values.
    pub(super) fn texts(&self) -> impl Iterator<Item = &T> {
        self.0
            .iter()
            .flat_map(|(key, requirement)| requirement.values.named().iter().chain([key]))
    }

    /// The same with other names, which are in the same order.
    pub(super) fn renamed<U>(&self, name: impl Fn(&T) -> U) -> Selector<U> {
        let list = |values: &[T]| values.iter().map(&name).collect();
        let renamed = self.0.iter().map(|(key, requirement)| {
            let values = match &requirement.values {
                Values::Only(values) => Values::Only(list(values)),
                Values::AllBut(values) => Values::AllBut(list(values)),
            };
            let requirement = Requirement {
                values,
                may_be_absent: requirement.may_be_absent,
            };
            (name(key), requirement)
        });
        Selector(renamed.collect())
    }
}

impl<T: Ord> Requirement<T> {
    fn is_in(values: Vec<T>) -> Self {
        Self {
            values: Values::Only(in_order(values)),
            may_be_absent: false,
        }
    }

    fn is_not_in(values: Vec<T>) -> Self {
        Self {
            values: Values::AllBut(in_order(values)),
            may_be_absent: true,
        }
    }

    fn exists() -> Self {
        Self {
            values: Values::AllBut(vec![]),
            may_be_absent: false,
        }
    }

    fn does_not_exist() -> Self {
        Self {
            values: Values::Only(vec![]),
            may_be_absent: true,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            values: self.values.and(other.values),
            may_be_absent: self.may_be_absent && other.may_be_absent,
        }
    }

    fn passes(&self, value: Option<&T>) -> bool {
        value.map_or(self.may_be_absent, |value| self.values.contains(value))
    }

    fn is_satisfiable(&self) -> bool {
        self.may_be_absent || self.values != Values::Only(vec![])
    }

    fn overlaps(&self, other: &Self) -> bool {
        (self.may_be_absent && other.may_be_absent) || self.values.overlaps(&other.values)
    }
}

impl<T: Ord> Values<T> {
    fn named(&self) -> &[T] {
        match self {
            Values::Only(values) | Values::AllBut(values) => values,
        }
    }

    fn contains(&self, value: &T) -> bool {
        let is_named = self.named().binary_search(value).is_ok();
        matches!(self, Values::Only(_)) == is_named
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Values::AllBut(one), Values::AllBut(mut other)) => {
                other.extend(one);
                Values::AllBut(in_order(other))
            }
            (Values::Only(mut only), other) | (other, Values::Only(mut only)) => {
                only.retain(|value| other.contains(value));
                Values::Only(only)
            }
        }
    }

    /// There is always one more value than those that are named.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Values::AllBut(_), Values::AllBut(_)) => true,
            (Values::Only(only), other) | (other, Values::Only(only)) => only.iter().any(|value| other.contains(value)),
        }
    }
}

fn in_order<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort();
    values.dedup();
    values
}

/// What an expression asks, as it is written.
type Expression = (Box<str>, &'static str, Vec<Box<str>>);

impl Selector<Box<str>> {
    pub(super) fn read(field: &Field<'_>) -> Option<Self> {
        let [labels, expressions] = field.object(["matchLabels", "matchExpressions"])?;
        let labels = labels.entries().into_iter().flatten();
        let pairs = labels.filter_map(|(key, value)| {
            if !is_label_key(key) {
                value.fault("is not a label key: `[domain/]name`".into());
            }
            Some((key.into(), "In", vec![label_value(&value)?]))
        });
        let mut read: Vec<Expression> = pairs.collect();
        let expressions = expressions.list().into_iter().flatten();
        read.extend(expressions.filter_map(|field| read_expression(&field)));
        let text = read.iter().flat_map(|(key, _, values)| values.iter().chain([key]));
        let bytes = text.map(|text| text.len()).sum::<usize>();
        if bytes > MAX_SELECTOR_BYTES {
            field.fault(format!(
                "names {bytes} bytes of labels and values, more than {MAX_SELECTOR_BYTES}"
            ));
        }
        Some(Self::of(read.into_iter().map(|(key, operator, values)| {
            let requirement = match operator {
                "In" => Requirement::is_in(values),
                "NotIn" => Requirement::is_not_in(values),
                "Exists" => Requirement::exists(),
                _ => Requirement::does_not_exist(),
            };
            (key, requirement)
        })))
    }
}

fn read_expression(field: &Field<'_>) -> Option<Expression> {
    let [key, operator, values] = field.object(["key", "operator", "values"])?;
    let name = key.clone().required().string();
    if let Some(name) = name.filter(|name| !is_label_key(name)) {
        key.fault(format!("{name:?} is not a label key: `[domain/]name`"));
    }
    let list: Vec<_> = values
        .list()
        .into_iter()
        .flatten()
        .filter_map(|value| label_value(&value))
        .collect();
    let operator = operator
        .required()
        .word(&["In", "NotIn", "Exists", "DoesNotExist"].map(|word| (word, word)))?;
    let needs_values = matches!(operator, "In" | "NotIn");
    if needs_values != values.list().is_some_and(|list| !list.is_empty()) {
        let how = if needs_values { "stated" } else { "empty" };
        values.fault(format!("must be {how} with operator {operator}"));
    }
    Some((name?.into(), operator, list))
}

fn label_value(field: &Field<'_>) -> Option<Box<str>> {
    let text = field.string()?;
    if !is_label_value(text) {
        field.fault(format!(
            "{text:?} is not a label value: letters, digits, `-`, `_` and `.`, at most 63"
        ));
        return None;
    }
    Some(text.into())
}
