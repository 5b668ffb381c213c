//! `edgeward fleet`: what a live cluster looks like to edgeward.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use edgeward_core::model::liqo::ApiServerStatus;
use edgeward_core::model::node::Node;
use edgeward_core::model::site::SiteKind;
use edgeward_core::model::snapshot::{Site, Snapshot};
use edgeward_core::units::{Bytes, Micros, Millicores, Moment};
use edgeward_core::wire::fleet_file;

use super::cluster::Cluster;
use super::installed::Installed;
use super::{sentence, trimmed};
use crate::inspect;
use crate::inspect::Listing;
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

/// Show what edgeward sees of a live cluster: sites, nodes, queues and the WAN.
///
/// Lists nodes, pods and namespaces once, probes the cloud sites of the configuration once, and changes nothing. As
/// YAML or JSON it is a fleet file (docs/fleet-file.md), which `edgeward review --fleet` takes: with a pod, a bug report.
#[derive(Debug, Args)]
pub(super) struct Fleet {
    #[command(flatten)]
    installed: Installed,

    #[command(flatten)]
    cluster: Cluster,

    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// A fleet file.
    Json,
    /// A fleet file.
    Yaml,
}

impl Fleet {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let metrics = Arc::new(Metrics::new());
        let _logs = logs::init_logging(LogFormat::Pretty, "warn", &metrics)?;
        let clock = Clock::start();
        let (snapshot, now) = self.cluster.ask(async |connection| {
            let found = self.installed.read(connection).await?;
            if let Some(assumption) = found.assumption() {
                tracing::warn!("{assumption}");
            }
            let config = found.config;
            if config.prometheus.is_some() {
                tracing::warn!("Prometheus is not asked here; what it measures is missing in the picture");
            }
            let inspect::Liqo {
                objects: liqo,
                unreadable,
            } = inspect::liqo(connection, &config).await;
            for (_, error) in &unreadable {
                tracing::warn!("not taken into account: {}", sentence(error));
            }
            let config = inspect::sites_in_use(connection, config).await?;
            let (config, _) = inspect::with_discovered(config, liqo.as_ref());
            let Listing { mut cache, volumes, .. } =
                inspect::list_and_probe(connection, &config, clock, &metrics).await?;
            for fault in cache.faults() {
                tracing::warn!(
                    node = &*fault.node,
                    sites = fault.sites.join(" "),
                    "carries the selectors of several sites; it counts to the first cloud of them"
                );
            }
            cache.set_liqo(liqo.map(|objects| Arc::new(objects.facts(clock.now()))));
            let profiles = inspect::profiles(connection, clock.now()).await;
            let now = clock.moment();
            let mut snapshot = cache.publish(now);
            snapshot.volumes = volumes;
            match profiles {
                Ok(profiles) => snapshot.profiles = profiles,
                Err(error) => tracing::warn!("not taken into account: {}", sentence(&error)),
            }
            Ok((snapshot, now))
        })?;
        super::print(&match self.output {
            Output::Table => table(&snapshot, now),
            Output::Json => serde_json::to_string_pretty(&fleet_file::write(&snapshot, now))? + "\n",
            Output::Yaml => serde_saphyr::to_string(&fleet_file::write(&snapshot, now))?,
        })
    }
}

fn table(snapshot: &Snapshot, now: Moment) -> String {
    let mut sites = super::table([
        "SITE",
        "KIND",
        "SOURCE",
        "READY",
        "CPU FREE",
        "MEMORY FREE",
        "PODS",
        "QUEUE",
        "WAN",
    ]);
    let mut nodes = super::table(["NODE", "SITE", "STATE", "CPU FREE", "MEMORY FREE", "PODS"]);
    let mut closed = String::new();
    for site in &snapshot.sites {
        sites.add_row(site_row(site, now));
        for node in site.nodes() {
            nodes.add_row(node_row(site, node));
        }
        for full in &*site.full {
            let _ = writeln!(closed, "full: {} for {full}", site.name());
        }
        for (namespace, controller, pods) in site.closed.iter() {
            let name = site.name();
            let _ = writeln!(
                closed,
                "closed: {name} to pods of controller {controller} in {namespace}; {pods} wait"
            );
        }
    }
    let mut text = trimmed(&sites);
    if !nodes.is_empty() {
        text += &format!("\n{}", trimmed(&nodes));
    }
    if !closed.is_empty() {
        text += &format!("\n{closed}");
    }
    text
}

