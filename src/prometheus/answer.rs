//! Sends a query and extracts the series from the answer. The token and CA files may change at run time.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use edgeward_decision::config::Prometheus;
use edgeward_kube::excerpt::excerpt;
use edgeward_kube::units::Micros;
use edgeward_profiles::Series;
use http::header::AUTHORIZATION;
use http::{HeaderValue, StatusCode};
use prometheus_http_query::Client;
use prometheus_http_query::response::{Data, InstantVector, RangeVector};
use reqwest::Certificate;
use reqwest::redirect::Policy;

use crate::platform::clock::Clock;
use crate::tls::install_crypto_provider;

edgeward_kube::words! {
    /// Result of a query. Any outcome except `Ok` leaves the last value unchanged.
    pub enum Outcome {
        /// Every series was used.
        Ok = "ok",
        /// The answer has no series.
        Empty = "empty",
        /// A value is NaN or infinite.
        NotANumber = "not_a_number",
        /// A value is negative, or exceeds the range of its unit.
        OutOfRange = "out_of_range",
        /// There is more than one series for one place.
        Ambiguous = "ambiguous",
        /// A series names no site, or an unknown site or class.
        Label = "label",
        /// The result is a scalar or a range.
        NotAVector = "not_a_vector",
        /// A sample is older than the staleness limit.
        Stale = "stale",
        /// HTTP status 3xx or 4xx. The usual causes are faulty PromQL and missing rights.
        Rejected = "rejected",
        /// HTTP status 5xx.
        ServerError = "server_error",
        /// There was no answer in time.
        Timeout = "timeout",
        /// There was no connection, or it ended early.
        Unreachable = "unreachable",
        /// The answer has too many bytes.
        TooLarge = "too_large",
        /// The answer does not have Prometheus's format.
        Malformed = "malformed",
    }
}

/// The most bytes of a failure's detail.
const LONGEST_DETAIL: usize = 300;

/// An outcome except `Ok`, with details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the failure.
    pub outcome: Outcome,
    /// Server message or finding; long text is cut off.
    pub detail: String,
}

impl Failure {
    /// Creates a failure. The detail may come from the server, so it is shortened.
    pub(crate) fn new(outcome: Outcome, detail: impl Display) -> Self {
        let detail = excerpt(detail, LONGEST_DETAIL);
        Self { outcome, detail }
    }
}

/// Token and CA certificates, each if configured.
type Files = [Option<Vec<u8>>; 2];

pub(crate) struct Connection {
    settings: Prometheus,
    /// The client, and the files that it was made from.
    current: Mutex<Option<(Files, Client)>>,
}

impl Connection {
    /// Reads and sends nothing yet.
    pub(crate) fn new(settings: &Prometheus) -> Self {
        install_crypto_provider();
        Self {
            settings: settings.clone(),
            current: Mutex::default(),
        }
    }

    /// Returns a client with the current files.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let files = [
            read_file(self.settings.token_file.as_ref()).await?,
            read_file(self.settings.ca_file.as_ref()).await?,
        ];
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = &*current
            && *known == files
        {
            return Ok(client.clone());
        }
        let client = open(&self.settings, &files)?;
        *current = Some((files, client.clone()));
        Ok(client)
    }
}

async fn read_file(path: Option<&PathBuf>) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(path) = path else { return Ok(None) };
    let read = tokio::fs::read(path).await;
    read.map(Some).with_context(|| path.display().to_string())
}

fn open(settings: &Prometheus, [token, authorities]: &Files) -> anyhow::Result<Client> {
    // All settings are arguments, so proxies from the environment are ignored. A redirect would lead to a login page,
    // or leak the token.
    let mut builder = reqwest::Client::builder().no_proxy().redirect(Policy::none());
    if let Some(token) = token {
        let token = std::str::from_utf8(token).map_or("", str::trim);
        anyhow::ensure!(!token.is_empty(), "prometheus.tokenFile holds no token");
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).context("prometheus.tokenFile")?;
        value.set_sensitive(true);
        builder = builder.default_headers([(AUTHORIZATION, value)].into_iter().collect());
    }
    if let Some(pem) = authorities {
        let certificates = Certificate::from_pem_bundle(pem).context("prometheus.caFile")?;
        anyhow::ensure!(!certificates.is_empty(), "prometheus.caFile holds no certificate");
        builder = builder.tls_certs_only(certificates);
    }
    Client::from(builder.build()?, &settings.url).with_context(|| format!("prometheus.url: {}", settings.url))
}

