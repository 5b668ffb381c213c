use jiff::Timestamp;
use proptest::prelude::*;

use super::*;

const NO_JITTER: Permille = Permille(0);

fn at(ms: u64) -> Now {
    // The wall clock stands still, because it must not matter.
    Now {
        moment: Moment(0).after(Micros::from_millis(ms)),
        wall: Timestamp::UNIX_EPOCH,
    }
}

fn candidate(identity: &str) -> Candidate {
    Candidate::new("ours".to_owned(), "edgeward".to_owned(), identity.to_owned())
}

/// An API server that holds one Lease.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn write(&mut self, lease: &Lease) -> Option<Lease> {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        let is_current = self.lease.as_ref().map(version) == Some(version(lease))
            || (self.lease.is_none() && version(lease).is_none());
        is_current.then(|| {
            self.version += 1;
            let mut lease = lease.clone();
            lease.metadata.resource_version = Some(self.version.to_string());
            self.lease = Some(lease.clone());
            lease
        })
    }

    /// Carries out the candidate's next action at a server that answers at once. Returns whether the candidate saw
    /// the history go back.
    fn serve(&mut self, candidate: &mut Candidate, now: Now, jitter: Permille) -> bool {
        let mut went_back = false;
        loop {
            match candidate.step(now) {
                Step::Wait(_) => return went_back,
                Step::Read => candidate.observe(self.lease.clone(), now.moment, jitter),
                Step::Write(lease) => match self.write(&lease) {
                    Some(stored) => candidate.written(stored, now.moment, jitter),
                    None => candidate.conflict(),
                },
            }
            went_back |= candidate.went_back().is_some();
        }
    }
}

fn holds(candidate: &Candidate, now: Now) -> bool {
    candidate.held_until().is_some_and(|until| now.moment < until)
}

#[test]
fn the_first_creates_it_and_keeps_it() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    for ms in (0..60_000).step_by(100) {
        server.serve(&mut a, at(ms), NO_JITTER);
        server.serve(&mut b, at(ms), NO_JITTER);
        assert!(holds(&a, at(ms)) && !holds(&b, at(ms)), "{ms}");
    }
    let spec = server.lease.unwrap().spec.unwrap();
    assert_eq!(spec.holder_identity.as_deref(), Some("a"));
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(15), Some(0))
    );
    assert_eq!(server.version, 30, "a renewal every two seconds");
}

#[test]
fn what_was_released_is_taken_at_the_next_look() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, at(0), NO_JITTER);
    server.serve(&mut b, at(0), NO_JITTER);
    assert_eq!(b.released(at(1)), None, "not its own to release");
    let released = a.released(at(500)).unwrap();
    let stored = server.write(&released).unwrap();
    a.written(stored, at(500).moment, NO_JITTER);
    assert!(!holds(&a, at(500)) && a.released(at(500)).is_none());
    server.serve(&mut b, at(999), NO_JITTER);
    assert!(!holds(&b, at(999)));
    server.serve(&mut b, at(1_000), NO_JITTER);
    assert!(holds(&b, at(1_000)));
    let spec = server.lease.unwrap().spec.unwrap();
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(15), Some(1))
    );
}

#[test]
fn what_is_not_renewed_is_taken_within_its_duration() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, at(0), Permille(JITTERED));
    // The renewal comes right after b read the Lease.
    for ms in [0, 1_250, 2_500] {
        server.serve(&mut b, at(ms), Permille(JITTERED));
    }
    server.serve(&mut a, at(2_500), Permille(JITTERED));
    let taken = (2_500..).step_by(10).find(|ms| {
        server.serve(&mut b, at(*ms), Permille(JITTERED));
        holds(&b, at(*ms))
    });
    let waited = taken.unwrap() - 2_500;
    assert!(
        (12_000..=13_500).contains(&waited),
        "{waited} ms after the last renewal"
    );
    assert!(!holds(&a, at(2_500 + 7_500)));
}

/// The largest jitter.
const JITTERED: u32 = 250;

#[test]
fn any_write_counts_as_a_renewal_whatever_its_times_say() {
    let (mut server, mut a, mut b) = (Server::default(), candidate("a"), candidate("b"));
    server.serve(&mut a, at(0), NO_JITTER);
    server.serve(&mut b, at(0), NO_JITTER);
    // Only the version changes.
    let touched = server.lease.clone().unwrap();
    server.write(&touched).unwrap();
    for ms in (0..=12_900).step_by(100) {
        server.serve(&mut b, at(ms), NO_JITTER);
        assert!(!holds(&b, at(ms)), "{ms}");
    }
    server.serve(&mut b, at(13_000), NO_JITTER);
    assert!(holds(&b, at(13_000)));
    // The first holder learns of it when its renewal is refused.
    server.serve(&mut a, at(13_001), NO_JITTER);
    assert!(!holds(&a, at(13_001)));
    assert_eq!(
        server.lease.unwrap().spec.unwrap().holder_identity.as_deref(),
        Some("b")
    );
}

