//! What a pod asks of the sites where it may run, against a reader that goes by tokens.

use edgeward_core::config::Config;
use edgeward_core::model::constraints::{is_label_key, is_label_value};
use edgeward_core::model::site::SiteDefinition;
use edgeward_core::model::site_restriction::{Demand, MAX_BYTES, SiteRestriction};
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::room::Room;
use edgeward_core::placement::verdict::Action;
use edgeward_core::testkit::{NOW, snapshot};
use edgeward_core::wire::pod::Pod;
use serde_json::json;

/// How many words of the text are names, keys and values of the sites that it is asked about.
const FEW: usize = 6;

/// The text of `slo.example.io/sites`.
///
/// # Panics
/// It is not read as it should be, a site is allowed that should not be, or a pod is placed at such a site.
pub fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let expected = Expected::read(text);
    let read = Demand::parse(text);
    assert_eq!(read.is_some(), expected.is_some(), "{text:?}");
    let restriction = SiteRestriction::of(read);
    if let Some((restriction, expected)) = restriction.as_ref().zip(expected) {
        for site in sites(text) {
            assert_eq!(restriction.allows(&site), expected.allows(&site), "{text:?}: {site:?}");
        }
    }

    let config = Config::default();
    let fleet = json!({
        "sites": [
            {"name": "edge", "kind": "edge", "labels": {"region": "eu"}},
            {"name": "cloud", "kind": "cloud", "labels": {"region": "us", "tier": "spot"},
             "wan": {"health": "healthy", "rttMs": 5, "lossPct": 0}},
        ],
        "nodes": [
            {"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 9}},
            {"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 9},
             "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]},
        ],
    });
    let snapshot = snapshot(&fleet);
    let annotations =
        json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000", "slo.example.io/sites": text});
    let containers = json!([{"resources": {"requests": {"cpu": "100m"}}}]);
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}).to_string();
    let pod = Pod::from_json(&pod).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
    match restriction {
        None => assert!(matches!(verdict.action, Action::Deny), "{text:?}"),
        Some(restriction) => {
            let is_somewhere = snapshot.sites.iter().any(|site| restriction.allows(&site.definition));
            let is_placed = match verdict.action {
                Action::Place(site) => {
                    assert!(restriction.allows(&site.definition), "{text:?}: {}", site.name());
                    true
                }
                _ => false,
            };
            assert_eq!(is_placed, is_somewhere, "{text:?}");
        }
    }
}

/// What is asked, by the grammar of `kubectl -l`.
enum Expected {
    Names(Vec<String>),
    All(Vec<(String, Asked)>),
}

/// Of a label.
enum Asked {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Sign(&'static str),
}

impl Expected {
    fn read(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let tokens = tokens(text);
        let words: Option<Vec<_>> = split(&tokens)
            .iter()
            .map(|part| match part {
                [Token::Word(word)] if is_label_value(word) => Some(word.clone()),
                _ => None,
            })
            .collect();
        if let Some(names) = words {
            return Some(Expected::Names(names));
        }
        let all: Option<Vec<_>> = split(&tokens).into_iter().map(expression).collect();
        all.map(Expected::All)
    }

    fn allows(&self, site: &SiteDefinition) -> bool {
        match self {
            Expected::Names(names) => names.contains(&site.name),
            Expected::All(all) => all.iter().all(|(key, asked)| {
                let found = site.labels.get(&**key).map(ToString::to_string);
                match asked {
                    Asked::In(values) => found.is_some_and(|found| values.contains(&found)),
                    Asked::NotIn(values) => found.is_none_or(|found| !values.contains(&found)),
                    Asked::Exists => found.is_some(),
                    Asked::DoesNotExist => found.is_none(),
                }
            }),
        }
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let sign = ["==", "!=", "=", "!", "(", ")", ","]
            .into_iter()
            .find(|sign| rest.starts_with(sign));
        let end = match sign {
            Some(sign) => sign.len(),
            None => rest
                .find(|char: char| char.is_whitespace() || "=!(),".contains(char))
                .unwrap_or(rest.len()),
        };
        tokens.push(sign.map_or_else(|| Token::Word(rest[..end].to_owned()), Token::Sign));
        rest = rest[end..].trim_start();
    }
    tokens
}

/// At the commas that are in no list.
fn split(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0_i32;
    let is_between = |token: &Token| {
        match token {
            Token::Sign("(") => depth += 1,
            Token::Sign(")") => depth = (depth - 1).max(0),
            _ => {}
        }
        *token == Token::Sign(",") && depth == 0
    };
    tokens.split(is_between).collect()
}

fn expression(tokens: &[Token]) -> Option<(String, Asked)> {
    use Token::{Sign, Word};
    let value = |tokens: &[Token]| match tokens {
        [] => Some(String::new()),
        [Word(word)] => Some(word.clone()).filter(|word| is_label_value(word)),
        _ => None,
    };
    let (key, asked) = match tokens {
        [Word(key)] => (key, Asked::Exists),
        [Sign("!"), Word(key)] => (key, Asked::DoesNotExist),
        [Word(key), Sign("=" | "=="), rest @ ..] => (key, Asked::In(vec![value(rest)?])),
        [Word(key), Sign("!="), rest @ ..] => (key, Asked::NotIn(vec![value(rest)?])),
        [Word(key), Word(operator), Sign("("), list @ .., Sign(")")] => {
            let values = list.split(|token| *token == Sign(","));
            let values = values.map(value).collect::<Option<_>>()?;
            let asked = match &**operator {
                "in" => Asked::In(values),
                "notin" => Asked::NotIn(values),
                _ => return None,
            };
            (key, asked)
        }
        _ => return None,
    };
    is_label_key(key).then(|| (key.clone(), asked))
}

/// Sites that have names and labels of the text.
fn sites(text: &str) -> Vec<SiteDefinition> {
    let words = tokens(text).into_iter();
    let words = words.filter_map(|token| match token {
        Token::Word(word) => Some(word),
        Token::Sign(_) => None,
    });
    let words: Vec<_> = words.take(FEW).chain([String::new()]).collect();
    let site = |name: &str, labels: &[(&String, &String)]| {
        let labels = labels
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()));
        SiteDefinition {
            name: name.to_owned(),
            labels: labels.collect(),
            ..SiteDefinition::cloud()
        }
    };
    let mut sites = vec![site("other", &[])];
    for (at, word) in words.iter().enumerate() {
        sites.push(site(word, &[]));
        for value in &words {
            let next = &words[(at + 2) % words.len()];
            sites.push(site("other", &[(word, value), (next, word)]));
        }
    }
    sites
}
