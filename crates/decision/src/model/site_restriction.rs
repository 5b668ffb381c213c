//! Restriction of a pod to certain sites, from its own annotations and its policy.

use std::fmt;

use crate::model::site::SiteDefinition;
use edgeward_kube::constraints::is_label_value;
use edgeward_kube::selector::Selector;

/// Maximum length of one demand, in bytes.
pub const MAX_BYTES: usize = 1024;

/// Description of a valid demand, for messages.
pub const ALLOWED: &str = "site names or a selector of site labels, at most 1024 bytes";

/// The sites at which a pod may run. A site must meet every demand. The restriction holds whatever else is wrong with
/// the pod's SLO.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SiteRestriction(Vec<Demand>);

/// One condition on a site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Demand {
    /// The site has one of these names.
    Names(Vec<Box<str>>),
    /// The site's labels match the selector.
    Labels(Selector),
    /// The demand could not be read. No site meets it.
    Unreadable,
}

impl SiteRestriction {
    /// Combines demands. Returns `None` if there are none.
    pub fn of(demands: impl IntoIterator<Item = Demand>) -> Option<Self> {
        let demands: Vec<_> = demands.into_iter().collect();
        (!demands.is_empty()).then_some(Self(demands))
    }

    /// Whether the pod may run at this site. Cost: a pass over the demands; no allocation.
    pub fn allows(&self, site: &SiteDefinition) -> bool {
        self.0.iter().all(|demand| match demand {
            Demand::Names(names) => names.iter().any(|name| **name == *site.name),
            Demand::Labels(selector) => selector.matches(|key| site.labels.get(key).map(|value| &**value)),
            Demand::Unreadable => false,
        })
    }

    /// Whether a demand could not be read. If so, no site is allowed.
    pub fn is_unreadable(&self) -> bool {
        self.0.contains(&Demand::Unreadable)
    }
}

impl Demand {
    /// Parses a demand. A list of bare words such as `near, far` is read as site names. Anything else is read as a
    /// label selector, such as `region in (eu), tier!=spot`. Returns `None` if the text is neither, or longer than
    /// [`MAX_BYTES`]. Cost: one pass over the text.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let is_name = |word: &&str| !word.is_empty() && is_label_value(word);
        let words = text.split(',').map(str::trim);
        let names: Option<Vec<Box<str>>> = words.map(|word| Some(word).filter(is_name).map(Box::from)).collect();
        match names {
            Some(names) => Some(Demand::Names(names)),
            None => Selector::parse(text).map(Demand::Labels),
        }
    }
}

/// Formats each demand as a user may write it: `near,far and region in (eu)`.
impl fmt::Display for SiteRestriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, demand) in self.0.iter().enumerate() {
            let separator = if at > 0 { " and " } else { "" };
            write!(f, "{separator}")?;
            match demand {
                Demand::Names(names) => write!(f, "{}", names.join(","))?,
                Demand::Labels(selector) => write!(f, "{selector}")?,
                Demand::Unreadable => write!(f, "what cannot be read")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str, labels: &[(&str, &str)]) -> SiteDefinition {
        SiteDefinition {
            name: name.to_owned(),
            labels: labels
                .iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
            ..SiteDefinition::cloud()
        }
    }

    #[test]
    fn bare_words_are_names_and_anything_else_is_a_selector() {
        let eu = site("near", &[("region", "eu")]);
        for (text, allows) in [
            ("near", true),
            (" far , near ", true),
            ("far", false),
            ("region", false),
            ("region=eu", true),
            ("region in (us, eu)", true),
            ("!region", false),
            ("tier!=spot", true),
            // A selector that mixes a site name with a label expression reads the name as a label that must exist.
            ("near,region=eu", false),
            ("example.com/gpu", false),
        ] {
            let demand = Demand::parse(text).unwrap();
            assert_eq!(SiteRestriction::of([demand]).unwrap().allows(&eu), allows, "{text}");
        }
        for text in [
            "",
            " ",
            "near,",
            "a b",
            "region in (eu",
            "region=eu;",
            &"a,".repeat(600),
        ] {
            assert_eq!(Demand::parse(text), None, "{text}");
        }
    }

    #[test]
    fn every_demand_must_be_met() {
        let both = SiteRestriction::of(["near,far", "region=eu"].map(|text| Demand::parse(text).unwrap())).unwrap();
        assert!(both.allows(&site("far", &[("region", "eu")])));
        assert!(!both.allows(&site("far", &[("region", "us")])));
        assert!(!both.allows(&site("other", &[("region", "eu")])));
        assert_eq!(both.to_string(), "near,far and region in (eu)");
        let unreadable = SiteRestriction::of([Demand::parse("near").unwrap(), Demand::Unreadable]).unwrap();
        assert!(!unreadable.allows(&site("near", &[])));
    }
}
