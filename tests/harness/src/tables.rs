//! Results of `cargo xtask soak`, as tables for `docs/design/performance.md`, `docs/guide/clouds.md` and
//! `docs/guide/simulate.md`.

use std::fmt;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Burst,
    Rollouts,
    Replicas,
    Closing,
    Certificates,
    UnprovenConnections,
    HostilePods,
    HostileBodies,
    Profiles,
    Simulation,
    /// More pods than the edge has room for, with two clouds behind it.
    ElasticCluster,
    /// A cloud whose API server does not answer.
    FrozenCloud,
}

static ROWS: Mutex<Vec<(Table, String)>> = Mutex::new(Vec::new());

impl Table {
    pub fn row(self, of: &str, found: &[&dyn fmt::Display]) {
        let cells: String = found.iter().map(|cell| format!(" {cell} |")).collect();
        let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
        rows.push((self, format!("| {of} |{cells}")));
    }

    fn title(self) -> &'static str {
        match self {
            Self::Burst => "A burst",
            Self::Rollouts => "Replicas of nine in the cloud after each rollout",
            Self::Replicas => "Replicas that come and go",
            Self::Closing => "A site that closes to a controller",
            Self::Certificates => "Certificates that are replaced",
            Self::UnprovenConnections => "Unproven connections",
            Self::HostilePods => "Pods of others",
            Self::HostileBodies => "Hostile bodies",
            Self::Profiles => "Performance profiles beside a load",
            Self::Simulation => "A load on kwok and in the simulation",
            Self::ElasticCluster => "A burst, an edge and two clouds",
            Self::FrozenCloud => "A cloud whose API server is frozen",
        }
    }

    fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Burst => &["CPU bound at the edge", "unschedulable", "in the cloud"],
            Self::Rollouts => &["in the cloud"],
            Self::Replicas => &["created", "failed", "undecided"],
            Self::Closing => &["kube-scheduler refuses a pod after", "every replica knows after"],
            Self::Certificates => &["seconds", "connections", "created", "failed", "undecided"],
            Self::UnprovenConnections | Self::HostileBodies => &["found"],
            Self::Profiles => &["answers of Prometheus", "created", "undecided"],
            Self::Simulation => &["on kwok", "simulated", "of the runs", "difference"],
            Self::ElasticCluster => &["edge", "near", "far", "seconds"],
            Self::FrozenCloud => &["after seconds"],
            Self::HostilePods => &["MiB more at most", "MiB more afterwards"],
        }
    }
}

pub fn print() {
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|(table, _)| *table);
    for of_one in rows.chunk_by(|(one, _), (other, _)| one == other) {
        let Some((table, _)) = of_one.first() else { continue };
        let columns = table.columns();
        println!(
            "\n## {}\n\n| | {} |\n|---|{}",
            table.title(),
            columns.join(" | "),
            "---:|".repeat(columns.len())
        );
        for (_, row) in of_one {
            println!("{row}");
        }
    }
}
