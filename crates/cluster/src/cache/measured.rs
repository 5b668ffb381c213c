//! Measured values, as opposed to counted ones: free capacity and processing times. `link` does the same for the WAN.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::entry::PodEntry;
use crate::cache::terminations::Terminations;
use crate::cache::{Cache, Kind, set};
use crate::pod_record::{Phase, PodRecord};
use crate::processing::Processing;
use crate::telemetry::Telemetry;
use edgeward_decision::config::Input;
use edgeward_decision::model::component::Component;
use edgeward_decision::model::link::Link;
use edgeward_decision::model::liqo::Liqo;
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::report::{FRESH, Report, SiteReport, Source};
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::Free;
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment, Now};

/// How long a pod may run at a site before a report of the cluster behind it shows the pod.
const SHOWN_AFTER: Micros = Micros::from_secs(10);

/// The measurements.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) telemetry: Telemetry,
    /// The WAN as probed, by site.
    pub(super) probed: BTreeMap<Box<str>, Link>,
    /// The last report of the cluster behind each site, and when it arrived, while it is fresh.
    pub(super) reports: BTreeMap<Box<str>, (Arc<Report>, Moment)>,
    /// The state of Liqo; `None` while it is not in use.
    pub(super) liqo: Option<Arc<Liqo>>,
    pub(super) processing: Processing,
    pub(super) terminations: Terminations,
}

impl Cache {
    /// Sets the measurements of a Prometheus server.
    pub fn set_telemetry(&mut self, telemetry: Telemetry) {
        self.measured.telemetry = telemetry;
    }

    /// Applies a report of the cluster behind a site. The site may belong to a configuration that is yet to come. Karmada does
    /// not replace a fresh report of the cluster itself, which tells of each node.
    pub fn apply_report(&mut self, site: &str, report: Option<&Arc<Report>>, now: Moment) {
        let of_itself = self
            .measured
            .reports
            .get(site)
            .filter(|(known, arrived)| known.source == Source::Report && now.since(*arrived) <= FRESH);
        match report {
            Some(report) if report.source == Source::Karmada && of_itself.is_some() => {}
            Some(report) => drop(self.measured.reports.insert(site.into(), (Arc::clone(report), now))),
            None => drop(self.measured.reports.remove(site)),
        }
    }

    /// Sets the state of Liqo; `None` while it is not in use.
    pub fn set_liqo(&mut self, liqo: Option<Arc<Liqo>>) {
        self.measured.liqo = liqo;
    }

    /// Records that a pod charges a node for the first time. A pod in the first list did so before.
    pub(super) fn record_first_charge(&mut self, uid: &Arc<str>, entry: &mut PodEntry, now: Moment) {
        if entry.charged.is_none() || entry.first_charged.is_some() {
            return;
        }
        let is_listed = self.is_listed(Kind::Pods);
        entry.first_charged = Some(if is_listed { now } else { Moment(i64::MIN) });
        if is_listed {
            self.pods.charged_lately.push_back((now, Arc::clone(uid)));
        }
    }

    /// Records the processing time of a Job's pod that has just succeeded in an opted-in namespace.
    pub(super) fn observe_finished(&mut self, record: &PodRecord, before: Option<Phase>, now: Now) {
        if before == Some(Phase::Finished) || !self.is_managed(&record.namespace) {
            return;
        }
        if let (Some(run), Some((class, _)), Some(site)) = (&record.job_run, record.slo, self.site_of(record)) {
            let site = site.name.clone();
            let age = now.wall.duration_since(run.finished).as_micros();
            // A node whose clock is ahead has finished it just now.
            let finished = now.moment.before(Micros(u64::try_from(age).unwrap_or(0)));
            let (namespace, key) = (&record.namespace, run.key.as_deref());
            let processing = &mut self.measured.processing;
            processing.observe(&site, class, namespace, key, run.time, [finished, now.moment]);
        }
    }

