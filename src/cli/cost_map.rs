//! `edgeward cost-map`: what is known of the links between sites.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use edgeward_decision::config::Config;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_kube::units::{Micros, Now};

use super::installed::Installed;
use super::review::offline;
use super::{Cluster, table};
use crate::cost_map::{self, Format};
use crate::inspect::Connection;
use crate::platform::clock::Clock;

/// Show RTT, jitter, loss, bandwidth and power of the links between sites.
///
/// Reads the cluster, probes the cloud sites and queries Prometheus once, and changes nothing. Unknown figures are left out.
#[derive(Debug, Args)]
pub(super) struct CostMap {
    /// Read a fleet file (docs/reference/fleet-file.md) instead of a cluster.
    #[arg(long, value_name = "FILE", conflicts_with = "context")]
    fleet: Option<PathBuf>,

    #[command(flatten)]
    installed: Installed,

    #[command(flatten)]
    cluster: Cluster,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

impl CostMap {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (snapshot, ttl, now) = match &self.fleet {
            Some(fleet) => of_file(fleet, &super::read_config(self.installed.file())?)?,
            None => self.cluster.ask(async |connection| self.look(connection).await)?,
        };
        let text = match self.output {
            Format::Table => table(
                cost_map::HEADER,
                snapshot.cost_map(ttl, now.moment).iter().map(cost_map::row),
            ),
            Format::Json | Format::Alto => {
                let document = cost_map::document(self.output, &snapshot, ttl, now);
                serde_json::to_string_pretty(&document)? + "\n"
            }
            Format::Diktyo | Format::Codeco => {
                serde_saphyr::to_string(&cost_map::document(self.output, &snapshot, ttl, now))?
            }
        };
        super::print(&text)
    }

    async fn look(&self, connection: &Connection) -> anyhow::Result<(Arc<Snapshot>, Micros, Now)> {
        let view = self.installed.view(connection).await?;
        Ok((view.snapshot, view.config.telemetry_ttl, connection.clock.now()))
    }
}

fn of_file(fleet: &Path, config: &Config) -> anyhow::Result<(Arc<Snapshot>, Micros, Now)> {
    let now = Clock::start().now();
    let text = super::read_text(fleet)?;
    let snapshot = offline::snapshot(&text, &fleet.display().to_string(), config, now)?;
    Ok((Arc::new(snapshot), config.telemetry_ttl, now))
}
