//! Audit log events of pod creations.

use serde_json::Value;

/// An audit log event: a pod was created, or would have been in a dry run.
#[derive(Debug)]
pub struct Creation(pub(crate) Value);

impl Creation {
    pub fn pod(&self) -> &str {
        self.0["responseObject"]["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.0["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun"))
    }

    /// The rounds in which the API server called this configuration, each with whether it changed the pod.
    pub fn rounds(&self, configuration: &str) -> Vec<(u32, bool)> {
        let calls = self.annotations("mutation.webhook.admission.k8s.io/");
        calls
            .filter_map(|(round, call)| {
                let call: Value = serde_json::from_str(call).ok()?;
                let round = round.strip_prefix("round_")?.split('_').next()?.parse().ok()?;
                (call["configuration"] == configuration).then(|| (round, call["mutated"] == true))
            })
            .collect()
    }

    /// Number of webhooks that failed open for this pod.
    pub fn failed_open(&self) -> usize {
        self.annotations("failed-open.mutation.webhook.admission.k8s.io/")
            .count()
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        let entries = ["placed", "pods", "policies"].into_iter();
        let mut values = entries.map(|entry| &self.0["annotations"][format!("{entry}.edgeward.io/{key}")]);
        values.find_map(Value::as_str)
    }

    fn annotations<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.0["annotations"].as_object().into_iter().flatten();
        all.filter_map(move |(key, value)| Some((key.strip_prefix(prefix)?, value.as_str()?)))
    }
}
