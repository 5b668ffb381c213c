//! Room in the cluster behind the site, from what its scheduler reports about pods that are Pending there.

use serde_json::{Map, Value};

use crate::model::remote_room::FullFrom;
use crate::placement::filters::Case;
use crate::placement::filters::room::MAX_NAMED_RESOURCES;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn full_behind_nodes(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let refuses = |full: &&FullFrom| full.bound.refuses(&case.workload.request);
    let full = found.site.full.iter().find(refuses)?;
    let amounts = full.bound.amounts().take(MAX_NAMED_RESOURCES);
    let refused: Map<String, Value> = amounts.map(|(name, amount)| (name.to_owned(), amount.into())).collect();
    let refusal = Refusal::new(RefusalCode::RemoteFull).with("refused", refused);
    Some(refusal.with("waitingPods", full.pods))
}
