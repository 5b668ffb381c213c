//! Decides from the Lease as read, and from our own clock, whether to write it.
//!
//! The clocks of other replicas do not matter. A renewal shows in the resourceVersion, which changes with every
//! write. Our monotonic clock measures how long there was no renewal. Every write names the version that it replaces,
//! so the API server refuses one of two competing candidates.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use edgeward_kube::units::{Micros, Moment, Now};

/// Duration stated in the Lease. The holder stops writing when half of it has passed since a renewal. Another
/// candidate takes the Lease after four fifths. Clock rates may therefore differ by 60 %, and even with the time for
/// reading and writing, another replica holds the Lease before the duration ends.
const DURATION: Micros = Micros::from_secs(15);

/// How long a Lease that we wrote is certainly ours, counted from before the request was sent.
const HELD_FOR: Micros = Micros(DURATION.0 / 2);

/// Duration stated in a released Lease, in seconds. The API does not allow zero.
const RELEASED_SECONDS: i32 = 1;

/// A replica that wants to hold the Lease.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    /// Unique for all time, so a Lease with this identity was written by this candidate.
    pub(super) identity: String,
    /// Version of the Lease when read last, and since when it has been this version.
    read: Option<(String, Moment)>,
    /// Until when the Lease is certainly ours. `None` or a past moment means that it is not.
    pub(super) held_until: Option<Moment>,
    /// Resource version of the Lease as read last.
    newest: u64,
}

impl Candidate {
    pub(super) fn new(identity: String) -> Self {
        Self {
            identity,
            ..Self::default()
        }
    }

    /// Makes us the holder of the Lease if it is ours already, free, or not renewed in time. Returns `None` then: it is
    /// to be written. Otherwise returns how long it takes until it may be taken if nobody renews it. `lease` is empty if
    /// there is none, and `now` is after its answer arrived.
    pub(super) fn acquire(&mut self, lease: &mut Lease, now: Now) -> Option<Micros> {
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match self.read.take() {
            Some((known, since)) if known == version => since,
            _ => now.moment,
        };
        self.read = Some((version, since));
        let is_ours = self.holds(lease);
        if !is_ours {
            self.held_until = None;
            let lapses = since.after(lapses_after(lease));
            if holder(lease).is_some() && now.moment < lapses {
                return Some(lapses.since(now.moment));
            }
        }
        // The times are only for people to read.
        let spec = lease.spec.get_or_insert_default();
        if !is_ours {
            spec.acquire_time = Some(MicroTime(now.wall));
            let before = spec.lease_transitions;
            spec.lease_transitions = Some(before.map_or(0, |before| before.saturating_add(1)));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.0 / 1_000_000).ok();
        spec.renew_time = Some(MicroTime(now.wall));
        None
    }

    /// Records that the Lease was written with us as its holder. `sent` is a moment before the request was sent.
    pub(super) fn acquired(&mut self, sent: Moment) {
        self.held_until = Some(sent.after(HELD_FOR));
    }

    /// Removes the holder of the Lease if that is us. Returns whether the Lease is to be written.
    pub(super) fn release(&self, lease: &mut Lease, now: Now) -> bool {
        let is_ours = self.holds(lease);
        if is_ours {
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(RELEASED_SECONDS);
            spec.renew_time = Some(MicroTime(now.wall));
        }
        is_ours
    }

    /// Detects that the history of the API server went back: the Lease as read is older than the one read before.
    /// Returns both versions, the earlier one first.
    pub(super) fn went_back(&mut self, lease: &Lease) -> Option<(u64, u64)> {
        let now = lease.metadata.resource_version.as_ref()?.parse().ok()?;
        let before = std::mem::replace(&mut self.newest, now);
        (now < before).then_some((before, now))
    }

    fn holds(&self, lease: &Lease) -> bool {
        holder(lease) == Some(&self.identity)
    }
}

/// The holder of the Lease; `None` if it was released.
fn holder(lease: &Lease) -> Option<&String> {
    let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
    Some(holder).filter(|holder| !holder.is_empty())
}

/// Time without a change after which another candidate takes the Lease.
fn lapses_after(lease: &Lease) -> Micros {
    let stated = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let stated = stated.and_then(|seconds| u64::try_from(seconds).ok());
    let stated = stated.map_or(DURATION, Micros::from_secs);
    Micros(stated.times(4).0 / 5)
}

#[cfg(test)]
mod tests;
