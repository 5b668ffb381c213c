//! Warnings for the user who creates the pod.

use std::borrow::Cow;

use crate::model::traits::LABEL_PREFIX;
use crate::placement::filters::Case;
use crate::placement::rank;
use crate::placement::verdict::{Assessment, Reason, RefusalCode, Standing};
use edgeward_kube::excerpt::{LONGEST_NAME, excerpt};

/// The most bytes of a trait list that a warning shows.
const SHOWN: usize = 40;

pub(super) fn warnings(
    case: &Case<'_, '_>,
    sites: &[Assessment<'_>],
    reason: Reason,
    chosen: Option<&Assessment<'_>>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    match reason {
        Reason::NoSiteMatches => warnings.push(format!("not placed, for no site can run it: {}", refusals(sites))),
        Reason::EdgeSiteMissing => warnings.push(edge_missing(sites)),
        Reason::HeldSiteAway => warnings.push(format!("gated until a site can run it: {}", refusals(sites))),
        Reason::EdgeTooLarge => {
            let request = case.workload.request.quantities().collect::<Vec<_>>().join(", ");
            warnings.push(format!("larger than any node it may run on: {request}"));
        }
        _ => {}
    }
    if let Some(chosen) = chosen {
        if chosen.standing() == Standing::Away {
            warnings.push(format!("placed on a site that cannot be used now: {}", refusal(chosen)));
        }
        let left_behind: Vec<_> = case.workload.left_behind.iter().map(|field| field.as_str()).collect();
        if chosen.site.definition.is_of_liqo() && !left_behind.is_empty() {
            warnings.push(format!("Liqo does not take along: {}", left_behind.join(", ")));
        }
        warnings.extend(unspread(case, chosen));
    }
    warnings.extend(missing_traits(case, sites));
    let limit = case.config.gating.limits[case.slo().class];
    let deadline = case.workload.active_deadline;
    if let Some(deadline) = deadline.filter(|deadline| reason.is_gate() && *deadline < limit) {
        let [limit, deadline] = [limit, deadline].map(|time| time.0 / 1_000_000);
        warnings.push(format!(
            "may be gated for {limit} s, longer than its activeDeadlineSeconds ({deadline}): time-outs of its creator may count already"
        ));
    }
    if let (Some(name), None) = (&case.intent.profile, case.profile) {
        let prefix = &case.config.keys.slo_prefix;
        warnings.push(format!("{prefix}profile: no PerformanceProfile {name} is in use"));
    }
    let possible = sites.iter().filter(|site| site.is_possible());
    let fastest = possible.map(|site| site.estimate.processing).min();
    if let (Some(target), Some(fastest)) = (case.slo().latency_target, fastest)
        && fastest > target
    {
        warnings.push(format!(
            "latency target {target} ms is below the processing time {fastest} ms of every site"
        ));
    }
    warnings
}

/// The worst refusal of each site: `edge (no_matching_node), cloud (not_offloadable)`.
fn refusals(sites: &[Assessment<'_>]) -> String {
    let refused = sites.iter().map(refusal).collect::<Vec<_>>();
    excerpt(refused.join(", "), LONGEST_NAME)
}

fn refusal(site: &Assessment<'_>) -> String {
    let worst = site.standing();
    let refusal = site.refusals.iter().find(|refusal| refusal.code.standing() == worst);
    let code = refusal.map_or("good", |refusal| refusal.code.as_str());
    format!("{} ({code})", site.site.name())
}

fn edge_missing(sites: &[Assessment<'_>]) -> String {
    let edge = sites.iter().filter(|site| rank::is_edge(site));
    let labels = edge.flat_map(|edge| edge.site.definition.selector());
    let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    format!("not placed: no node carries the edge label {}", labels.join(","))
}

/// The topology key over which kube-scheduler must spread the pods of the pod's controller, although all nodes of the chosen
/// site have the same value. Cost: a pass over the nodes of the site for each such key.
fn unspread(case: &Case<'_, '_>, chosen: &Assessment<'_>) -> Option<String> {
    let is_constant = |key: &&Cow<'_, str>| {
        let mut values = chosen.site.nodes().map(|node| node.labels.get(key));
        let first = values.next().flatten();
        first.is_some() && values.all(|value| value == first)
    };
    let key = case.workload.spread_keys.iter().find(is_constant)?;
    let (key, site) = (excerpt(key, SHOWN), chosen.site.name());
    let prefix = &case.config.keys.slo_prefix;
    Some(format!(
        "not spread over sites: all nodes of {site} have one {key}; use {prefix}spread"
    ))
}

fn missing_traits(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> Option<String> {
    let traits = case.intent.traits.as_ref()?;
    let is_missed = |site: &Assessment<'_>| site.is_refused(RefusalCode::MissingTrait);
    let is_out = |site: &Assessment<'_>| is_missed(site) || site.is_refused(RefusalCode::NotInSites);
    if !sites.iter().any(is_missed) || !sites.iter().all(is_out) {
        return None;
    }
    let names = excerpt(traits.names().collect::<Vec<_>>().join(", "), SHOWN);
    Some(format!(
        "no node has its traits ({names}): label some {LABEL_PREFIX}NAME=true"
    ))
}
