//! The section `prometheus`: which server is asked, and for what.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::document::texts::{PromQl, TraitName};
use crate::document::{Checks, DAY, Decimal, Fault, SECOND, Span};
use crate::model::traits::Bound;
use edgeward_kube::units::Micros;
use edgeward_kube::words;

/// A Prometheus server and what it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(deny_unknown_fields, extend("required" = ["url"]))]
pub struct Prometheus {
    /// The server, with the path of its API if it is not at the root
    #[schemars(
        title = "an `http://` or `https://` address without user, query and fragment",
        regex(pattern = r#"^https?://[!"$-.0-9;->A-\[\]-~][!"$->A-\[\]-~]*$"#)
    )]
    pub url: String,
    /// Whether arrivals go to the edge when a query about the edge or the WAN is stale
    pub required: bool,
    /// File with a bearer token; read again when it changes. Needs `https`
    #[schemars(title = "a path", length(min = 1))]
    pub token_file: Option<PathBuf>,
    /// PEM file with the CAs to trust instead; read again when it changes. Needs `https`
    #[schemars(title = "a path", length(min = 1), extend("x-default" = "the system's CAs"))]
    pub ca_file: Option<PathBuf>,
    /// Interval of the queries, with ±10 % jitter
    #[schemars(with = "Span<SECOND, { 3_600 * SECOND }>")]
    pub period: Micros,
    /// How long to wait for an answer
    #[schemars(with = "Span<10, { 60 * SECOND }>")]
    pub timeout: Micros,
    /// A value that is older does not count; longer than 1.1 · `period` + `timeout`
    #[schemars(with = "Span<SECOND, DAY>")]
    pub staleness: Micros,
    /// What it is asked, beside the metrics of [performance profiles](crds.md)
    #[schemars(schema_with = "Input::queries")]
    pub queries: BTreeMap<Input, String>,
    /// [Measured traits](../guide/clouds.md#measured-traits), each with `name`, `query`, and `atMost` or `atLeast`
    #[schemars(with = "Option<Vec<MeasuredTrait>>", length(max = 16))]
    pub traits: Vec<MeasuredTrait>,
}

/// A bound in a document, with three decimals.
type Number = Decimal<3, { -1_000_000_000_000_000 }, 1_000_000_000_000_000>;

/// A trait that a site has while a value is within a bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct MeasuredTrait {
    /// Name of the trait
    #[schemars(with = "TraitName")]
    pub name: String,
    /// The value of each site, by the label `site`
    #[schemars(with = "PromQl")]
    pub query: String,
    /// The largest value with which a site has the trait. State this or `atLeast`
    at_most: Option<Number>,
    /// The smallest value with which a site has the trait
    at_least: Option<Number>,
}

impl MeasuredTrait {
    /// The bound within which a site has the trait.
    pub fn bound(&self) -> Bound {
        let at_least = self.at_least.map_or(i64::MIN, |number| number.0);
        self.at_most
            .map_or(Bound::AtLeast(at_least), |number| Bound::AtMost(number.0))
    }
}

impl Default for Prometheus {
    fn default() -> Self {
        Self {
            url: String::new(),
            required: false,
            token_file: None,
            ca_file: None,
            period: Micros::from_secs(15),
            timeout: Micros::from_secs(5),
            staleness: Micros::from_secs(60),
            queries: BTreeMap::new(),
            traits: vec![],
        }
    }
}

impl Prometheus {
    /// The inputs without which the view of the cluster counts as stale.
    pub fn required_inputs(&self) -> Vec<Input> {
        let inputs = self.queries.keys().copied();
        inputs
            .filter(|input| self.required && input.can_be_required())
            .collect()
    }
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
        /// RTT between two cloud sites in seconds, by the labels `source` and `target`.
        LinkRtt = "linkRttSeconds",
        /// Loss between two cloud sites from 0 to 1, by the labels `source` and `target`.
        LinkLoss = "linkLossRatio",
        /// Bandwidth from one site to another in bits per second, by the labels `source` and `target`.
        LinkBandwidth = "linkBandwidthBits",
        /// Bytes per second from one site to another, by the labels `source` and `target`.
        LinkBytes = "linkBytesPerSecond",
        /// Packets per second from one site to another, by the labels `source` and `target`.
        LinkPackets = "linkPacketsPerSecond",
    }
}

