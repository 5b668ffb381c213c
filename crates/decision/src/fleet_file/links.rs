//! What is measured between the sites of a fleet file.

use serde::{Deserialize, Serialize};

use crate::document::{Checks, Decimal, Fault};
use crate::fleet_file::site::{LossPct, RttMs, rtt_ms};
use crate::model::link::{Bandwidth, LinkFigures, Links};
use crate::model::snapshot::{Site, Snapshot};

/// Figures of the way from one site to another.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LinkEntry {
    source: Box<str>,
    target: Box<str>,
    rtt_ms: Option<RttMs>,
    loss_pct: Option<LossPct>,
    bandwidth: Option<Bandwidth>,
    bytes_per_second: Option<Rate>,
    packets_per_second: Option<Rate>,
}

/// Bytes or packets per second.
type Rate = Decimal<0, 0, 1_000_000_000_000_000>;

/// The list `links` of a file with these sites.
pub(super) fn read(entries: Vec<LinkEntry>, sites: &[Site], faults: &mut Vec<Fault>) -> Links {
    let mut links = Links::default();
    for (i, entry) in entries.into_iter().enumerate() {
        let at = format!("links[{i}]");
        let mut checks = Checks { at: &at, faults };
        let (source, target) = (&*entry.source, &*entry.target);
        for (field, name) in [("source", source), ("target", target)] {
            if !sites.iter().any(|site| site.name() == name) {
                checks.fault(field, format_args!("{name:?} is no site of this file"));
            }
        }
        if source == target || links.get(source, target).is_some() {
            checks.fault(
                "target",
                format_args!("{target:?} is the source, or has a link from it already"),
            );
        }
        let figures = LinkFigures {
            rtt: entry.rtt_ms.map(Into::into),
            loss: entry.loss_pct.map(Into::into),
            bandwidth: entry.bandwidth,
            bytes: entry.bytes_per_second.map(Into::into),
            packets: entry.packets_per_second.map(Into::into),
        };
        links.entry(source, target).insert_entry(figures);
    }
    links
}

/// The links between the sites of the snapshot.
pub(super) fn entries(snapshot: &Snapshot) -> impl Iterator<Item = LinkEntry> {
    let is_there = |name: &str| snapshot.sites.iter().any(|site| site.name() == name);
    let links = snapshot.links.iter();
    let links = links.filter(move |(source, target, _)| is_there(source) && is_there(target));
    links.map(|(source, target, figures)| LinkEntry {
        source: source.into(),
        target: target.into(),
        rtt_ms: figures.rtt.map(rtt_ms),
        loss_pct: figures.loss.map(Decimal::from),
        bandwidth: figures.bandwidth,
        bytes_per_second: figures.bytes.map(Decimal::from),
        packets_per_second: figures.packets.map(Decimal::from),
    })
}
