//! Label selectors in a form in which two of them are easy to compare: each key once, with everything that is asked of it
//! together.

use std::fmt;

use crate::model::constraints::{is_label_key, is_label_value};
use crate::words;

words! {
    /// How an expression relates a label to values.
    pub enum Operator {
        /// It has one of them.
        In = "In",
        /// It has none of them, or is not there.
        NotIn = "NotIn",
        /// It is there.
        Exists = "Exists",
        /// It is not there.
        DoesNotExist = "DoesNotExist",
    }
}

/// What is asked of a label, as it is written.
pub(crate) type Expression = (Box<str>, Operator, Vec<Box<str>>);

/// A label selector, by keys in order. Source: `apimachinery/pkg/labels`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector<T>(Vec<(T, Requirement<T>)>);

/// What is asked of one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement<T> {
    values: Values<T>,
    may_be_absent: bool,
}

/// Values of a label, in order, each once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

    /// Whether an object with these labels meets it.
    pub(crate) fn matches<'l>(&self, label: impl Fn(&T) -> Option<&'l T>) -> bool
    where
        T: 'l,
    {
        self.0.iter().all(|(key, requirement)| requirement.passes(label(key)))
    }

    /// Whether any pod can meet it.
    pub(crate) fn is_satisfiable(&self) -> bool {
        self.0.iter().all(|(_, requirement)| requirement.is_satisfiable())
    }

    /// Whether there can be a pod that meets both, each of which some pod can meet. Cost: a pass over both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let mut others = other.0.iter().peekable();
        self.0.iter().all(|(key, requirement)| {
            while others.next_if(|(other, _)| other < key).is_some() {}
            let same = others.peek().filter(|(other, _)| other == key);
            same.is_none_or(|(_, other)| requirement.overlaps(other))
        })
    }

    /// The keys of which it demands some values, and these.
    pub(crate) fn demands(&self) -> impl Iterator<Item = (&T, &[T])> {
        self.0.iter().filter_map(|(key, requirement)| match requirement {
            Requirement {
                values: Values::Only(values),
                may_be_absent: false,
            } => Some((key, values.as_slice())),
            _ => None,
        })
    }

    /// The values of this label with which a pod may meet it, if these are some and not all but some.
    pub(crate) fn only(&self, key: &T) -> Option<&[T]> {
        let at = self.0.binary_search_by(|(one, _)| one.cmp(key)).ok()?;
        match &self.0[at].1.values {
            Values::Only(values) => Some(values),
            Values::AllBut(_) => None,
        }
    }

    /// Keys and values.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &T> {
        self.0
            .iter()
            .flat_map(|(key, requirement)| requirement.values.named().iter().chain([key]))
    }

    /// The same with other names, which are in the same order.
    pub(crate) fn renamed<U>(&self, name: impl Fn(&T) -> U) -> Selector<U> {
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

impl Selector<Box<str>> {
    /// What all of these ask.
    pub(crate) fn of_expressions(expressions: Vec<Expression>) -> Self {
        Self::of(expressions.into_iter().map(|(key, operator, values)| {
            let requirement = match operator {
                Operator::In => Requirement::is_in(values),
                Operator::NotIn => Requirement::is_not_in(values),
                Operator::Exists => Requirement::exists(),
                Operator::DoesNotExist => Requirement::does_not_exist(),
            };
            (key, requirement)
        }))
    }

    /// Reads what kubectl takes behind `-l`, without `<` and `>`: `region in (eu),tier!=spot,gpu,!lent`. `None` if it is not
    /// that. Cost: a pass over the text. Source: `apimachinery/pkg/labels.Parse`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut depth = 0_u32;
        let expressions = text.split(|character| {
            match character {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            character == ',' && depth == 0
        });
        let expressions: Option<Vec<_>> = expressions.map(|one| parse_expression(one.trim())).collect();
        Some(Self::of_expressions(expressions?))
    }
}

fn parse_expression(text: &str) -> Option<Expression> {
    let key = |key: &str| Some(key.trim()).filter(|key| is_label_key(key)).map(Box::from);
    let value = |value: &str| Some(value.trim()).filter(|value| is_label_value(value)).map(Box::from);
    if let Some(absent) = text.strip_prefix('!') {
        return Some((key(absent)?, Operator::DoesNotExist, vec![]));
    }
    if let Some((one, other)) = text.split_once("!=") {
        return Some((key(one)?, Operator::NotIn, vec![value(other)?]));
    }
    if let Some((one, other)) = text.split_once('=') {
        let other = other.strip_prefix('=').unwrap_or(other);
        return Some((key(one)?, Operator::In, vec![value(other)?]));
    }
    let Some(list) = text.strip_suffix(')') else {
        return Some((key(text)?, Operator::Exists, vec![]));
    };
    let (before, list) = list.split_once('(')?;
    let (name, word) = before.trim_end().rsplit_once(char::is_whitespace)?;
    let operator = match word {
        "in" => Operator::In,
        "notin" => Operator::NotIn,
        _ => return None,
    };
    let values: Option<Vec<_>> = list.split(',').map(value).collect();
    Some((key(name)?, operator, values?))
}

/// As it is parsed.
impl fmt::Display for Selector<Box<str>> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, requirement)) in self.0.iter().enumerate() {
            let separator = if at > 0 { "," } else { "" };
            let list = |values: &[Box<str>]| values.join(",");
            write!(f, "{separator}")?;
            match (&requirement.values, requirement.may_be_absent) {
                (Values::Only(values), true) if values.is_empty() => write!(f, "!{key}")?,
                (Values::AllBut(values), false) if values.is_empty() => write!(f, "{key}")?,
                (Values::Only(values), _) => write!(f, "{key} in ({})", list(values))?,
                (Values::AllBut(values), true) => write!(f, "{key} notin ({})", list(values))?,
                (Values::AllBut(values), false) => write!(f, "{key},{key} notin ({})", list(values))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_kubectl_takes_them() {
        for (text, shown) in [
            ("region in (eu, us),tier!=spot", "region in (eu,us),tier notin (spot)"),
            ("a=b", "a in (b)"),
            ("a == b , !c", "a in (b),!c"),
            ("example.com/gpu", "example.com/gpu"),
            ("a notin (x),a", "a,a notin (x)"),
            ("a in (x),a in (y)", "a in ()"),
            ("a=", "a in ()"),
            ("in in (in)", "in in (in)"),
        ] {
            let read = Selector::parse(text).unwrap();
            assert_eq!(read.to_string(), shown, "{text}");
        }
        let wrong = [
            "",
            ",",
            "a,",
            "a in",
            "a in x",
            "a in (x",
            "a (x)",
            "a in (x))",
            "a in ((x))",
            "a>1",
            "a b",
            "-a",
            "!a=b",
            "a=b c",
            "a,,b",
            "a in (x) b",
            "a!b",
            "a === b",
            "ä",
        ];
        for text in wrong {
            assert_eq!(Selector::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_selector_asks_for_values_and_for_labels_that_are_there_or_not() {
        let meets = |selector: &str, labels: &[(&str, &str)]| {
            let labels: std::collections::BTreeMap<Box<str>, Box<str>> = labels
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect();
            Selector::parse(selector).unwrap().matches(|key| labels.get(key))
        };
        assert!(meets("region in (eu,us)", &[("region", "us")]));
        assert!(!meets("region in (eu,us)", &[("region", "asia")]));
        assert!(!meets("region in (eu,us)", &[]));
        assert!(meets("tier!=spot", &[]));
        assert!(!meets("tier!=spot", &[("tier", "spot")]));
        assert!(meets("gpu,!lent", &[("gpu", "")]));
        assert!(!meets("gpu,!lent", &[("gpu", ""), ("lent", "x")]));
        assert!(!meets("a in (x),a in (y)", &[("a", "x")]));
    }
}
