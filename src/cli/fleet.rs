//! `edgeward fleet`: shows a live cluster as edgeward sees it.

use std::fmt::Write as _;
use std::sync::Arc;

use clap::Args;
use edgeward_decision::fleet_file;
use edgeward_decision::model::liqo::ApiServerStatus;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_kube::node::Node;
use edgeward_kube::units::{Bytes, Millicores, Moment};

use super::installed::Installed;
use super::{Cluster, Output};
use crate::inspect::Connection;

/// Show what edgeward sees of a live cluster: sites, nodes, queues and the WAN.
///
/// Lists nodes, pods and namespaces, probes the cloud sites and queries Prometheus once, and changes nothing. As YAML or JSON it is a
/// fleet file (docs/reference/fleet-file.md) for `edgeward review --fleet`. With the pod, it makes a bug report.
#[derive(Debug, Args)]
pub(super) struct Fleet {
    #[command(flatten)]
    installed: Installed,

    #[command(flatten)]
    cluster: Cluster,

    /// Output format; `json` and `yaml` print a fleet file.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Fleet {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (snapshot, now) = self.cluster.ask(async |connection| self.look(connection).await)?;
        self.output
            .print(&fleet_file::write(&snapshot, now), |_| table(&snapshot, now))
    }

    async fn look(&self, connection: &Connection) -> anyhow::Result<(Arc<Snapshot>, Moment)> {
        let view = self.installed.view(connection).await?;
        for fault in &view.node_faults {
            tracing::warn!("{fault}");
        }
        Ok((view.snapshot, connection.clock.moment()))
    }
}

fn table(snapshot: &Snapshot, now: Moment) -> String {
    let (mut sites, mut nodes, mut closed) = (Vec::new(), Vec::new(), String::new());
    for site in &snapshot.sites {
        let name = site.name();
        sites.push(site_row(site, now));
        nodes.extend(site.nodes().map(|node| node_row(site, node)));
        for full in &*site.full {
            let _ = writeln!(closed, "full: {name} for {full}");
        }
        for (namespace, controller, pods) in site.closed.iter() {
            let whose = format!("pods of controller {controller} in {namespace}");
            let _ = writeln!(closed, "closed: {name} to {whose}; {pods} wait");
        }
    }
    let header = "SITE,KIND,SOURCE,READY,CPU FREE,MEMORY FREE,PODS,QUEUE,WAN";
    let mut text = super::table(header, sites);
    if !nodes.is_empty() {
        text += &format!("\n{}", super::table("NODE,SITE,STATE,CPU FREE,MEMORY FREE,PODS", nodes));
    }
    if !closed.is_empty() {
        text += &format!("\n{closed}");
    }
    text
}

fn site_row(site: &Site, now: Moment) -> [String; 9] {
    let ready = site.nodes().filter(|node| node.state.ready).count();
    let sum = |part: &dyn Fn(&Node) -> i64| site.nodes().map(part).fold(0, i64::saturating_add);
    let age = site.link.map(|link| now.since(link.as_of).0 / 1_000_000);
    let age = age.map(|seconds| format!(", {seconds} s ago"));
    [
        site.name().to_owned(),
        site.kind().as_str().to_owned(),
        site.definition.source.as_str().to_owned(),
        format!("{ready}/{}", site.nodes.len()),
        cpu(
            sum(&|node| node.charges.used.cpu.0),
            sum(&|node| node.allocatable.cpu.0),
        ),
        memory(
            sum(&|node| node.charges.used.memory.0),
            sum(&|node| node.allocatable.memory.0),
        ),
        format!("{}/{}", sum(&|node| node.charges.pods), sum(&|node| node.slots)),
        site.queues.iter().map(|group| group.waiting).sum::<u64>().to_string(),
        wan(site) + &age.unwrap_or_default(),
    ]
}

fn node_row(site: &Site, node: &Node) -> [String; 6] {
    let state = match (node.state.ready, node.state.cordoned) {
        (false, _) => "not ready",
        (true, true) => "cordoned",
        (true, false) => "ready",
    };
    [
        node.name.to_string(),
        site.name().to_owned(),
        state.to_owned(),
        cpu(node.charges.used.cpu.0, node.allocatable.cpu.0),
        memory(node.charges.used.memory.0, node.allocatable.memory.0),
        format!("{}/{}", node.charges.pods, node.slots),
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

/// Describes the WAN to a site.
pub(super) fn wan(site: &Site) -> String {
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
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use edgeward_decision::config::Config;

    #[test]
    fn fleet_table_lists_free_capacity_per_site_and_node() {
        let fleet = json!({
            "sites": [
                {"name": "edge", "kind": "edge", "closed": {"shop": {"u1": 2}},
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
full: far for a pod slot or more (0 waiting)
full: far for cpu 500m and memory 2Gi or more (3 waiting)
";
        assert_eq!(format!("\n{}", table(&snapshot, now)), expected);
    }
}
