//! `edgeward peers`: looks for peers without a Kubernetes cluster, and suggests which near cluster to connect.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::{Args, Subcommand};
use edgeward_decision::model::report::Report;
use edgeward_decision::placement::patch::timestamp;
use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use tokio::sync::watch;

use super::{Cluster, print, read_config};
use crate::api;
use crate::fleet_file::FleetFile;
use crate::inspect::Connection;
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;
use crate::peers::{self, Membership, Near, NearPeer};
use crate::platform::clock::Clock;
use crate::serve::{address, bind, tokio_runtime};

/// Interval at which the report is made anew.
const REPORT_PERIOD: Duration = Duration::from_secs(5);

/// A peer that was not seen for this long is not suggested: a leader would have removed it.
const LAST_SEEN: Duration = Duration::from_secs(5 * 60);

/// Look for the clusters near this one, without a Kubernetes cluster.
///
/// Answers peers and looks for them as `serve` does on the leader, for trials and for places without Kubernetes. Prints a line of
/// JSON at the end of each round, of about 10 s and at first 2.5 s: the near peers, by id. With a section `report` in the configuration, peers may read the
/// free room of the edge in the fleet file.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Peers {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    agent: Option<Agent>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the `liqoctl peer` line for the nearest cluster with free room that is no site yet.
    ///
    /// Reads the Peer objects that `serve` keeps (setting `peers`), and changes nothing. Peers that were not seen for 5 minutes do
    /// not count. The amounts are what the cluster reports as free.
    #[command(after_help = "Exit codes: 0 a line was printed; 1 no such cluster, or no answer.")]
    Suggest {
        #[command(flatten)]
        cluster: Cluster,
    },
}

#[derive(Debug, Args)]
struct Agent {
    /// Fleet file with the edge (docs/reference/fleet-file.md); read again when it changes.
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,

    /// Configuration with the section `peers` (docs/reference/settings.md), which need not be enabled.
    #[arg(long, value_name = "PATH")]
    config: PathBuf,

    /// Directory with tls.crt, tls.key and ca.crt; read again when they change. The certificate needs the URI name
    /// spiffe://DOMAIN/cluster/ID.
    #[arg(long, value_name = "DIR")]
    certificate: PathBuf,

    /// Address for peers. Default: all addresses, and the port of the section `peers`.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    listen: Option<SocketAddr>,
}

impl Peers {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match (self.command, self.agent) {
            (Some(Command::Suggest { cluster }), _) => print(&cluster.ask(suggest)?),
            (None, Some(agent)) => agent.run(),
            (None, None) => anyhow::bail!("name a fleet file, a configuration and a certificate, or `suggest`"),
        }
    }
}

impl Agent {
    fn run(self) -> anyhow::Result<()> {
        let metrics = Arc::new(Metrics::new());
        let _logs = logs::init_logging(LogFormat::Json, "info", &metrics)?;
        let runtime = tokio_runtime()?;
        let ended = runtime.block_on(self.look(metrics));
        runtime.shutdown_background();
        ended
    }

    async fn look(self, metrics: Arc<Metrics>) -> anyhow::Result<()> {
        let config = read_config(Some(&self.config))?;
        let lacks = || format!("{}: has no section `peers`", self.config.display());
        let settings = config.peers.clone().with_context(lacks)?;
        let clock = Clock::start();
        let config = Arc::new(ArcSwap::from_pointee(config));
        let file = FleetFile::open(self.fleet, Arc::clone(&config), clock).await?;
        let membership = Membership::open(&self.certificate, clock).await?;
        let listen = self.listen.unwrap_or(([0, 0, 0, 0], settings.port).into());
        let (listener, _) = bind(listen, "listener for peers")?;
        tracing::info!(id = membership.id().as_str(), %listen, "looking for peers");
        let (reports, report) = watch::channel(None);
        let (sender, near) = watch::channel(Near::default());
        let shared = Arc::clone(&file.shared);
        let looking = peers::Peers {
            settings,
            membership,
            report,
            refines: Box::new(|_| false),
            near: sender,
            clock,
            metrics,
        };
        let reporting = async {
            let mut generation = 0;
            loop {
                generation += 1;
                let settings = config.load().report.clone();
                let snapshot = shared.snapshot();
                let edge = settings.and_then(|settings| Some((snapshot.edge()?, settings.components)));
                let report = edge.map(|(edge, components)| Report {
                    generation,
                    time: timestamp(clock.wall()),
                    ..Report::of(edge, components)
                });
                reports.send_replace(report.map(Arc::new));
                tokio::time::sleep(REPORT_PERIOD).await;
            }
        };
        tokio::select! {
            error = looking.run(listener) => Err(error),
            () = file.follow() => Ok(()),
            () = reporting => Ok(()),
            printed = print_rounds(near) => printed,
        }
    }
}

/// Prints what was known at the end of each round.
async fn print_rounds(mut near: watch::Receiver<Near>) -> anyhow::Result<()> {
    let mut last = Near::default();
    while near.changed().await.is_ok() {
        let now = near.borrow_and_update().clone();
        if now.round > last.round && last.round > 0 {
            let peers: Vec<_> = last.peers.iter().map(line).collect();
            print(&format!("{}\n", json!({"round": last.round, "near": peers})))?;
        }
        last = now;
    }
    Ok(())
}

fn line(peer: &NearPeer) -> serde_json::Value {
    json!({
        "id": peer.id.as_str(),
        "address": peer.address,
        "rttMs": peer.rtt.as_millis_f64(),
        "room": peer.report.as_ref().map(|report| report.room.summary()),
    })
}

async fn suggest(connection: &Connection) -> anyhow::Result<String> {
    let api = Api::<api::Peer>::all(connection.client.clone());
    let peers = connection.list(&api, ListParams::default(), Some).await?;
    let now = Timestamp::now();
    let usable = peers.iter().filter_map(|peer| {
        let (name, status) = (peer.metadata.name.as_deref()?, peer.status.as_ref()?);
        let room = status.report.as_ref()?.room.total();
        let has_room = room.cpu.0 > 0 && room.memory.0 > 0 && room.pods > 0;
        let seen: Timestamp = status.seen.as_ref()?.parse().ok()?;
        let is_there = now.duration_since(seen).unsigned_abs() < LAST_SEEN;
        (status.site.is_none() && has_room && is_there).then_some((status.rtt_ms?, name, room))
    });
    let best = usable.min_by(|one, other| one.0.total_cmp(&other.0));
    let (rtt, name, room) = best.with_context(|| {
        format!(
            "{}: no near cluster reports free room and is no site yet",
            connection.name
        )
    })?;
    Ok(format!(
        "# {name} is {rtt} ms away. {name}.yaml stands for a kubeconfig of it\n\
         liqoctl peer --remote-kubeconfig {name}.yaml --cpu {} --memory {} --pods {}\n",
        room.cpu, room.memory, room.pods
    ))
}