fn site_row(site: &Site, now: Moment) -> [String; 9] {
    let sum = |part: &dyn Fn(&Node) -> i64| site.nodes().map(part).fold(0, i64::saturating_add);
    [
        site.name().to_owned(),
        site.kind().as_str().to_owned(),
        site.definition.source.as_str().to_owned(),
        format!(
            "{}/{}",
            site.nodes().filter(|node| node.ready).count(),
            site.nodes.len()
        ),
        cpu(sum(&|node| node.used.cpu.0), sum(&|node| node.allocatable.cpu.0)),
        memory(sum(&|node| node.used.memory.0), sum(&|node| node.allocatable.memory.0)),
        format!("{}/{}", sum(&|node| node.pods), sum(&|node| node.slots)),
        site.queues.iter().map(|group| group.waiting).sum::<u64>().to_string(),
        wan(site, now),
    ]
}

fn node_row(site: &Site, node: &Node) -> [String; 6] {
    let state = match (node.ready, node.cordoned) {
        (false, _) => "not ready",
        (true, true) => "cordoned",
        (true, false) => "ready",
    };
    [
        node.name.to_string(),
        site.name().to_owned(),
        state.to_owned(),
        cpu(node.used.cpu.0, node.allocatable.cpu.0),
        memory(node.used.memory.0, node.allocatable.memory.0),
        format!("{}/{}", node.pods, node.slots),
    ]
}

/// Free and total CPU.
fn cpu(used: i64, total: i64) -> String {
    format!("{}/{}", Millicores(total.saturating_sub(used)), Millicores(total))
}

/// Free and total memory, to whole Mi.
fn memory(used: i64, total: i64) -> String {
    let mebibytes = |bytes: i64| Bytes(bytes).whole_mebibytes();
    format!("{}/{}", mebibytes(total.saturating_sub(used)), mebibytes(total))
}

fn wan(site: &Site, now: Moment) -> String {
    if let Some(status) = site.api_server.filter(|status| *status != ApiServerStatus::Established) {
        return format!("unreachable (Liqo: {})", status.as_str());
    }
    let Some(link) = site.link else {
        return if site.kind() == SiteKind::Edge { "-" } else { "unknown" }.to_owned();
    };
    let mut text = link.state.as_str().to_owned();
    if let Some(rtt) = link.rtt {
        let _ = write!(text, ", {rtt} ms");
    }
    if let Some(loss) = link.loss {
        let _ = write!(text, ", {} % lost", serde_json::Value::from(loss));
    }
    let Micros(age) = now.since(link.as_of);
    let _ = write!(text, ", {} s ago", age / 1_000_000);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use edgeward_core::config::Config;

    #[test]
    fn the_table_tells_what_is_free() {
        let fleet = json!({
            "sites": [
                {"name": "edge", "kind": "edge", "closed": [{"namespace": "shop", "controller": "u1", "pods": 2}],
                 "queues": [{"class": "batch", "waiting": 3}, {"class": "batch", "priority": 1, "waiting": 1}]},
                {"name": "far", "kind": "cloud", "wan": {"rttMs": 22.5, "lossPct": 0.1, "ageSeconds": 3},
                  "full": [{"refused": {"memory": "2Gi", "cpu": "500m"}, "pods": 3}, {"refused": {"pods": 1}, "pods": 0}]},
                {"name": "near", "kind": "liqo", "source": "liqo", "apiServerStatus": "Error"},
            ],
            "nodes": [
                {"name": "e1", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "memory": "8Gi", "pods": 110},
                 "used": {"cpu": "900m", "memory": "2Gi", "pods": 9}},
                {"name": "e2", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 2, "memory": "4Gi", "pods": 110},
                 "unschedulable": true},
                {"name": "c1", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 64, "pods": 500}, "ready": false},
            ],
        });
        let now = Moment(60_000_000);
        let snapshot = fleet_file::read(&fleet, &Config::default(), now).unwrap();
        let expected = "
 SITE  KIND   SOURCE  READY  CPU FREE  MEMORY FREE  PODS   QUEUE  WAN
 edge  edge   config  2/2    5100m/6   10Gi/12Gi    9/220  4      -
 far   cloud  config  0/1    64/64     0/0          0/500  0      healthy, 22.5 ms, 0.1 % lost, 3 s ago
 near  cloud  liqo    0/0    0/0       0/0          0/0    0      unreachable (Liqo: Error)

 NODE  SITE  STATE      CPU FREE  MEMORY FREE  PODS
 e1    edge  ready      3100m/4   6Gi/8Gi      9/110
 e2    edge  cordoned   2/2       4Gi/4Gi      0/110
 c1    far   not ready  64/64     0/0          0/500

closed: edge to pods of controller u1 in shop; 2 wait
full: far for a pod slot or more (none waits)
full: far for cpu 500m and memory 2Gi or more (3 wait)
";
        assert_eq!(format!("\n{}", table(&snapshot, now)), expected);
    }
}
