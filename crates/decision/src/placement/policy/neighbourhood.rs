//! The neighbourhood of a policy: the few clouds that its pods may use, chosen by the leader.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Policy;
use crate::document::Decimal;
use crate::document::texts::Dwell;
use crate::model::liqo::{ApiServerStatus, OffloadingPhase};
use crate::model::scores::Better;
use crate::model::site::SiteKind;
use crate::model::site_restriction::{Demand, SiteRestriction};
use crate::model::snapshot::{Site, Snapshot};
use crate::model::traits::Traits;
use edgeward_kube::units::{Micros, Moment};
use edgeward_kube::words;

/// The most clouds of a neighbourhood.
const MAX_MEMBERS: i64 = 16;

/// A cloud outside takes the place of a member only if its RTT or cost is better by one part in this many.
const MARGIN: i128 = 10;

words! {
    /// What makes a cloud better than another.
    pub enum RankBy {
        /// A lower RTT to the edge.
        Rtt = "rtt",
        /// A lower cost.
        Cost = "cost",
        /// A better score by the policy's profile.
        Profile = "profile",
    }
}

/// The clouds that the pods may use: at most `max`, the best by rank. The edge is always allowed.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NeighbourhoodSpec {
    /// The most clouds, 1 to 16.
    max: Decimal<0, 1, MAX_MEMBERS>,
    /// What makes a cloud better: a lower RTT, a lower cost, or a better score by `slo.profile`. Default rtt.
    rank_by: Option<RankBy>,
    /// How long a cloud outside must be better, by 10 % or by the margin of the profile, before it takes the place of a
    /// member. Default 10m.
    #[schemars(with = "Option<Dwell>")]
    dwell: Option<Micros>,
}

/// How the clouds of a neighbourhood are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbourhood {
    max: usize,
    /// What makes a cloud better.
    pub(super) rank_by: RankBy,
    dwell: Micros,
}

impl From<NeighbourhoodSpec> for Neighbourhood {
    fn from(spec: NeighbourhoodSpec) -> Self {
        Self {
            max: spec.max.0 as usize,
            rank_by: spec.rank_by.unwrap_or(RankBy::Rtt),
            dwell: spec.dwell.unwrap_or(Micros::from_secs(600)),
        }
    }
}

/// Clouds that may belong to a neighbourhood.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Candidates<'s> {
    /// Their ranks. A lower rank is better; `None` if it is unknown.
    pub ranks: BTreeMap<&'s str, Option<i64>>,
    /// By how much a rank must be better to count as better: the margin of the profile. `None`: by a tenth.
    pub margin: Option<i64>,
}

impl Neighbourhood {
    /// The members that follow these. Free places are filled at once, and so are those of members that are no candidates. The best
    /// candidate outside takes the place of the worst member once some candidate outside has been better for `dwell`.
    /// `better_since` is when that began; reset it when the members have changed.
    pub fn next(
        &self,
        members: &[Box<str>],
        candidates: &Candidates<'_>,
        better_since: &mut Option<Moment>,
        now: Moment,
    ) -> Vec<Box<str>> {
        let mut order: Vec<_> = candidates.ranks.iter().map(|(name, rank)| (*name, *rank)).collect();
        // Equal ranks go by name.
        order.sort_by_key(|(_, rank)| rank.unwrap_or(i64::MAX));
        let is_member = |(name, _): &(&str, Option<i64>)| members.iter().any(|member| **member == **name);
        let (mut inside, mut outside): (Vec<_>, Vec<_>) = order.into_iter().partition(is_member);
        inside.truncate(self.max);
        let free = self.max - inside.len();
        inside.extend(outside.drain(..free.min(outside.len())));
        inside.sort_by_key(|(_, rank)| rank.unwrap_or(i64::MAX));
        let challenge = inside.last().copied().zip(outside.first().copied());
        match challenge.filter(|((_, worst), (_, best))| candidates.is_better(*best, *worst)) {
            None => *better_since = None,
            Some((worst, best)) => {
                let since = *better_since.get_or_insert(now);
                if now.since(since) >= self.dwell {
                    inside.retain(|member| *member != worst);
                    inside.push(best);
                }
            }
        }
        let mut names: Vec<Box<str>> = inside.into_iter().map(|(name, _)| name.into()).collect();
        // Without a candidate for its place a member stays: the leader may be the only replica that does not see it.
        let gone = members
            .iter()
            .filter(|member| !candidates.ranks.contains_key(&***member));
        names.extend(gone.take(self.max - names.len()).cloned());
        names.sort_unstable();
        names
    }
}

