//! Sends a query and extracts the series from the answer.

use std::time::Duration;

use edgeward_kube::units::Micros;
use http::StatusCode;
use prometheus_http_query::Client;
use prometheus_http_query::response::{Data, InstantVector};

use crate::prometheus::client::Connection;
use crate::prometheus::outcome::{Failure, Outcome};

/// The most bytes of an answer that are read. A series takes about 100.
const MAX_ANSWER: usize = 1 << 20;

/// Answer format of Prometheus. Source: <https://prometheus.io/docs/prometheus/latest/querying/api/#format-overview>.
#[derive(serde::Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Answer {
    Success {
        data: Data,
    },
    Error {
        #[serde(rename = "errorType")]
        kind: String,
        #[serde(rename = "error")]
        message: String,
    },
}

/// Sends a query once and returns the series of the answer. Uses GET, which needs the fewest rights in most clusters.
/// The request contains our timeout, so that the server does not continue after it.
pub(crate) async fn ask(
    connection: &Connection,
    promql: &str,
    patience: Micros,
) -> Result<Vec<InstantVector>, Failure> {
    let timeout = Duration::from_micros(patience.0);
    let exchange = async {
        let client = connection.client().await?;
        exchange(&client, promql, timeout.as_millis()).await
    };
    let late = |_| Failure::new(Outcome::Timeout, format_args!("no answer in {patience} ms"));
    let (status, body) = tokio::time::timeout(timeout, exchange).await.map_err(late)??;
    interpret(status, &body)
}

async fn exchange(client: &Client, promql: &str, timeout_ms: u128) -> Result<(StatusCode, Vec<u8>), Failure> {
    let unreachable = |error: anyhow::Error| Failure::new(Outcome::Unreachable, error.root_cause());
    let timeout_ms = i64::try_from(timeout_ms).unwrap_or(i64::MAX);
    let asked = client.query(promql).timeout(timeout_ms).get_raw().await;
    let mut response = asked.map_err(|error| unreachable(error.into()))?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(error.into()))? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_ANSWER {
            let detail = format_args!("the answer is longer than {MAX_ANSWER} bytes");
            return Err(Failure::new(Outcome::TooLarge, detail));
        }
    }
    Ok((response.status(), body))
}

/// Returns the series of an answer, or why it cannot be used.
fn interpret(status: StatusCode, body: &[u8]) -> Result<Vec<InstantVector>, Failure> {
    let answer = serde_json::from_slice(body);
    if !status.is_success() {
        let outcome = match status.is_server_error() {
            true => Outcome::ServerError,
            false => Outcome::Rejected,
        };
        let Ok(Answer::Error { kind, message }) = answer else {
            return Err(Failure::new(outcome, status));
        };
        let outcome = if kind == "timeout" { Outcome::Timeout } else { outcome };
        return Err(Failure::new(outcome, format_args!("{status}, {kind}: {message}")));
    }
    match answer {
        Ok(Answer::Success {
            data: Data::Vector(series),
        }) => Ok(series),
        Ok(Answer::Success { data }) => {
            let kind = if data.is_scalar() { "scalar" } else { "range" };
            let detail = format_args!("a {kind} and not an instant vector");
            Err(Failure::new(Outcome::NotAVector, detail))
        }
        Ok(Answer::Error { kind, message }) => {
            let detail = format_args!("{status}, yet {kind}: {message}");
            Err(Failure::new(Outcome::Malformed, detail))
        }
        Err(error) => Err(Failure::new(Outcome::Malformed, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn outcome(status: u16, body: &str) -> (Outcome, String) {
        let answer = interpret(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        answer.map_or_else(
            |failure| (failure.outcome, failure.detail),
            |series| (Outcome::Ok, series.len().to_string()),
        )
    }

    fn data(kind: &str, result: Value) -> String {
        json!({"status": "success", "data": {"resultType": kind, "result": result}, "warnings": ["partial"]})
            .to_string()
    }

    #[test]
    fn every_answer_has_an_outcome() {
        let series = json!({"metric": {"site": "edge"}, "value": [1700000000.123, "NaN"]});
        let error = |kind: &str| json!({"status": "error", "errorType": kind, "error": "no"}).to_string();
        for (expected, detail, status, body) in [
            (Outcome::Ok, "1", 200, data("vector", json!([series]))),
            (Outcome::Ok, "0", 200, data("vector", json!([]))),
            (Outcome::NotAVector, "scalar", 200, data("scalar", json!([1, "1"]))),
            (
                Outcome::NotAVector,
                "range",
                200,
                data("matrix", json!([{"metric": {}, "values": [[1, "1"]]}])),
            ),
            (Outcome::Malformed, "string", 200, data("string", json!([1, "x"]))),
            (
                Outcome::Malformed,
                "",
                200,
                data("vector", json!([{"metric": {}, "value": [1, "one"]}])),
            ),
            (Outcome::Malformed, "", 200, data("surprise", json!([]))),
            (Outcome::Malformed, "", 200, "<html>log in</html>".into()),
            (Outcome::Malformed, "", 200, String::new()),
            (Outcome::Malformed, "bad_data: no", 200, error("bad_data")),
            (
                Outcome::Rejected,
                "400 Bad Request, bad_data: no",
                400,
                error("bad_data"),
            ),
            (
                Outcome::Rejected,
                "422 Unprocessable Entity, execution: no",
                422,
                error("execution"),
            ),
            (Outcome::Rejected, "403 Forbidden", 403, "no".into()),
            (Outcome::Rejected, "302 Found", 302, String::new()),
            (Outcome::ServerError, "500 Internal Server Error", 500, "no".into()),
            (Outcome::ServerError, "canceled: no", 503, error("canceled")),
            (Outcome::Timeout, "timeout: no", 503, error("timeout")),
        ] {
            let found = outcome(status, &body);
            assert!(found.0 == expected && found.1.contains(detail), "{body}: {found:?}");
        }
        let long = json!({"status": "error", "errorType": "bad_data", "error": "é".repeat(1_000)}).to_string();
        assert_eq!(outcome(400, &long).1.chars().count(), 301);
    }
}
