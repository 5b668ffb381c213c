//! Traits: what a pod needs of its site or node in addition to room and time.

use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

use crate::model::site::{SiteDefinition, SiteKind};
use edgeward_kube::node::Node;
use edgeward_kube::units::Micros;

/// Maximum length of one list, in bytes.
pub const MAX_BYTES: usize = 1024;

/// Maximum number of traits in one list.
pub const MAX_TRAITS: usize = 16;

/// Description of a valid list, for messages.
pub const ALLOWED: &str = "a list of at most 16 traits such as \"SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms\"";

/// Description of a valid trait name, for messages.
pub const NAME: &str = "the name of a trait: letters, digits, `-`, `_` and `.`, at most 63, first a letter";

/// Regular expression of a trait name.
pub const FORM: &str = "^[A-Za-z]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

/// Prefix of the node label for a trait. A node has the trait if the value of the label is `"true"`.
pub const LABEL_PREFIX: &str = "traits.edgeward.io/";

/// The trait that limits the RTT.
const DISTANCE: &str = "SoftDistanceLimit";

/// The largest RTT limit, in milliseconds.
const MAX_DISTANCE_MS: u64 = 60_000;

/// The bound within which a site has a measured trait, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// This value or less.
    AtMost(i64),
    /// This value or more.
    AtLeast(i64),
}

impl Bound {
    /// The number in thousandths, rounded to the side of the bound where it holds less.
    pub fn thousandths(self, number: f64) -> i64 {
        // Decimal fractions leave such errors in binary.
        const DUST: f64 = 1e-6;
        match self {
            Self::AtMost(_) => (number * 1e3 - DUST).ceil() as i64,
            Self::AtLeast(_) => (number * 1e3 + DUST).floor() as i64,
        }
    }

    /// Whether this value is within the bound.
    pub fn holds(self, value: i64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

/// A trait that is measured at a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Name of the trait.
    pub name: Box<str>,
    /// The bound of its value.
    pub bound: Bound,
    /// Its value in thousandths. `None` if it is unknown.
    pub value: Option<i64>,
    /// Whether the site has the trait: the value is within the bound, and was not beyond it lately.
    pub holds: bool,
}

/// The traits that a pod needs, from the pod and from its policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Traits {
    required: Needs,
    optional: Needs,
    /// Whether a list could not be read. If so, no site or node matches.
    is_unreadable: bool,
}

/// Needs that are all required or all optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Needs {
    /// Labels of traits, sorted.
    labels: Vec<Box<str>>,
    /// The RTT of the site is below this.
    distance: Option<Micros>,
}

impl Needs {
    /// Adds other needs. The lower limit on the RTT counts.
    fn add(&mut self, other: Self) {
        self.labels.extend(other.labels);
        self.labels.sort_unstable();
        self.labels.dedup();
        self.labels.shrink_to_fit();
        self.distance = self.distance.into_iter().chain(other.distance).min();
    }

    /// The needs as a user may write them, each with this mark.
    fn words(&self, mark: &str) -> impl Iterator<Item = String> {
        let names = self.labels.iter().map(move |label| format!("{}{mark}", name(label)));
        names.chain(self.distance.map(|bound| format!("{DISTANCE}={bound}ms{mark}")))
    }
}

impl Traits {
    /// Parses a list such as `SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms`. A `?` marks an optional trait.
    /// Returns `None` for any other text. Cost: one pass over the text.
    pub fn parse(text: &str) -> Option<Self> {
        let entries = text.split(',');
        if text.len() > MAX_BYTES || entries.clone().count() > MAX_TRAITS {
            return None;
        }
        let mut traits = Self::default();
        for entry in entries.map(str::trim) {
            let need = need(entry.strip_suffix('?').unwrap_or(entry))?;
            if entry.ends_with('?') {
                traits.optional.add(need);
            } else {
                traits.required.add(need);
            }
        }
        traits.drop_required_from_optional();
        Some(traits)
    }

    /// Traits that no site or node has, for a list that could not be read.
    pub fn unreadable() -> Self {
        Self {
            is_unreadable: true,
            ..Self::default()
        }
    }

    /// Combines two lists. The lower limit on the RTT counts.
    pub fn and(mut self, other: Self) -> Self {
        self.required.add(other.required);
        self.optional.add(other.optional);
        self.is_unreadable |= other.is_unreadable;
        self.drop_required_from_optional();
        self
    }

    fn drop_required_from_optional(&mut self) {
        let required = &self.required.labels;
        self.optional
            .labels
            .retain(|label| required.binary_search(label).is_err());
    }

    /// Whether a list could not be read.
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    /// Upper bound on the comparisons of a match against one node.
    pub fn comparisons(&self) -> usize {
        self.required.labels.len()
    }

    /// Required limit on the RTT of the site.
    pub fn distance(&self) -> Option<Micros> {
        self.required.distance
    }

