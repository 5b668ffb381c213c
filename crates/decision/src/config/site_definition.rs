//! What an operator writes down about a site: in the configuration, in a Site and in a fleet file alike.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::config::{LossThreshold, RttThreshold};
use crate::document::texts::SiteName;
use crate::document::texts::TraitName;
use crate::document::{Checks, Decimal, Fault, schema};
use crate::model::endpoint::Endpoint;
use crate::model::link::{Bandwidth, Energy, OwnThresholds};
use crate::model::liqo::{NOT_ALLOWED, REMOTE_CLUSTER_ID, VIRTUAL_NODE};
use crate::model::report::ReportSource;
use crate::model::site::{SiteDefinition, SiteKind, SiteSource};
use edgeward_kube::constraints::Toleration;
use edgeward_kube::texts::StorageClass;
use edgeward_kube::texts::{Labels, RuntimeClass};
use edgeward_kube::ties::{Tie, Ties};
use edgeward_kube::units::{CostPerHour, Micros, Permille};

/// RTT inside a site that states none.
const INSIDE_RTT: Micros = Micros(1_000);

/// RTT inside a site, up to a second.
type InsideRtt = Decimal<3, 0, 1_000_000>;

/// A place where pods can run: the nodes of this cluster, or a cluster behind virtual nodes.
// The form in documents. The schema of the CRD is made from it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WrittenSite {
    /// Unique; written on pods
    #[schemars(with = "SiteName")]
    name: String,
    /// edge: the nodes of this cluster. cloud: a cluster behind virtual nodes. liqo: a cluster behind Liqo's virtual
    /// nodes.
    kind: Kind,
    /// Labels of the site, such as region or tier. A pod can restrict its sites by them (`slo.<domain>/sites`).
    #[schemars(with = "Option<Labels>", extend("maxProperties" = 32))]
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    /// Cost per hour, in the same currency for all sites.
    cost_per_hour: Option<Decimal<6, 0, 1_000_000_000_000>>,
    /// Rank of a cloud with `sitePolicy: ordered`. The lowest comes first, then the first by name. Default: its place among
    /// the clouds of a list; 0 for a Site.
    order: Option<Decimal<0, 0, 1_000_000>>,
    /// Labels of the site's nodes. A node belongs to the site if it has all of them, and a pod placed here gets them as
    /// its nodeSelector. Default by kind.
    #[schemars(with = "Option<Labels>", extend("minProperties" = 1, "maxProperties" = 16))]
    node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations that a pod placed here gets, unless it already tolerates as much. Default by kind.
    #[schemars(length(max = 16))]
    tolerations: Option<Vec<Toleration>>,
    /// The RuntimeClass of a pod placed here, if the pod names none.
    #[schemars(with = "Option<RuntimeClass>")]
    runtime_class_name: Option<String>,
    /// Seconds until a pod placed here is evicted from a node that is not Ready or unreachable, instead of 300. Only if it has a
    /// controller and another site was possible.
    unreachable_seconds: Option<Decimal<0, 1, 299>>,
    /// RTT inside the site in ms, for the distance between pods of a group. Default: 1.
    inside_rtt_ms: Option<InsideRtt>,
    /// Bandwidth from the site to others in bits per second, which pods with `kubernetes.io/egress-bandwidth` share. A measured
    /// one comes first.
    uplink: Option<Bandwidth>,
    /// Bandwidth from others to the site in bits per second, which pods with `kubernetes.io/ingress-bandwidth` share.
    downlink: Option<Bandwidth>,
    /// Energy of what the site sends on each of its links, for the metrics of profiles.
    energy: Option<Energy>,
    /// Speed of the site's CPUs. Processing times are stated for speed 1.
    speed_factor: Option<Decimal<3, 1, 1_000_000>>,
    /// Features that this cloud site can serve although they otherwise keep a pod at the edge.
    #[schemars(length(max = 7))]
    supports: Option<Vec<Tie>>,
    /// Traits that all nodes of the site have, such as SecureRuntime. A single edge node gets one by the label
    /// `traits.edgeward.io/<name>: "true"`.
    #[schemars(with = "Option<Vec<TraitName>>", length(max = 32))]
    traits: Option<Vec<String>>,
    /// StorageClasses for which this cloud site can create volumes. Default: `liqo` for kind liqo, none for kind cloud.
    #[schemars(with = "Option<Vec<StorageClass>>", length(max = 16))]
    storage_classes: Option<Vec<String>>,
    /// The site is degraded at this RTT or above, in ms. Default: from the configuration.
    rtt_threshold_ms: Option<RttThreshold>,
    /// The site is degraded at this packet loss or above, in percent. Default: from the configuration.
    loss_threshold_pct: Option<LossThreshold>,
    /// Endpoints that measure the WAN to the site: icmp://host, tcp://host:port or https://host[:port][/path]. Without
    /// any, the site counts as unreachable.
    #[schemars(length(max = 16), inner(length(max = 2048)))]
    probes: Option<Vec<String>>,
    /// The ClusterReport of the cluster behind the site, if edgeward runs there. The site has no more room than it says.
    report: Option<ReportSource>,
}

