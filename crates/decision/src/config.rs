//! Configuration: one struct. Documents are checked against the schema of its fields, defaults and bounds.
//!
//! `docs/reference/settings.md`, `edgeward config-schema` and the chart's schema are made from it.

mod extender;
mod gating;
mod karmada;
mod liqo;
pub mod map;
mod moves;
mod ocm;
mod peers;
mod probing;
mod prometheus;
mod report;
mod scorer;
pub mod site_definition;
pub mod sites;

pub use extender::Extender;
pub use gating::{Gating, OnNoCapacity};
pub use karmada::{Estimator, Karmada};
pub use liqo::{Enabled, LiqoSettings};
pub use moves::Moves;
pub use ocm::Ocm;
pub use peers::{Cidr, Peers};
pub use probing::Probing;
pub use prometheus::{Input, MeasuredTrait, Prometheus};
pub use report::ReportSettings;
pub use scorer::{ScorerMode, ScorerSettings, Source as ScorerSource};

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::document::texts::Domain;
use crate::document::{DAY, Decimal, Fault, Faults, SECOND, Span, parse, schema, without_nulls};
use crate::keys::Keys;
use crate::model::link::{Link, LinkState, Thresholds};
use crate::model::priority_caps::PriorityCaps;
use crate::model::site::SiteDefinition;
use crate::model::slo::{ByClass, PerClass, Slo};
use edgeward_kube::texts;
use edgeward_kube::units::{Micros, Permille};
use edgeward_kube::words;
use site_definition::WrittenSite;

