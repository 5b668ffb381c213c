//! The choice among the sites: rules (a) to (e), and the reason of what they choose.

mod profile;
mod warnings;

use std::{iter, ptr};

use crate::config::{Config, OnNoCapacity, SitePolicy};
use crate::model::node::Node;
use crate::model::scores::ProfileScores;
use crate::model::site::SiteKind;
use crate::model::slo::{Intent, Slo};
use crate::model::volumes::Whereabouts;
use crate::model::workload::Workload;
use crate::placement::away::{self, Holder};
use crate::placement::feasibility;
use crate::placement::room::Room;
use crate::placement::verdict::{Action, Assessment, Reason, RefusalCode};
use crate::units::{Micros, Now};

/// One decision under way.
pub(super) struct Case<'c, 's> {
    pub(super) workload: &'c Workload<'c>,
    pub(super) intent: &'c Intent,
    pub(super) room: &'c Room<'s, 'c>,
    pub(super) config: &'c Config,
    pub(super) now: Now,
    /// What the pod's performance profile says of the sites.
    pub(super) profile: Option<&'s ProfileScores>,
    pub(super) sites: Vec<Assessment<'s>>,
}

impl<'s> Case<'_, 's> {
    fn slo(&self) -> &Slo {
        &self.intent.slo
    }

    fn is_urgent(&self) -> bool {
        self.workload.slo_priority(&self.config.priority_caps) >= Slo::HIGH_PRIORITY
    }

    fn edge(&self) -> Option<&Assessment<'s>> {
        self.sites.iter().find(|site| site.site.kind() == SiteKind::Edge)
    }

    fn all_clouds(&self) -> impl Iterator<Item = &Assessment<'s>> {
        self.sites.iter().filter(|site| site.site.kind() == SiteKind::Cloud)
    }

    /// Those at which the pod may run, as far as it says, and that have its traits.
    fn clouds(&self) -> impl Iterator<Item = &Assessment<'s>> {
        self.all_clouds().filter(|cloud| !cloud.is_out())
    }

    /// Whether the pod may run at some sites alone: it is held for them whatever else would let it go.
    fn is_restricted(&self) -> bool {
        self.intent.sites.is_some()
    }

    /// Whether the volumes of its claims leave it some nodes alone.
    fn has_data(&self) -> bool {
        !self.workload.constraints.volumes.is_empty()
    }

    /// Sections 3 and 6 of docs/decision.md.
    pub(super) fn choose(&self, stale: bool) -> (Action<'s>, Reason) {
        let pass = |reason| (Action::PassThrough, reason);
        let is_missed = self
            .edge()
            .is_some_and(|edge| edge.is_refused(RefusalCode::MissingTrait));
        let is_elsewhere = is_missed && self.clouds_instead().next().is_some();
        if (self.is_restricted() || is_elsewhere) && !self.may_be_at_the_edge() {
            return self.choose_in_sites(stale);
        }
        let Some(edge) = self.edge().filter(|edge| !edge.site.nodes.is_empty()) else {
            return pass(Reason::EdgeSiteMissing);
        };
        if is_missed && edge.allowed {
            return self.choose_without_traits(edge);
        }
        if !edge.allowed {
            return match self.has_data() {
                true => self.choose_by_data(edge),
                false => self.choose_among_clouds(),
            };
        }
        // Its own constraints pin it, its sites never do.
        let mut clouds = self
            .all_clouds()
            .filter(|cloud| !cloud.site.nodes.is_empty())
            .peekable();
        if (self.has_data() || clouds.peek().is_some()) && clouds.all(|cloud| !cloud.allowed) {
            let pinned = if self.has_data() {
                Reason::EdgeData
            } else {
                Reason::EdgePinnedByPod
            };
            return self.to_edge(edge, pinned);
        }
        if stale {
            // At the edge it could never run, however old the view is.
            return self
                .beyond_the_edge(edge, None)
                .unwrap_or_else(|| match self.is_waiting() {
                    true => (Action::Hold, Reason::HeldNoCapacity),
                    false => self.to_edge(edge, Reason::EdgeTelemetryStale),
                });
        }

        let usable = || self.clouds().filter(|cloud| cloud.is_usable());
        let urgent = self.is_urgent();
        let feasible = || iter::once(edge).chain(usable()).filter(|site| site.is_feasible());
        let ranked = self.ranked_first(feasible());
        // (a)
        if edge.is_feasible() && ranked.iter().any(|site| ptr::eq(*site, edge)) {
            let met = if ranked.len() == 1 && feasible().nth(1).is_some() {
                Reason::EdgeProfile
            } else if self.slo().has_time_bound() {
                Reason::EdgeFeasibleSloMet
            } else {
                Reason::EdgeNoSloTarget
            };
            return self.to_edge(edge, met);
        }
        if !self.is_preferred(&ranked) && self.terminating().is_some() {
            return (Action::Hold, Reason::HeldTerminating);
        }
        // (b)
        if let Some(cloud) = self.preferred(ranked.iter().copied()) {
            let reason = if ranked.len() == 1 && feasible().nth(1).is_some() || edge.is_feasible() {
                Reason::CloudProfile
            } else if edge.takes() {
                Reason::CloudEdgeDeadlineMissed
            } else {
                Reason::CloudEdgeNoCapacity
            };
            return (Action::Place(cloud.site), reason);
        }
        let better = nearest(usable());
        if edge.takes() {
            // (c)
            return match better {
                Some(cloud) if urgent && cloud.estimate.eta() < edge.estimate.eta() => {
                    (Action::Place(cloud.site), Reason::CloudBestEffort)
                }
                _ => self.to_edge(edge, self.edge_reason(edge)),
            };
        }
        // (d)
        match better {
            Some(cloud) if (urgent || self.misses_by_processing(edge)) && !self.can_wait_for(edge, cloud) => {
                return (Action::Place(cloud.site), Reason::CloudBestEffort);
            }
            _ => {}
        }
        // (e)
        if let Some(choice) = self.beyond_the_edge(edge, better) {
            return choice;
        }
        let may_hold = self.may_hold(edge);
        if may_hold && (self.is_restricted() || self.may_be_back()) && !self.is_overdue() {
            return (Action::Hold, Reason::HeldNoCapacity);
        }
        match better {
            Some(cloud) if may_hold => (Action::Place(cloud.site), Reason::ReleasedTimeout),
            None if may_hold && self.workload.held.is_some() => (Action::Place(edge.site), Reason::ReleasedTimeout),
            _ => self.to_edge(edge, self.edge_reason(edge)),
        }
    }

    /// No site has the pod's traits: it is held until one has, where pods like it may be held, and goes to the edge at its limit, where it
    /// is Pending until a node has the labels.
    fn choose_without_traits(&self, edge: &Assessment<'s>) -> (Action<'s>, Reason) {
        let may_leave = self.config.may_offload(self.slo()) && self.all_clouds().next().is_some();
        let is_held = may_leave && self.may_be_gated() && !self.is_overdue();
        match (is_held, self.workload.held) {
            (true, _) => (Action::Hold, Reason::HeldNoCapacity),
            (false, Some(_)) => (Action::Place(edge.site), Reason::ReleasedTimeout),
            (false, None) => self.to_edge(edge, Reason::EdgeNoCapacity),
        }
    }

    /// What becomes of a pod that no edge node could hold even when empty. It is never sent to the edge, where it could never
    /// run. It goes to a cloud that is `usable`, for waiting could not help; it waits for a cloud that is away, and until the limit
    /// of its class for the room of one that is not, and for a cloud without nodes; and it is placed in the cloud where it may
    /// not be held. `None` for a pod that an edge node could hold, or no cloud either.
    fn beyond_the_edge(&self, edge: &Assessment<'s>, usable: Option<&Assessment<'s>>) -> Option<(Action<'s>, Reason)> {
        if edge.fits() || away::could_hold(self.workload, edge.site) {
            return None;
        }
        let awaits_nodes = || self.awaits_nodes() && self.may_hold(edge) && !self.is_overdue();
        self.only_in_clouds(edge, usable, Reason::CloudBestEffort)
            .or_else(|| awaits_nodes().then_some((Action::Hold, Reason::HeldSiteAway)))
    }

    /// Whether the pod may go to a cloud that has no node: nothing is known of what that could hold.
    fn awaits_nodes(&self) -> bool {
        self.clouds()
            .any(|cloud| cloud.site.nodes.is_empty() && self.is_candidate(cloud))
    }

    /// The same for a pod that only clouds can hold, with the reason of a placement. `None` where none can.
    fn only_in_clouds(
        &self,
        edge: &Assessment<'s>,
        usable: Option<&Assessment<'s>>,
        reason: Reason,
    ) -> Option<(Action<'s>, Reason)> {
        if let Some(cloud) = usable {
            return Some((Action::Place(cloud.site), reason));
        }
        let allowed = self.clouds().filter(|cloud| cloud.allowed);
        let holders: Vec<_> = allowed.filter_map(|cloud| Some((cloud, self.holder(cloud)?))).collect();
        let there = holders.iter().filter(|(_, holder)| holder.absence.is_none());
        let there = nearest(there.map(|(cloud, _)| *cloud));
        let may_hold = !holders.is_empty() && self.may_hold(edge);
        Some(match there {
            None if may_hold => (Action::Hold, Reason::HeldSiteAway),
            Some(_) if may_hold && !self.is_overdue() => (Action::Hold, Reason::HeldNoCapacity),
            Some(cloud) if may_hold => (Action::Place(cloud.site), Reason::ReleasedTimeout),
            there => {
                // Where the namespace is not, the pod could not run.
                let offloaded = holders
                    .iter()
                    .map(|(cloud, _)| *cloud)
                    .filter(|cloud| is_offloaded(cloud));
                let cloud = there.or_else(|| nearest(offloaded))?;
                (Action::Place(cloud.site), reason)
            }
        })
    }

    /// The volumes of the pod's claims are in clouds, or on no node that is known: it goes where they are, whatever time says, and
    /// waits for a site that is away or has no node. It could never run elsewhere.
    fn choose_by_data(&self, edge: &Assessment<'s>) -> (Action<'s>, Reason) {
        let clouds = || self.clouds_instead();
        let feasible = nearest(clouds().filter(|cloud| cloud.is_feasible()));
        let usable = || nearest(clouds().filter(|cloud| cloud.is_usable()));
        if let Some(choice) = self.only_in_clouds(edge, feasible.or_else(usable), Reason::CloudData) {
            return choice;
        }
        match nearest(clouds().filter(|cloud| is_offloaded(cloud))) {
            Some(cloud) => (Action::Place(cloud.site), Reason::CloudData),
            None if clouds().next().is_some() && self.may_be_gated() => (Action::Hold, Reason::HeldSiteAway),
            None if self.may_wait_for_data() => (Action::Hold, Reason::HeldSiteAway),
            None => (Action::PassThrough, Reason::NoSiteMatches),
        }
    }

    /// Whether the pod may be held until a node is there on which its data is, for there is none: it may be in a cloud, to which the pod
    /// may go, its own constraints allow some site, and none to which it may go would give it a RuntimeClass. What is at the edge
    /// alone is for kube-scheduler and for whoever adds nodes to see.
    fn may_wait_for_data(&self) -> bool {
        let gives_class = |cloud: &Assessment<'s>| {
            !cloud.is_refused(RefusalCode::NotOffloadable) && cloud.site.definition.runtime_class.is_some()
        };
        self.is_class_held()
            && feasibility::data_nowhere(self.workload, self.room.snapshot)
                .is_some_and(|claim| self.may_be_in_a_cloud(claim))
            && self
                .sites
                .iter()
                .any(|site| feasibility::allows_by_pod(self.workload, site.site))
            && self.config.may_offload(self.slo())
            && (self.workload.runtime_class || !self.clouds().any(gives_class))
    }

    /// Whether the volume of this claim may be in a cloud: it is Liqo's, or of a class that some cloud declares.
    fn may_be_in_a_cloud(&self, claim: &str) -> bool {
        let mut claims = self.workload.claims.iter().filter(|known| known.name() == claim);
        claims.any(|claim| match &claim.data {
            Whereabouts::AtVolume(Some(class)) => {
                class.is_liqo || self.clouds().any(|cloud| class.is_of(&cloud.site.definition))
            }
            _ => false,
        })
    }

    /// Whether the edge has nodes, and neither the pod's sites nor its own constraints keep it from them.
    fn may_be_at_the_edge(&self) -> bool {
        self.edge()
            .is_some_and(|edge| edge.allowed && !edge.site.nodes.is_empty() && !edge.is_out())
    }

    /// The clouds to which a pod may go that may not be at the edge.
    fn clouds_instead(&self) -> impl Iterator<Item = &Assessment<'s>> {
        self.clouds()
            .filter(|cloud| cloud.allowed && !cloud.is_refused(RefusalCode::NotOffloadable))
    }

    /// A pod that may run at some sites alone, of which the edge is none: it goes to the one that takes it, and is held for them
    /// otherwise, whatever its class and the configuration say. At its limit it goes to the nearest all the same. Where there is
    /// none, it is held on.
    fn choose_in_sites(&self, stale: bool) -> (Action<'s>, Reason) {
        let edge_has_nodes = self.edge().is_some_and(|edge| !edge.site.nodes.is_empty());
        let is_out = |cloud: &Assessment<'_>| cloud.allowed && cloud.is_refused(RefusalCode::NotInSites);
        let is_pinned =
            edge_has_nodes && self.edge().is_some_and(|edge| !edge.allowed) && !self.all_clouds().any(is_out);
        if is_pinned && !self.has_data() && self.clouds_instead().any(is_offloaded) {
            return self.choose_among_clouds();
        }
        if !stale {
            if let Some(cloud) = self.preferred(self.clouds_instead().filter(|cloud| cloud.is_feasible())) {
                return (Action::Place(cloud.site), Reason::CloudEdgeNotInSites);
            }
            if let Some(cloud) = nearest(self.clouds_instead().filter(|cloud| cloud.is_usable())) {
                return (Action::Place(cloud.site), Reason::CloudBestEffort);
            }
        }
        let best = self.best_that_could_hold();
        let is_there = best.is_some_and(|cloud| self.is_there(cloud));
        // With its data it waits for the site that has it, however long that is away.
        let may_go = self.is_overdue() && (is_there || !self.has_data());
        match best {
            Some(cloud) if may_go => (Action::Place(cloud.site), Reason::ReleasedTimeout),
            Some(_) if is_there || stale => (Action::Hold, Reason::HeldNoCapacity),
            _ => (Action::Hold, Reason::HeldSiteAway),
        }
    }

    /// Of the clouds to which a pod goes that may not be at the edge and where its namespace is, the nearest that is there and could
    /// hold it; else one that is away; else any.
    fn best_that_could_hold(&self) -> Option<&Assessment<'s>> {
        let clouds = || self.clouds_instead().filter(|cloud| is_offloaded(cloud));
        let there = nearest(clouds().filter(|cloud| self.is_there(cloud)));
        let holder = || nearest(clouds().filter(|cloud| self.holder(cloud).is_some()));
        there.or_else(holder).or_else(|| nearest(clouds()))
    }

    /// Whether the cloud is not away, and could hold the pod when empty.
    fn is_there(&self, cloud: &Assessment<'s>) -> bool {
        self.holder(cloud).is_some_and(|holder| holder.absence.is_none())
    }

    /// The cloud that the pod's profile, then the configuration prefers of those that meet the time; of equals the one with the lowest
    /// ETA, then the first by name. Cost: for `spread` a pass over the open reservations for each.
    fn preferred<'a>(&self, clouds: impl Iterator<Item = &'a Assessment<'s>>) -> Option<&'a Assessment<'s>>
    where
        's: 'a,
    {
        let rank = |cloud: &Assessment<'s>| match self.config.site_policy {
            SitePolicy::LowestEta => 0,
            SitePolicy::LowestCost => cloud.site.definition.cost.map_or(u64::MAX, |cost| cost.0),
            SitePolicy::Spread => self.room.pods_of_controller(self.workload, cloud.site),
            SitePolicy::Ordered => cloud.site.definition.order.into(),
        };
        let ranked = self.ranked_first(clouds).into_iter();
        ranked.min_by_key(|cloud| (rank(cloud), eta(cloud)))
    }

    /// The cloud, if the pod may go there and it could hold it when empty.
    fn holder(&self, cloud: &Assessment<'s>) -> Option<Holder<'s>> {
        let may_leave = !cloud.is_refused(RefusalCode::NotOffloadable);
        let holder = || {
            away::holder(
                self.workload,
                cloud.site,
                cloud.offloading,
                self.config,
                self.now.moment,
            )
        };
        may_leave.then(holder)?
    }

    /// Section 7 of docs/decision.md: whether the pod may be held for want of room.
    fn may_hold(&self, edge: &Assessment<'s>) -> bool {
        let is_configured = self.config.holding.on_no_capacity == OnNoCapacity::Hold;
        (is_configured || self.is_restricted()) && self.may_wait(edge)
    }

    /// Whether a cloud that the pod may go to may be good enough in the time for which it may be held and would be in time there. One
    /// towards which the WAN has been bad for longer than that is not waited for: kube-scheduler gives the room at the edge as well.
    fn may_be_back(&self) -> bool {
        let limit = self.config.holding.limits[self.slo().class];
        let is_lost = |cloud: &Assessment<'s>| {
            let latency = cloud.estimate.latency().unwrap_or(cloud.estimate.processing);
            let slack = self
                .slo()
                .deadline
                .map(|deadline| Micros(deadline.0.saturating_sub(latency.0)));
            let longest = slack.map_or(limit, |slack| slack.min(limit));
            let since = cloud.site.unhealthy_since;
            since.is_some_and(|since| self.now.moment.since(since) >= longest)
        };
        self.clouds().any(|cloud| self.is_candidate(cloud) && !is_lost(cloud))
    }

    /// Whether the pod may go to this cloud, as far as it is known. One of which no node is known may have some.
    fn is_candidate(&self, cloud: &Assessment<'s>) -> bool {
        let may_match = cloud.allowed || cloud.site.nodes.is_empty();
        may_match && !cloud.is_barred()
    }

    /// Whether the pod may wait at all. None does whose only candidate is the edge, that no site could hold, or for which
    /// kube-scheduler would evict others: these are for the scheduler and for whoever adds nodes to see. Nor does one that
    /// a site would give a RuntimeClass. One that may run at some sites alone waits for these all the same, but for what may help
    /// at the edge, if that is one of them.
    fn may_wait(&self, edge: &Assessment<'s>) -> bool {
        let may_be_held =
            self.has_limit() && self.clouds().any(|cloud| self.is_candidate(cloud)) && !self.would_get_runtime_class();
        (may_be_held || self.is_restricted())
            && (!self.is_too_large() || self.awaits_nodes())
            && !feasibility::could_preempt(self.workload, edge.site, self.room)
    }

    /// Whether a site it may go to gives it a RuntimeClass: it can have one only at its creation.
    fn would_get_runtime_class(&self) -> bool {
        let mut sites = self.sites.iter().filter(|site| site.allowed);
        !self.workload.runtime_class && sites.any(|site| site.site.definition.runtime_class.is_some())
    }

    /// The edge node that has room for the pod as soon as pods are gone that are terminating there, if that is worth waiting
    /// for: nothing else speaks against the edge, and the pod has not waited long enough, for it or at all.
    pub(super) fn terminating(&self) -> Option<&'s Node> {
        let edge = self.edge()?;
        let wait = self.config.holding.wait_for_terminating[self.slo().class];
        let has_time = self.workload.held.unwrap_or_default() < wait && !self.is_overdue();
        let is_wanted = has_time && !edge.fits() && edge.lacks_only_room();
        let node = || feasibility::node_after_terminating(self.workload, edge.site, self.room, wait, self.now);
        is_wanted.then(node).flatten().filter(|_| self.may_wait(edge))
    }

    /// Whether the pod is held, and not for too long yet.
    pub(super) fn is_waiting(&self) -> bool {
        is_waiting(self.workload, self.intent, self.config)
    }

    /// Whether the pod is held for as long as its class may be.
    fn is_overdue(&self) -> bool {
        self.workload.held.is_some() && !self.is_waiting()
    }

    /// The reason as it is for a pod that was held: what matters is where it went.
    pub(super) fn released(&self, action: Action<'_>, reason: Reason) -> Reason {
        match action {
            Action::Place(_) if self.workload.held.is_none() || reason == Reason::ReleasedTimeout => reason,
            Action::Place(_) if self.is_overdue() && reason == Reason::EdgeTelemetryStale => Reason::ReleasedTimeout,
            // It has waited for a site that could hold it.
            Action::Place(_) if reason == Reason::EdgeTooLarge => Reason::ReleasedTimeout,
            Action::Place(site) if site.kind() == SiteKind::Edge => Reason::ReleasedEdge,
            Action::Place(_) => Reason::ReleasedCloud,
            Action::Hold | Action::PassThrough | Action::Deny => reason,
        }
    }

    /// The pod's own constraints leave no edge: it goes to a cloud that they leave, whatever telemetry, WAN and room
    /// say, and to the best by what we know; but to none that it may not, or cannot, leave the edge for.
    fn choose_among_clouds(&self) -> (Action<'s>, Reason) {
        let feasible = self.preferred(self.clouds_instead().filter(|cloud| cloud.is_feasible()));
        let usable = || nearest(self.clouds_instead().filter(|cloud| cloud.is_usable()));
        match feasible.or_else(usable).or_else(|| self.best_that_could_hold()) {
            Some(cloud) => (Action::Place(cloud.site), Reason::CloudPinnedByPod),
            // Liqo takes a second or two to offload a new namespace, which is often made together with its pods.
            None if self.clouds_instead().any(|cloud| !cloud.is_barred())
                && self.may_be_gated()
                && !self.is_overdue() =>
            {
                (Action::Hold, Reason::HeldNoCapacity)
            }
            None => (Action::PassThrough, Reason::NoSiteMatches),
        }
    }

    /// Whether pods like this one are held at all, whatever for.
    fn may_be_gated(&self) -> bool {
        self.is_class_held() && !self.would_get_runtime_class()
    }

    /// Whether the configuration lets pods of its class be held.
    fn is_class_held(&self) -> bool {
        self.config.holding.on_no_capacity == OnNoCapacity::Hold && self.has_limit()
    }

    /// Whether pods of its class are held for any time.
    fn has_limit(&self) -> bool {
        self.config.holding.limits[self.slo().class] > Micros(0)
    }

    fn to_edge(&self, edge: &Assessment<'s>, reason: Reason) -> (Action<'s>, Reason) {
        let reason = if self.intent.faults.is_empty() {
            reason
        } else {
            Reason::EdgeInvalidSlo
        };
        (Action::Place(edge.site), reason)
    }

    /// Why the edge, when it is not simply good (section 6): the first that holds.
    fn edge_reason(&self, edge: &Assessment<'s>) -> Reason {
        let worst_is = |codes: &[RefusalCode]| {
            // A cloud that the pod cannot go to says nothing about those that it can.
            let mut candidates = self
                .clouds()
                .filter(|cloud| !cloud.is_barred() && !cloud.is_refused(RefusalCode::DataElsewhere));
            candidates.all(|cloud| codes.iter().any(|code| cloud.is_refused(*code)))
                // That its sites or traits leave no cloud says nothing about the clouds.
                && (self.all_clouds().all(|cloud| !cloud.is_out()) || self.clouds().next().is_some())
        };
        if !edge.fits() && self.is_too_large() {
            Reason::EdgeTooLarge
        } else if !self.config.enable_offload {
            Reason::EdgeOffloadDisabled
        } else if !self.slo().offload_allowed {
            Reason::EdgeOffloadNotAllowed
        } else if self.has_ties_everywhere() {
            Reason::EdgeNotOffloadable
        } else if worst_is(&[RefusalCode::NoMatchingNode, RefusalCode::NodeNotReady]) {
            Reason::EdgeCloudSiteMissing
        } else if worst_is(&[
            RefusalCode::NoMatchingNode,
            RefusalCode::NodeNotReady,
            RefusalCode::Unreachable,
        ]) {
            Reason::EdgeWanUnreachable
        } else if worst_is(&[
            RefusalCode::NoMatchingNode,
            RefusalCode::NodeNotReady,
            RefusalCode::Unreachable,
            RefusalCode::Degraded,
            RefusalCode::Stale,
        ]) {
            Reason::EdgeWanDegraded
        } else if !edge.fits() && feasibility::could_preempt(self.workload, edge.site, self.room) {
            Reason::EdgePreempts
        } else if !edge.takes() {
            Reason::EdgeNoCapacity
        } else if self.is_urgent() {
            Reason::EdgeBestEffort
        } else {
            Reason::EdgeFailSoft
        }
    }

    /// Larger than any node of any site it may go to.
    fn is_too_large(&self) -> bool {
        let is_out = |site: &Assessment<'_>| site.is_barred() || site.is_out();
        let sites = self.sites.iter().filter(|site| !is_out(site));
        let mut nodes = sites
            .flat_map(|site| feasibility::holds_when_empty(self.workload, site.site))
            .peekable();
        nodes.peek().is_some() && nodes.all(|holds| !holds)
    }

    /// Tied to the edge as far as every cloud site goes, or every one that has nodes where its namespace is not offloaded.
    fn has_ties_everywhere(&self) -> bool {
        let mut clouds = self.clouds().peekable();
        let by_namespace = self
            .clouds()
            .any(|cloud| cloud.is_barred() && cloud.offloading.is_some());
        let is_empty = |cloud: &Assessment<'_>| by_namespace && cloud.site.nodes.is_empty();
        clouds.peek().is_some() && clouds.all(|cloud| cloud.is_barred() || is_empty(cloud))
    }

    /// Whether processing at the edge alone takes longer than the pod has: waiting could not help.
    fn misses_by_processing(&self, edge: &Assessment<'s>) -> bool {
        let processing = edge.estimate.processing;
        let waited = self.workload.held.unwrap_or_default();
        self.slo()
            .deadline
            .is_some_and(|deadline| waited + processing > deadline)
            || self.slo().latency_target.is_some_and(|target| processing > target)
    }

    /// Whether the pod is worth more at the edge later than in this cloud now: it has a latency target alone, which holds for as
    /// long as it runs, and comes closer to it at the edge.
    fn can_wait_for(&self, edge: &Assessment<'s>, cloud: &Assessment<'s>) -> bool {
        let slo = self.slo();
        let is_nearer = edge.estimate.latency() < cloud.estimate.latency();
        slo.deadline.is_none() && slo.latency_target.is_some() && is_nearer && self.may_hold(edge) && !self.is_overdue()
    }
}

/// Whether the pod's namespace is where it would go, as far as that matters.
fn is_offloaded(cloud: &Assessment<'_>) -> bool {
    !cloud.is_refused(RefusalCode::NamespaceNotOffloaded)
}

/// Whether the pod is held, and not for as long as its class may be.
pub(super) fn is_waiting(workload: &Workload<'_>, intent: &Intent, config: &Config) -> bool {
    let limit = config.holding.limits[intent.slo.class];
    workload.held.is_some_and(|held| held < limit)
}

/// The site with the lowest ETA, of those that are not known to be full if there is any; of equals, the first by name (the order
/// of the snapshot).
fn nearest<'a, 's>(sites: impl Iterator<Item = &'a Assessment<'s>>) -> Option<&'a Assessment<'s>>
where
    's: 'a,
{
    sites.min_by_key(|site| (site.is_refused(RefusalCode::RemoteFull), eta(site)))
}

/// Its ETA; the latest where it is not known.
fn eta(site: &Assessment<'_>) -> Micros {
    site.estimate.eta().unwrap_or(Micros(u64::MAX))
}
