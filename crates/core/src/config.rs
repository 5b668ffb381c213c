//! Configuration: schema, defaults, and a validation that names every fault.
//!
//! Each setting is declared in `settings.rs`, of which `docs/reference/settings.md` is made.

mod declaration;
mod gating;
mod liqo;
pub mod map;
mod probing;
mod prometheus;
mod settings;
pub(crate) mod site_definition;
pub mod sites;

pub use declaration::{Assumed, Kind, Setting};
pub use gating::{Gating, OnNoCapacity};
pub use liqo::{Enabled, LiqoSettings, RuntimeClassName};
pub use probing::Probing;
pub use prometheus::{Input, Prometheus, Query};

use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::document::{Fault, Faults, parse, without_nulls};
use crate::keys::Keys;
use crate::model::link::Thresholds;
use crate::model::priority_caps::PriorityCaps;
use crate::model::site::SiteDefinition;
use crate::model::slo::{PerClass, Slo};
use crate::units::{Micros, Permille};
use crate::words;

/// Everything an operator can set about decisions. [`Config::default`] is the documented default.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// Annotation and label keys, made from the domain.
    #[serde(rename = "domain")]
    pub keys: Keys,
    /// Namespaces whose pods pass through: `kube-system`, edgeward's own, and those the operator adds.
    #[serde(deserialize_with = "besides_own")]
    pub excluded_namespaces: Vec<String>,
    /// The sites of the live view: the one edge first, then any number of clouds by name. No site's nodeSelector holds
    /// all of another's.
    #[serde(skip)]
    pub sites: Vec<Arc<SiteDefinition>>,
    /// What is made of Liqo's objects.
    pub liqo: LiqoSettings,
    /// Which cloud is taken of several that meet the time.
    pub site_policy: SitePolicy,
    /// How the WAN towards cloud sites is probed.
    pub probing: Probing,
    /// Whether any pod may be sent to a cloud.
    pub enable_offload: bool,
    /// What becomes of a pod whose SLO is invalid.
    pub invalid_slo: InvalidSlo,
    /// When a pod is gated, and for how long.
    #[serde(flatten)]
    pub gating: Gating,
    /// Pods of a lower `spec.priority` that state no SLO are placeholders: they keep room for others.
    pub headroom_below: PodPriority,
    /// The highest SLO priority that a pod of a namespace may claim.
    #[serde(rename = "maxPriority")]
    pub priority_caps: PriorityCaps,
    /// How much of a decision is written on the pod.
    pub explain: Explain,
    /// RTT from which a cloud site is degraded.
    #[serde(rename = "rttThresholdMs")]
    pub rtt_threshold: Micros,
    /// Loss from which a cloud site is degraded.
    #[serde(rename = "lossThresholdPct")]
    pub loss_threshold: Permille,
    /// Age from which telemetry is stale.
    #[serde(rename = "telemetryCacheTTL")]
    pub telemetry_ttl: Micros,
    /// How long a reservation waits for its pod; zero switches reservations off.
    #[serde(rename = "reservationTTL")]
    pub reservation_ttl: Micros,
    /// Processing time by CPU request, per class.
    pub models: PerClass<LinearModel>,
    /// The Prometheus server that is asked for more, if any.
    pub prometheus: Option<Prometheus>,
}

/// A `spec.priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct PodPriority(pub i32);

words! {
    /// What becomes of a pod whose SLO is invalid.
    pub enum InvalidSlo {
        /// Decided without time bound and offload; kubectl shows a warning.
        Warn = "warn",
        /// Refused with a message that lists every fault.
        Deny = "deny",
    }
}

words! {
    /// Which cloud is taken of several that meet the time. Of equals the one with the lowest ETA.
    pub enum SitePolicy {
        /// The one with the lowest ETA.
        LowestEta = "lowest-eta",
        /// The one that costs least; those of which nobody says what they cost are last.
        LowestCost = "lowest-cost",
        /// The one with the fewest pods of the same controller.
        Spread = "spread",
        /// The first in the order of the sites.
        Ordered = "ordered",
    }
}

words! {
    /// How much of a decision is written on the pod.
    pub enum Explain {
        /// Nothing.
        Off = "off",
        /// At most 256 bytes.
        Short = "short",
        /// Every number.
        Full = "full",
    }
}

/// Processing time as `alpha · cpu + beta`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct LinearModel {
    /// Microseconds per millicore.
    #[serde(rename = "alpha")]
    pub alpha_us: u64,
    /// The part that does not depend on CPU.
    pub beta: Micros,
}

