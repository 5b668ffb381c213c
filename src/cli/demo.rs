//! `edgeward demo`: three situations, decided as `edgeward review` does.

use edgeward_decision::config::Config;

use super::review::offline;
use super::review::report::ReviewList;
use super::review::subject;
use crate::platform::clock::Clock;
use crate::platform::yaml;

const PODS: &str = include_str!("../../examples/pods.yaml");

const SCENARIOS: [(&str, &str); 3] = [
    ("good WAN, low load", include_str!("../../examples/fleet.yaml")),
    (
        "edge overloaded, good WAN",
        include_str!("../../examples/fleet-overloaded.yaml"),
    ),
    (
        "edge overloaded, bad WAN",
        include_str!("../../examples/fleet-overloaded-bad-wan.yaml"),
    ),
];

/// Decides the same pods in each situation and prints the results.
pub(super) fn run() -> anyhow::Result<()> {
    let config = Config::default();
    let now = Clock::start().now();
    let mut subjects = vec![];
    for document in yaml::parse_all(PODS, "examples/pods.yaml")? {
        subject::collect(
            &document,
            "examples/pods.yaml",
            &config.keys,
            &mut subjects,
            &mut vec![],
        )?;
    }
    let mut shown = None;
    for (title, fleet) in SCENARIOS {
        let snapshot = offline::snapshot(fleet, title, &config, now)?;
        let review = |subject| offline::review(subject, "default", &snapshot, &config, now);
        let items = subjects.iter().map(review).collect::<Result<_, _>>()?;
        let mut list = ReviewList::new(items);
        list.items.iter_mut().for_each(|item| item.assumptions.clear());
        super::print(&format!("{title}\n\n{}\n", list.table()))?;
        let sent = list.items.into_iter().find(|item| item.verdict == "cloud");
        shown = shown.or(sent);
    }
    if let Some(item) = shown {
        let operations = item.patch.iter().map(|operation| format!("{operation}\n"));
        let operations = operations.collect::<String>();
        super::print(&format!(
            "The patch that sends {} to the cloud, in full\n\n{operations}",
            item.name
        ))?;
    }
    Ok(())
}
