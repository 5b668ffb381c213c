//! What to do about the Lease next: a function of what was seen of it and of our own clocks.
//!
//! The clocks of others have no say. That a Lease was renewed shows in its resourceVersion, which every write changes;
//! for how long it was not, our monotonic clock tells. Every write names the version that it replaces, so that of two
//! candidates one is refused.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use edgeward_core::units::{Micros, Moment, Now, Permille};

/// What the Lease says it lasts. Whoever holds it writes nothing more when half of that has passed since a renewal, and
/// whoever waits takes it after four fifths: clocks may differ in speed by 60 %, and even with the time that it takes to
/// see and to write, another holds it before this is over.
const DURATION: Micros = Micros::from_secs(15);

/// How long a Lease that we wrote is ours for certain, from before the request was sent.
const HELD_FOR: Micros = Micros(DURATION.0 / 2);

/// Between renewals, and between reads of a Lease that another holds. Jitter comes on top.
const RENEWAL: Micros = Micros::from_secs(2);
const RETRY: Micros = Micros::from_secs(1);

/// After a request that failed.
const PAUSE: Micros = Micros::from_millis(1_500);

/// What a released Lease says it lasts, in seconds: the API takes no zero.
const RELEASED_SECONDS: i32 = 1;

/// What to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing, until then.
    Wait(Moment),
    /// Read the Lease.
    Read,
    /// Write it, ours: create it or, with a resource version, replace that.
    Write(Box<Lease>),
}

/// One who wants to hold the Lease.
#[derive(Debug)]
pub(super) struct Candidate {
    namespace: String,
    name: String,
    /// Nobody else's, ever: who finds it in the Lease has written it.
    identity: String,
    /// What is known of the Lease; `None` where something must be read first.
    observed: Option<Observed>,
    /// When to do something next.
    next: Moment,
    held_until: Option<Moment>,
    /// The newest resource version of the Lease that was seen.
    newest: u64,
    /// The term that was seen with it.
    term: Option<Term>,
    /// Whether we saw the history go back: our term begins again with the next write, which tells those who have not.
    begins_again: bool,
}

/// Who holds the Lease, and since when.
type Term = (String, MicroTime);

#[derive(Debug)]
struct Observed {
    /// `None`: there is none.
    lease: Option<Lease>,
    /// Since when it is in this version.
    since: Moment,
}

impl Candidate {
    /// A candidate that knows nothing yet and begins at once.
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

    /// Until when the Lease is ours for certain; past, or `None`, where it is not.
    pub(super) fn held_until(&self) -> Option<Moment> {
        self.held_until
    }

    /// What to do now.
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

    /// The Lease was read. `at` is a moment after the answer came.
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

    /// What we wrote was taken, and this is how it is stored. `sent` is a moment before the request was sent.
    pub(super) fn written(&mut self, lease: Lease, sent: Moment, jitter: Permille) {
        let is_ours = holder(&lease) == Some(&self.identity);
        self.begins_again = false;
        self.held_until = is_ours.then(|| sent.after(HELD_FOR));
        self.next = sent.after(with(jitter, RENEWAL));
        let (lease, since) = (Some(lease), sent);
        self.observed = Some(Observed { lease, since });
    }

    /// The version seen before and the one seen now, if the history of the API server went back: the version is older; or the leader,
    /// who saw it when it was, has begun its term again since.
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
        // Who saw it itself has listed everything already.
        let is_told = began_again && !std::mem::take(&mut self.begins_again);
        let is_older = now < before;
        self.begins_again |= is_older;
        (is_older || is_told).then_some((before, now))
    }

    /// What we wrote was refused: the Lease is not what was seen of it.
    pub(super) fn conflict(&mut self) {
        self.observed = None;
    }

    /// A request failed, or nobody knows what became of it.
    pub(super) fn failed(&mut self, at: Moment, jitter: Permille) {
        self.next = at.after(with(jitter, PAUSE));
    }

    /// The Lease as nobody's, if it is ours as far as was seen.
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

    /// Whether the Lease must be read before anything is known of it.
    pub(super) fn knows_nothing(&self) -> bool {
        self.observed.is_none()
    }

    /// The Lease as ours, in place of this one. Times are for people to read.
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

/// Who holds it; a released one is held by nobody.
fn holder(lease: &Lease) -> Option<&String> {
    let holder = lease.spec.as_ref()?.holder_identity.as_ref()?;
    Some(holder).filter(|holder| !holder.is_empty())
}

/// After how long without a change another takes it.
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
