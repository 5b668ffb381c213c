//! Watches Site objects. If there are any, they replace the sites of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use edgeward_decision::config::sites::{SeenSite, refusal};
use edgeward_decision::config::{Config, sites};
use edgeward_decision::model::site::SiteDefinition;
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::sync::watch;

use crate::config::Versions;
use crate::instruments::metrics::Metrics;
use crate::liqo::Discovered;
use crate::watch::objects::{self, Key, Rights, Seen};
use crate::watch::raw::{Gvr, Raw};

/// How long to wait for more changes after a change. Related Sites are often applied one after another.
const SETTLE: Duration = Duration::from_secs(1);

/// Generation and `spec` of a Site.
type Object = (Option<i64>, Value);

/// Offers each version of the configuration with the current sites.
#[derive(Debug)]
pub struct Sites {
    base: Versions,
    /// The current configuration.
    pub current: Arc<ArcSwap<Config>>,
    /// The configuration in use, once it and its sites are known, and later versions.
    pub versions: watch::Sender<Option<Arc<Config>>>,
    /// The Sites as read last.
    pub seen: watch::Sender<BTreeMap<String, SeenSite>>,
}

impl Sites {
    /// Starts without sites in use. `config` is the current configuration until the first version is known.
    pub fn new(base: Versions, config: Arc<Config>) -> Self {
        Self {
            base,
            current: Arc::new(ArcSwap::new(config)),
            versions: watch::Sender::default(),
            seen: watch::Sender::default(),
        }
    }

    /// Follows the configuration, the Sites, and the `discovered` sites. Never returns. Calls `known` when a
    /// version is in use. If any Site has faults, all changes are refused and the previous sites stay.
    pub async fn follow(
        mut self,
        client: Client,
        metrics: Arc<Metrics>,
        mut discovered: watch::Receiver<Discovered>,
        known: impl Fn(),
    ) {
        let (sender, mut objects) = watch::channel(Seen::default());
        let read = |object: &Raw, _: Option<&_>| read(object);
        let watched = objects::follow(Gvr::SITES, Rights::Needed, &client, &metrics, read, &sender, |seen| {
            seen
        });
        let merged = async {
            let mut base = self.base.next().await;
            let mut definitions = None;
            loop {
                let seen = objects
                    .borrow_and_update()
                    .all()
                    .map(|all| self.take(all, &mut definitions));
                let beside = discovered.borrow_and_update().clone();
                if let (Some(true), Some(beside)) = (seen, beside) {
                    self.publish(&base, definitions.as_ref(), &beside);
                    known();
                }
                let was_known = self.versions.borrow().is_some();
                tokio::select! {
                    next = self.base.next() => {
                        base = next;
                        continue;
                    }
                    Ok(()) = objects.changed() => {}
                    Ok(()) = discovered.changed() => {}
                }
                if was_known {
                    tokio::time::sleep(SETTLE).await;
                }
            }
        };
        tokio::join!(watched, merged);
    }

    /// Reads the current Sites. Returns false until there were valid ones.
    fn take(&self, objects: &BTreeMap<Key, Object>, definitions: &mut Option<Vec<Arc<SiteDefinition>>>) -> bool {
        let specs = objects
            .iter()
            .map(|((_, name), (_, spec))| (name.clone(), spec.clone()));
        let read = || sites::of_objects(&specs.collect());
        let read = (!objects.is_empty()).then(read).transpose();
        let faults = read.map(|read| *definitions = read).err();
        let seen = objects.iter().map(|((_, name), (generation, _))| {
            let seen = SeenSite {
                generation: *generation,
                refused: faults.as_ref().map(|faults| refusal(name, faults)),
            };
            (name.clone(), seen)
        });
        let seen: BTreeMap<_, _> = seen.collect();
        let is_other = *self.seen.borrow() != seen;
        if is_other {
            if let Some(error) = &faults {
                tracing::warn!(%error, "Sites refused; those in use stay");
            }
            self.seen.send_replace(seen);
        }
        faults.is_none() || self.versions.borrow().is_some()
    }

    fn publish(
        &self,
        base: &Arc<Config>,
        definitions: Option<&Vec<Arc<SiteDefinition>>>,
        discovered: &[Arc<SiteDefinition>],
    ) {
        let defined = definitions.unwrap_or(&base.sites);
        let sites = sites::with_discovered(defined, discovered).0;
        let config = match sites == base.sites {
            true => Arc::clone(base),
            false => Arc::new(Config {
                sites,
                ..(**base).clone()
            }),
        };
        if self.versions.borrow().as_ref() != Some(&config) {
            let names: Vec<&str> = config.sites.iter().map(|site| &*site.name).collect();
            tracing::info!(sites = names.join(" "), "configuration in use");
            self.current.store(Arc::clone(&config));
            self.versions.send_replace(Some(config));
        }
    }
}

/// Reads generation and `spec` of a Site.
pub(crate) fn read(object: &Raw) -> Option<Object> {
    object.meta().name.as_ref()?;
    let mut value: Value = serde_json::from_str(object.json()).ok()?;
    let generation = value["metadata"]["generation"].as_i64();
    Some((generation, value["spec"].take()))
}