    /// The required traits that are measured at the site, and that it does not have now.
    pub fn lost<'s>(&self, site: &'s SiteDefinition) -> impl Iterator<Item = &'s Measured> {
        let is_required = |name: &str| self.names().any(|required| required == name);
        let lost = site.measured.iter().filter(|measured| !measured.holds);
        lost.filter(move |measured| is_required(&measured.name) && !is_stated(site, &measured.name))
    }

    /// Labels of the required traits that are neither of the site as a whole nor measured there. One of its nodes must have
    /// them.
    pub fn of_nodes(&self, site: &SiteDefinition) -> impl Iterator<Item = &str> + Clone {
        let required = self.required.labels.iter().map(|label| &**label);
        let is_measured = |label: &str| site.measured.iter().any(|measured| *measured.name == *name(label));
        required.filter(move |label| !is_stated(site, name(label)) && !is_measured(label))
    }

    /// Whether this node of this site has all required traits. Cost: a search per trait.
    pub fn are_at(&self, node: &Node, site: &SiteDefinition) -> bool {
        !self.is_unreadable && self.of_nodes(site).all(|label| is_on(node, site, label))
    }

    /// Names of the required traits that no given node has. If each trait is on some node, but no node has them all,
    /// returns all traits that a node must have.
    pub fn missing<'n>(&self, site: &SiteDefinition, nodes: impl Iterator<Item = &'n Node> + Clone) -> Vec<&str> {
        let on_none = |label: &&str| !nodes.clone().any(|node| is_on(node, site, label));
        let missing: Vec<_> = self.of_nodes(site).filter(on_none).map(name).collect();
        match missing.is_empty() {
            true => self.of_nodes(site).map(name).collect(),
            false => missing,
        }
    }

    /// Counts the optional traits that the site lacks. The site has a trait if it has it as a whole, or if each of
    /// these nodes has it; kube-scheduler may take any of them. `rtt` is the RTT to the site, if known. Cost: nothing
    /// if no trait is optional.
    pub fn missing_optional<'n>(
        &self,
        site: &SiteDefinition,
        nodes: impl Iterator<Item = &'n Node> + Clone,
        rtt: Option<Micros>,
    ) -> usize {
        let has_it = |label: &str| {
            let mut nodes = nodes.clone().peekable();
            has(site, label) || (nodes.peek().is_some() && nodes.all(|node| is_on(node, site, label)))
        };
        let missing = self.optional.labels.iter().filter(|label| !has_it(label)).count();
        let is_far = |bound| rtt.is_none_or(|rtt| rtt >= bound);
        missing + usize::from(self.optional.distance.is_some_and(is_far))
    }

    /// Names of the required traits.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.required.labels.iter().map(|label| name(label))
    }
}

/// Formats the traits as a user may write them: `NetworkEncryption, GreenEnergy?, SoftDistanceLimit=20ms`.
impl fmt::Display for Traits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unreadable = self.is_unreadable.then(|| "what cannot be read".to_owned());
        let all = self
            .required
            .words("")
            .chain(self.optional.words("?"))
            .chain(unreadable);
        f.write_str(&all.collect::<Vec<_>>().join(", "))
    }
}

/// Whether the definition of the site states the trait of this name.
fn is_stated(site: &SiteDefinition, name: &str) -> bool {
    site.traits.iter().any(|known| known == name)
}

/// Whether the site as a whole has the trait of this label.
fn has(site: &SiteDefinition, label: &str) -> bool {
    site.traits_now().any(|known| known == name(label))
}

/// Whether a node of this site has the trait of this label. Only edge nodes count: the cluster behind a cloud's nodes
/// sets their labels itself.
pub fn is_on(node: &Node, site: &SiteDefinition, label: &str) -> bool {
    site.kind == SiteKind::Edge && node.labels.get(label) == Some("true")
}

/// Names of the traits that the labels of this node state.
pub fn of_node(node: &Node) -> impl Iterator<Item = &str> {
    let labels = node.labels.iter().filter(|(_, value)| *value == "true");
    labels.filter_map(|(key, _)| key.strip_prefix(LABEL_PREFIX))
}

fn label(name: &str) -> Box<str> {
    format!("{LABEL_PREFIX}{name}").into()
}

fn name(label: &str) -> &str {
    label.strip_prefix(LABEL_PREFIX).unwrap_or(label)
}

static NAME_FORM: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(FORM).ok());

/// Whether the text is the name of a trait of sites or nodes.
pub fn is_name(text: &str) -> bool {
    text != DISTANCE && NAME_FORM.as_ref().is_some_and(|form| form.is_match(text))
}

