//! `edgeward demo`: three situations, decided as `edgeward review` does.

use clap::Args;
use edgeward_core::config::Config;
use edgeward_core::units::{Moment, Now};

use super::review::offline::{self, Offline};
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

/// Show three situations on this machine, without a cluster.
///
/// The same three pods are decided while load and WAN change. It is `edgeward review` of examples/pods.yaml against three fleets.
#[derive(Debug, Args)]
pub(super) struct Demo {}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = Config::default();
        let now = Now {
            moment: Moment(0),
            wall: Clock::start().wall(),
        };
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
            let reviewer = Offline {
                config: &config,
                snapshot: &offline::snapshot(fleet, title, &config, now)?,
                namespace: "default",
                now,
            };
            let items = subjects.iter().map(|subject| reviewer.review(subject));
            let mut list = ReviewList::new(items.collect::<Result<_, _>>()?);
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
}
