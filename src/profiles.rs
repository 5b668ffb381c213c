//! Watches PerformanceProfiles and evaluates them off the request path.
//!
//! A round sends the queries of the profiles that are due to the Prometheus server of the configuration, an equal query
//! once. Once all queries have an answer or timed out, these profiles are evaluated with the newest snapshot. A query
//! without a new answer keeps its last one, which counts until it is stale.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_cluster::engine::{Change, SharedState};
use edgeward_decision::config::Config;
use edgeward_decision::model::scores::{self, ProfileScores, Profiles, Score};
use edgeward_kube::units::{Micros, Moment, Now};
use edgeward_profiles::{All, Evaluated, Profile, Round, SeenProfile, StatusFacts};
use futures::{StreamExt as _, stream};
use kube::Resource as _;
use serde_json::Value;
use tokio::sync::watch;

use crate::api::{PerformanceProfileStatus, SiteScore};
use crate::config::Versions;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::platform::blocking::blocking;
use crate::platform::clock::Clock;
use crate::prometheus::Connection;
use crate::watch::objects::{self, Rights, Seen};
use crate::watch::raw::{Gvr, Raw};
use answers::Answers;

/// How many queries run concurrently.
const MAX_ASKED: usize = 8;

/// Follows and evaluates PerformanceProfiles while their CRD is installed. Otherwise there are none.
pub struct PerformanceProfiles {
    shared: Arc<SharedState>,
    metrics: Arc<Metrics>,
    clock: Clock,
    changes: Changes,
    entries: BTreeMap<String, Entry>,
    answers: Answers,
    /// The latest evaluations.
    pub evaluated: watch::Sender<Arc<All>>,
}

impl PerformanceProfiles {
    /// Starts without profiles.
    pub fn new(shared: Arc<SharedState>, metrics: Arc<Metrics>, clock: Clock, changes: Changes) -> Self {
        Self {
            shared,
            metrics,
            clock,
            changes,
            entries: BTreeMap::new(),
            answers: Answers::default(),
            evaluated: watch::Sender::default(),
        }
    }

    /// Follows the profiles, evaluates them with the newest snapshot, and sends the scores. Never returns. Calls
    /// `listed` once all were listed or the CRD is known to be absent.
    pub async fn follow(mut self, client: kube::Client, mut versions: Versions, listed: impl FnOnce()) {
        let (seen, mut objects) = watch::channel(Seen::default());
        let read = |object: &Raw, _: Option<&_>| read(object);
        let metrics = Arc::clone(&self.metrics);
        let watched = objects::follow(Gvr::PROFILES, Rights::Needed, &client, &metrics, read, &seen, |seen| {
            seen
        });
        let evaluating = async {
            // The sender lives as long as this is awaited.
            let _ = objects.wait_for(|seen| seen.all().is_some()).await;
            self.take(&mut objects).await;
            listed();
            let mut config = versions.next().await;
            loop {
                tokio::select! {
                    next = versions.next() => config = next,
                    () = self.evaluate(&config, &mut objects) => {}
                }
            }
        };
        tokio::join!(watched, evaluating);
    }

    /// Takes over the current objects. A changed profile is evaluated at once.
    async fn take(&mut self, objects: &mut Objects) {
        let objects = objects.borrow_and_update().objects.clone();
        let objects: BTreeMap<_, _> = objects.into_iter().map(|((_, name), seen)| (name, seen)).collect();
        let now = self.clock.moment();
        self.entries.retain(|name, _| objects.contains_key(name));
        for (name, seen) in objects {
            if let Some(entry) = self.entries.get_mut(&name)
                && entry.evaluated.seen.spec == seen.spec
            {
                entry.evaluated.seen = seen;
                continue;
            }
            let before = self.entries.get(&name).map(|entry| &entry.evaluated);
            let evaluated = Evaluated::after(seen, before);
            if let Some(error) = &evaluated.refused {
                tracing::warn!(name, error, "a PerformanceProfile is not accepted");
            }
            let next = evaluated.profile.as_ref().map_or(Moment(i64::MAX), |_| now);
            self.entries.insert(name, Entry { evaluated, next });
        }
        let evaluated = self.entries.values().map(|entry| &entry.evaluated);
        let profiles = evaluated.filter_map(|evaluated| evaluated.profile.as_ref());
        let queries = profiles.flat_map(|profile| profile.queries()).collect();
        self.answers.retain(&queries);
        self.publish().await;
    }

    /// Evaluates the profiles that are due, and takes over changed objects. Never returns.
    async fn evaluate(&mut self, config: &Arc<Config>, objects: &mut Objects) {
        let server = config.prometheus.as_ref().map(Connection::new);
        // The previous call may have been cancelled between a change and its publication.
        self.publish().await;
        loop {
            self.round(config, server.as_ref(), objects).await;
            let next = self.entries.values().map(|entry| entry.next).min();
            tokio::select! {
                Ok(()) = objects.changed() => self.take(objects).await,
                () = self.clock.reach(next) => {}
            }
        }
    }