impl Default for Config {
    fn default() -> Self {
        let model = |alpha_us, beta_ms| LinearModel {
            alpha_us,
            beta: Micros::from_millis(beta_ms),
        };
        Self {
            keys: Keys::new("example.io"),
            excluded_namespaces: vec!["kube-system".into(), "edgeward-system".into()],
            sites: vec![Arc::new(SiteDefinition::edge()), Arc::new(SiteDefinition::cloud())],
            liqo: LiqoSettings::default(),
            site_policy: SitePolicy::LowestEta,
            probing: Probing::default(),
            enable_offload: true,
            invalid_slo: InvalidSlo::Warn,
            gating: Gating::default(),
            headroom_below: PodPriority(0),
            priority_caps: PriorityCaps::default(),
            explain: Explain::Short,
            rtt_threshold: Micros::from_millis(100),
            loss_threshold: Permille(20),
            telemetry_ttl: Micros::from_secs(60),
            reservation_ttl: Micros::from_secs(3),
            models: PerClass([model(500, 20), model(1_000, 50), model(2_000, 100)]),
            prometheus: None,
        }
    }
}

impl Config {
    /// Reads a configuration document; an absent setting keeps its default.
    ///
    /// # Errors
    /// Every value that no setting takes, or else all that do not go together.
    pub fn read(document: &Value) -> Result<Self, Faults> {
        let document = match document {
            Value::Null => json!({}),
            document => without_nulls(document.clone()),
        };
        let mut faults = vec![];
        let read = Kind::Object(&Self::SETTINGS).read(&document, "", &mut faults);
        let sites = document.get("sites").map(|list| sites::of_list(list, &mut faults));
        if let (Some(read), true) = (read, faults.is_empty()) {
            let mut config: Self = parse(&read, "")?;
            config.sites = sites.unwrap_or(config.sites);
            config.check(&mut faults);
            if faults.is_empty() {
                return Ok(config);
            }
        }
        Err(Faults(faults))
    }

    /// This configuration, if it can replace `running` without a restart. The domain cannot change: the webhook
    /// configuration, the labels of namespaces and every placed pod name it.
    pub fn replacing(self, running: &Self) -> Result<Self, Faults> {
        let (new, old) = (&self.keys.domain, &running.keys.domain);
        if new == old {
            return Ok(self);
        }
        Err(Faults(vec![Fault {
            path: "domain".to_owned(),
            message: format!("{new:?} cannot replace {old:?} while edgeward runs; restart it to change the domain"),
        }]))
    }

    /// Whether a pod of this SLO may leave the edge, as far as it and the configuration say.
    pub fn may_offload(&self, slo: &Slo) -> bool {
        self.enable_offload && slo.offload_allowed
    }

    /// The thresholds of the site of this name.
    pub fn thresholds(&self, site: &str) -> Thresholds {
        let own = self
            .sites
            .iter()
            .find(|known| known.name == site)
            .map(|site| site.thresholds);
        Thresholds::from(self).with(own.unwrap_or_default())
    }

    /// What does not go together. A link that is measured less often than its measurement lasts is stale between two probes.
    fn check(&self, faults: &mut Vec<Fault>) {
        let (period, gap, ttl) = (self.probing.period, self.probing.longest_gap(), self.telemetry_ttl);
        if period > ttl {
            faults.push(Fault::new("probing", format_args!(
                "a period of {period} ms is longer than telemetryCacheTTL, {ttl} ms: what it measures is stale before it is over"
            )));
        } else if gap > ttl {
            faults.push(Fault::new("probing", format_args!(
                "{gap} ms may pass from one probe to the next, its timeout included, longer than telemetryCacheTTL, {ttl} \
                 ms: a cloud would be stale between probes"
            )));
        }
        if let Some(prometheus) = &self.prometheus {
            prometheus.check(faults);
        }
    }
}

/// Namespaces besides those that are there.
fn besides_own<'de, D: Deserializer<'de>>(stated: D) -> Result<Vec<String>, D::Error> {
    let mut namespaces = Config::default().excluded_namespaces;
    namespaces.extend(Vec::<String>::deserialize(stated)?);
    Ok(namespaces)
}

/// Whether this can be the name of a namespace.
fn is_namespace(name: &str) -> bool {
    name.len() <= 63 && is_dns_label(name)
}

fn is_domain(name: &str) -> bool {
    name.len() <= 200 && name.split('.').all(is_dns_label)
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().copied().is_some_and(inner)
        && bytes.last().copied().is_some_and(inner)
        && bytes.iter().all(|&b| inner(b) || b == b'-')
}

