//! Held pods: the order in which they are given room, what is set aside for them, and whose turn has come (DESIGN 4.8).
//!
//! Every replica keeps the list and makes the same plan of the same picture: the claims in it keep the room for those whose
//! turn it is. One replica carries the plan out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::config::Config;
use crate::decide::verdict::{Action, Reason, Verdict};
use crate::decide::{decide, nearest_room};
use crate::fleet::{Claim, Claims, Node, NodeId, Snapshot};
use crate::ledger::Ledger;
use crate::room::Room;
use crate::units::{Micros, Moment, Now};
use crate::workload::slo::Class;
use crate::workload::{Turn, Workload};

/// For how long a pod is held for want of room before the node that comes closest to having it is kept for the pod.
const PATIENCE: Micros = Micros::from_secs(60);

/// How long the news of a namespace may take: it may have opted in a moment before its pod was created.
const NEWS: Micros = Micros::from_secs(5);

/// A pod that carries our gate, as it was seen.
#[derive(Debug, Clone)]
pub struct HeldPod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.resourceVersion`: what is decided holds for this version.
    pub resource_version: Box<str>,
    /// The whole object, to which a release is a patch.
    pub json: Box<str>,
    /// What it asks for. [`Workload::held`] is not set.
    pub workload: Workload<'static>,
    /// When it was created.
    pub created: Option<jiff::Timestamp>,
    /// Since when it is held, by its own word.
    pub stated: Option<jiff::Timestamp>,
    /// Why it is held, by its own word.
    pub reason: Option<Box<str>>,
}

impl HeldPod {
    /// Where it stands.
    pub fn turn(&self, config: &Config) -> Turn {
        self.workload
            .turn(config, Some((self.created.unwrap_or(jiff::Timestamp::MIN), &self.uid)))
    }

    /// Whether it was for the gates of others that it waited so far, by its own word.
    fn waited_for_others(&self) -> bool {
        self.reason.as_deref() == Some(Reason::HeldForeignGate.as_str())
    }

    /// The workload as it is decided when it has been held for so long.
    pub fn waited(&self, held: Micros) -> Workload<'static> {
        Workload {
            held: Some(held),
            ..self.workload.clone()
        }
    }
}

/// What is to be done about a held pod.
#[derive(Debug, Clone)]
pub struct Step {
    /// The pod.
    pub pod: Arc<HeldPod>,
    /// Since when it is held.
    pub since: Moment,
    /// What.
    pub what: What,
}

/// What is to be done about a held pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Its turn has come: it is decided once more, and released.
    Release,
    /// It is not ours: the gate is removed, and nothing else changes.
    LetGo(Reason),
    /// It goes on waiting, for this reason, which it does not carry yet.
    Note(Reason),
}

/// What one picture of the fleet means for the held pods.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What is to be done, in the order of the pods' turns.
    pub steps: Vec<Step>,
    /// Pods that are held, those of other gates too.
    pub held: usize,
    /// Since when the pod is held that is held longest, of those that do not wait for others.
    pub oldest: Option<Moment>,
}

/// The held pods.
#[derive(Debug, Default)]
pub struct Waitlist {
    pods: HashMap<Arc<str>, Entry>,
    /// Whether a plan made before is out of date.
    changed: bool,
    /// When the passing of time changes the plan.
    due: Option<Moment>,
    /// What is set aside by the plan made last.
    claims: Arc<Claims>,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<HeldPod>,
    first_seen: Moment,
    since: Moment,
}

impl Waitlist {
    /// A pod as it is now. Its time begins when it says, unless that is in the future; and anew when the last gate of others is
    /// gone. Otherwise it never begins later than it did: whoever may write annotations cannot stretch it.
    pub fn apply(&mut self, pod: HeldPod, now: Now) {
        let old = self.pods.remove(&pod.uid);
        let first_seen = old.as_ref().map_or(now.moment, |old| old.first_seen);
        let stated = pod.stated.filter(|at| *at <= now.wall);
        let age = stated.and_then(|at| u64::try_from(now.wall.duration_since(at).as_micros()).ok());
        let same = old.filter(|old| old.pod.workload.gates == pod.workload.gates);
        let same = same.map(|old| old.since);
        let since = if pod.waited_for_others() {
            same.unwrap_or(now.moment)
        } else {
            let stated = age.map_or(first_seen, |age| now.moment.before(Micros(age)));
            same.map_or(stated, |since| since.min(stated))
        };
        let entry = Entry {
            pod: Arc::new(pod),
            first_seen,
            since,
        };
        self.pods.insert(Arc::clone(&entry.pod.uid), entry);
        self.changed = true;
    }

    /// A pod is gone, or carries our gate no more.
    pub fn delete(&mut self, uid: &str) {
        self.changed |= self.pods.remove(uid).is_some();
    }

    /// Keeps the pods that are still there.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        let before = self.pods.len();
        self.pods.retain(|uid, _| is_there(uid));
        self.changed |= self.pods.len() < before;
    }

    /// Something else than the pods or the time may have changed what is to be done.
    pub fn reconsider(&mut self) {
        self.changed = true;
    }

    /// Whether nobody is held.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// When the plan must be made anew because of the time.
    pub fn next_change(&self) -> Option<Moment> {
        self.due
    }

    /// The claims of the plan made last.
    pub fn claims(&self) -> Arc<Claims> {
        Arc::clone(&self.claims)
    }

    /// Whether the plan is out of date, also if the nodes of `lost` have less room.
    pub fn is_outdated(&self, lost: &BTreeSet<NodeId>, now: Moment) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        self.changed || is_due || (!lost.is_empty() && self.claims.nodes().any(|id| lost.contains(&id)))
    }

    /// Decides about every held pod whose only gate is ours, in the order of their turns, each on the room that the earlier
    /// ones left; sets aside what the placed ones will take. Cost: a decision for each pod, but only one of those that differ in
    /// nothing but their age and find no room.
    pub fn plan(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        config: &Config,
        is_managed: impl Fn(&str) -> bool,
        now: Now,
    ) -> Plan {
        self.changed = false;
        let mut planning = Planning {
            snapshot,
            ledger,
            config,
            now,
            claims: Claims::new(),
            spoken_for: BTreeSet::new(),
            hopeless: Vec::new(),
            steps: Vec::new(),
        };
        let in_turn: BTreeMap<Turn, &Entry> = self
            .pods
            .values()
            .map(|entry| (entry.pod.turn(config), entry))
            .collect();
        for (turn, entry) in &in_turn {
            if is_managed(&entry.pod.workload.namespace) {
                planning.consider(entry, *turn);
            } else if now.moment.since(entry.first_seen) >= NEWS {
                planning.step(entry, What::LetGo(Reason::NotManaged));
            }
        }
        let steps = planning.steps;
        self.claims = Arc::new(planning.claims);
        self.due = self
            .pods
            .values()
            .filter_map(|entry| entry.due(config, now.moment))
            .min();
        let ours = self.pods.values().filter(|entry| !entry.pod.waited_for_others());
        Plan {
            steps,
            held: self.pods.len(),
            oldest: ours.map(|entry| entry.since).min(),
        }
    }
}

impl Entry {
    /// The next moment at which its age changes what is to be done.
    fn due(&self, config: &Config, now: Moment) -> Option<Moment> {
        let intent = self.pod.workload.intent.as_ref();
        let class = intent.map_or(Class::Batch, |intent| intent.slo.class);
        let holding = &config.holding;
        let ages = [holding.limits[class], holding.wait_for_terminating[class], PATIENCE];
        let moments = ages.into_iter().map(|age| self.since.after(age));
        moments
            .chain([self.first_seen.after(NEWS)])
            .filter(|at| *at > now)
            .min()
    }
}

/// A plan in the making.
struct Planning<'p> {
    snapshot: &'p Snapshot,
    ledger: &'p Ledger,
    config: &'p Config,
    now: Now,
    claims: Claims,
    /// Nodes that are kept for a pod which does not fit there yet.
    spoken_for: BTreeSet<NodeId>,
    /// Pods without room, each of which stands for all that are like it: there is only less for those that come later.
    hopeless: Vec<Arc<HeldPod>>,
    steps: Vec<Step>,
}

impl Planning<'_> {
    fn consider(&mut self, entry: &Entry, turn: Turn) {
        let pod = &entry.pod;
        if self.snapshot.is_paused(&pod.workload, self.now.moment) {
            return self.step(entry, What::LetGo(Reason::LoopGuard));
        }
        if pod.workload.has_other_gates(&self.config.keys) {
            return self.note(entry, Reason::HeldForeignGate);
        }
        // On its way already.
        if self.ledger.releases(&pod.uid) {
            return;
        }
        let held = self.now.moment.since(entry.since);
        if self.is_settled(entry, held) {
            return self.note(entry, Reason::HeldNoCapacity);
        }
        let workload = pod.waited(held);
        let room = Room {
            snapshot: self.snapshot,
            ledger: self.ledger,
            claims: &self.claims,
            turn,
        };
        let verdict = decide(&workload, &room, self.config, self.now);
        match verdict.action {
            Action::Place(site) => {
                let claim = verdict
                    .node
                    .map(|node| (node, self.claim(pod, turn, site.name(), true)));
                claim.into_iter().for_each(|(node, claim)| self.claims.add(node, claim));
                self.step(entry, What::Release);
            }
            Action::Hold => {
                let kept = self.kept_for(pod, &verdict, &room, held);
                if let Some((node, site)) = kept {
                    self.spoken_for.insert(node);
                    self.claims.add(node, self.claim(pod, turn, site, false));
                } else if verdict.reason == Reason::HeldNoCapacity {
                    self.hopeless.push(Arc::clone(pod));
                }
                self.note(entry, verdict.reason);
            }
            Action::PassThrough | Action::Deny => self.step(entry, What::LetGo(verdict.reason)),
        }
    }

    /// Whether a pod like this one has found no room, and its own age makes no difference.
    fn is_settled(&self, entry: &Entry, held: Micros) -> bool {
        let Some(intent) = &entry.pod.workload.intent else {
            return false;
        };
        let holding = &self.config.holding;
        let class = intent.slo.class;
        let is_of_age = held >= PATIENCE.min(holding.limits[class]) || held < holding.wait_for_terminating[class];
        !is_of_age
            && self
                .hopeless
                .iter()
                .any(|other| other.workload.is_like(&entry.pod.workload))
    }

    /// The node that is kept for a pod which does not fit yet, and its site: the one that it waits for while pods terminate
    /// there; or, once it has waited for long, the one that comes closest.
    fn kept_for<'s>(
        &self,
        pod: &HeldPod,
        verdict: &Verdict<'s>,
        room: &Room<'s, '_>,
        held: Micros,
    ) -> Option<(NodeId, &'s str)> {
        if verdict.reason == Reason::HeldTerminating {
            return Some((verdict.node?, verdict.sites.first()?.site.name()));
        }
        if held < PATIENCE {
            return None;
        }
        let spoken_for = |node: &Node| self.spoken_for.contains(&node.id);
        let (site, node) = nearest_room(&pod.workload, verdict, room, spoken_for)?;
        Some((node, site.name()))
    }

    fn claim(&self, pod: &HeldPod, turn: Turn, site: &str, comes: bool) -> Claim {
        Claim {
            uid: Arc::clone(&pod.uid),
            turn,
            site: site.into(),
            amount: pod.workload.request.clone(),
            priority: pod.workload.priority,
            comes,
        }
    }

    fn note(&mut self, entry: &Entry, reason: Reason) {
        if entry.pod.reason.as_deref() != Some(reason.as_str()) {
            self.step(entry, What::Note(reason));
        }
    }

    fn step(&mut self, entry: &Entry, what: What) {
        self.steps.push(Step {
            pod: Arc::clone(&entry.pod),
            since: entry.since,
            what,
        });
    }
}

#[cfg(test)]
mod tests;
