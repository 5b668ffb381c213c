//! Which of the sites that would do a performance profile ranks first.

use crate::model::site::SiteKind;
use crate::placement::choice::Case;
use crate::placement::verdict::Assessment;

impl<'s> Case<'_, 's> {
    /// Of these sites, which would all do, those among which the rules without a profile choose: the one that is preferred, where it
    /// is one of them; else those than which none is better by the margin. All of them where the pod has no profile, or that has
    /// nothing to say: the edge is one of them and has no score, or fewer than two have one. Cost: a pass over them.
    pub(super) fn ranked_first<'a>(&self, sites: impl Iterator<Item = &'a Assessment<'s>>) -> Vec<&'a Assessment<'s>>
    where
        's: 'a,
    {
        let sites: Vec<_> = sites.collect();
        let Some(profile) = self.profile else { return sites };
        let is_unknown = |site: &&Assessment<'_>| site.site.kind() == SiteKind::Edge && site.score.is_none();
        let scored: Vec<_> = sites.iter().filter_map(|site| Some((*site, site.score?))).collect();
        if sites.iter().any(is_unknown) || scored.len() < 2 {
            return sites;
        }
        let none_is_better = |score| !scored.iter().any(|(_, other)| profile.is_better(*other, score));
        // What is preferred is so for pods that miss nothing anywhere.
        let is_usual = scored.iter().all(|(site, _)| site.missing_optional == 0);
        let preferred = scored.iter().find(|(site, _)| profile.prefers(site.site.name()));
        match preferred.filter(|(_, score)| is_usual || none_is_better(*score)) {
            Some((preferred, _)) => vec![preferred],
            None => scored
                .iter()
                .filter(|(_, score)| none_is_better(*score))
                .map(|(site, _)| *site)
                .collect(),
        }
    }

    /// Whether one of these sites is the one that the pod's profile prefers, and has a score.
    pub(super) fn is_preferred(&self, sites: &[&Assessment<'s>]) -> bool {
        let prefers = |site: &Assessment<'_>| self.profile.is_some_and(|profile| profile.prefers(site.site.name()));
        sites.iter().any(|site| site.score.is_some() && prefers(site))
    }
}