/// The most bytes of an answer that are read. A series takes about 100.
const MAX_ANSWER: usize = 4 << 20;

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
    clock: Clock,
) -> Result<Vec<Series>, Failure> {
    // The values were valid at some time between question and answer. The earlier time is the safe choice.
    let asked_at = clock.moment();
    let timeout = Duration::from_micros(patience.0);
    let exchange = async {
        let client = connection.client().await;
        let client = client.map_err(|error| Failure::new(Outcome::Unreachable, format_args!("{error:#}")))?;
        let query = client.query(promql).timeout(milliseconds(patience));
        body(query.get_raw().await, MAX_ANSWER).await
    };
    let (status, body) = tokio::time::timeout(timeout, exchange)
        .await
        .map_err(|_| late(patience))??;
    let received = clock.now();
    let read = |series: InstantVector| {
        let (labels, sample) = series.into_inner();
        // The age is the difference of both machines' wall clocks. The cast saturates, so a sample from the future has age
        // zero.
        let age = Micros((received.wall.as_microsecond() as f64 - sample.timestamp() * 1e6) as u64);
        Series {
            labels: labels.into_iter().collect(),
            value: sample.value(),
            at: received.moment.before(age).min(asked_at),
        }
    };
    Ok(interpret(status, &body)?.into_iter().map(read).collect())
}

/// The most bytes of the answer to a range query that are read. A sample takes about 30.
const MAX_RANGE: usize = 64 << 20;

/// The times of a range query, in Unix seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) step: i64,
}

/// Sends a query for a range of times once and returns the series of the answer.
pub(crate) async fn ask_range(
    connection: &Connection,
    promql: &str,
    range: Range,
    patience: Micros,
) -> Result<Vec<RangeVector>, Failure> {
    let exchange = async {
        let client = connection.client().await;
        let client = client.map_err(|error| Failure::new(Outcome::Unreachable, format_args!("{error:#}")))?;
        let query = client.query_range(promql, range.first, range.last, range.step as f64);
        body(query.timeout(milliseconds(patience)).get_raw().await, MAX_RANGE).await
    };
    let answered = tokio::time::timeout(Duration::from_micros(patience.0), exchange).await;
    let (status, body) = answered.map_err(|_| late(patience))??;
    match data(status, &body)? {
        Data::Matrix(series) => Ok(series),
        _ => Err(Failure::new(Outcome::Malformed, "not a range")),
    }
}

fn late(patience: Micros) -> Failure {
    Failure::new(Outcome::Timeout, format_args!("no answer in {patience} ms"))
}

fn milliseconds(patience: Micros) -> i64 {
    i64::try_from(patience.0 / 1_000).unwrap_or(i64::MAX)
}

type Asked = Result<reqwest::Response, prometheus_http_query::Error>;

/// Reads the status and the bytes of an answer.
async fn body(asked: Asked, most: usize) -> Result<(StatusCode, Vec<u8>), Failure> {
    let unreachable = |error: anyhow::Error| Failure::new(Outcome::Unreachable, error.root_cause());
    let mut response = asked.map_err(|error| unreachable(error.into()))?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(error.into()))? {
        body.extend_from_slice(&chunk);
        if body.len() > most {
            let detail = format_args!("the answer is longer than {most} bytes");
            return Err(Failure::new(Outcome::TooLarge, detail));
        }
    }
    Ok((response.status(), body))
}

/// Returns the series of an answer to an instant query, or why it cannot be used.
fn interpret(status: StatusCode, body: &[u8]) -> Result<Vec<InstantVector>, Failure> {
    match data(status, body)? {
        Data::Vector(series) => Ok(series),
        data => {
            let kind = if data.is_scalar() { "scalar" } else { "range" };
            let detail = format_args!("a {kind} and not an instant vector");
            Err(Failure::new(Outcome::NotAVector, detail))
        }
    }
}

/// Returns the data of an answer, or why there is none.
fn data(status: StatusCode, body: &[u8]) -> Result<Data, Failure> {
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
        Ok(Answer::Success { data }) => Ok(data),
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
        assert!(outcome(400, &long).1.len() <= LONGEST_DETAIL + '…'.len_utf8());
    }
}
