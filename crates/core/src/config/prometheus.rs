//! The section `prometheus`: which server is asked, and for what.

use std::path::PathBuf;

use crate::config::declaration::{Kind, Read};
use crate::document::Field;
use crate::model::endpoint::without_user;
use crate::units::Micros;
use crate::words;

/// A Prometheus server and what it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prometheus {
    /// Its address, `http://` or `https://`, with the path under which its API is if there is one.
    pub url: String,
    /// Whether the view of the cluster counts as stale when one of the inputs is.
    pub required: bool,
    /// File with a bearer token; read again when it changes.
    pub token_file: Option<PathBuf>,
    /// File with the CA certificates that are trusted, instead of the system's; read again when it changes.
    pub ca_file: Option<PathBuf>,
    /// Time between two times that a query is asked.
    pub period: Micros,
    /// How long an answer is waited for.
    pub timeout: Micros,
    /// Age from which a value no longer counts.
    pub staleness: Micros,
    /// What it is asked beside the metrics of performance profiles; each input once.
    pub queries: Vec<Query>,
}

impl Prometheus {
    /// The inputs without which the view of the cluster counts as stale.
    #[must_use]
    pub fn required_inputs(&self) -> Vec<Input> {
        let inputs = self.queries.iter().map(|query| query.input);
        inputs
            .filter(|input| self.required && input.can_be_required())
            .collect()
    }
}

/// One question, asked again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// What the answer is.
    pub input: Input,
    /// The question.
    pub promql: String,
}

words! {
    /// What a query asks for.
    pub enum Input {
        /// CPU that is free at the edge as a whole, in cores.
        EdgeFreeCpu = "edgeFreeCpuCores",
        /// Memory that is free at the edge as a whole, in bytes.
        EdgeFreeMemory = "edgeFreeMemoryBytes",
        /// Mean processing time in seconds, by the labels `site` and `class`.
        Processing = "processingSeconds",
        /// RTT to a cloud site in seconds, by the label `site`.
        WanRtt = "wanRttSeconds",
        /// Loss on the way to a cloud site from 0 to 1, by the label `site`.
        WanLoss = "wanLossRatio",
    }
}

impl Input {
    /// Whether `prometheus.required` speaks of it. That no work was observed lately is no failure.
    #[must_use]
    pub const fn can_be_required(self) -> bool {
        !matches!(self, Self::Processing)
    }
}

/// The question is part of a URL, which servers and proxies bound at 8 KiB or more.
const MAX_PROMQL: usize = 4_096;

impl Read for Option<Prometheus> {
    fn read(&mut self, field: &Field<'_>, _: &Kind) {
        if field.is_present() {
            *self = prometheus(field);
        }
    }
}

fn prometheus(field: &Field<'_>) -> Option<Prometheus> {
    let [url, required, token_file, ca_file, period, timeout, staleness, queries] = field.object(Prometheus::NAMES)?;
    let address = url.clone().required().non_empty_string();
    let is_https = match address.and_then(|url| url.split_once("://")) {
        Some((scheme @ ("http" | "https"), rest)) if is_authority_and_path(rest) => Some(scheme == "https"),
        _ => {
            if let Some(address) = address {
                url.fault(format!(
                    "{:?} is not an address such as https://prometheus.monitoring.svc:9090, without user, query and \
                     fragment",
                    without_user(address)
                ));
            }
            None
        }
    };
    let file = |field: &Field<'_>| field.non_empty_string().map(PathBuf::from);
    let (token, ca) = (file(&token_file), file(&ca_file));
    if is_https == Some(false) {
        if token.is_some() {
            token_file.fault("would be sent in clear text: `url` is not https".into());
        }
        if ca.is_some() {
            ca_file.fault("is for https, which `url` is not".into());
        }
    }
    let asked = queries.object(Input::NAMES);
    let asked = Input::ALL.into_iter().zip(asked.into_iter().flatten());
    let asked: Vec<_> = asked.filter(|(_, field)| field.is_present()).collect();
    let mut times = [15, 5, 60].map(Micros::from_secs);
    let declared = &Prometheus::SETTINGS[4..];
    for ((time, field), declared) in times.iter_mut().zip([&period, &timeout, &staleness]).zip(declared) {
        time.read(field, &declared.kind);
    }
    let [period, timeout, stale_after] = times;
    // Each period is up to a tenth longer, so that replicas do not fall into step.
    let longest = Micros(period.0 + period.0 / 10 + timeout.0);
    if stale_after <= longest {
        staleness.fault(format!(
            "{stale_after} ms is over before the next answer, which may take {longest} ms: 110 % of the period, and the timeout"
        ));
    }
    let prometheus = Prometheus {
        url: address.unwrap_or_default().to_owned(),
        required: required.boolean().unwrap_or(false),
        token_file: token,
        ca_file: ca,
        period,
        timeout,
        staleness: stale_after,
        queries: asked.iter().filter_map(|(input, field)| query(*input, field)).collect(),
    };
    if queries.is_present() && asked.is_empty() {
        queries.fault(format!("asks for nothing; there are {}", Input::NAMES.join(", ")));
    }
    if prometheus.required && !asked.iter().any(|(input, _)| input.can_be_required()) {
        let names = Input::ALL.into_iter().filter(|input| input.can_be_required());
        let names: Vec<_> = names.map(Input::as_str).collect();
        required.fault(format!("speaks of {}, and none is asked for", names.join(", ")));
    }
    Some(prometheus)
}

