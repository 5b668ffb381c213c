//! Label selectors of Kubernetes objects.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::document::Checks;
use crate::model::constraints::{is_label_key, is_label_value};
use crate::model::selector::{Expression, Operator, Selector};

/// The most bytes of keys and values in a selector.
pub const MAX_SELECTOR_BYTES: usize = 4096;

/// A label selector with `matchLabels` and `matchExpressions`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LabelSelector {
    match_labels: Option<BTreeMap<Box<str>, Box<str>>>,
    match_expressions: Option<Vec<Requirement>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
    values: Option<Vec<Box<str>>>,
}

impl LabelSelector {
    /// Checks and converts the selector. Faults are reported for this field.
    pub(super) fn selector(self, field: &str, checks: &mut Checks<'_>) -> Selector {
        let labels = self.match_labels.into_iter().flatten();
        let labels = labels.map(|(key, value)| (key, Operator::In, vec![value]));
        let requirements = self.match_expressions.into_iter().flatten();
        let requirements = requirements.map(|one| (one.key, one.operator, one.values.unwrap_or_default()));
        let expressions: Vec<Expression> = labels.chain(requirements).collect();
        for (key, operator, values) in &expressions {
            if !is_label_key(key) {
                checks.fault(field, format_args!("{key:?} is not a label key: `[domain/]name`"));
            }
            for value in values.iter().filter(|value| !is_label_value(value)) {
                let rule = "letters, digits, `-`, `_` and `.`, at most 63";
                checks.fault(field, format_args!("{value:?} is not a label value: {rule}"));
            }
            let needs_values = matches!(operator, Operator::In | Operator::NotIn);
            if needs_values == values.is_empty() {
                let how = if needs_values { "stated" } else { "empty" };
                let message = format_args!("values of {key:?} must be {how} with operator {}", operator.as_str());
                checks.fault(field, message);
            }
        }
        let text = expressions
            .iter()
            .flat_map(|(key, _, values)| values.iter().chain([key]));
        let bytes = text.map(|text| text.len()).sum::<usize>();
        if bytes > MAX_SELECTOR_BYTES {
            let message = format_args!("names {bytes} bytes of labels and values, more than {MAX_SELECTOR_BYTES}");
            checks.fault(field, message);
        }
        Selector(expressions)
    }
}
