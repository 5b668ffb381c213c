//! The order of sites with the same standing.

use crate::config::{ScorerMode, SitePolicy};
use crate::model::scorer::WIDTH;
use crate::model::site::SiteKind;
use crate::model::snapshot::Site;
use crate::placement::features::clouds;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Learned, Standing};
use edgeward_kube::units::Micros;

/// The best good site. Sites that suit the pod's group come first, then sites that the pod's profile ranks first, then the edge. Among
/// clouds, the choice of the learned scorer comes first. Then the order of `sitePolicy` counts, then the lowest ETA, then the first name.
/// `learned` is what [`learned`] returns for these sites.
pub(super) fn best_good<'a, 's>(
    case: &Case<'_, 's>,
    sites: &'a [Assessment<'s>],
    learned: Option<&Learned<'s>>,
) -> Option<&'a Assessment<'s>> {
    let leaders = leaders(case, sites);
    let choice = learned
        .filter(|learned| learned.is_active)
        .and_then(|learned| learned.choice);
    match choice {
        Some(choice) => leaders.into_iter().find(|site| std::ptr::eq(site.site, choice)),
        None => best_by_rules(case, &leaders),
    }
}

fn best_by_rules<'a, 's>(case: &Case<'_, 's>, leaders: &[&'a Assessment<'s>]) -> Option<&'a Assessment<'s>> {
    let edge = leaders.iter().copied().find(|site| is_edge(site));
    edge.or_else(|| {
        let leaders = leaders.iter().copied();
        leaders.min_by_key(|site| (policy_rank(case, site), eta(site)))
    })
}

/// The choice of the learned scorer among the good sites that the profile ranks first. `None` without scores, or unless these are
/// two or more clouds and no edge.
pub(super) fn learned<'s>(case: &Case<'_, 's>, sites: &[Assessment<'s>]) -> Option<Learned<'s>> {
    let known = case.room.cloud_scores?;
    let leaders = leaders(case, sites);
    if leaders.len() < 2 || leaders.iter().any(|site| is_edge(site)) {
        return None;
    }
    let mut learned = Learned {
        is_active: case.config.scorer.mode == ScorerMode::Active,
        scores: vec![],
        choice: None,
        rules: best_by_rules(case, &leaders)?.site,
        outside: [false; WIDTH],
    };
    for (i, site) in clouds(case.room.snapshot).enumerate() {
        if leaders.iter().any(|leader| std::ptr::eq(leader.site, site)) {
            learned.scores.push((site, *known.of.get(i)?));
            let outside = learned
                .outside
                .iter_mut()
                .zip(known.outside.get(i).into_iter().flatten());
            outside.for_each(|(any, of_cloud)| *any |= of_cloud);
        }
    }
    let (best, score) = *learned.scores.iter().max_by_key(|(_, score)| *score)?;
    let others = learned.scores.iter().filter(|(site, _)| !std::ptr::eq(*site, best));
    let second = others.map(|(_, score)| *score).max()?;
    learned.choice = (score.saturating_sub(second) >= known.margin.max(1)).then_some(best);
    Some(learned)
}

/// The good sites that suit the pod's group best and that its profile ranks first.
fn leaders<'a, 's>(case: &Case<'_, 's>, sites: &'a [Assessment<'s>]) -> Vec<&'a Assessment<'s>> {
    profile_leaders(case, good_for_group(sites))
}

/// The good sites that suit the pod's group best.
fn good_for_group<'a, 's>(sites: &'a [Assessment<'s>]) -> Vec<&'a Assessment<'s>> {
    let good = || sites.iter().filter(|site| site.is_good());
    let best = good().map(Assessment::group_rank).min();
    good().filter(|site| Some(site.group_rank()) == best).collect()
}