fn query(input: Input, field: &Field<'_>) -> Option<Query> {
    let promql = field.non_empty_string()?;
    if promql.trim().is_empty() {
        field.fault("is blank".into());
    } else if promql.len() > MAX_PROMQL {
        field.fault(format!("is longer than {MAX_PROMQL} bytes"));
    }
    let promql = promql.to_owned();
    Some(Query { input, promql })
}

fn is_authority_and_path(text: &str) -> bool {
    let authority = text.split('/').next().unwrap_or_default();
    !authority.is_empty()
        && !authority.starts_with(':')
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && !matches!(b, b'@' | b'?' | b'#' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use serde_json::{Value, json};

    fn faults(prometheus: Value) -> Vec<String> {
        let faults = Config::read(&json!({"prometheus": prometheus})).unwrap_err();
        faults.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_can_be_set() {
        let config = Config::read(&json!({"prometheus": {
            "url": "https://prometheus.monitoring.svc:9090/k8s",
            "required": true,
            "tokenFile": "/token",
            "caFile": "/ca.crt",
            "period": "30s",
            "timeout": "500ms",
            "staleness": "2m",
            "queries": {
                "wanLossRatio": "avg by (site) (loss)",
                "edgeFreeCpuCores": "free",
                "processingSeconds": "avg by (site, class) (seconds)",
            },
        }}));
        let query = |input, promql: &str| Query {
            input,
            promql: promql.into(),
        };
        let prometheus = config.unwrap().prometheus.unwrap();
        assert_eq!(prometheus.required_inputs(), [Input::EdgeFreeCpu, Input::WanLoss]);
        assert_eq!(
            prometheus,
            Prometheus {
                url: "https://prometheus.monitoring.svc:9090/k8s".into(),
                required: true,
                token_file: Some("/token".into()),
                ca_file: Some("/ca.crt".into()),
                period: Micros::from_secs(30),
                timeout: Micros::from_millis(500),
                staleness: Micros::from_secs(120),
                queries: vec![
                    query(Input::EdgeFreeCpu, "free"),
                    query(Input::Processing, "avg by (site, class) (seconds)"),
                    query(Input::WanLoss, "avg by (site) (loss)"),
                ],
            }
        );
    }

    #[test]
    fn every_fault_is_named() {
        assert_eq!(
            faults(json!({
                "url": "http://user:word@p:9090",
                "required": true,
                "period": "1m",
                "timeout": "never",
                "queries": {"freeCpu": "", "edgeFreeMemoryBytes": " ", "wanRttSeconds": {"query": "rtt"}},
            })),
            [
                "prometheus.url: \"http://…@p:9090\" is not an address such as \
                 https://prometheus.monitoring.svc:9090, without user, query and fragment",
                "prometheus.queries.freeCpu: is not a field here; there are edgeFreeCpuCores, edgeFreeMemoryBytes, \
                 processingSeconds, wanRttSeconds, wanLossRatio",
                "prometheus.timeout: \"never\" is not a duration from 10ms to 1m, such as 60s or 1m30s",
                "prometheus.staleness: 60000 ms is over before the next answer, which may take 71000 ms: 110 % of the \
                 period, and the timeout",
                "prometheus.queries.edgeFreeMemoryBytes: is blank",
                "prometheus.queries.wanRttSeconds: an object is not a non-empty string",
            ]
        );
        assert_eq!(
            faults(json!({"url": "http://p", "tokenFile": "/t", "caFile": "/c", "required": true, "queries": {}})),
            [
                "prometheus.tokenFile: would be sent in clear text: `url` is not https",
                "prometheus.caFile: is for https, which `url` is not",
                "prometheus.queries: asks for nothing; there are edgeFreeCpuCores, edgeFreeMemoryBytes, \
                 processingSeconds, wanRttSeconds, wanLossRatio",
                "prometheus.required: speaks of edgeFreeCpuCores, edgeFreeMemoryBytes, wanRttSeconds, wanLossRatio, and \
                 none is asked for",
            ]
        );
        assert_eq!(
            faults(json!({"required": 1})),
            [
                "prometheus.url: is missing",
                "prometheus.required: 1 is not true or false",
            ]
        );
    }

    #[test]
    fn an_address_is_a_scheme_a_host_and_perhaps_a_path() {
        for (text, expected) in [
            ("p", true),
            ("p:9090/k8s", true),
            ("[::1]:9090", true),
            ("", false),
            ("/x", false),
            (":9090", false),
            ("a b", false),
            ("p?x", false),
        ] {
            assert_eq!(is_authority_and_path(text), expected, "{text}");
        }
    }
}