/// Everything that an operator can set about decisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct Config {
    /// The domain of all annotation and label keys: `slo.<domain>/…`, `scheduling.<domain>/…`
    #[serde(rename = "domain")]
    #[schemars(with = "Domain")]
    pub keys: Keys,
    /// Namespaces whose pods pass through, in addition to `kube-system`, `edgeward-system` and the value of `serve --namespace`
    #[serde(skip_serializing, deserialize_with = "besides_own")]
    #[schemars(with = "Vec<texts::Namespace>")]
    pub excluded_namespaces: Vec<String>,
    /// The [sites](#sites) of the live view
    // The edge comes first, then any number of clouds by name. No site's nodeSelector holds all of another's.
    #[serde(skip)]
    #[schemars(!skip, with = "Vec<WrittenSite>", extend("x-default" = "`edge` and `cloud`"))]
    pub sites: Vec<Arc<SiteDefinition>>,
    /// How [Liqo's objects](../guide/clouds.md#liqo) are used
    pub liqo: LiqoSettings,
    /// Which cloud gets a pod if [several](../guide/decide.md#rank) meet its time: the one with the lowest ETA
    /// (`lowest-eta`), the lowest `costPerHour` (`lowest-cost`; clouds without one come last), the fewest pods of the same
    /// controller (`spread`) or the lowest `order` (`ordered`). Of equals, the lowest ETA, then the first name
    pub site_policy: SitePolicy,
    /// How the [WAN](../guide/clouds.md#wan) to cloud sites is probed
    pub probing: Probing,
    /// Whether any pod may be sent to a cloud
    pub enable_offload: bool,
    /// `warn`: a pod with an invalid SLO goes to the edge, with warnings. `deny`: it is refused
    pub invalid_slo: InvalidSlo,
    /// When a pod is gated, and for how long.
    #[serde(flatten)]
    pub gating: Gating,
    /// Pods without a class and with a lower `spec.priority` are placeholders: their room is
    /// [headroom](../guide/decide.md#headroom) for others. With the lowest number there are none
    pub headroom_below: PodPriority,
    /// The highest SLO priority that counts in a namespace; `"*"` stands for all that are not listed. A pod that states a
    /// higher priority gets a warning
    #[serde(rename = "maxPriority")]
    pub priority_caps: PriorityCaps,
    /// How much of a decision is written on the pod; `short` is at most 256 bytes
    pub explain: Explain,
    /// A cloud site with an RTT at or above this is degraded
    #[serde(rename = "rttThresholdMs", with = "RttThreshold")]
    #[schemars(with = "RttThreshold")]
    pub rtt_threshold: Micros,
    /// A cloud site with a packet loss at or above this is degraded
    #[serde(rename = "lossThresholdPct", with = "LossThreshold")]
    #[schemars(with = "LossThreshold")]
    pub loss_threshold: Permille,
    /// `avoid`: a cloud site with a degraded link is `Away`. `estimate`: pods with a deadline or latency target are judged by their
    /// time [over that link](../guide/decide.md#degraded-links)
    pub degraded_links: DegradedLinks,
    /// The share of pods that should finish within the time that edgeward compares with their deadline. `0.5` uses the mean, `0.95`
    /// the p95 ([confidence](../guide/decide.md#confidence))
    pub confidence: Confidence,
    /// A measurement that is older is stale. The view of a quiet cluster gets 30 s old, and a link is measured only by probes:
    /// the period of `probing`, and the time from one probe to the next, may be no longer than this
    #[serde(rename = "telemetryCacheTTL")]
    #[schemars(with = "Span<{ 45 * SECOND }, DAY>")]
    pub telemetry_ttl: Micros,
    /// How long room stays [reserved](../guide/decide.md) for a pod that does not appear. `0s` switches reservations
    /// off. Without effect while the fleet comes from a file
    #[serde(rename = "reservationTTL")]
    #[schemars(with = "Span<0, DAY>")]
    pub reservation_ttl: Micros,
    /// [Processing time](../guide/decide.md#time) in ms: `alpha` · millicores + `beta`. A class or number that
    /// is not named keeps its default
    #[schemars(with = "ByClass<LinearModel>")]
    pub models: PerClass<LinearModel>,
    /// A Prometheus server that is [asked for more](../guide/clouds.md#prometheus)
    pub prometheus: Option<Prometheus>,
    /// When running pods are [moved](../guide/operate.md#moves) to a better site
    pub moves: Moves,
    /// An Open Cluster Management hub that gets [scores of the sites](../guide/clouds.md#open-cluster-management). Without effect
    /// while the fleet comes from a file
    pub ocm: Option<Ocm>,
    /// A [Karmada](../guide/clouds.md#karmada) control plane that bounds the room of clouds, and asks for that of the edge. Without
    /// effect while the fleet comes from a file
    pub karmada: Option<Karmada>,
    /// The [report](../guide/clouds.md#reports-of-neighbours) of this cluster to its neighbours. Without this section, it reports nothing
    pub report: Option<ReportSettings>,
    /// How this cluster finds the [clusters near it](../guide/clouds.md#peers). Without effect while the fleet comes from a file
    pub peers: Option<Peers>,
    /// Decisions [at scheduling time](../guide/extender.md), in place of or in addition to the webhook
    pub extender: Extender,
    /// A [trained network](../guide/decide.md#learned-scorer) that ranks clouds
    pub scorer: ScorerSettings,
}

/// An RTT threshold in milliseconds.
pub type RttThreshold = Decimal<3, 1, 60_000_000>;

/// A packet loss threshold in percent.
pub type LossThreshold = Decimal<1, 1, 1_000>;

/// A `spec.priority`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(with = "Decimal<0, { i32::MIN as i64 }, { i32::MAX as i64 }>")]
pub struct PodPriority(pub i32);

words! {
    /// How edgeward treats a pod with an invalid SLO.
    pub enum InvalidSlo {
        /// Decided without time bound and offload; kubectl shows a warning.
        Warn = "warn",
        /// Refused with a message that lists every fault.
        Deny = "deny",
    }
}

words! {
    /// How edgeward treats a cloud with a degraded WAN.
    pub enum DegradedLinks {
        /// No pod goes there.
        Avoid = "avoid",
        /// Pods go there that meet their time over the slow link.
        Estimate = "estimate",
    }
}

