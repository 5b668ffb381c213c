//! `edgeward moves`: the pods that would be moved, and what keeps the others where they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Args;
use edgeward_cluster::moves::{Memory, MovesReport, Outlook, Seen, View};
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::placement::ledger::Ledger;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use serde::Serialize;

use super::installed::{Installed, LEASE};
use super::{Cluster, Output, sentence, table};
use crate::controllers::lease::MOVES;
use crate::controllers::moves::Noted;
use crate::inspect::{self, Connection};

/// List the pods for which another site is better, and what keeps them from being moved.
///
/// Also lists the other pods in clouds. Reads the cluster once, probes the cloud sites once, and changes nothing. SINCE comes
/// from the leader's Lease.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 answered; 1 the cluster did not answer.")]
pub(super) struct Moves {
    /// Answer as if `moves` were enabled in the configuration.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    installed: Installed,

    #[command(flatten)]
    cluster: Cluster,

    /// Output format; `json` and `yaml` are for programs (docs/reference/output.md).
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// What is known of one pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    pod: String,
    from: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    enabled: bool,
    pods: Vec<Row>,
    notes: Vec<String>,
}

impl Moves {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let report = self.cluster.ask(async |connection| self.report(connection).await)?;
        self.output.print(&report, Report::text)
    }

    async fn report(&self, connection: &Connection) -> anyhow::Result<Report> {
        let found = self.installed.read(connection).await?;
        let mut notes: Vec<_> = found.assumption().into_iter().collect();
        let mut config = found.config;
        let enabled = config.moves.enabled;
        if !enabled && !self.dry_run {
            notes.push("moves are not enabled; --dry-run answers as if they were".to_owned());
            return Ok(Report {
                enabled,
                pods: vec![],
                notes,
            });
        }
        config.moves.enabled = true;
        let (view, engine) = inspect::view(connection, config, None).await?;
        notes.extend(view.unread.iter().map(sentence));
        let lease = connection.get::<Lease>(&self.installed.namespace(), LEASE).await;
        let lease = lease.unwrap_or_else(|error| {
            notes.push(sentence(&error));
            None
        });
        let noted = noted(lease);
        let report = MovesReport {
            pods: engine.cache().members(),
        };
        let evaluation = Memory::default().evaluate(
            &report,
            View {
                snapshot: &view.snapshot,
                ledger: &Ledger::default(),
                config: &view.config,
                now: connection.clock.now(),
            },
        );
        let outlooks: BTreeMap<_, _> = evaluation
            .outlooks
            .iter()
            .map(|outlook| (&outlook.pod.member.uid, outlook))
            .collect();
        let edge = view.config.sites.iter().find(|site| site.kind == SiteKind::Edge);
        let rows = report.pods.iter().filter_map(|pod| {
            let outlook = outlooks.get(&pod.member.uid).copied();
            let is_away = pod.site.is_some() && pod.site.as_deref() != edge.map(|edge| &*edge.name);
            let noted = noted.get(&*pod.member.uid);
            let is_away = is_away && pod.member.decision.is_some();
            (outlook.is_some() || noted.is_some() || is_away).then(|| Row::new(pod, outlook, noted))
        });
        let mut pods: Vec<_> = rows.collect();
        pods.sort_by(|one, other| (&one.namespace, &one.pod).cmp(&(&other.namespace, &other.pod)));
        Ok(Report { enabled, pods, notes })
    }
}

/// What the leader knows of each pod that is better elsewhere, by uid.
fn noted(lease: Option<Lease>) -> BTreeMap<String, Noted> {
    let annotations = lease.and_then(|lease| lease.metadata.annotations);
    let text = annotations.and_then(|mut annotations| annotations.remove(MOVES));
    let noted = text.and_then(|text| serde_json::from_str(&text).ok());
    noted.unwrap_or_default()
}

impl Row {
    fn new(pod: &Seen, outlook: Option<&Outlook>, noted: Option<&Noted>) -> Self {
        let (why, to) = match (noted, outlook) {
            (Some(noted), _) => (Some(noted.why), noted.to.clone()),
            (None, Some(outlook)) => (Some(outlook.why), outlook.to.clone()),
            (None, None) => (None, None),
        };
        let blocker = outlook.map_or(pod.member.blocker, |outlook| outlook.blocker);
        let blocker = noted
            .map_or(blocker, |noted| noted.blocked)
            .map(|blocker| blocker.as_str());
        Self {
            namespace: pod.namespace.to_string(),
            pod: pod.member.name.to_string(),
            from: pod.site.clone(),
            to,
            why: why.map(|why| why.as_str()),
            since: noted.map(|noted| noted.since),
            blocked: blocker.or(why.is_none().then_some("no_better_site")),
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let shown = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let rows = self.pods.iter().map(|row| {
            [
                row.namespace.clone(),
                row.pod.clone(),
                shown(row.from.as_deref()),
                shown(row.to.as_deref()),
                shown(row.why),
                row.since.map_or_else(|| "-".to_owned(), |since| since.to_string()),
                shown(row.blocked),
            ]
        });
        let mut text = match self.pods.is_empty() {
            true => "no pod is better elsewhere\n".to_owned(),
            false => table("NAMESPACE,POD,FROM,TO,WHY,SINCE,BLOCKED", rows),
        };
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }
}