/// What a site is, and what holds where it does not say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Edge,
    Cloud,
    Liqo,
}

impl Kind {
    /// The definition of a site of which nothing else is said.
    fn site(self, name: &str) -> SiteDefinition {
        let (selector, toleration) = match self {
            Self::Edge => (("node.role/edge", "true"), None),
            Self::Cloud => (("node.role/cloud", "true"), Some(("cloud", "cloud", "NoSchedule"))),
            Self::Liqo => (VIRTUAL_NODE, Some((NOT_ALLOWED, "true", "NoExecute"))),
        };
        let toleration = toleration.map(|(key, value, effect)| Toleration {
            key: key.into(),
            operator: "Equal".into(),
            value: value.into(),
            effect: effect.into(),
            seconds: None,
        });
        SiteDefinition {
            name: name.to_owned(),
            kind: if self == Self::Edge {
                SiteKind::Edge
            } else {
                SiteKind::Cloud
            },
            labels: BTreeMap::new(),
            cost: None,
            order: 0,
            selector: vec![(selector.0.to_owned(), selector.1.to_owned())],
            tolerations: toleration.into_iter().collect(),
            speed: Permille::ONE,
            supports: Ties::default(),
            traits: vec![],
            measured: vec![],
            storage_classes: (self == Self::Liqo).then(|| "liqo".to_owned()).into_iter().collect(),
            runtime_class: None,
            inside_rtt: INSIDE_RTT,
            uplink: None,
            downlink: None,
            energy: None,
            unreachable_seconds: None,
            thresholds: OwnThresholds::default(),
            probes: vec![],
            report: None,
            source: SiteSource::Config,
        }
    }
}

/// Reads a site that stands at this path; a cloud that does not say its order has this one.
pub(crate) fn read(site: &Value, default_order: u32, at: &str, faults: &mut Vec<Fault>) -> Option<SiteDefinition> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema::of::<WrittenSite>);
    let written = schema::read::<WrittenSite>(&SCHEMA, site, at, faults)?;
    let mut checks = Checks { at, faults };
    written.check(&mut checks);
    let site = written.definition(default_order, &mut checks);
    let is_lost = |tie: &&Tie| site.is_of_liqo() && Tie::LOST_BY_LIQO.contains(tie);
    for tie in site.supports.iter().filter(is_lost) {
        let message = format_args!("{:?} does not survive offloading by Liqo", tie.as_str());
        checks.fault("supports", message);
    }
    let has_no_kubeconfig = |source: &ReportSource| source.kubeconfig_secret_ref.is_none();
    if site.report.as_ref().is_some_and(has_no_kubeconfig) && !site.is_of_liqo() {
        let message = "is missing; only the cluster of a Liqo site can be a peer";
        checks.fault("report.kubeconfigSecretRef", message);
    }
    Some(site)
}

impl WrittenSite {
    /// Checks the rules that concern several fields.
    fn check(&self, checks: &mut Checks<'_>) {
        if self.node_selector.as_ref().is_some_and(BTreeMap::is_empty) {
            checks.fault("nodeSelector", "is empty, which every node would carry");
        }
        for (i, toleration) in self.tolerations.iter().flatten().enumerate() {
            let at = format!("tolerations[{i}]");
            let exists = toleration.operator == "Exists";
            if toleration.key.is_empty() && !exists {
                checks.fault(&at, "key may be empty only with operator Exists");
            }
            if exists && !toleration.value.is_empty() {
                checks.fault(&at, "value must be empty with operator Exists");
            }
        }
        if self.kind == Kind::Edge {
            let stated = [
                ("rttThresholdMs", self.rtt_threshold_ms.is_some()),
                ("lossThresholdPct", self.loss_threshold_pct.is_some()),
                ("probes", self.probes.is_some()),
                ("report", self.report.is_some()),
                ("storageClasses", self.storage_classes.is_some()),
                ("order", self.order.is_some()),
                ("unreachableSeconds", self.unreachable_seconds.is_some()),
            ];
            for (field, _) in stated.into_iter().filter(|(_, is_stated)| *is_stated) {
                checks.fault(field, "is for a cloud, and not for the edge site");
            }
        }
    }

    /// What it does not state is that of its kind.
    fn definition(self, default_order: u32, checks: &mut Checks<'_>) -> SiteDefinition {
        let by_default = self.kind.site(&self.name);
        let is_cloud = by_default.kind == SiteKind::Cloud;
        let order = self.order.map_or(default_order, |order| order.0 as u32);
        let selector = self.node_selector.map(|selector| selector.into_iter().collect());
        SiteDefinition {
            labels: self.labels.unwrap_or_default(),
            cost: self.cost_per_hour.map(CostPerHour::from),
            order: if is_cloud { order } else { 0 },
            selector: selector.unwrap_or(by_default.selector),
            tolerations: self.tolerations.unwrap_or(by_default.tolerations),
            speed: self.speed_factor.map_or(by_default.speed, Permille::from),
            supports: self.supports.into_iter().flatten().collect(),
            traits: self.traits.unwrap_or_default(),
            measured: vec![],
            storage_classes: self.storage_classes.unwrap_or(by_default.storage_classes),
            runtime_class: self.runtime_class_name,
            inside_rtt: self.inside_rtt_ms.map_or(by_default.inside_rtt, Micros::from),
            uplink: self.uplink,
            downlink: self.downlink,
            energy: self.energy,
            unreachable_seconds: self.unreachable_seconds.map(|seconds| seconds.0),
            thresholds: OwnThresholds {
                rtt: self.rtt_threshold_ms.map(Micros::from),
                loss: self.loss_threshold_pct.map(Permille::from),
            },
            report: self.report,
            probes: endpoints(&self.probes.unwrap_or_default(), checks),
            ..by_default
        }
    }