impl Candidates<'_> {
    /// Whether a rank is better than that of a member. A known rank is better than an unknown one.
    fn is_better(&self, rank: Option<i64>, member: Option<i64>) -> bool {
        let Some(rank) = rank.map(i128::from) else { return false };
        member.map(i128::from).is_none_or(|member| {
            let gain = member - rank;
            let is_enough = match self.margin {
                Some(margin) => gain >= margin.into(),
                None => gain * MARGIN >= member.abs(),
            };
            gain > 0 && is_enough
        })
    }
}

impl Policy {
    /// How the clouds of its neighbourhood are chosen. `None` without one.
    pub fn neighbourhood(&self) -> Option<&Neighbourhood> {
        self.neighbourhood.as_ref()
    }

    /// Whether the policy states a neighbourhood, perhaps one that cannot be read.
    pub fn keeps_members(&self) -> bool {
        self.slo.iter().any(|(name, _)| name == super::NEIGHBOURHOOD)
    }

    /// The candidates for the policy's neighbourhood: the usable clouds with the sites and traits of the policy, to which Liqo
    /// offloads the namespace. Measurements of the WAN count for `ttl`. Cost: a pass over the nodes
    /// if the policy has traits.
    pub fn candidates<'s>(&self, snapshot: &'s Snapshot, namespace: &str, ttl: Micros, now: Moment) -> Candidates<'s> {
        let stated = |name: &str| Some(&*self.slo.iter().find(|(key, _)| key == name)?.1);
        let sites = SiteRestriction::of(stated(super::POLICY_SITES).and_then(Demand::parse));
        let traits = stated(super::POLICY_TRAITS).and_then(Traits::parse);
        let profile = stated("profile").and_then(|name| snapshot.profiles.get(name));
        let by_profile = self
            .neighbourhood
            .is_some_and(|stated| stated.rank_by == RankBy::Profile);
        let is_candidate = |site: &&Site| {
            let phase = snapshot.offloading(namespace, site);
            can_be_used(site)
                && phase.is_none_or(|phase| phase == OffloadingPhase::Accepted)
                && sites.as_ref().is_none_or(|sites| sites.allows(&site.definition))
                && traits.as_ref().is_none_or(|traits| has(site, traits))
        };
        let rank = |site: &Site| match self.neighbourhood?.rank_by {
            RankBy::Rtt => site.fresh_link(ttl, now)?.live_rtt().map(|rtt| rtt.0 as i64),
            RankBy::Cost => site.definition.cost.map(|cost| cost.0 as i64),
            RankBy::Profile => {
                let (profile, score) = (profile?, profile?.score(site.name(), now)?.0);
                Some(if profile.better == Better::Lower { score } else { -score })
            }
        };
        let fresh = |site: &&Site| site.fresh_link(ttl, now).is_some();
        let sites = snapshot.sites.iter().filter(fresh).filter(is_candidate);
        Candidates {
            ranks: sites.map(|site| (site.name(), rank(site))).collect(),
            margin: profile.filter(|_| by_profile).map(|profile| profile.margin.0),
        }
    }
}

/// Whether pods can run at this cloud now.
fn can_be_used(site: &Site) -> bool {
    let is_up = site
        .api_server
        .is_none_or(|status| status == ApiServerStatus::Established);
    site.kind() == SiteKind::Cloud && site.away_since.is_none() && is_up && site.usable_nodes().next().is_some()
}

/// Whether the site has the traits now.
fn has(site: &Site, traits: &Traits) -> bool {
    let rtt = site.link.and_then(|link| link.rtt);
    let is_near = traits.distance().is_none_or(|bound| rtt.is_some_and(|rtt| rtt < bound));
    let mut nodes = site.usable_nodes();
    is_near && traits.lost(&site.definition).next().is_none() && nodes.any(|node| traits.are_at(node, &site.definition))
}

#[cfg(test)]
mod tests;
