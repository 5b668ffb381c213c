//! What a choice warns of.

use std::collections::BTreeSet;

use crate::excerpt::{LONGEST_NAME, excerpt};
use crate::model::liqo::OffloadingPhase;
use crate::model::traits::LABEL_PREFIX;
use crate::placement::away;
use crate::placement::choice::Case;
use crate::placement::feasibility;
use crate::placement::verdict::{Action, Assessment, Reason, RefusalCode};

/// How much a warning shows of the sites at which a pod may run.
const LONGEST_SITES: usize = 40;

impl Case<'_, '_> {
    /// What keeps the pod from the sites that its own constraints leave, or that they leave none.
    fn why_no_site_matches(&self) -> Option<String> {
        let constraints = &self.workload.constraints;
        let is_remote = self.room.snapshot.is_remote(&self.workload.namespace);
        let not_offloaded = self.not_offloaded();
        if !not_offloaded.is_empty() {
            return Some(format!(
                "not placed: Liqo does not offload its namespace to {not_offloaded}"
            ));
        }
        if is_remote {
            let cause = match self.config.may_offload(self.slo()) {
                true => "no virtual node for it",
                false => "offload is not allowed",
            };
            return Some(format!(
                "not placed: strategy Remote leaves only virtual nodes, and {cause}"
            ));
        }
        let shown = |constraints| excerpt(constraints, LONGEST_NAME);
        let clouds = self.clouds().filter(|cloud| cloud.allowed);
        let refusals: Vec<_> = clouds
            .flat_map(|cloud| &cloud.refusals)
            .filter(|refusal| refusal.code == RefusalCode::NotOffloadable)
            .collect();
        let ties: BTreeSet<_> = refusals.iter().flat_map(|refusal| refusal.numbers.keys()).collect();
        let ties = ties.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let cause = match (refusals.is_empty(), &*ties) {
            (true, _) if constraints.is_empty() => return None,
            (true, _) => return Some(format!("not placed: no site for {}", shown(constraints))),
            (false, "") if !self.config.enable_offload => "offload is disabled",
            (false, "") => "offload is not allowed",
            (false, ties) => ties,
        };
        Some(format!(
            "not placed: cannot leave the edge ({cause}), and no edge node for {}",
            shown(constraints)
        ))
    }

    /// The clouds that it might go to but for its namespace, `far (InProgress)`.
    fn not_offloaded(&self) -> String {
        let phases = self
            .clouds_instead()
            .filter_map(|cloud| Some((cloud.site.name(), cloud.offloading?)));
        let listed = phases.filter(|(_, phase)| *phase != OffloadingPhase::Accepted);
        let listed: Vec<_> = listed
            .map(|(name, phase)| format!("{name} ({})", phase.as_str()))
            .collect();
        excerpt(listed.join(", "), LONGEST_NAME)
    }

