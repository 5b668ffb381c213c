//! Since when authorities have been in the Secret. One that comes with a leaf, as from a backup or another cluster, is not known to
//! API servers until the leader has told them.

use std::sync::Arc;
use std::time::Duration;

use edgeward_core::units::{Micros, Now};

use super::rotation::{Der, Since, ders};
use super::{Current, Stored};

/// The authorities of the Secret.
#[derive(Debug)]
pub(super) struct Authorities {
    pub(super) settle: Micros,
    pub(super) since: Since,
    /// That of the leaf being served.
    pub(super) serving: Option<Der>,
}

impl Authorities {
    /// This is in the Secret now: how long its leaf must wait, for as long as the present one is valid; `None` where it is to
    /// be served at once.
    pub(super) fn wait(&mut self, stored: &Stored, current: &Current, now: Now) -> Option<Duration> {
        let found = [&stored.authority, &stored.next].into_iter().flatten();
        let found = ders(found.map(|authority| &authority.certificate));
        self.since.observe(&found, now.moment);
        let signer = stored.authority.as_ref().filter(|_| stored.leaf.is_some())?;
        let signer = &signer.certificate.der;
        let age = self.since.age(signer, now.moment);
        let wait = Duration::from_micros((self.settle - age).0);
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