/// Parses the name of a trait, or a limit on the RTT such as `SoftDistanceLimit=20ms`, in whole milliseconds.
fn need(text: &str) -> Option<Needs> {
    if let Some(bound) = text.strip_prefix(DISTANCE).and_then(|bound| bound.strip_prefix('=')) {
        let digits = bound.strip_suffix("ms")?;
        let ms = digits.parse().ok().filter(|ms: &u64| ms.to_string() == digits)?;
        return (1..=MAX_DISTANCE_MS).contains(&ms).then(|| Needs {
            distance: Some(Micros::from_millis(ms)),
            ..Needs::default()
        });
    }
    is_name(text).then(|| Needs {
        labels: vec![label(text)],
        ..Needs::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(traits: &[&str]) -> Node {
        let labels = traits.iter().map(|name| (format!("{LABEL_PREFIX}{name}"), "true"));
        Node {
            labels: labels.collect(),
            ..Node::default()
        }
    }

    fn site(traits: &[&str]) -> SiteDefinition {
        SiteDefinition {
            traits: traits.iter().map(|name| (*name).to_owned()).collect(),
            kind: SiteKind::Edge,
            ..SiteDefinition::cloud()
        }
    }

    #[test]
    fn trait_list_parses_required_and_optional_traits() {
        let traits = Traits::parse(" B, A?,C.d-e_1 ,SoftDistanceLimit=20ms, SoftDistanceLimit=30ms?,A?").unwrap();
        assert_eq!(
            traits.to_string(),
            "B, C.d-e_1, SoftDistanceLimit=20ms, A?, SoftDistanceLimit=30ms?"
        );
        // The union of both; of two bounds the stricter one counts.
        let both = traits.and(Traits::parse("A,SoftDistanceLimit=5ms").unwrap());
        assert_eq!(
            both.to_string(),
            "A, B, C.d-e_1, SoftDistanceLimit=5ms, SoftDistanceLimit=30ms?"
        );
        for text in [
            "",
            "A,",
            "A B",
            "1A",
            "-A",
            "A-",
            "A=1",
            "A??",
            "?",
            "SoftDistanceLimit",
            "SoftDistanceLimit=20",
            "SoftDistanceLimit=0ms",
            "SoftDistanceLimit=020ms",
            "SoftDistanceLimit=60001ms",
            "SoftDistanceLimit=2.5ms",
            "ä",
            &"a".repeat(64),
            &"a,".repeat(16),
            &format!("{}a", "a, ".repeat(16)),
        ] {
            assert_eq!(Traits::parse(text), None, "{text}");
        }
        assert!(Traits::parse(&"a".repeat(63)).is_some() && Traits::parse("SoftDistanceLimits").is_some());
    }

    #[test]
    fn required_traits_come_from_site_or_edge_node_labels() {
        let traits = Traits::parse("A, B").unwrap();
        for (of_site, of_node, has) in [
            (&["A", "B"][..], &[][..], true),
            (&["A"], &["B"], true),
            (&[], &["A", "B"], true),
            (&["A"], &["A"], false),
            (&[], &[], false),
        ] {
            assert_eq!(
                traits.are_at(&node(of_node), &site(of_site)),
                has,
                "{of_site:?} {of_node:?}"
            );
        }
        let mut other = node(&["A", "B"]);
        other.labels = [("traits.edgeward.io/A", "yes"), ("traits.edgeward.io/B", "true")]
            .into_iter()
            .collect();
        assert!(!traits.are_at(&other, &site(&[])));
        assert!(!Traits::unreadable().are_at(&node(&[]), &site(&[])));
        // Trait labels on a cloud's node do not count.
        assert!(!traits.are_at(&node(&["A", "B"]), &SiteDefinition::cloud()));
        let missing = |nodes: &[Node], of_site: &[&str]| traits.missing(&site(of_site), nodes.iter()).join(",");
        assert_eq!(missing(&[node(&["A"])], &[]), "B");
        assert_eq!(missing(&[], &["A"]), "B");
        assert_eq!(missing(&[node(&["A"]), node(&["B"])], &[]), "A,B");
    }

    #[test]
    fn measured_trait_is_of_the_site_and_not_of_its_nodes() {
        let traits = Traits::parse("A, B").unwrap();
        let measured = |name: &str, holds| Measured {
            name: name.into(),
            bound: Bound::AtLeast(1_000),
            value: None,
            holds,
        };
        let site = SiteDefinition {
            measured: vec![measured("A", false), measured("B", true), measured("C", false)],
            ..site(&[])
        };
        let lost = |site: &SiteDefinition| traits.lost(site).map(|lost| lost.name.to_string()).collect::<Vec<_>>();
        assert_eq!(lost(&site), ["A"]);
        // No node label counts, and its loss moves no pod away from a node.
        assert!(traits.are_at(&node(&[]), &site));
        assert_eq!(traits.of_nodes(&site).count(), 0);
        let stated = SiteDefinition {
            traits: vec!["A".to_owned()],
            ..site
        };
        assert_eq!(lost(&stated), [""; 0]);
    }

    #[test]
    fn optional_trait_counts_only_if_every_node_has_it() {
        let traits = Traits::parse("A?, B?, SoftDistanceLimit=20ms?").unwrap();
        let missing = |nodes: &[Node], of_site: &[&str], rtt: Option<u64>| {
            traits.missing_optional(&site(of_site), nodes.iter(), rtt.map(Micros::from_millis))
        };
        let (both, one) = (node(&["A", "B"]), node(&["A"]));
        assert_eq!(missing(std::slice::from_ref(&both), &[], Some(19)), 0);
        assert_eq!(missing(&[both, one.clone()], &[], Some(20)), 2);
        assert_eq!(missing(&[one], &["B"], None), 1);
        assert_eq!(missing(&[], &["A"], Some(0)), 1);
    }
}
