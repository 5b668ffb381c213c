//! The numbers behind a verdict as compact JSON, for the `explain` annotation and for people.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::config::Explain;
use crate::model::scores::Score;
use crate::placement::verdict::{Assessment, Verdict};

/// The most a short explanation takes on the pod.
pub const SHORT_BYTES: usize = 256;

/// The most that a full one takes.
pub const FULL_BYTES: usize = 2048;

/// The explanation of a verdict; `None` if it is switched off or there is nothing to explain. The short form names
/// per site the ETA in milliseconds, the number of fitting nodes, of how many of them headroom is needed if of any, and the
/// refusal codes; the full form has every number. The chosen site is first, and those are left out that no longer fit in
/// [`SHORT_BYTES`] or [`FULL_BYTES`]. Neither names a node.
pub fn explain(verdict: &Verdict<'_>, how: Explain) -> Option<String> {
    if verdict.sites.is_empty() {
        return None;
    }
    match how {
        Explain::Off => None,
        Explain::Full => {
            let mut entries = entries(verdict, full, FULL_BYTES);
            entries.sort();
            Some(object(entries))
        }
        Explain::Short => Some(object(entries(verdict, brief, SHORT_BYTES))),
    }
}

/// The entries of as many sites as fit in so many bytes: of the chosen one first, then of those at which the pod may run.
fn entries<E: Serialize>(verdict: &Verdict<'_>, entry: impl Fn(&Assessment<'_>) -> E, bytes: usize) -> Vec<String> {
    let chosen = verdict.chosen().map(|chosen| chosen.site.name());
    let mut sites: Vec<_> = verdict.sites.iter().collect();
    sites.sort_by_key(|assessment| (Some(assessment.site.name()) != chosen, !assessment.is_possible()));
    let (mut entries, mut length) = (vec![], 1);
    for assessment in sites {
        let name = assessment.site.name();
        // What cannot fit is not made: there may be hundreds.
        if length + name.len() >= bytes {
            continue;
        }
        let entry = format!("{}:{}", json(&name), json(&entry(assessment)));
        let separator = usize::from(!entries.is_empty());
        if length + separator + entry.len() < bytes {
            length += separator + entry.len();
            entries.push(entry);
        }
    }
    entries
}

/// Of numbers, strings, and lists and maps of these, which always serialise.
fn json(part: &impl Serialize) -> String {
    serde_json::to_string(part).unwrap_or_default()
}

fn object(entries: Vec<String>) -> String {
    format!("{{{}}}", entries.join(","))
}

/// A site's entry of the short form.
#[derive(Serialize)]
struct Brief {
    #[serde(skip_serializing_if = "Option::is_none")]
    eta: Option<Value>,
    fit: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    headroom: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    no: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<Score>,
}

fn brief(assessment: &Assessment<'_>) -> Brief {
    let refusals = assessment.refusals.iter();
    Brief {
        eta: assessment.estimate.eta().map(Value::from),
        fit: assessment.fitting.len(),
        headroom: Some(assessment.headroom).filter(|nodes| *nodes > 0),
        no: refusals.map(|refusal| refusal.code.as_str()).collect(),
        score: assessment.score,
    }
}

fn full(assessment: &Assessment<'_>) -> Value {
    let refusals = assessment.refusals.iter();
    let refusals = refusals.map(|refusal| (refusal.code.as_str().to_owned(), refusal.numbers.clone().into()));
    let mut entry = times(assessment);
    entry.insert("fittingNodes".into(), assessment.fitting.len().into());
    if assessment.headroom > 0 {
        entry.insert("headroomNodes".into(), assessment.headroom.into());
    }
    if let Some(score) = assessment.score {
        entry.insert("score".into(), json!(score));
    }
    entry.insert("refusals".into(), refusals.collect::<Map<_, _>>().into());
    entry.into()
}

/// The refusals that one site's entry of an explanation has: the codes, and the numbers in the full form. Anybody may have written
/// it.
pub fn refusals(entry: &Value) -> impl Iterator<Item = (&str, Map<String, Value>)> {
    let brief = entry["no"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let full = entry["refusals"].as_object().into_iter().flatten();
    let full = full.map(|(code, numbers)| (&**code, numbers.as_object().cloned().unwrap_or_default()));
    brief.map(|code| (code, Map::new())).chain(full)
}

/// `queueMs`, `procMs`, `wanMs`, `etaMs`; null where not known.
pub fn times(assessment: &Assessment<'_>) -> Map<String, Value> {
    let estimate = &assessment.estimate;
    let parts = [
        ("queueMs", Some(estimate.queue)),
        ("procMs", Some(estimate.processing)),
        ("wanMs", estimate.wan),
        ("etaMs", estimate.eta()),
    ];
    parts
        .into_iter()
        .map(|(name, time)| (name.to_owned(), time.map_or(Value::Null, Value::from)))
        .collect()
}
