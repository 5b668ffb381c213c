//! Label selectors as objects have them.

use crate::document::Field;
use crate::model::constraints::{is_label_key, is_label_value};
use crate::model::selector::{Expression, Operator, Selector};

/// How many bytes of keys and values a selector may name.
pub const MAX_SELECTOR_BYTES: usize = 4096;

/// Reads `matchLabels` and `matchExpressions`.
pub(super) fn read(field: &Field<'_>) -> Option<Selector> {
    let [labels, expressions] = field.object(["matchLabels", "matchExpressions"])?;
    let labels = labels.entries().into_iter().flatten();
    let pairs = labels.filter_map(|(key, value)| {
        if !is_label_key(key) {
            value.fault("is not a label key: `[domain/]name`".into());
        }
        Some((key.into(), Operator::In, vec![label_value(&value)?]))
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
    Some(Selector(read))
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
    let operator = operator.required().word(&Operator::BY_WORD)?;
    let needs_values = matches!(operator, Operator::In | Operator::NotIn);
    if needs_values != values.list().is_some_and(|list| !list.is_empty()) {
        let how = if needs_values { "stated" } else { "empty" };
        values.fault(format!("must be {how} with operator {}", operator.as_str()));
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