#[test]
fn a_holder_that_nobody_answers_gives_up_in_time() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    server.serve(&mut a, at(0), NO_JITTER);
    a.failed(at(5_000).moment, NO_JITTER);
    assert_eq!(a.step(at(5_000)), Step::Wait(at(6_500).moment));
    assert!(holds(&a, at(7_499)) && !holds(&a, at(7_500)));
    // It keeps asking and is still the holder.
    server.serve(&mut a, at(9_000), NO_JITTER);
    assert!(holds(&a, at(9_000)));
}

#[test]
fn a_write_of_unknown_outcome_is_found_again() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    a.observe(None, at(0).moment, NO_JITTER);
    let Step::Write(lease) = a.step(at(0)) else {
        panic!("not created")
    };
    server.write(&lease).unwrap();
    a.failed(at(3_000).moment, NO_JITTER);
    server.serve(&mut a, at(4_500), NO_JITTER);
    assert!(holds(&a, at(4_500)));
    let spec = server.lease.unwrap().spec.unwrap();
    assert_eq!(spec.lease_transitions, Some(0), "it was its own all the time");
}

#[test]
fn a_history_that_went_back_is_noticed_by_all() {
    let (mut server, mut a, mut b, mut late) = (Server::default(), candidate("a"), candidate("b"), candidate("late"));
    server.serve(&mut a, at(0), NO_JITTER);
    let backup = server.lease.clone();
    for ms in [2_000, 4_000, 6_000] {
        for candidate in [&mut a, &mut b, &mut late] {
            assert!(!server.serve(candidate, at(ms), NO_JITTER));
        }
    }
    (server.lease, server.version) = (backup, 1);
    assert!(server.serve(&mut b, at(7_000), NO_JITTER), "the version is older");
    // The wall clock may stand still in between, but must have moved since the term began.
    let restored = Now {
        wall: Timestamp::MAX,
        ..at(8_000)
    };
    assert!(server.serve(&mut a, restored, NO_JITTER), "its own version is older");
    server.version = 1_000;
    assert!(!server.serve(&mut a, at(10_000), NO_JITTER));
    assert!(!server.serve(&mut b, at(10_000), NO_JITTER), "it knows already");
    assert!(server.serve(&mut late, at(10_000), NO_JITTER), "the term began again");
    for candidate in [&mut a, &mut b, &mut late] {
        assert!(!server.serve(candidate, at(12_000), NO_JITTER));
    }
}

#[test]
fn labels_of_others_survive() {
    let (mut server, mut a) = (Server::default(), candidate("a"));
    let mut lease = Lease::default();
    lease.metadata.labels = Some([("app".to_owned(), "edgeward".to_owned())].into());
    server.write(&lease).unwrap();
    server.serve(&mut a, at(0), NO_JITTER);
    let stored = server.lease.unwrap();
    assert_eq!(stored.metadata.labels, lease.metadata.labels);
    assert_eq!(stored.spec.unwrap().holder_identity.as_deref(), Some("a"));
}

/// Fate of a candidate's request.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Answered,
    /// The server carries it out, but the answer is lost.
    Unheard,
    Lost,
}

proptest! {
    /// Clocks of different speed and requests that are slow, lost, or unanswered: two candidates are never certain of
    /// the Lease at the same time.
    #[test]
    fn never_two_at_a_time(
        fates in proptest::collection::vec(
            (prop_oneof![3 => Just(Fate::Answered), 1 => Just(Fate::Unheard), 3 => Just(Fate::Lost)],
             0u64..1_500, 0u64..1_500, 0u32..250),
            200),
        speeds in proptest::array::uniform3(1_000u64..1_500),
    ) {
        let mut server = Server::default();
        let mut candidates = ["a", "b", "c"].map(candidate);
        // Each clock has its own speed and its own zero.
        let local = |who: usize, ms: u64| at(77_000 * who as u64 + ms * speeds[who] / 1_000);
        // Until when each candidate is busy with a request.
        let mut busy = [0u64; 3];
        let mut fates = fates.into_iter();
        for ms in (0..).step_by(50) {
            for who in 0..3 {
                let holders = (0..3).filter(|who| holds(&candidates[*who], local(*who, ms))).count();
                prop_assert!(holders <= 1, "{holders} at {ms}");
                let step = candidates[who].step(local(who, ms));
                if ms < busy[who] || matches!(step, Step::Wait(_)) {
                    continue;
                }
                let Some((fate, there, back, jitter)) = fates.next() else {
                    return Ok(());
                };
                // The request was sent some time ago, the server handles it now, and the answer arrives later.
                let (sent, here) = (local(who, ms.saturating_sub(there)), &mut candidates[who]);
                busy[who] = ms + back;
                let (answered, jitter) = (local(who, ms + back).moment, Permille(jitter));
                match (step, fate) {
                    (Step::Read, Fate::Answered) => here.observe(server.lease.clone(), answered, jitter),
                    (Step::Write(lease), Fate::Answered | Fate::Unheard) => {
                        match (server.write(&lease), fate) {
                            (Some(stored), Fate::Answered) => here.written(stored, sent.moment, jitter),
                            (None, Fate::Answered) => here.conflict(),
                            _ => here.failed(answered, jitter),
                        }
                    }
                    _ => here.failed(answered, jitter),
                }
            }
        }
    }
}