impl From<&Config> for Thresholds {
    fn from(config: &Config) -> Self {
        Self {
            rtt: config.rtt_threshold,
            loss: config.loss_threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slo::Class;
    use serde_json::json;

    fn faults(document: Value) -> Vec<String> {
        Config::read(&document)
            .unwrap_err()
            .0
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn everything_can_be_set() {
        let config = Config::read(&json!({
            "domain": "acme.dev",
            "excludedNamespaces": ["infra"],
            "sites": [{"name": "here", "kind": "edge"}],
            "liqo": {"enabled": true, "runtimeClassName": "liqo"},
            "probing": {"probes": 3, "period": "1m30s", "timeout": "500ms"},
            "enableOffload": false,
            "invalidSlo": "deny",
            "onNoCapacity": "edge",
            "holdLimits": {"batch": "10m", "latency": "0s"},
            "waitForTerminating": {"latency": "1s"},
            "maxPriority": {"guests": 3, "*": 8},
            "sitePolicy": "ordered",
            "explain": "full",
            "rttThresholdMs": 80.5,
            "lossThresholdPct": 1.5,
            "telemetryCacheTTL": "2m",
            "reservationTTL": "0s",
            "models": {"batch": {"alpha": 0.25, "beta": 7}},
        }))
        .unwrap();
        assert_eq!(config.keys.decision_id, "scheduling.acme.dev/decision-id");
        assert_eq!(config.excluded_namespaces, ["kube-system", "edgeward-system", "infra"]);
        assert_eq!(config.sites[0].name, "here");
        assert_eq!(
            config.probing,
            Probing {
                probes: 3,
                period: Micros::from_secs(90),
                timeout: Micros::from_millis(500)
            }
        );
        assert_eq!(config.liqo.enabled, Enabled::Always);
        assert_eq!(config.liqo.runtime_class, Some(RuntimeClassName("liqo".to_owned())));
        assert!(!config.enable_offload);
        assert_eq!(config.invalid_slo, InvalidSlo::Deny);
        assert_eq!(
            config.gating,
            Gating {
                on_no_capacity: OnNoCapacity::Edge,
                limits: PerClass([0, 120, 600].map(Micros::from_secs)),
                wait_for_terminating: PerClass([1, 30, 30].map(Micros::from_secs)),
                can_release: true,
            }
        );
        assert_eq!(config.priority_caps, PriorityCaps::from([("guests", 3), ("*", 8)]));
        assert_eq!(config.site_policy, SitePolicy::Ordered);
        assert_eq!(config.explain, Explain::Full);
        assert_eq!(config.rtt_threshold, Micros(80_500));
        assert_eq!(config.loss_threshold, Permille(15));
        assert_eq!(config.telemetry_ttl, Micros::from_secs(120));
        assert_eq!(config.reservation_ttl, Micros(0));
        assert_eq!(
            config.models[Class::Batch],
            LinearModel {
                alpha_us: 250,
                beta: Micros(7_000)
            }
        );
        assert_eq!(
            config.models[Class::Latency],
            LinearModel {
                alpha_us: 500,
                beta: Micros(20_000)
            }
        );

        let config = Config::read(&json!({"waitForTerminating": 0})).unwrap();
        assert_eq!(config.gating.wait_for_terminating, PerClass::default());
    }

    #[test]
    fn nothing_is_stale_for_want_of_a_look() {
        let short =
            |ttl: &str| format!("telemetryCacheTTL: {ttl:?} is not a duration from 45s to 24h, such as 60s or 1m30s");
        assert_eq!(faults(json!({"telemetryCacheTTL": "44999ms"})), [short("44999ms")]);
        assert!(Config::read(&json!({"telemetryCacheTTL": "45s"})).is_ok());

        let probing = |probing: Value| Config::read(&json!({"telemetryCacheTTL": "1m30s", "probing": probing}));
        let refused = |document| probing(document).unwrap_err().to_string();
        assert!(probing(json!({"period": "90s"})).is_ok());
        assert_eq!(
            refused(json!({"period": "90001ms"})),
            "probing: a period of 90001 ms is longer than telemetryCacheTTL, 90000 ms: what it measures is stale before it is over"
        );
        assert!(probing(json!({"period": "58s", "probes": 1, "timeout": "3s"})).is_ok());
        assert_eq!(
            refused(json!({"period": "60s", "probes": 1, "timeout": "3s"})),
            "probing: 93000 ms may pass from one probe to the next, its timeout included, longer than telemetryCacheTTL, \
             90000 ms: a cloud would be stale between probes"
        );
    }

    #[test]
    fn durations_are_those_that_go_prints() {
        for (text, expected) in [
            ("60s", Some(60_000)),
            ("1m0s", Some(60_000)),
            ("1h2m3s4ms", Some(3_723_004)),
            ("0s", Some(0)),
            ("", None),
            ("60", None),
            ("s", None),
            ("1m30", None),
            ("-1s", None),
            ("1d", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(Micros::parse(text), expected.map(Micros::from_millis), "{text:?}");
        }
    }

    #[test]
    fn the_domain_cannot_change() {
        let read = |document: Value| Config::read(&document).unwrap();
        let running = read(json!({"domain": "acme.dev"}));
        let other = read(json!({"domain": "acme.dev", "explain": "off"}));
        assert_eq!(other.clone().replacing(&running), Ok(other));
        let faults = Config::default().replacing(&running).unwrap_err();
        assert_eq!(
            faults.to_string(),
            "domain: \"example.io\" cannot replace \"acme.dev\" while edgeward runs; restart it to change the domain"
        );

        let others = read(json!({"domain": "acme.dev", "sites": [{"name": "only", "kind": "edge"}]}));
        assert_eq!(others.clone().replacing(&running), Ok(others));
    }

    #[test]
    fn an_empty_document_is_the_default() {
        assert_eq!(Config::read(&Value::Null).unwrap().telemetry_ttl, Micros::from_secs(60));
        assert_eq!(Config::read(&json!({})).unwrap().keys, Keys::new("example.io"));
    }
}
