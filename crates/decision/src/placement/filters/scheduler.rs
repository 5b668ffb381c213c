//! Sites where a pod of the same controller is Pending for something that edgeward does not evaluate.

use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn closed_to_controller(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let controller = case.workload.controller.as_deref()?;
    let waiting = found.site.closed.get(&case.workload.namespace, controller)?;
    Some(Refusal::new(RefusalCode::ClosedByScheduler).with("waitingPods", *waiting))
}
