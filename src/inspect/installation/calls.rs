//! Reads from an API server's metrics how its webhook calls ended.

use std::collections::BTreeMap;
use std::pin::pin;

use futures::{AsyncBufRead, AsyncBufReadExt as _, TryStreamExt as _};

use crate::inspect::Connection;

/// Calls that one API server has made to the webhooks of one name since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// All calls.
    pub made: u64,
    /// Calls without an answer, or answered by a server that the API server does not trust.
    pub failed: u64,
}

impl Connection {
    /// Counts webhook calls by the name of the webhook. With several API servers, only the calls of the server that
    /// answers are counted.
    ///
    /// # Errors
    /// The API server's metrics cannot be read.
    pub async fn calls(&self) -> anyhow::Result<BTreeMap<String, Calls>> {
        let failure = |error| self.failure("cannot read its metrics", error);
        let request = http::Request::get("/metrics").body(vec![])?;
        let metrics = self.client.request_stream(request).await.map_err(failure)?;
        let read = read(metrics).await;
        read.map_err(|error| failure(kube::Error::ReadEvents(error)))
    }
}

/// Reads the metrics line by line, because they include megabytes of unrelated series.
async fn read(metrics: impl AsyncBufRead) -> std::io::Result<BTreeMap<String, Calls>> {
    let mut calls = BTreeMap::<String, Calls>::new();
    let mut lines = pin!(metrics.lines());
    while let Some(line) = lines.try_next().await? {
        let Some((metric, labels, count)) = series(&line) else {
            continue;
        };
        let (made, failed) = match metric {
            "admission_duration_seconds_count" => (count, 0),
            "fail_open_count" => (0, count),
            // Counts failures under `failurePolicy: Fail`. This metric also counts answers that refuse a pod.
            "rejection_count" if label(labels, "error_type") == Some("calling_webhook_error") => (0, count),
            _ => continue,
        };
        let Some(name) = label(labels, "name") else {
            continue;
        };
        let calls = calls.entry(name.to_owned()).or_default();
        calls.made += made;
        calls.failed += failed;
    }
    Ok(calls)
}

/// Splits a series about webhooks into name, labels and value.
fn series(line: &str) -> Option<(&str, &str, u64)> {
    let (metric, rest) = line.strip_prefix("apiserver_admission_webhook_")?.split_once('{')?;
    let (labels, value) = rest.rsplit_once("} ")?;
    // The values are counts, but large counts may be written as floats.
    let value: f64 = value.trim().parse().ok()?;
    Some((metric, labels, value as u64))
}

/// Returns the value of a label. The labels that are read contain no quotes.
fn label<'l>(labels: &'l str, name: &str) -> Option<&'l str> {
    let mut labels = labels.split(',');
    labels.find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_are_counted_by_the_name_of_the_webhook() {
        // Metrics in the format of Kubernetes 1.36.
        let metrics = r#"
# TYPE apiserver_admission_webhook_admission_duration_seconds histogram
apiserver_admission_webhook_admission_duration_seconds_bucket{name="pods.edgeward.io",operation="CREATE",rejected="false",type="admit",le="0.005"} 5
apiserver_admission_webhook_admission_duration_seconds_sum{name="pods.edgeward.io",operation="CREATE",rejected="false",type="admit"} 0.01
apiserver_admission_webhook_admission_duration_seconds_count{name="pods.edgeward.io",operation="CREATE",rejected="false",type="admit"} 5
apiserver_admission_webhook_admission_duration_seconds_count{name="pods.edgeward.io",operation="CREATE",rejected="true",type="admit"} 3
apiserver_admission_webhook_admission_duration_seconds_count{name="other.example.com",operation="UPDATE",rejected="false",type="validating"} 1e+06
apiserver_admission_webhook_fail_open_count{name="pods.edgeward.io",type="admit"} 4
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="pods.edgeward.io",operation="CREATE",rejection_code="0",type="admit"} 1
apiserver_admission_webhook_rejection_count{error_type="no_error",name="pods.edgeward.io",operation="CREATE",rejection_code="422",type="admit"} 2
apiserver_request_total{code="200",name="pods.edgeward.io"} 7
"#;
        let calls = read(metrics.as_bytes()).await.unwrap();
        let expected = [
            (
                "other.example.com".to_owned(),
                Calls {
                    made: 1_000_000,
                    failed: 0,
                },
            ),
            ("pods.edgeward.io".to_owned(), Calls { made: 8, failed: 5 }),
        ];
        assert_eq!(calls, BTreeMap::from(expected));
    }
}