impl Input {
    /// Whether `prometheus.required` speaks of it. That no work was observed lately is no failure, and links between sites
    /// matter only to some pods.
    pub const fn can_be_required(self) -> bool {
        !matches!(self, Self::Processing) && !self.is_of_links()
    }

    /// Whether it is about the way from one site to another.
    pub const fn is_of_links(self) -> bool {
        matches!(
            self,
            Self::LinkRtt | Self::LinkLoss | Self::LinkBandwidth | Self::LinkBytes | Self::LinkPackets
        )
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::EdgeFreeCpu => "CPU that is free at the edge",
            Self::EdgeFreeMemory => "Memory that is free at the edge",
            Self::Processing => "Mean processing time, by site and class",
            Self::WanRtt => "RTT, by site",
            Self::WanLoss => "Loss, by site",
            Self::LinkRtt => "RTT between clouds, by source and target",
            Self::LinkLoss => "Loss between clouds, by source and target",
            Self::LinkBandwidth => "Bandwidth from site to site, by source and target",
            Self::LinkBytes => "Bytes per second from site to site, by source and target",
            Self::LinkPackets => "Packets per second from site to site, by source and target",
        }
    }

    /// A query for each input. A query is part of a URL, which servers and proxies limit to 8 KiB or more.
    fn queries(generator: &mut SchemaGenerator) -> Schema {
        let query = |input: Self| {
            let mut schema = PromQl::json_schema(generator);
            schema.insert("description".to_owned(), input.meaning().into());
            (input.as_str(), schema)
        };
        let queries: BTreeMap<_, _> = Self::ALL.map(query).into();
        json_schema!({"type": "object", "properties": queries, "additionalProperties": false})
    }
}

impl Prometheus {
    /// What does not go together.
    pub(super) fn check(&self, faults: &mut Vec<Fault>) {
        let mut checks = Checks {
            at: "prometheus",
            faults,
        };
        if self.url.starts_with("http://") {
            if self.token_file.is_some() {
                checks.fault("tokenFile", "would be sent in clear text: `url` is not https");
            }
            if self.ca_file.is_some() {
                checks.fault("caFile", "is for https, which `url` is not");
            }
        }
        // Each period is up to a tenth longer, so that replicas do not fall into step.
        let longest = self.period + Micros(self.period.0 / 10) + self.timeout;
        if self.staleness <= longest {
            let stale_after = self.staleness;
            let message = format_args!(
                "{stale_after} ms is over before the next answer, which may take {longest} ms: 110 % of the period, and the timeout"
            );
            checks.fault("staleness", message);
        }
        for (i, measured) in self.traits.iter().enumerate() {
            if measured.at_most.is_some() == measured.at_least.is_some() {
                checks.fault(format_args!("traits[{i}]"), "needs either `atMost` or `atLeast`");
            }
            if self.traits[..i].iter().any(|other| other.name == measured.name) {
                let message = format_args!("{} is there twice", measured.name);
                checks.fault(format_args!("traits[{i}].name"), message);
            }
        }
        if self.required && self.required_inputs().is_empty() {
            let names = Input::ALL.into_iter().filter(|input| input.can_be_required());
            let names: Vec<_> = names.map(Input::as_str).collect();
            let message = format_args!("speaks of {}, and none is asked for", names.join(", "));
            checks.fault("required", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use serde_json::json;

    #[test]
    fn prometheus_url_has_scheme_host_and_optional_path() {
        for (text, expected) in [
            ("http://p", true),
            ("https://p:9090/k8s", true),
            ("https://[::1]:9090", true),
            ("p:9090", false),
            ("http://", false),
            ("http:///x", false),
            ("http://:9090", false),
            ("http://a b", false),
            ("http://p?x", false),
            ("http://p#x", false),
            ("http://user@p", false),
        ] {
            let read = Config::read(&json!({"prometheus": {"url": text}}));
            assert_eq!(read.is_ok(), expected, "{text}");
        }
    }
}