/// The good sites, best first, and after them the late ones `with_late`. Cost: a pass over the good sites for each of them.
pub(super) fn in_order<'s>(case: &Case<'_, 's>, sites: &[Assessment<'s>], with_late: bool) -> Vec<&'s Site> {
    let mut left: Vec<_> = sites.iter().filter(|site| site.is_good()).cloned().collect();
    let mut order = vec![];
    while let Some(best) = best_good(case, &left, learned(case, &left).as_ref()).map(|best| best.site) {
        order.push(best);
        left.retain(|site| !std::ptr::eq(site.site, best));
    }
    let is_late = |site: &&Assessment<'s>| with_late && site.standing() == Standing::Late;
    let mut late: Vec<_> = sites.iter().filter(is_late).collect();
    late.sort_by_key(|site| (site.group_rank(), eta(site)));
    order.extend(late.into_iter().map(|site| site.site));
    order
}

/// The late cloud with the lowest ETA; ties go by `sitePolicy`, then by name.
pub(super) fn best_late_cloud<'a, 's>(case: &Case<'_, 's>, sites: &'a [Assessment<'s>]) -> Option<&'a Assessment<'s>> {
    let late = sites
        .iter()
        .filter(|site| !is_edge(site) && site.standing() == Standing::Late);
    late.min_by_key(|site| (site.group_rank(), eta(site), policy_rank(case, site)))
}

/// The possible site with the best standing; ties go to the lowest ETA, then the first by name.
pub(super) fn best_possible<'a, 's: 'a>(sites: impl Iterator<Item = &'a Assessment<'s>>) -> Option<&'a Assessment<'s>> {
    let possible = sites.filter(|site| site.is_possible());
    possible.min_by_key(|site| (site.standing(), site.group_rank(), eta(site)))
}

/// Whether the pod's profile alone decides among several good sites.
pub(super) fn profile_decides(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> bool {
    let good = good_for_group(sites);
    good.len() > 1 && profile_leaders(case, good).len() == 1
}

/// Whether a cloud is good and the pod's profile prefers it.
pub(super) fn prefers_good_cloud(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> bool {
    let Some(profile) = case.profile else { return false };
    let mut good = sites.iter().filter(|site| !is_edge(site) && site.is_good());
    good.any(|site| site.score.is_some() && profile.prefers(site.site.name()))
}

/// The good sites that the profile ranks first: its preferred site, or else every site that no other beats by the profile's
/// margin. Returns all sites without a profile, if the edge is good but has no score, or if fewer than two sites have a
/// score.
fn profile_leaders<'a, 's>(case: &Case<'_, 's>, sites: Vec<&'a Assessment<'s>>) -> Vec<&'a Assessment<'s>> {
    let Some(profile) = case.profile else { return sites };
    let scored: Vec<_> = sites.iter().filter_map(|site| Some((*site, site.score?))).collect();
    let edge_is_unknown = sites.iter().any(|site| is_edge(site) && site.score.is_none());
    if edge_is_unknown || scored.len() < 2 {
        return sites;
    }
    let none_is_better = |score| !scored.iter().any(|(_, other)| profile.is_better(*other, score));
    // The profile computes its preference for pods that miss nothing.
    let misses_nothing = scored.iter().all(|(site, score)| {
        let of_others = profile.score(site.site.name(), case.now.moment);
        of_others == Some(*score)
    });
    let preferred = scored.iter().find(|(site, _)| profile.prefers(site.site.name()));
    if let Some((preferred, score)) = preferred
        && (misses_nothing || none_is_better(*score))
    {
        return vec![preferred];
    }
    let leaders = scored.iter().filter(|(_, score)| none_is_better(*score));
    leaders.map(|(site, _)| *site).collect()
}

/// The rank by `sitePolicy`; lower is better. Cost: with `spread`, a pass over the open reservations.
fn policy_rank(case: &Case<'_, '_>, site: &Assessment<'_>) -> u64 {
    match case.config.site_policy {
        SitePolicy::LowestEta => 0,
        SitePolicy::LowestCost => site.site.definition.cost.map_or(u64::MAX, |cost| cost.0),
        SitePolicy::Spread => case.room.pods_of_controller(case.workload, site.site),
        SitePolicy::Ordered => site.site.definition.order.into(),
    }
}

/// The site's ETA; the maximum if it is unknown.
fn eta(site: &Assessment<'_>) -> Micros {
    site.estimate.eta().unwrap_or(Micros(u64::MAX))
}

pub(super) fn is_edge(site: &Assessment<'_>) -> bool {
    site.site.kind() == SiteKind::Edge
}
