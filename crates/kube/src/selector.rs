//! Label selectors.

use std::fmt;

use crate::constraints::{is_label_key, is_label_value};
use crate::words;

words! {
    /// Operator of an expression.
    pub enum Operator {
        /// The label has one of the values.
        In = "In",
        /// The label has none of the values, or does not exist.
        NotIn = "NotIn",
        /// The label exists.
        Exists = "Exists",
        /// The label does not exist.
        DoesNotExist = "DoesNotExist",
    }
}

/// One expression of a selector: key, operator and values.
pub type Expression = (Box<str>, Operator, Vec<Box<str>>);

/// A label selector. All of its expressions must hold. Source: `apimachinery/pkg/labels`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector(pub Vec<Expression>);

impl Selector {
    /// Whether the selector matches an object with these labels.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|(key, operator, values)| {
            let label = label(key);
            let is_named = || label.is_some_and(|label| values.iter().any(|value| **value == *label));
            match operator {
                Operator::In => is_named(),
                Operator::NotIn => !is_named(),
                Operator::Exists => label.is_some(),
                Operator::DoesNotExist => label.is_none(),
            }
        })
    }

    /// Parses the syntax of `kubectl -l`, without `<` and `>`: `region in (eu),tier!=spot,gpu,!lent`. Returns `None`
    /// for any other text. Cost: a pass over the text. Source: `apimachinery/pkg/labels.Parse`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut depth = 0_u32;
        let expressions = text.split(|character| {
            match character {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            character == ',' && depth == 0
        });
        let expressions: Option<_> = expressions.map(|one| parse_expression(one.trim())).collect();
        expressions.map(Self)
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

/// Formats the selector so that `Selector::parse` and kubectl accept it.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (key, operator, values)) in self.0.iter().enumerate() {
            let separator = if at > 0 { "," } else { "" };
            match operator {
                Operator::In => write!(f, "{separator}{key} in ({})", values.join(","))?,
                Operator::NotIn => write!(f, "{separator}{key} notin ({})", values.join(","))?,
                Operator::Exists => write!(f, "{separator}{key}")?,
                Operator::DoesNotExist => write!(f, "{separator}!{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_parse_as_in_kubectl() {
        for (text, shown) in [
            ("region in (eu, us),tier!=spot", "region in (eu,us),tier notin (spot)"),
            ("a=b", "a in (b)"),
            ("a == b , !c", "a in (b),!c"),
            ("example.com/gpu", "example.com/gpu"),
            ("a notin (x),a", "a notin (x),a"),
            ("a in (x),a in (y)", "a in (x),a in (y)"),
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
    fn selector_matches_values_presence_and_absence_of_labels() {
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
