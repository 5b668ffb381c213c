//! Chooses the next step of the election from the observed Lease and our own clocks.
//!
//! The clocks of other replicas do not matter. A renewal shows in the resourceVersion, which changes with every
//! write. Our monotonic clock measures how long there was no renewal. Every write names the version that it replaces,
//! so the API server refuses one of two competing candidates.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use edgeward_core::units::{Micros, Moment, Now, Permille};

/// Duration stated in the Lease. The holder stops writing when half of it has passed since a renewal. Another
/// candidate takes the Lease after four fifths. Clock rates may therefore differ by 60 %, and even with the time for
/// reading and writing, another replica holds the Lease before the duration ends.
const DURATION: Micros = Micros::from_secs(15);

/// How long a Lease that we wrote is certainly ours, counted from before the request was sent.
const HELD_FOR: Micros = Micros(DURATION.0 / 2);

/// Pause between renewals, and between reads of a Lease with another holder. Jitter is added.
const RENEWAL: Micros = Micros::from_secs(2);
const RETRY: Micros = Micros::from_secs(1);

/// Pause after a failed request.
const PAUSE: Micros = Micros::from_millis(1_500);

/// Duration stated in a released Lease, in seconds. The API does not allow zero.
const RELEASED_SECONDS: i32 = 1;

/// The next action of a candidate.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Wait until this moment.
    Wait(Moment),
    /// Read the Lease.
    Read,
    /// Write the Lease with us as its holder: create it, or replace it if it has a resource version.
    Write(Box<Lease>),
}

/// A replica that wants to hold the Lease.
#[derive(Debug)]
pub(super) struct Candidate {
    namespace: String,
    name: String,
    /// Unique for all time, so a Lease with this identity was written by this candidate.
    identity: String,
    /// Last observed state of the Lease; `None` if it must be read first.
    observed: Option<Observed>,
    /// When the next action is due.
    next: Moment,
    held_until: Option<Moment>,
    /// Newest resource version of the Lease seen so far.
    newest: u64,
    /// Term seen with the newest version.
    term: Option<Term>,
    /// Whether we saw the API server's history go back. Our term then starts again with the next write, which tells
    /// replicas that did not see it.
    begins_again: bool,
}

/// Holder of the Lease, and since when.
type Term = (String, MicroTime);

#[derive(Debug)]
struct Observed {
    /// `None` if the Lease does not exist.
    lease: Option<Lease>,
    /// Since when the Lease has had this version.
    since: Moment,
}

