//! Keeps the ClusterReport of this cluster, which neighbours read. This runs on the replica that holds the Lease.

use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::queue::Plan;
use edgeward_decision::config::{Config, ReportSettings};
use edgeward_decision::model::report::Report;
use edgeward_decision::model::slo::Class;
use edgeward_decision::placement::patch::timestamp;
use edgeward_kube::units::{Micros, Moment, Now};
use kube::Api;
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::{Context, write_status};
use crate::api::{ClusterReport, ClusterReportSpec};
use crate::config::Versions;
use crate::instruments::logs::LogLimit;
use crate::reports::NAME;

/// Interval at which the report is compared with the written one.
const PERIOD: Duration = Duration::from_secs(1);

/// The shortest time between two writes, and the longest. Neighbours ignore a report 30 s after it arrived, and a new leader
/// may need 15 s.
const SHORTEST: Micros = Micros::from_secs(5);
const LONGEST: Micros = Micros::from_secs(10);

/// Timeout of a write.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Writes reports while this replica holds the Lease and the configuration has a section `report`. Never returns. `newest` gets
/// each written report, and nothing while this replica writes none.
pub async fn run(
    context: Context,
    mut versions: Versions,
    plans: watch::Receiver<Arc<Plan>>,
    newest: watch::Sender<Option<Arc<Report>>>,
) {
    let mut config = versions.next().await;
    loop {
        let same = |one: &Config, other: &Config| one.report == other.report;
        let work = async {
            let Some(settings) = &config.report else { return };
            let leadership = &context.leadership;
            while leadership
                .during(keep(&context, settings, &plans, &newest))
                .await
                .is_none()
            {
                newest.send_replace(None);
            }
        };
        config = versions.until_other(&config, same, work).await;
        newest.send_replace(None);
    }
}

/// Writes the report for ever: on a change, and before neighbours take it for old. Nothing is written from an old view, and then
/// there is no newest report.
async fn keep(
    context: &Context,
    settings: &ReportSettings,
    plans: &watch::Receiver<Arc<Plan>>,
    newest: &watch::Sender<Option<Arc<Report>>>,
) {
    let limit = LogLimit::new(context.clock);
    let mut written: Option<(Report, Moment)> = None;
    loop {
        let now = context.clock.now();
        // This passes over all nodes, so it must not hold up the runtime's workers.
        let may_write = written.as_ref().is_none_or(|(_, at)| now.moment.since(*at) >= SHORTEST);
        let plan = Arc::clone(&plans.borrow());
        let current = may_write.then(|| block_in_place(|| current(context, settings, &plan, now)));
        if current == Some(None) {
            newest.send_replace(None);
        }
        let due = current
            .flatten()
            .filter(|report| is_due(report, written.as_ref(), now.moment));
        if let Some(report) = due {
            let last = written.as_ref().map(|(report, _)| report.generation);
            let wrote = timeout(TIMEOUT, write(context, &report, last, now)).await;
            match wrote.map_err(anyhow::Error::from).and_then(|wrote| Ok(wrote?)) {
                Ok(report) => {
                    newest.send_replace(Some(Arc::new(report.clone())));
                    written = Some((report, now.moment));
                }
                Err(error) => {
                    if let Some(held_back) = limit.due("report") {
                        tracing::warn!(%error, held_back, "the ClusterReport cannot be written");
                    }
                }
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

fn is_due(report: &Report, written: Option<&(Report, Moment)>, now: Moment) -> bool {
    let Some((last, at)) = written else { return true };
    let is_same = Report {
        generation: last.generation,
        ..report.clone()
    } == *last;
    now.since(*at) >= if is_same { LONGEST } else { SHORTEST }
}

/// The report of now, without generation and time. `None` while the view is stale.
fn current(context: &Context, settings: &ReportSettings, plan: &Plan, now: Now) -> Option<Report> {
    let (snapshot, ttl) = (context.shared.snapshot(), context.config.load().telemetry_ttl);
    if snapshot.is_stale(ttl, now.moment) {
        return None;
    }
    let edge = snapshot.edge()?;
    let profile = settings.energy_profile.as_deref();
    let profile = profile.and_then(|name| snapshot.profiles.get(name));
    let score = profile.and_then(|profile| profile.score(edge.name(), now.moment));
    let gated = |class: Class| (class.as_str().to_owned(), plan.gated_by_class[class] as i64);
    Some(Report {
        energy_score: score.map(f64::from),
        gated: Class::ALL.map(gated).into(),
        ..Report::of(edge, settings.components)
    })
}

/// Writes the report with the generation after the `last` one, or after the one in the cluster. Returns it as written.
async fn write(context: &Context, report: &Report, last: Option<i64>, now: Now) -> kube::Result<Report> {
    let api = Api::<ClusterReport>::all(context.client.clone());
    let last = match last {
        Some(last) => last,
        None => stored(&api).await?,
    };
    let report = Report {
        generation: last.saturating_add(1),
        time: timestamp(now.wall),
        ..report.clone()
    };
    write_status(&api, &ClusterReport::new(NAME, ClusterReportSpec {}), &report).await?;
    Ok(report)
}

/// The generation of the report in the cluster; 0 without one.
async fn stored(api: &Api<ClusterReport>) -> kube::Result<i64> {
    let object = api.get_opt(NAME).await?;
    Ok(object
        .and_then(|object| object.status)
        .map_or(0, |status| status.generation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_due_on_change_or_before_it_gets_old() {
        let of = |components: &[&str]| Report {
            components: components.iter().map(|name| (*name).to_owned()).collect(),
            ..Report::default()
        };
        let written = (
            Report {
                generation: 7,
                ..of(&[])
            },
            Moment(0),
        );
        let at = |seconds| Moment(0).after(Micros::from_secs(seconds));
        assert!(is_due(&of(&[]), None, at(0)));
        for (report, seconds, expected) in [
            (of(&[]), 9, false),
            (of(&[]), 10, true),
            (of(&["db"]), 4, false),
            (of(&["db"]), 5, true),
        ] {
            assert_eq!(is_due(&report, Some(&written), at(seconds)), expected, "{seconds}");
        }
    }
}