    /// How a site is written that is defined so; without what the WAN is probed by.
    pub fn of(site: &SiteDefinition) -> Self {
        let is_of_liqo = site.is_of_liqo();
        Self {
            name: site.name.clone(),
            kind: match site.kind {
                SiteKind::Edge => Kind::Edge,
                SiteKind::Cloud if is_of_liqo => Kind::Liqo,
                SiteKind::Cloud => Kind::Cloud,
            },
            labels: Some(site.labels.clone()).filter(|labels| !labels.is_empty()),
            cost_per_hour: site.cost.map(Decimal::from),
            order: Some(Decimal(site.order.into())).filter(|order| order.0 > 0),
            node_selector: Some(site.selector.iter().cloned().collect()),
            tolerations: Some(site.tolerations.clone()),
            runtime_class_name: site.runtime_class.clone(),
            inside_rtt_ms: Some(site.inside_rtt)
                .filter(|rtt| *rtt != INSIDE_RTT)
                .map(Decimal::from),
            uplink: site.uplink,
            downlink: site.downlink,
            energy: site.energy,
            unreachable_seconds: site.unreachable_seconds.map(Decimal),
            speed_factor: Some(site.speed.into()),
            supports: some_of(site.supports.iter().copied()),
            traits: some_of(site.traits_now().map(ToOwned::to_owned)),
            storage_classes: Some(site.storage_classes.clone()).filter(|classes| is_of_liqo || !classes.is_empty()),
            rtt_threshold_ms: site.thresholds.rtt.map(Decimal::from),
            loss_threshold_pct: site.thresholds.loss.map(Decimal::from),
            probes: None,
            report: site.report.clone(),
        }
    }
}

/// A list that is written only if something is in it.
pub(crate) fn some_of<T>(list: impl IntoIterator<Item = T>) -> Option<Vec<T>> {
    Some(list.into_iter().collect()).filter(|list: &Vec<T>| !list.is_empty())
}

fn endpoints(probes: &[String], checks: &mut Checks<'_>) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    for (i, probe) in probes.iter().enumerate() {
        match Endpoint::parse(probe) {
            Ok(endpoint) if endpoints.contains(&endpoint) => {
                checks.fault(
                    format_args!("probes[{i}]"),
                    format_args!("\"{endpoint}\" is listed twice"),
                );
            }
            Ok(endpoint) => endpoints.push(endpoint),
            Err(error) => checks.fault(format_args!("probes[{i}]"), error),
        }
    }
    endpoints
}

/// Whether these definitions make a fleet: names are unique and at most one is the edge. `list` is where they stand.
pub(crate) fn check_fleet<'s>(
    list: &str,
    sites: impl Iterator<Item = (&'s str, &'s SiteDefinition)>,
    faults: &mut Vec<Fault>,
) {
    let mut names = HashSet::new();
    let mut edges = 0;
    for (at, site) in sites {
        if !names.insert(&site.name) {
            faults.push(Fault::new(
                at,
                format_args!("the name {:?} is taken by an earlier site", site.name),
            ));
        }
        edges += usize::from(site.kind == SiteKind::Edge);
    }
    if edges > 1 {
        let message = format_args!("has {edges} sites of kind edge; there may be one");
        faults.push(Fault::new(list, message));
    }
}

impl SiteDefinition {
    /// By which a fleet is sorted: the edge first, then the clouds by name.
    pub(crate) fn order(&self) -> (bool, &str) {
        (self.kind != SiteKind::Edge, &self.name)
    }

    /// The site of the virtual nodes of one remote cluster of Liqo, called by its id.
    pub fn of_cluster(id: &str) -> Self {
        let mut site = Kind::Liqo.site(id);
        site.selector.insert(0, (REMOTE_CLUSTER_ID.to_owned(), id.to_owned()));
        site.source = SiteSource::Liqo;
        site
    }

    /// The site `edge` as nobody has changed it: nodes with the label `node.role/edge: "true"`.
    pub fn edge() -> Self {
        Kind::Edge.site("edge")
    }

    /// The site `cloud` as nobody has changed it: nodes with the label `node.role/cloud: "true"` and the taint
    /// `cloud=cloud:NoSchedule`.
    pub fn cloud() -> Self {
        Kind::Cloud.site("cloud")
    }
}