    /// Sends the queries of the profiles that are due, evaluates these profiles, and publishes the results of all.
    async fn round(&mut self, config: &Arc<Config>, server: Option<&Connection>, objects: &mut Objects) {
        let began = self.clock.moment();
        let due = self.due(began);
        let queries = due.values().flat_map(|profile| profile.queries());
        let queries = queries.map(Arc::<str>::from).collect::<BTreeSet<_>>();
        let clock = self.clock;
        let asking = stream::iter(queries).map(|query| answers::ask(server, query, clock));
        let mut asked = asking.buffer_unordered(MAX_ASKED);
        loop {
            tokio::select! {
                answered = asked.next() => match answered {
                    Some((query, answer)) => self.answers.take(query, answer, &self.metrics),
                    None => break,
                },
                Ok(()) = objects.changed() => self.take(objects).await,
            }
        }

        // A profile that changed meanwhile became due after `began`.
        let due = self.due(began);
        let (snapshot, config, now) = (self.shared.snapshot(), Arc::clone(config), self.clock.now());
        let answers = self.answers.clone();
        let rounds = blocking(move || {
            let evaluate = |(name, profile): (String, Arc<Profile>)| {
                let evaluation =
                    edgeward_profiles::score(&profile, &snapshot, &config, |query| answers.get(query), now.moment);
                (name, profile.period, Round { evaluation, at: now })
            };
            due.into_iter().map(evaluate).collect::<Vec<_>>()
        })
        .await;
        for (name, period, round) in rounds {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.next = began.after(period);
                entry.evaluated.last = Some(Arc::new(round));
            }
        }
        self.publish().await;
    }

    /// The profiles in force that are due at this moment.
    fn due(&self, now: Moment) -> BTreeMap<String, Arc<Profile>> {
        let due = self.entries.iter().filter(|(_, entry)| entry.next <= now);
        due.filter_map(|(name, entry)| Some((name.clone(), entry.evaluated.profile.clone()?)))
            .collect()
    }

    async fn publish(&self) {
        let entries = || self.entries.iter().map(|(name, entry)| (name, &entry.evaluated));
        let all = entries().map(|(name, evaluated)| (name.clone(), evaluated.clone()));
        self.evaluated.send_replace(Arc::new(all.collect()));
        let scores = entries().filter_map(|(name, evaluated)| Some(((**name).into(), evaluated.scores()?)));
        let scores: Profiles = scores.collect();
        self.changes.send(Change::Profiles(Arc::new(scores))).await;
    }
}

/// The PerformanceProfiles as seen last.
type Objects = watch::Receiver<Seen<SeenProfile>>;

/// State of a profile between its rounds.
struct Entry {
    evaluated: Evaluated,
    /// When it is due; never if no spec was ever accepted.
    next: Moment,
}

/// Reads the scores of a PerformanceProfile from its status, for processes that do not evaluate it. `None` if the
/// spec is invalid.
pub(crate) fn scores_of(object: &Raw, now: Now) -> Option<(Box<str>, Arc<ProfileScores>)> {
    let name = object.meta().name.as_deref()?;
    let evaluated = Evaluated::after(read(object)?, None);
    let scores = evaluated.scores()?;
    let value: Value = serde_json::from_str(object.json()).ok()?;
    let status: PerformanceProfileStatus = serde_json::from_value(value["status"].clone()).unwrap_or_default();
    let site = |site: SiteScore| {
        let age = now.wall.duration_since(site.as_of?.parse().ok()?);
        let numbers = if site.by_missing.is_empty() {
            vec![site.score?]
        } else {
            site.by_missing
        };
        let by_missing: Option<Arc<[Score]>> = numbers.into_iter().map(Score::of).collect();
        let age = Micros(u64::try_from(age.as_micros()).unwrap_or(0));
        Some((
            Box::from(site.site),
            scores::SiteScore {
                by_missing: by_missing?,
                as_of: now.moment.before(age),
            },
        ))
    };
    let is_of_spec = evaluated.known().is_some();
    let sites = status.scores.into_iter().filter(|_| is_of_spec).filter_map(site);
    let scores = ProfileScores {
        sites: sites.collect(),
        ..Arc::unwrap_or_clone(scores)
    };
    Some((name.into(), Arc::new(scores)))
}

/// Reads a PerformanceProfile.
pub(crate) fn read(object: &Raw) -> Option<SeenProfile> {
    object.meta().name.as_ref()?;
    let mut value: Value = serde_json::from_str(object.json()).ok()?;
    // We wrote this status ourselves. Anything else is ignored.
    let status: PerformanceProfileStatus = serde_json::from_value(value["status"].take()).unwrap_or_default();
    let since = status.preferred_since.and_then(|since| since.parse().ok());
    let accepted = status
        .conditions
        .into_iter()
        .find(|condition| condition.kind == "Accepted");
    Some(SeenProfile {
        generation: value["metadata"]["generation"].as_i64(),
        spec: value["spec"].take(),
        known: StatusFacts {
            generation: status.observed_generation,
            preferred: status.preferred.map(|site| Box::from(&*site)).zip(since),
            accepted: accepted.map(|condition| (condition.status == "True", condition.last_transition_time)),
        },
    })
}