    /// Writes the measurements into the sites.
    pub(super) fn measure(&mut self, now: Moment) {
        self.measured.telemetry.expire(now);
        self.measured
            .reports
            .retain(|_, (_, arrived)| now.since(*arrived) <= FRESH);
        let is_over = |(at, _): &(Moment, _)| now.since(*at) > FRESH + SHOWN_AFTER;
        while self.pods.charged_lately.front().is_some_and(is_over) {
            self.pods.charged_lately.pop_front();
        }
        let edge = self.sites.iter().find(|entry| entry.site.kind() == SiteKind::Edge);
        let edge = edge.map(|edge| edge.site.name().to_owned()).unwrap_or_default();
        for (at, report) in self.reports().into_iter().enumerate() {
            let site = &self.sites[at].site;
            let (link, api_server) = self.link(site, now);
            let free = match site.kind() {
                SiteKind::Edge => self.free(at, now),
                SiteKind::Cloud => Free::default(),
            };
            let (measured, site) = (&mut self.measured, &mut self.sites[at].site);
            (site.link, site.api_server, site.free) = (link, api_server, free);
            if site.report.as_deref() != report.as_ref() {
                site.report = report.map(Arc::new);
                let of_site = measured.reports.get(site.name()).filter(|_| site.report.is_some());
                let names = of_site.iter().flat_map(|(report, _)| &report.components);
                set(&mut site.components, names.map(|name| Component::named(name)).collect());
            }
            let mut times = measured.telemetry.processing(site.name(), now);
            site.observed = times.remove("").unwrap_or_default();
            set(&mut site.observed_in, times);
            site.set_bandwidth(&edge, measured.telemetry.links());
            let traits = measured.telemetry.traits(site.name());
            if site.definition.measured != traits {
                Arc::make_mut(&mut site.definition).measured = traits;
            }
            site.job_times = measured.processing.times(site.name(), now);
        }
    }

    /// The sampled free capacity of a site, less the requests of pods that began to charge it since. Cost: a pass over all
    /// pods for each sample.
    fn free(&self, site: usize, now: Moment) -> Free {
        let left = |input, name| {
            let sample = self.measured.telemetry.edge_free(input, now)?;
            let is_since = |pod: &PodEntry| pod.first_charged.is_some_and(|at| at > sample.as_of);
            let pods = self.pods.by_uid.values();
            let here = pods.filter(|pod| is_since(pod) && self.charges(pod, site));
            let taken = here.map(|pod| pod.request.get(name)).fold(0, i64::saturating_add);
            Some(sample.value.cast_signed() - taken)
        };
        Free {
            cpu: left(Input::EdgeFreeCpu, "cpu").map(Millicores),
            memory: left(Input::EdgeFreeMemory, "memory").map(Bytes),
        }
    }

    /// The fresh reports of the clusters behind the sites. Cost: a pass over the pods that are waited for or began lately, and
    /// another for each report.
    fn reports(&self) -> Vec<Option<SiteReport>> {
        if self.measured.reports.is_empty() {
            return vec![None; self.sites.len()];
        }
        let lately = self.pods.charged_lately.iter().map(|(_, uid)| uid);
        let waiting = self.pods.timers.iter().map(|(_, uid)| uid);
        let uids: BTreeSet<_> = lately.chain(waiting).collect();
        let pods = uids.into_iter().filter_map(|uid| self.pods.by_uid.get(uid));
        let pods: Vec<&PodEntry> = pods.map(|pod| &**pod).collect();
        let sites = 0..self.sites.len();
        sites.map(|site| self.report(site, &pods)).collect()
    }

    /// The fresh report of the cluster behind a site. A pod takes room of it if it has no node or no container status yet, or
    /// began to charge the site after the report arrived, or less than [`SHOWN_AFTER`] before. `pods` holds at least these.
    fn report(&self, site: usize, pods: &[&PodEntry]) -> Option<SiteReport> {
        let of_site = &self.sites[site].site;
        let reported = self.measured.reports.get(of_site.name());
        let may_count = |report: &Report| report.source == Source::Karmada || of_site.definition.can_have_report();
        let (report, arrived) = reported.filter(|(report, _)| may_count(report))?;
        let mut room = report.room.clone();
        let since = arrived.before(SHOWN_AFTER);
        let is_hidden = |pod: &PodEntry| {
            let has_begun = pod.node.is_some() && pod.start == Start::Begun;
            !has_begun || pod.first_charged.is_some_and(|at| at > since)
        };
        let hidden = pods.iter().filter(|pod| is_hidden(pod) && self.charges(pod, site));
        hidden.for_each(|pod| room.take(&pod.request, 1));
        Some(SiteReport {
            as_of: *arrived,
            room,
            traits: report.traits.all.clone(),
            source: report.source,
        })
    }

    /// Whether the pod charges a node of the site.
    fn charges(&self, pod: &PodEntry, site: usize) -> bool {
        let node = pod.charged.and_then(|id| self.nodes.by_id.get(&id));
        node.is_some_and(|node| node.site == Some(site))
    }
}
