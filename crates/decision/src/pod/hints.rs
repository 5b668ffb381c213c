//! Hints about labels and annotations that are meant for edgeward but have no effect.

use crate::keys::Keys;
use crate::model::slo::{self, Management};
use crate::model::workload::Workload;
use crate::pod::Pod;

/// Maximum number of keys of one pod that are named.
const MAX_HINTS: usize = 5;

impl Pod<'_> {
    /// Returns a sentence for each SLO key without effect: SLO keys used as labels and, if the pod states nothing to
    /// decide by, SLO annotations. At most five keys are named; a last sentence gives the number of the others.
    /// `workload` is the pod as it was read. Cost: a pass over the labels, and over the annotations if there is no SLO.
    pub fn hints(&self, workload: &Workload<'_>, keys: &Keys) -> Vec<String> {
        if workload.management == Management::OptedOut {
            return vec![];
        }
        let prefix = &keys.slo_prefix;
        let is_slo = |(key, _): &(&str, &str)| key.starts_with(prefix.as_str());
        let misplaced = self.labels().filter(is_slo).map(|(key, _)| (key, true));
        let annotations = self.annotations().filter(|_| workload.intent.is_none());
        let idle = annotations.into_iter().flat_map(|all| all.iter()).filter(is_slo);
        let mut all = misplaced.chain(idle.map(|(key, _)| (key, false)));
        let sentence = |(key, is_label): (&str, _)| match key.strip_prefix(prefix.as_str()) {
            _ if is_label => format!("{key} is a label; edgeward reads it as an annotation"),
            Some(name) if !slo::is_read(name) => slo::not_read(key),
            _ => format!("{key} has no effect without {prefix}class"),
        };
        let mut hints: Vec<_> = all.by_ref().take(MAX_HINTS).map(sentence).collect();
        match all.count() {
            0 => {}
            more => hints.push(format!(
                "{prefix}…: keys without effect that are not named here: {more}"
            )),
        }
        hints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(metadata: &str) -> Vec<String> {
        let text = format!(r#"{{"metadata":{metadata},"spec":{{}}}}"#);
        let (pod, keys) = (Pod::from_json(&text).unwrap(), Keys::new("example.io"));
        pod.hints(&pod.workload("shop".into(), &keys), &keys)
    }

    #[test]
    fn keys_without_effect_are_named() {
        for (metadata, expected) in [
            ("{}", ""),
            (
                r#"{"annotations":{"slo.example.io/deadlineMs":"5","team":"a"}}"#,
                "slo.example.io/deadlineMs has no effect without slo.example.io/class",
            ),
            (
                r#"{"annotations":{"slo.example.io/deadlineMs":"5","slo.example.io/class":"batch"}}"#,
                "",
            ),
            (
                r#"{"annotations":{"slo.example.io/clas":"batch"}}"#,
                "slo.example.io/clas is not an annotation that edgeward reads",
            ),
            (
                r#"{"labels":{"app":"a","slo.example.io/class":"batch"}}"#,
                "slo.example.io/class is a label; edgeward reads it as an annotation",
            ),
            (
                r#"{"labels":{"scheduling.example.io/managed":"false","slo.example.io/class":"batch"}}"#,
                "",
            ),
        ] {
            assert_eq!(hints(metadata).join(";"), expected, "{metadata}");
        }
    }

    #[test]
    fn hints_beyond_the_limit_are_only_counted() {
        let many: Vec<_> = (0..100).map(|i| format!(r#""slo.example.io/x{i}":"""#)).collect();
        let hints = hints(&format!(r#"{{"annotations":{{{}}}}}"#, many.join(",")));
        assert_eq!(hints.len(), MAX_HINTS + 1);
        assert_eq!(
            hints[MAX_HINTS],
            "slo.example.io/…: keys without effect that are not named here: 95"
        );
    }
}
