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
    client: kube::Client,
    shared: Arc<SharedState>,
    metrics: Arc<Metrics>,
    clock: Clock,
    changes: Changes,
    entries: BTreeMap<String, Entry>,
    answers: Answers,
    evaluated: watch::Sender<Arc<All>>,
}

impl PerformanceProfiles {
    /// Starts without profiles.
    pub fn new(
        client: kube::Client,
        shared: Arc<SharedState>,
        metrics: Arc<Metrics>,
        clock: Clock,
        changes: Changes,
    ) -> Self {
        Self {
            client,
            shared,
            metrics,
            clock,
            changes,
            entries: BTreeMap::new(),
            answers: Answers::default(),
            evaluated: watch::Sender::default(),
        }
    }

    /// The latest evaluations.
    pub fn evaluated(&self) -> watch::Receiver<Arc<All>> {
        self.evaluated.subscribe()
    }

    /// Follows the profiles, evaluates them with the newest snapshot, and sends the scores. Never returns. Calls
    /// `listed` once all were listed or the CRD is known to be absent.
    pub async fn follow(mut self, mut versions: Versions, listed: impl FnOnce()) {
        let (seen, mut objects) = watch::channel(Seen::default());
        let read = |object: &Raw, _: Option<&_>| read(object);
        let (client, metrics) = (self.client.clone(), Arc::clone(&self.metrics));
        let watched = objects::follow(Gvr::PROFILES, Rights::Needed, &client, &metrics, read, &seen, |seen| {
            seen
        });
        let evaluating = async {
            // The sender lives as long as this is awaited.
            let _ = objects.wait_for(|seen| seen.all().is_some()).await;
            self.take(by_name(&mut objects)).await;
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
    async fn take(&mut self, objects: BTreeMap<String, SeenProfile>) {
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
            self.entries.insert(name, Entry { evaluated, next: now });
        }
        let profiles = self
            .entries
            .values()
            .filter_map(|entry| entry.evaluated.profile.as_ref());
        self.answers
            .retain(&profiles.flat_map(|profile| profile.queries()).collect());
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
                Ok(()) = objects.changed() => self.take(by_name(objects)).await,
                () = self.clock.reach(next) => {}
            }
        }
    }

    /// Sends the queries of the profiles that are due, evaluates these profiles, and publishes the results of all.
    async fn round(&mut self, config: &Arc<Config>, server: Option<&Connection>, objects: &mut Objects) {
        let began = self.clock.moment();
        let mut due = Vec::new();
        for (name, entry) in &mut self.entries {
            match &entry.evaluated.profile {
                Some(profile) if entry.next <= began => due.push((name.clone(), Arc::clone(profile))),
                Some(_) => {}
                None => entry.next = Moment(i64::MAX),
            }
        }
        if due.is_empty() {
            return;
        }
        let queries = due.iter().flat_map(|(_, profile)| profile.queries());
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
                Ok(()) = objects.changed() => self.take(by_name(objects)).await,
            }
        }

        let (snapshot, config, now) = (self.shared.snapshot(), Arc::clone(config), self.clock.now());
        let answers = self.answers.clone();
        let rounds = blocking(move || {
            let evaluate = |(name, profile): (String, Arc<Profile>)| {
                let evaluation =
                    edgeward_profiles::score(&profile, &snapshot, &config, |query| answers.get(query), now.moment);
                (name, profile, Round { evaluation, at: now })
            };
            due.into_iter().map(evaluate).collect::<Vec<_>>()
        })
        .await;
        for (name, profile, round) in rounds {
            // The profile may have changed meanwhile. It is due again then.
            if let Some(entry) = self.entries.get_mut(&name)
                && let Some(current) = &entry.evaluated.profile
                && Arc::ptr_eq(current, &profile)
            {
                entry.next = began.after(profile.period);
                entry.evaluated.last = Some(Arc::new(round));
            }
        }
        self.publish().await;
    }

    async fn publish(&self) {
        let all = self
            .entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.evaluated.clone()));
        self.evaluated.send_replace(Arc::new(all.collect()));
        let scores = self
            .entries
            .iter()
            .filter_map(|(name, entry)| Some(((**name).into(), entry.evaluated.scores()?)));
        let scores: Profiles = scores.collect();
        self.changes.send(Change::Profiles(Arc::new(scores))).await;
    }
}

/// The PerformanceProfiles as seen last.
type Objects = watch::Receiver<Seen<SeenProfile>>;

fn by_name(objects: &mut Objects) -> BTreeMap<String, SeenProfile> {
    let seen = objects.borrow_and_update();
    let named = seen
        .objects
        .iter()
        .map(|((_, name), seen)| (name.clone(), seen.clone()));
    named.collect()
}

/// State of a profile between its rounds.
struct Entry {
    evaluated: Evaluated,
    /// When it is due.
    next: Moment,
}

/// Reads the scores of a PerformanceProfile from its status, for processes that do not evaluate it. `None` if the
/// spec is invalid.
pub(crate) fn scores_of(object: &Raw, now: Now) -> Option<(Box<str>, Arc<ProfileScores>)> {
    let name = object.meta().name.as_deref()?;
    let value: Value = serde_json::from_str(object.json()).ok()?;
    let profile = Profile::read(&value["spec"]).ok()?;
    let status: PerformanceProfileStatus = serde_json::from_value(value["status"].clone()).unwrap_or_default();
    let is_of_spec = status.observed_generation == value["metadata"]["generation"].as_i64();
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
    let scores = ProfileScores {
        better: profile.better,
        margin: profile.margin,
        staleness: profile.staleness,
        preferred: status.preferred.filter(|_| is_of_spec).map(Box::from),
        sites: status
            .scores
            .into_iter()
            .filter(|_| is_of_spec)
            .filter_map(site)
            .collect(),
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
