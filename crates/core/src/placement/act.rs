//! What is done about a pod, by the standings of the edge and of the clouds ("The table" in docs/guide/decide.md).

use crate::placement::verdict::Standing;

/// What the table reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) edge: Standing,
    /// The best standing of a cloud; `Never` without clouds.
    pub(super) cloud: Standing,
    /// Whether more than one cloud is possible.
    pub(super) several_clouds: bool,
    /// What matters where no site is possible.
    pub(super) impossible: Impossible,
    pub(super) gate: Gate,
    /// Whether the pod may be gated for want of room.
    pub(super) may_gate: bool,
    /// Whether the view of the cluster is too old.
    pub(super) stale: bool,
    /// Whether the edge is good once the pods terminating there are gone, and the pod may wait for that.
    pub(super) waits_for_terminating: bool,
    /// Whether the pod's priority is high.
    pub(super) urgent: bool,
    /// Whether a late cloud has a lower ETA than the edge.
    pub(super) late_cloud_is_sooner: bool,
    /// Whether waiting for the edge is not worth it beside the best late cloud, if the edge is possible.
    pub(super) prefers_late_cloud: bool,
    /// Whether every possible cloud has been `Away` for longer than the pod can wait.
    pub(super) clouds_are_lost: bool,
}

/// Why no site is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Impossible {
    /// Only its size keeps the pod from the edge.
    Size,
    /// The pod states its sites, or its volume data is on no known node.
    Stated,
    /// No site has the traits that it requires.
    Traits,
    Other,
}

/// Whether the pod carries edgeward's gate already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// It arrives.
    None,
    /// It is gated, and within the limit of its class.
    Within,
    /// It is gated, and its limit is over.
    Over,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    PlaceEdge,
    /// On the best good site.
    PlaceGood,
    /// On the best late cloud.
    PlaceLate,
    /// On the best possible site.
    PlaceBest,
    Gate,
    PassThrough,
}

/// The first row of the table that applies, and what it says.
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
