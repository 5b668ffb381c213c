//! At which sites a pod may run, as it says itself and as its policy says.

use std::fmt;

use crate::model::constraints::is_label_value;
use crate::model::selector::Selector;
use crate::model::site::SiteDefinition;

/// How many bytes one demand may have.
pub const MAX_BYTES: usize = 1024;

/// What may be demanded, in words.
pub const ALLOWED: &str = "site names or a selector of site labels, at most 1024 bytes";

/// The sites at which a pod may run: those that meet every demand. It is kept whatever else there is to say about the pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SiteRestriction(Vec<Demand>);

/// What is asked of a site.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Demand {
    /// To have one of these names.
    Names(Vec<Box<str>>),
    /// To have such labels.
    Labels(Selector),
    /// Nobody knows: it could not be read. No site meets it.
    Unreadable,
}

impl SiteRestriction {
    /// What all of these demand; `None` where there are none.
    pub fn of(demands: impl IntoIterator<Item = Demand>) -> Option<Self> {
        let demands: Vec<_> = demands.into_iter().collect();
        (!demands.is_empty()).then_some(Self(demands))
    }

    /// Whether the pod may run there. Cost: a search of what is demanded; allocates nothing.
    pub fn allows(&self, site: &SiteDefinition) -> bool {
        self.0.iter().all(|demand| match demand {
            Demand::Names(names) => names.iter().any(|name| **name == *site.name),
            Demand::Labels(selector) => selector.matches(|key| site.labels.get(key).map(|value| &**value)),
            Demand::Unreadable => false,
        })
    }

    /// Whether a demand could not be read, so that it allows no site.
    pub fn is_unreadable(&self) -> bool {
        self.0.contains(&Demand::Unreadable)
    }
}

impl Demand {
    /// Reads a list of bare words as site names, `near, far`, and anything else as a label selector, `region in (eu), tier!=spot`.
    /// `None` if it is neither, or longer than [`MAX_BYTES`]. Cost: a pass over the text.
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

/// Each demand as it may be written: `near,far and region in (eu)`.
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
            // Not a name beside what is none, but a label that must be there.
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