words! {
    /// Which cloud is taken of several that meet the time. Of equals the one with the lowest ETA.
    pub enum SitePolicy {
        /// The one with the lowest ETA.
        LowestEta = "lowest-eta",
        /// The cheapest one; sites without a stated cost are last.
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

/// The share of the pods that meet a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confidence(Decimal<3, 500, 990>);

impl Default for Confidence {
    fn default() -> Self {
        Self(Decimal(500))
    }
}

impl Confidence {
    /// The time that this share of the pods does not exceed, by a logistic distribution with this mean and p95. The mean for a share
    /// of a half.
    pub fn between(self, mean: Micros, p95: Micros) -> Micros {
        if self == Self::default() {
            return mean;
        }
        let odds = |share: f64| (share / (1.0 - share)).ln();
        let spread = (p95 - mean).0 as f64 * odds(self.0.0 as f64 / 1_000.0) / odds(0.95);
        mean + Micros(spread.round() as u64)
    }
}

/// Processing time as `alpha · cpu + beta`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LinearModel {
    /// Milliseconds for each millicore that the pod asks for
    // Microseconds per millicore.
    #[serde(rename = "alpha", with = "Decimal::<3, 0, 1_000_000>")]
    #[schemars(with = "Option<Decimal<3, 0, 1_000_000>>", extend("x-default" = "that of the class"))]
    pub alpha_us: u64,
    /// Milliseconds that do not depend on CPU
    #[serde(with = "Decimal::<3, 0, { DAY as i64 * 1_000 }>")]
    #[schemars(with = "Option<Decimal<3, 0, { DAY as i64 * 1_000 }>>", extend("x-default" = "that of the class"))]
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
            degraded_links: DegradedLinks::Avoid,
            confidence: Confidence::default(),
            telemetry_ttl: Micros::from_secs(60),
            reservation_ttl: Micros::from_secs(3),
            models: PerClass([model(500, 20), model(1_000, 50), model(2_000, 100)]),
            prometheus: None,
            moves: Moves::default(),
            ocm: None,
            karmada: None,
            report: None,
            peers: None,
            extender: Extender::default(),
            scorer: ScorerSettings::default(),
        }
    }
}

impl Config {
    /// The schema of a configuration document.
    pub fn schema() -> Value {
        schema::of::<Self>()
    }

