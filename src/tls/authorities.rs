//! Since when authorities have been in the Secret. One that comes with a leaf, as from a backup or another cluster, is not known to
//! API servers until the leader has told them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use edgeward_core::certificates::Der;
use edgeward_core::units::{Micros, Moment, Now};

use super::{Current, Stored};

/// The authorities of the Secret.
#[derive(Debug)]
pub(super) struct Authorities {
    settle: Micros,
    since: BTreeMap<Der, Moment>,
    /// That of the leaf being served.
    serving: Option<Der>,
}

impl Authorities {
    pub(super) fn new(settle: Micros) -> Self {
        Self {
            settle,
            since: BTreeMap::new(),
            serving: None,
        }
    }

    /// This is in the Secret now: how long its leaf must wait, for as long as the present one is valid; `None` where it is to
    /// be served at once.
    pub(super) fn wait(&mut self, stored: &Stored, current: &Current, now: Now) -> Option<Duration> {
        let signer = stored.authority.as_ref().map(|authority| &authority.certificate.der);
        let found = [&stored.authority, &stored.next].map(|authority| authority.as_ref());
        let found = found.map(|authority| authority.map(|authority| &authority.certificate.der));
        self.since.retain(|der, _| found.contains(&Some(der)));
        for der in found.into_iter().flatten() {
            self.since.entry(Arc::clone(der)).or_insert(now.moment);
        }
        let signer = signer.filter(|_| stored.leaf.is_some())?;
        let age = self.since.get(signer).map(|since| now.moment.since(*since));
        let wait = Duration::from_micros(self.settle.0.saturating_sub(age.unwrap_or_default().0));
        let left = current.ends().map(|ends| ends.duration_since(now.wall));
        let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default();
        let wait = wait.min(left);
        if wait.is_zero() || self.serving.as_ref() == Some(signer) {
            self.serving = Some(Arc::clone(signer));
            return None;
        }
        tracing::warn!(
            seconds = wait.as_secs(),
            "the Secret holds a certificate of a CA that is new to it: the old one stays until API servers may trust that"
        );
        Some(wait)
    }
}