impl Candidate {
    /// A candidate without knowledge of the Lease, whose first action is due at once.
    pub(super) fn new(namespace: String, name: String, identity: String) -> Self {
        Self {
            namespace,
            name,
            identity,
            observed: None,
            next: Moment(i64::MIN),
            held_until: None,
            newest: 0,
            term: None,
            begins_again: false,
        }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// Until when the Lease is certainly ours. `None` or a past moment means that it is not.
    pub(super) fn held_until(&self) -> Option<Moment> {
        self.held_until
    }

    /// Returns the action that is due now.
    pub(super) fn step(&self, now: Now) -> Step {
        if now.moment < self.next {
            return Step::Wait(self.next);
        }
        match &self.observed {
            None => Step::Read,
            Some(Observed { lease: None, .. }) => Step::Write(Box::new(self.ours(&Lease::default(), now))),
            Some(Observed {
                lease: Some(lease),
                since,
            }) => {
                let is_lapsed = now.moment >= since.after(lapses_after(lease));
                match holder(lease) {
                    Some(other) if *other != self.identity && !is_lapsed => Step::Read,
                    _ => Step::Write(Box::new(self.ours(lease, now))),
                }
            }
        }
    }

    /// Records the Lease as read. `at` is a moment after the answer arrived.
    pub(super) fn observe(&mut self, lease: Option<Lease>, at: Moment, jitter: Permille) {
        let version = |lease: &Option<Lease>| lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        let known = self
            .observed
            .as_ref()
            .filter(|seen| version(&seen.lease) == version(&lease));
        let since = known.map_or(at, |seen| seen.since);
        let held_by = lease.as_ref().and_then(holder);
        let is_ours = held_by == Some(&self.identity);
        if !is_ours {
            self.held_until = None;
        }
        self.next = match &lease {
            Some(lease) if held_by.is_some() && !is_ours => at
                .after(with(jitter, RETRY))
                .min(since.after(lapses_after(lease)))
                .max(at),
            _ => at,
        };
        self.observed = Some(Observed { lease, since });
    }

    /// Records a successful write and the Lease as stored. `sent` is a moment before the request was sent.
    pub(super) fn written(&mut self, lease: Lease, sent: Moment, jitter: Permille) {
        let is_ours = holder(&lease) == Some(&self.identity);
        self.begins_again = false;
        self.held_until = is_ours.then(|| sent.after(HELD_FOR));
        self.next = sent.after(with(jitter, RENEWAL));
        let (lease, since) = (Some(lease), sent);
        self.observed = Some(Observed { lease, since });
    }

    /// Detects that the history of the API server went back, and returns the version seen before and the one seen
    /// now. This is the case if the version is older. It is also the case if the leader has started its term again
    /// after it saw this.
    pub(super) fn went_back(&mut self) -> Option<(u64, u64)> {
        let lease = self.observed.as_ref()?.lease.as_ref()?;
        let now = lease.metadata.resource_version.as_ref()?.parse().ok()?;
        let before = std::mem::replace(&mut self.newest, now);
        let term = holder(lease).cloned().zip(lease.spec.as_ref()?.acquire_time.clone());
        let began_again = match (&self.term, &term) {
            (Some((holder, since)), Some((same, now))) => holder == same && *holder != self.identity && since != now,
            _ => false,
        };
        self.term = term;
        // If we saw it ourselves, everything has been listed again already.
        let is_told = began_again && !std::mem::take(&mut self.begins_again);
        let is_older = now < before;
        self.begins_again |= is_older;
        (is_older || is_told).then_some((before, now))
    }

    /// Records a refused write: the Lease differs from what was observed.
    pub(super) fn conflict(&mut self) {
        self.observed = None;
    }

    /// Records a request that failed, or whose result is unknown.
    pub(super) fn failed(&mut self, at: Moment, jitter: Permille) {
        self.next = at.after(with(jitter, PAUSE));
    }

    /// The Lease without a holder, if it was ours when last observed.
    pub(super) fn released(&self, now: Now) -> Option<Lease> {
        let lease = self.observed.as_ref()?.lease.as_ref()?;
        (holder(lease) == Some(&self.identity)).then(|| {
            let mut lease = lease.clone();
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(RELEASED_SECONDS);
            spec.renew_time = Some(MicroTime(now.wall));
            lease
        })
    }

    /// Whether the Lease must be read first.
    pub(super) fn knows_nothing(&self) -> bool {
        self.observed.is_none()
    }

    /// This Lease with us as its holder. Its times are only for people to read.
    fn ours(&self, lease: &Lease, now: Now) -> Lease {
        let mut spec = lease.spec.clone().unwrap_or_default();
        let is_ours = holder(lease) == Some(&self.identity);
        if !is_ours || self.begins_again {
            spec.acquire_time = Some(MicroTime(now.wall));
        }
        if !is_ours {
            let before = spec.lease_transitions;
            spec.lease_transitions = Some(before.map_or(0, |before| before.saturating_add(1)));
        }
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = i32::try_from(DURATION.0 / 1_000_000).ok();
        spec.renew_time = Some(MicroTime(now.wall));
        Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..lease.metadata.clone()
            },
            spec: Some(spec),
        }
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

fn with(jitter: Permille, pause: Micros) -> Micros {
    pause + Micros(pause.times(jitter.0.into()).0 / 1_000)
}

#[cfg(test)]
mod tests;
