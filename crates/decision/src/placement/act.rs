//! Picks the action for a pod from the standings of the edge and the clouds ("The table" in docs/guide/decide.md).

use crate::placement::verdict::Standing;

/// Everything that the table reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) edge: Standing,
    /// The best standing of any cloud; `Never` without clouds.
    pub(super) cloud: Standing,
    /// Whether more than one cloud is possible.
    pub(super) several_clouds: bool,
    /// Why no site is possible. Only row 1 reads it.
    pub(super) impossible: Impossible,
    pub(super) gate: Gate,
    /// Whether the pod may be gated while no site has room.
    pub(super) may_gate: bool,
    /// Whether the view of the cluster is too old to choose between sites.
    pub(super) stale: bool,
    /// Whether the edge becomes good once pods terminating there are gone, and the pod may wait for that.
    pub(super) waits_for_terminating: bool,
    /// Whether the pod's SLO priority is high.
    pub(super) urgent: bool,
    /// Whether a late cloud has a lower ETA than the edge.
    pub(super) late_cloud_is_sooner: bool,
    /// Whether the best late cloud is better than waiting for the edge. It counts only if the edge is possible.
    pub(super) prefers_late_cloud: bool,
    /// Whether every possible cloud has been `Away` for longer than the pod can wait.
    pub(super) clouds_are_lost: bool,
}

/// Why no site is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Impossible {
    /// The edge refuses the pod only because no node there is large enough.
    Size,
    /// The pod states its sites, no known node can use its volume data, or a cloud lacks its required traits.
    Stated,
    /// The edge lacks required traits.
    Traits,
    Other,
}

/// Whether the pod already carries edgeward's gate, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// The pod has no gate: it is being created.
    None,
    /// The pod is gated, and the limit of its class is not over.
    Within,
    /// The pod is gated, and its limit is over.
    Over,
}

/// The action for the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    PlaceEdge,
    /// Place the pod on the best good site.
    PlaceGood,
    /// Place the pod on the best late cloud.
    PlaceLate,
    /// Place the pod on the best possible site.
    PlaceBest,
    Gate,
    PassThrough,
}

/// Returns the number of the first row that applies, and its action.
pub(super) fn act(facts: &Facts) -> (u8, Act) {
    use Standing::{Away, Full, Good, Late, Never};
    let Facts { edge, cloud, gate, .. } = *facts;
    let edge_is_possible = edge != Never;
    let gate_or = |otherwise| if facts.may_gate { Act::Gate } else { otherwise };

    if edge == Never && cloud == Never {
        return (1, nowhere(facts));
    }
    if edge == Never && !facts.several_clouds {
        return (2, Act::PlaceBest);
    }
    if cloud == Never {
        return (2, Act::PlaceEdge);
    }
    if facts.stale {
        let act = match gate {
            Gate::Within => Act::Gate,
            _ if edge_is_possible => Act::PlaceEdge,
            _ => gate_or(Act::PlaceBest),
        };
        return (3, act);
    }
    if edge == Full && facts.waits_for_terminating && facts.may_gate {
        return (4, Act::Gate);
    }
    if edge == Good || cloud == Good {
        return (5, Act::PlaceGood);
    }
    if edge == Late && !(facts.urgent && facts.late_cloud_is_sooner) {
        return (6, Act::PlaceEdge);
    }
    if cloud == Late && (!edge_is_possible || facts.prefers_late_cloud) {
        return (7, Act::PlaceLate);
    }
    let is_worth_waiting = gate != Gate::Over && !facts.clouds_are_lost;
    if facts.may_gate && (is_worth_waiting || !edge_is_possible && cloud == Away) {
        return (8, Act::Gate);
    }
    if cloud == Late && (gate != Gate::None || facts.urgent) {
        return (9, Act::PlaceLate);
    }
    if edge_is_possible {
        (10, Act::PlaceEdge)
    } else {
        (10, Act::PlaceBest)
    }
}

/// Row 1: no site is possible.
fn nowhere(facts: &Facts) -> Act {
    let waits = match facts.gate {
        Gate::None => facts.may_gate,
        Gate::Within => true,
        Gate::Over => false,
    };
    match facts.impossible {
        Impossible::Size => Act::PlaceEdge,
        Impossible::Stated => Act::Gate,
        Impossible::Traits if waits => Act::Gate,
        Impossible::Traits => Act::PlaceEdge,
        Impossible::Other if facts.gate == Gate::Within => Act::Gate,
        Impossible::Other => Act::PassThrough,
    }
}

#[cfg(test)]
mod tests;
