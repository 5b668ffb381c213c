//! The choice among the sites: rules (a) to (e), and the reason of what they choose.

use std::collections::BTreeSet;

use crate::config::{Config, OnNoCapacity};
use crate::excerpt::{LONGEST_NAME, excerpt};
use crate::model::node::Node;
use crate::model::site::SiteKind;
use crate::model::slo::{Intent, Slo};
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

    fn clouds(&self) -> impl Iterator<Item = &Assessment<'s>> {
        self.sites.iter().filter(|site| site.site.kind() == SiteKind::Cloud)
    }

    /// Sections 3 and 6 of docs/decision.md.
    pub(super) fn choose(&self, stale: bool) -> (Action<'s>, Reason) {
        let pass = |reason| (Action::PassThrough, reason);
        let Some(edge) = self.edge().filter(|edge| !edge.site.nodes.is_empty()) else {
            return pass(Reason::EdgeSiteMissing);
        };
        if !edge.allowed {
            return self.choose_among_clouds();
        }
        let mut clouds = self
            .clouds()
            .filter(|cloud| cloud.site.shapes().next().is_some())
            .peekable();
        if clouds.peek().is_some() && clouds.all(|cloud| !cloud.allowed) {
            return self.to_edge(edge, Reason::EdgePinnedByPod);
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
        // (a)
        if edge.is_feasible() {
            let met = if self.slo().has_time_bound() {
                Reason::EdgeFeasibleSloMet
            } else {
                Reason::EdgeNoSloTarget
            };
            return self.to_edge(edge, met);
        }
        if self.terminating().is_some() {
            return (Action::Hold, Reason::HeldTerminating);
        }
        // (b)
        if let Some(cloud) = nearest(usable().filter(|cloud| cloud.is_feasible())) {
            let reason = if edge.takes_for_sure() {
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
                // A moment, and the assumed pods are bound.
                _ if !edge.takes_for_sure() && self.may_hold(edge) && !self.is_overdue() => {
                    (Action::Hold, Reason::HeldNoCapacity)
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
        if may_hold && self.may_be_back() && !self.is_overdue() {
            return (Action::Hold, Reason::HeldNoCapacity);
        }
        match better {
            Some(cloud) if may_hold => (Action::Place(cloud.site), Reason::ReleasedTimeout),
            None if may_hold && self.workload.held.is_some() => (Action::Place(edge.site), Reason::ReleasedTimeout),
            _ => self.to_edge(edge, self.edge_reason(edge)),
        }
    }

    /// What becomes of a pod that no edge node could hold even when empty. It is never sent to the edge, where it could never
    /// run. It goes to a cloud that is `usable`, for waiting could not help; it waits for a cloud that is away for as long as
    /// that counts, and for the room of one that is not for as long as its class may be; and it is placed in the cloud where
    /// it may not be held. `None` for a pod that an edge node could hold, or no cloud either.
    fn beyond_the_edge(&self, edge: &Assessment<'s>, usable: Option<&Assessment<'s>>) -> Option<(Action<'s>, Reason)> {
        if edge.fits() || away::could_hold(self.workload, edge.site) {
            return None;
        }
        if let Some(cloud) = usable {
            return Some((Action::Place(cloud.site), Reason::CloudBestEffort));
        }
        let holders: Vec<_> = self
            .clouds()
            .filter_map(|cloud| Some((cloud, self.holder(cloud)?)))
            .collect();
        let there = holders.iter().filter(|(_, holder)| holder.absence.is_none());
        let there = nearest(there.map(|(cloud, _)| *cloud));
        let may_hold = !holders.is_empty() && self.may_hold(edge);
        Some(match there {
            None if may_hold => (Action::Hold, Reason::HeldSiteAway),
            Some(_) if may_hold && !self.is_overdue() => (Action::Hold, Reason::HeldNoCapacity),
            Some(cloud) if may_hold => (Action::Place(cloud.site), Reason::ReleasedTimeout),
            there => {
                let cloud = there.or_else(|| nearest(holders.iter().map(|(cloud, _)| *cloud)))?;
                (Action::Place(cloud.site), Reason::CloudBestEffort)
            }
        })
    }

    /// The cloud, if the pod may go there and it could hold it when empty.
    fn holder(&self, cloud: &Assessment<'s>) -> Option<Holder<'s>> {
        let may_leave = !cloud.is_refused(RefusalCode::NotOffloadable);
        may_leave.then(|| away::holder(self.workload, cloud.site, self.config, self.now.moment))?
    }

    /// Section 7 of docs/decision.md: whether the pod may be held for want of room.
    fn may_hold(&self, edge: &Assessment<'s>) -> bool {
        self.config.holding.on_no_capacity == OnNoCapacity::Hold && self.may_wait(edge)
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
        let may_match = cloud.allowed || cloud.site.shapes().next().is_none();
        may_match && !cloud.is_refused(RefusalCode::NotOffloadable)
    }

    /// Whether the pod may wait at all. None does whose only candidate is the edge, that no node could hold, or for which
    /// kube-scheduler would evict others: these are for the scheduler and for whoever adds nodes to see. Nor does one that
    /// a site would give a RuntimeClass.
    fn may_wait(&self, edge: &Assessment<'s>) -> bool {
        self.config.holding.classes[self.slo().class]
            && self.clouds().any(|cloud| self.is_candidate(cloud))
            && !self.is_too_large()
            && !self.would_get_runtime_class()
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
            // The site that could hold it was waited for, and is forgotten.
            Action::Place(_) if reason == Reason::EdgeTooLarge => Reason::ReleasedTimeout,
            Action::Place(site) if site.kind() == SiteKind::Edge => Reason::ReleasedEdge,
            Action::Place(_) => Reason::ReleasedCloud,
            Action::Hold | Action::PassThrough | Action::Deny => reason,
        }
    }

    /// The pod's own constraints leave no edge: it goes to a cloud that they leave, whatever telemetry, WAN and room
    /// say, and to the best by what we know; but to none that it may not, or cannot, leave the edge for.
    fn choose_among_clouds(&self) -> (Action<'s>, Reason) {
        let clouds = || {
            self.clouds()
                .filter(|cloud| cloud.allowed && !cloud.is_refused(RefusalCode::NotOffloadable))
        };
        let feasible = nearest(clouds().filter(|cloud| cloud.is_feasible()));
        let usable = || nearest(clouds().filter(|cloud| cloud.is_usable()));
        // Never where it could not run while another could hold it, and rather where it need not wait for the site.
        let is_there = |cloud: &&Assessment<'s>| self.holder(cloud).is_some_and(|holder| holder.absence.is_none());
        let there = || nearest(clouds().filter(is_there));
        let holder = || nearest(clouds().filter(|cloud| self.holder(cloud).is_some()));
        let best = feasible.or_else(usable).or_else(there).or_else(holder);
        match best.or_else(|| nearest(clouds())) {
            Some(cloud) => (Action::Place(cloud.site), Reason::CloudPinnedByPod),
            None => (Action::PassThrough, Reason::NoSiteMatches),
        }
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
                .filter(|cloud| !cloud.is_refused(RefusalCode::NotOffloadable));
            candidates.all(|cloud| codes.iter().any(|code| cloud.is_refused(*code)))
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
        } else if !edge.takes_for_sure() {
            Reason::EdgeNoCapacity
        } else if self.is_urgent() {
            Reason::EdgeBestEffort
        } else {
            Reason::EdgeFailSoft
        }
    }

    /// Larger than any node of any site it may go to.
    fn is_too_large(&self) -> bool {
        let sites = self
            .sites
            .iter()
            .filter(|site| !site.is_refused(RefusalCode::NotOffloadable));
        let mut nodes = sites
            .flat_map(|site| feasibility::holds_when_empty(self.workload, site.site))
            .peekable();
        nodes.peek().is_some() && nodes.all(|holds| !holds)
    }

    /// Tied to the edge as far as every cloud site goes.
    fn has_ties_everywhere(&self) -> bool {
        let mut clouds = self.clouds().peekable();
        clouds.peek().is_some() && clouds.all(|cloud| cloud.is_refused(RefusalCode::NotOffloadable))
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

    /// What keeps the pod from the sites that its own constraints leave, or that they leave none.
    fn why_no_site_matches(&self) -> Option<String> {
        let constraints = &self.workload.constraints;
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

    pub(super) fn warnings(&self, action: Action<'_>, reason: Reason) -> Vec<String> {
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
                let awaited = self.clouds().filter_map(|cloud| self.holder(cloud));
                warnings.push(format!("held until a site is back: {}", away::listed(awaited)));
            }
            Reason::CloudPinnedByPod | Reason::CloudBestEffort => {
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
        let candidates = self
            .sites
            .iter()
            .filter(|site| site.allowed && !site.is_refused(RefusalCode::NotOffloadable));
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

/// Whether the pod is held, and not for as long as its class may be.
pub(super) fn is_waiting(workload: &Workload<'_>, intent: &Intent, config: &Config) -> bool {
    let limit = config.holding.limits[intent.slo.class];
    workload.held.is_some_and(|held| held < limit)
}

/// The site with the lowest ETA; of equals, the first by name (the order of the snapshot).
fn nearest<'a, 's>(sites: impl Iterator<Item = &'a Assessment<'s>>) -> Option<&'a Assessment<'s>>
where
    's: 'a,
{
    sites.min_by_key(|site| site.estimate.eta().unwrap_or(Micros(u64::MAX)))
}
