//! Reads from an API server's metrics how its webhook calls ended.

use crate::inspect::Connection;

/// Calls that one API server has made to webhooks since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// All calls.
    pub made: u64,
    /// Calls without an answer, or answered by a server that the API server does not trust.
    pub failed: u64,
}

impl Connection {
    /// Counts the calls to webhooks whose name `is_ours`. With several API servers, only the calls of the server that
    /// answers are counted.
    ///
    /// # Errors
    /// The API server's metrics cannot be read.
    pub async fn calls(&self, is_ours: impl Fn(&str) -> bool) -> anyhow::Result<Calls> {
        let request = http::Request::get("/metrics").body(vec![])?;
        let metrics = self.client.request_text(request).await;
        let metrics = metrics.map_err(|error| self.failure("cannot read its metrics", error))?;
        Ok(count(&metrics, is_ours))
    }
}

fn count(metrics: &str, is_ours: impl Fn(&str) -> bool) -> Calls {
    let mut calls = Calls::default();
    for (metric, labels, count) in metrics.lines().filter_map(series) {
        if !label(labels, "name").is_some_and(&is_ours) {
            continue;
        }
        match metric {
            "admission_duration_seconds_count" => calls.made += count,
            "fail_open_count" => calls.failed += count,
            // Counts failures under `failurePolicy: Fail`. This metric also counts answers that refuse a pod.
            "rejection_count" if label(labels, "error_type") == Some("calling_webhook_error") => calls.failed += count,
            _ => {}
        }
    }
    calls
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

    #[test]
    fn calls_are_counted_by_the_name_of_the_webhook() {
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
        let of = |name: &'static str| count(metrics, |found| found == name);
        assert_eq!(of("pods.edgeward.io"), Calls { made: 8, failed: 5 });
        let other = Calls {
            made: 1_000_000,
            failed: 0,
        };
        assert_eq!(of("other.example.com"), other);
    }
}
