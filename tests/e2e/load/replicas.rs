//! What is under load: three replicas behind a balancer.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Pace;
use crate::balancer::Balancer;
use crate::edgeward::Edgeward;
use crate::leader::leads;
use crate::patience::{BOUND, eventually};
use crate::pki::Authority;
use crate::scene::{Registration, Scene};
use crate::stage::Stage;

pub(crate) const REPLICAS: usize = 3;

/// Live replicas behind a balancer, registered as webhook.
pub(super) struct Replicas<'s, 'run> {
    scene: &'s Scene<'run>,
    config: Value,
    authority: Authority,
    pub(super) members: Vec<Edgeward<'run>>,
    pub(super) balancer: Balancer<'run>,
    _registered: Registration,
}

/// An edge and a cloud with room for everything.
pub(crate) fn stage<'run>(scene: &Scene<'run>) -> Result<Stage<'run>> {
    let stage = Stage::new(scene)?;
    stage.wide_edge_node("edge-0")?;
    stage.cloud_node("cloud-0")?;
    Ok(stage)
}

impl<'s, 'run> Replicas<'s, 'run> {
    pub(super) fn open(scene: &'s Scene<'run>, stage: &Stage<'_>, pace: Pace) -> Result<Self> {
        let mut config = stage.config();
        config["replicas"] = json!(REPLICAS);
        let (authority, balancer) = (Authority::new()?, Balancer::open(scene)?);
        let names = (0..REPLICAS).map(|i| format!("replica-{i}"));
        let members = names.map(|name| scene.replica(&name, &config, &authority));
        let members = members.collect::<Result<Vec<_>>>()?;
        members.iter().try_for_each(|member| balancer.add(member))?;
        let _registered = match pace.is_patient() {
            true => scene.register(&balancer.url(), &authority.certificate)?,
            false => scene.register_with_its_timeout(&balancer.url(), &authority.certificate)?,
        };
        Ok(Self {
            scene,
            config,
            authority,
            members,
            balancer,
            _registered,
        })
    }

    /// One more, that is ready and gets connections.
    pub(super) fn add(&mut self, name: &str) -> Result<()> {
        let replica = self.scene.replica(name, &self.config, &self.authority)?;
        self.balancer.add(&replica)?;
        self.members.push(replica);
        Ok(())
    }

    /// Takes out the one that leads, once there is one.
    pub(super) fn take_leader(&mut self) -> Result<Edgeward<'run>> {
        let leader = eventually("one leads", BOUND, || {
            let leads = |member: &Edgeward<'_>| leads(member).is_ok();
            self.members.iter().position(leads).context("none does")
        })?;
        Ok(self.members.remove(leader))
    }

    /// Waits until the leader counts so many pods without a decision.
    pub(super) fn report(&self, undecided: usize) -> Result<()> {
        eventually("the backstop reports each undecided pod", 2 * BOUND, || {
            let leader = self.members.iter().find(|member| leads(member).is_ok());
            let leader = leader.context("none leads")?;
            let found = |finding: &str| leader.count("edgeward_backstop_pods", &[("finding", finding)]);
            let found = found("bound")? + found("undecided")?;
            ensure!(found == undecided as u64, "{found} of {undecided}");
            Ok(())
        })
    }
}