    /// Why a pod has nowhere to go that may run at some sites alone.
    fn why_not_in_sites(&self) -> &'static str {
        let is_out = |site: &Assessment<'_>| site.is_refused(RefusalCode::NotInSites);
        let is_missed = |site: &Assessment<'_>| site.is_refused(RefusalCode::MissingTrait);
        let all_refuse = |codes: &[RefusalCode]| {
            let refuses = |cloud: &Assessment<'_>| codes.iter().any(|code| cloud.is_refused(*code));
            self.clouds().next().is_some() && self.clouds().all(refuses)
        };
        if self.sites.iter().all(is_out) {
            "there is no such site"
        } else if self.sites.iter().all(Assessment::is_out) && self.sites.iter().any(is_missed) {
            "no node there has its traits"
        } else if self.has_data() && all_refuse(&[RefusalCode::DataElsewhere, RefusalCode::NotOffloadable]) {
            "its data is elsewhere"
        } else if all_refuse(&[RefusalCode::NotOffloadable]) {
            "the pod may not leave the edge"
        } else if all_refuse(&[RefusalCode::NamespaceNotOffloaded]) {
            "Liqo does not offload its namespace there"
        } else if self.workload.constraints.is_empty() {
            "no node there could hold it"
        } else {
            "its own constraints allow no node there that could hold it"
        }
    }

    pub(in crate::placement) fn warnings(&self, action: Action<'_>, reason: Reason) -> Vec<String> {
        let mut warnings = Vec::new();
        match reason {
            Reason::NoSiteMatches => warnings.extend(self.why_no_site_matches()),
            Reason::EdgeSiteMissing => {
                let selector = self.edge().map(|edge| {
                    let pairs = edge
                        .site
                        .definition
                        .selector()
                        .map(|(key, value)| format!("{key}={value}"));
                    pairs.collect::<Vec<_>>().join(",")
                });
                let selector = selector.unwrap_or_default();
                warnings.push(format!("not placed: no node carries the edge label {selector}"));
            }
            Reason::HeldSiteAway => {
                let awaited = away::listed(self.clouds().filter_map(|cloud| self.holder(cloud)));
                let nowhere = feasibility::data_nowhere(self.workload, self.room.snapshot);
                let sites = self.intent.sites.as_ref();
                warnings.push(match (nowhere, sites) {
                    _ if !awaited.is_empty() => format!("held until a site is back: {awaited}"),
                    (Some(claim), _) => format!("held until there is {}", away::data_of(claim)),
                    (None, Some(sites)) => {
                        let (sites, cause) = (excerpt(sites, LONGEST_SITES), self.why_not_in_sites());
                        format!("held for {sites}, and never elsewhere: {cause}")
                    }
                    (None, None) => format!("held until a site is back: {awaited}"),
                });
            }
            Reason::CloudPinnedByPod | Reason::CloudBestEffort | Reason::CloudData => {
                let mut chosen = self.clouds().filter(|cloud| action.is_placement_at(cloud.site));
                let away = chosen
                    .find(|cloud| !cloud.is_usable())
                    .into_iter()
                    .filter_map(|cloud| self.holder(cloud))
                    .find(|holder| holder.absence.is_some());
                warnings.extend(away.map(|away| format!("Pending until its site is back: {away}")));
            }
            Reason::EdgeTooLarge => {
                let request = self.workload.request.quantities().collect::<Vec<_>>().join(", ");
                warnings.push(format!("larger than any node it may run on: {request}"));
            }
            _ => {}
        }
        let chosen = self.sites.iter().find(|site| action.is_placement_at(site.site));
        if chosen.is_some_and(|chosen| chosen.site.definition.is_of_liqo()) && !self.workload.left_behind.is_empty() {
            let fields: Vec<_> = self.workload.left_behind.iter().map(|field| field.as_str()).collect();
            warnings.push(format!("Liqo does not take along: {}", fields.join(", ")));
        }
        let is_missed = |site: &Assessment<'_>| site.is_refused(RefusalCode::MissingTrait);
        if let Some(traits) = &self.intent.traits
            && self.sites.iter().any(is_missed)
            && self.sites.iter().all(Assessment::is_out)
        {
            let names = excerpt(traits.names().collect::<Vec<_>>().join(", "), LONGEST_SITES);
            warnings.push(format!(
                "no node has its traits ({names}): label some {LABEL_PREFIX}NAME=true"
            ));
        }
        if let (Some(name), None) = (&self.intent.profile, self.profile) {
            let prefix = &self.config.keys.slo_prefix;
            warnings.push(format!("{prefix}profile: no PerformanceProfile {name} is in use"));
        }
        let candidates = self.sites.iter().filter(|site| site.allowed && !site.is_barred());
        let fastest = candidates.map(|site| site.estimate.processing).min();
        if let (Some(target), Some(fastest)) = (self.slo().latency_target, fastest)
            && fastest > target
        {
            warnings.push(format!(
                "latency target {target} ms is below the processing time {fastest} ms of every site"
            ));
        }
        warnings
    }
}
