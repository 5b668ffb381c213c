//! Pods of the same controller that wait at the site although they fit a node.

use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn closed_to_controller(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let controller = case.workload.controller.as_deref()?;
    let waiting = found.site.closed.get(&case.workload.namespace, controller)?;
    Some(Refusal::new(RefusalCode::ClosedByScheduler).with("waitingPods", *waiting))
}
