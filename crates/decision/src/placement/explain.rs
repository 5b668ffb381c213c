//! The numbers behind a verdict as compact JSON, for the `explain` annotation and for users.

use serde_json::{Map, Value, json};

use crate::config::Explain;
use crate::document::without_nulls;
use crate::model::group::UNKNOWN_SIZE;
use crate::model::scores::Score;
use crate::placement::filters::group::Far;
use crate::placement::verdict::{Assessment, RefusalCode, Verdict};

/// The most bytes of a short explanation.
pub const SHORT_BYTES: usize = 256;

/// The key of the number of pods of a group. No site has this name.
pub const GROUP_PODS: &str = "groupPods";

/// The most bytes of a full explanation.
pub const FULL_BYTES: usize = 2048;

/// The explanation of a verdict, by site; `None` if it is switched off or the verdict has no sites. It never names a node.
///
/// The short form has the ETA in milliseconds, the number of fitting nodes, how many of these need headroom, the score and
/// the refusal codes. The full form has every number. Space goes to the chosen site first. Sites that do not fit in
/// [`SHORT_BYTES`] or [`FULL_BYTES`] are left out.
pub fn explain(verdict: &Verdict<'_>, how: Explain) -> Option<String> {
    if verdict.sites.is_empty() && verdict.members.is_none() {
        return None;
    }
    // `,"groupPods":"255 of 256"`
    let reserved = if verdict.members.is_some() { 25 } else { 0 };
    let mut entries = match how {
        Explain::Off => return None,
        Explain::Full => entries(
            verdict,
            |site| full(site, learned_score(verdict, site)),
            FULL_BYTES - reserved,
        ),
        Explain::Short => entries(
            verdict,
            |site| brief(site, learned_score(verdict, site)),
            SHORT_BYTES - reserved,
        ),
    };
    if let Some((pods, size)) = verdict.members {
        entries.push(format!("{}:{}", json!(GROUP_PODS), json!(of_group(pods, size))));
    }
    if how == Explain::Full {
        entries.sort();
    }
    Some(format!("{{{}}}", entries.join(",")))
}

/// The number of pods of a group that exist, of those that start together.
fn of_group(pods: u32, size: u32) -> String {
    match size {
        UNKNOWN_SIZE => format!("{pods} of ?"),
        size => format!("{pods} of {size}"),
    }
}

/// The entries of the sites that fit in `bytes`: the chosen site first, then possible sites, then the rest.
fn entries(verdict: &Verdict<'_>, entry: impl Fn(&Assessment<'_>) -> Value, bytes: usize) -> Vec<String> {
    let chosen = verdict.chosen().map(|chosen| chosen.site.name());
    let mut sites: Vec<_> = verdict.sites.iter().collect();
    sites.sort_by_key(|assessment| (Some(assessment.site.name()) != chosen, !assessment.is_possible()));
    let (mut entries, mut length) = (vec![], 1);
    for assessment in sites {
        let name = assessment.site.name();
        // There may be hundreds of sites, so an entry that cannot fit is not built.
        if length + least_length(assessment) >= bytes {
            continue;
        }
        let entry = format!("{}:{}", json!(name), entry(assessment));
        let separator = usize::from(!entries.is_empty());
        if length + separator + entry.len() < bytes {
            length += separator + entry.len();
            entries.push(entry);
        }
    }
    entries
}

/// A lower bound for the bytes of a site's entry: its name, `"":{"fit":0}`, `"eta":0,` if it is known, and a text for each refusal.
fn least_length(assessment: &Assessment<'_>) -> usize {
    let codes = assessment
        .refusals
        .iter()
        .map(|refusal| refusal.code.as_str().len() + 3);
    let eta = if assessment.estimate.eta().is_some() { 8 } else { 0 };
    assessment.site.name().len() + 12 + eta + codes.sum::<usize>()
}

/// The score of a site by the learned scorer, if the scorer is active and compared the site.
fn learned_score(verdict: &Verdict<'_>, site: &Assessment<'_>) -> Option<Score> {
    verdict
        .learned
        .as_ref()
        .filter(|learned| learned.is_active)?
        .score(site.site)
}

/// A site's entry of the short form.
fn brief(assessment: &Assessment<'_>, learned: Option<Score>) -> Value {
    let codes = assessment.refusals.iter().map(|refusal| refusal.code.as_str());
    let codes = codes.collect::<Vec<_>>();
    without_nulls(json!({
        "eta": assessment.estimate.eta().map(Value::from),
        "fit": assessment.fitting.len(),
        "far": chosen_far(assessment),
        "learned": learned,
        "headroom": Some(assessment.headroom).filter(|nodes| *nodes > 0),
        "no": Some(codes).filter(|codes| !codes.is_empty()),
        "score": assessment.score,
    }))
}

/// The exceeded distance to pods of the group, at a site that is not refused for it.
fn chosen_far(assessment: &Assessment<'_>) -> Option<Map<String, Value>> {
    let is_refused = assessment.is_refused(RefusalCode::TooFar);
    assessment.far.as_ref().filter(|_| !is_refused).map(Far::numbers)
}

fn full(assessment: &Assessment<'_>, learned: Option<Score>) -> Value {
    let refusals = assessment.refusals.iter();
    let refusals = refusals.map(|refusal| (refusal.code.as_str().to_owned(), refusal.numbers.clone().into()));
    let mut entry = times(assessment);
    entry.insert("fittingNodes".into(), assessment.fitting.len().into());
    if assessment.headroom > 0 {
        entry.insert("headroomNodes".into(), assessment.headroom.into());
    }
    if assessment.is_trial {
        entry.insert("trial".into(), true.into());
    }
    if let Some(far) = chosen_far(assessment) {
        entry.insert("far".into(), far.into());
    }
    if let Some(score) = assessment.score {
        entry.insert("score".into(), json!(score));
    }
    if let Some(learned) = learned {
        entry.insert("learned".into(), json!(learned));
    }
    entry.insert("refusals".into(), refusals.collect::<Map<_, _>>().into());
    entry.into()
}

/// The refusals in one site's entry of an explanation: their codes, and in the full form their numbers. The entry is
/// untrusted, because any user may have written it.
pub fn refusals(entry: &Value) -> impl Iterator<Item = (&str, Map<String, Value>)> {
    let brief = entry["no"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let full = entry["refusals"].as_object().into_iter().flatten();
    let full = full.map(|(code, numbers)| (&**code, numbers.as_object().cloned().unwrap_or_default()));
    brief.map(|code| (code, Map::new())).chain(full)
}

/// The parts of the pod's time: `queueMs`, `procMs`, `wanMs` and `etaMs`; null if unknown. Also `procP95Ms` and `wanP95Ms`, where
/// they differ from the mean.
pub fn times(assessment: &Assessment<'_>) -> Map<String, Value> {
    let estimate = &assessment.estimate;
    let parts = [
        ("queueMs", Some(estimate.queue)),
        ("procMs", Some(estimate.processing)),
        ("wanMs", estimate.wan),
        ("etaMs", estimate.eta()),
    ];
    let p95 = [
        ("procP95Ms", Some(estimate.processing_p95), Some(estimate.processing)),
        ("wanP95Ms", estimate.wan_p95, estimate.wan),
    ];
    let p95 = p95.into_iter().filter(|(_, p95, mean)| p95 != mean);
    let parts = parts.into_iter().chain(p95.map(|(name, p95, _)| (name, p95)));
    parts.map(|(name, time)| (name.to_owned(), time.into())).collect()
}