    /// Reads a configuration document; an absent setting keeps its default.
    ///
    /// # Errors
    /// Every value that no setting takes, or else all that do not go together.
    pub fn read(document: &Value) -> Result<Self, Faults> {
        let mut stated = match document {
            Value::Null => json!({}),
            document => without_nulls(document.clone()),
        };
        let mut faults = vec![];
        let sites = stated.as_object_mut().and_then(|fields| fields.remove("sites"));
        schema::check(&Self::schema(), &stated, "", &mut faults);
        let sites = sites.map(|list| sites::of_list(&list, &mut faults));
        if !faults.is_empty() {
            return Err(Faults(faults));
        }
        // An entry of a map that is not stated keeps its default.
        let mut whole = json!(Self::default());
        json_patch::merge(&mut whole, &stated);
        let mut config: Self = parse(&whole, "")?;
        config.sites = sites.unwrap_or(config.sites);
        config.check(&mut faults);
        Faults::or(faults, config)
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

    /// The section `peers`, if it is enabled.
    pub fn enabled_peers(&self) -> Option<&Peers> {
        self.peers.as_ref().filter(|peers| peers.enabled)
    }

    /// Whether a pod of this SLO may leave the edge, as far as it and the configuration say.
    pub fn may_offload(&self, slo: &Slo) -> bool {
        self.enable_offload && slo.offload_allowed
    }

    /// Whether pods may go over this link.
    pub fn can_use(&self, link: &Link) -> bool {
        match link.state {
            LinkState::Healthy => link.rtt.is_some(),
            LinkState::Degraded => self.degraded_links == DegradedLinks::Estimate && link.can_be_estimated(),
            LinkState::Unreachable => false,
        }
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

    /// Reports settings that contradict each other. A link is stale between two probes if a measurement lasts less long than the time between them.
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
        if let Some(ocm) = &self.ocm {
            ocm.check(faults);
        }
        if let Some(peers) = &self.peers {
            peers.check(faults);
        }
        self.scorer.check(faults);
    }
}

/// Namespaces, in addition to the default ones.
fn besides_own<'de, D: Deserializer<'de>>(stated: D) -> Result<Vec<String>, D::Error> {
    let mut namespaces = Config::default().excluded_namespaces;
    namespaces.extend(Vec::<String>::deserialize(stated)?);
    Ok(namespaces)
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
        let document = json!({
            "domain": "acme.dev",
            "liqo": {"enabled": true, "runtimeClassName": "liqo", "siteLabels": ["topology.kubernetes.io/region"]},
            "probing": {"probes": 3, "period": "1m30s", "timeout": "500ms"},
            "enableOffload": false,
            "invalidSlo": "deny",
            "degradedLinks": "estimate",
            "confidence": 0.9,
            "onNoCapacity": "edge",
            "holdLimits": {"batch": "10m", "latency": "0s"},
            "waitForTerminating": {"latency": "1s"},
            "headroomBelow": -5,
            "maxPriority": {"guests": 3, "*": 8},
            "sitePolicy": "ordered",
            "explain": "full",
            "rttThresholdMs": 80.5,
            "lossThresholdPct": 1.5,
            "telemetryCacheTTL": "2m",
            "reservationTTL": "0s",
            "models": {"batch": {"alpha": 0.25, "beta": 7}},
            "prometheus": {
                "url": "https://prometheus.monitoring.svc:9090/k8s",
                "required": true,
                "tokenFile": "/token",
                "caFile": "/ca.crt",
                "period": "30s",
                "timeout": "500ms",
                "staleness": "2m",
                "queries": {"edgeFreeCpuCores": "free", "processingSeconds": "seconds", "wanLossRatio": "loss"},
                "traits": [
                    {"name": "Fresh", "query": "age", "atMost": 60, "atLeast": null},
                    {"name": "Attested", "query": "attested", "atMost": null, "atLeast": 0.5},
                ],
            },
            "moves": {"enabled": true, "home": false, "profiles": false, "dwell": "1h", "keepFree": "7%", "perMinute": 9},
            "ocm": {"kubeconfig": "/hub/kubeconfig", "clusters": {"edge": "factory", "cloud": "region-1"}, "period": "30s"},
            "karmada": {"kubeconfig": "/karmada/kubeconfig", "estimator": {"enabled": true}},
            "report": {"components": true, "energyProfile": "greenness"},
            "peers": {
                "enabled": true,
                "address": "192.0.2.1",
                "port": 9444,
                "allowedCidrs": ["192.0.2.0/24", "2001:db8::/32"],
                "ownCidrs": ["10.42.0.0/15"],
                "seeds": ["192.0.2.2"],
                "maxRttMs": 10.5,
                "denied": ["stolen"],
            },
            "extender": {"enabled": true},
        });
        let config = Config::read(&document).unwrap();
        let mut expected = json!(Config::default());
        json_patch::merge(&mut expected, &document);
        assert_eq!(json!(config), expected);
        assert_eq!(config.models[Class::Batch].beta, Micros(7_000));
        let inputs = config.prometheus.unwrap().required_inputs();
        assert_eq!(inputs, [Input::EdgeFreeCpu, Input::WanLoss]);

        let document = json!({
            "excludedNamespaces": ["infra"],
            "sites": [{"name": "here", "kind": "edge"}],
            "waitForTerminating": 0,
        });
        let config = Config::read(&document).unwrap();
        assert_eq!(config.excluded_namespaces, ["kube-system", "edgeward-system", "infra"]);
        assert_eq!(config.sites[0].name, "here");
        assert_eq!(config.gating.wait_for_terminating, PerClass::default());
    }

    #[test]
    fn telemetry_ttl_shorter_than_probe_gap_is_refused() {
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
    fn durations_parse_in_the_format_of_go() {
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
    fn domain_cannot_change_while_running() {
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
}
