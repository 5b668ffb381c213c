//! Label selectors of Kubernetes objects.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::document::Checks;
use edgeward_kube::selector::{Expression, Operator, Selector};
use edgeward_kube::texts::{LabelKey, LabelValue, Labels};

/// The most bytes of keys and values in a selector.
pub const MAX_SELECTOR_BYTES: usize = 4096;

/// Selects objects by their labels, as in Kubernetes' own kinds.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LabelSelector {
    /// Labels that must all be present.
    #[schemars(with = "Option<Labels>", extend("maxProperties" = 32))]
    match_labels: Option<BTreeMap<Box<str>, Box<str>>>,
    /// Requirements that must all be met.
    #[schemars(length(max = 16))]
    match_expressions: Option<Vec<Requirement>>,
}

/// A requirement on one label.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Requirement {
    /// The label key.
    #[schemars(with = "LabelKey")]
    key: Box<str>,
    /// How the label relates to the values.
    operator: Operator,
    /// The values, for In and NotIn.
    #[schemars(with = "Option<Vec<LabelValue>>", length(max = 64))]
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
