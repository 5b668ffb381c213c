//! Label selectors in a form in which two of them are easy to compare: each key once, with everything that is asked of it
//! together.

use std::collections::BTreeMap;
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

/// A label selector, sorted by key. Source: `apimachinery/pkg/labels`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector(Vec<(Box<str>, Requirement)>);

/// What is asked of one label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Requirement {
    values: Values,
    may_be_absent: bool,
}

/// Values of a label, in order, each once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Values {
    Only(Vec<Box<str>>),
    AllBut(Vec<Box<str>>),
}

impl Selector {
    /// Whether an object with these labels meets it.
    pub(crate) fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|(key, requirement)| requirement.passes(label(key)))
    }

    /// Whether any pod can meet it.
    fn is_satisfiable(&self) -> bool {
        self.0.iter().all(|(_, requirement)| requirement.is_satisfiable())
    }

    /// Whether there can be a pod that meets both.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let overlaps = |(key, requirement): &(Box<str>, Requirement)| {
            let same = other.0.iter().find(|(other, _)| other == key);
            same.is_none_or(|(_, other)| requirement.overlaps(other))
        };
        self.is_satisfiable() && other.is_satisfiable() && self.0.iter().all(overlaps)
    }
}

impl Requirement {
    fn is_in(values: Vec<Box<str>>) -> Self {
        Self {
            values: Values::Only(in_order(values)),
            may_be_absent: false,
        }
    }

    fn is_not_in(values: Vec<Box<str>>) -> Self {
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

    fn passes(&self, value: Option<&str>) -> bool {
        value.map_or(self.may_be_absent, |value| self.values.contains(value))
    }

    fn is_satisfiable(&self) -> bool {
        self.may_be_absent || self.values != Values::Only(vec![])
    }

    fn overlaps(&self, other: &Self) -> bool {
        (self.may_be_absent && other.may_be_absent) || self.values.overlaps(&other.values)
    }
}

impl Values {
    fn named(&self) -> &[Box<str>] {
        match self {
            Values::Only(values) | Values::AllBut(values) => values,
        }
    }

    fn contains(&self, value: &str) -> bool {
        let is_named = self.named().binary_search_by(|named| (**named).cmp(value)).is_ok();
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

fn in_order(mut values: Vec<Box<str>>) -> Vec<Box<str>> {
    values.sort();
    values.dedup();
    values
}

impl Selector {
    /// What all of these ask.
    pub(crate) fn of_expressions(expressions: Vec<Expression>) -> Self {
        let mut selector = BTreeMap::<Box<str>, Requirement>::new();
        for (key, operator, values) in expressions {
            let requirement = match operator {
                Operator::In => Requirement::is_in(values),
                Operator::NotIn => Requirement::is_not_in(values),
                Operator::Exists => Requirement::exists(),
                Operator::DoesNotExist => Requirement::does_not_exist(),
            };
            let requirement = match selector.remove(&key) {
                Some(known) => known.and(requirement),
                None => requirement,
            };
            selector.insert(key, requirement);
        }
        Self(selector.into_iter().collect())
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
impl fmt::Display for Selector {
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
            let label = |key: &str| labels.iter().find(|(known, _)| *known == key);
            Selector::parse(selector)
                .unwrap()
                .matches(|key| label(key).map(|(_, value)| *value))
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
