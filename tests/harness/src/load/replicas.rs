//! The target of the load: three replicas behind a balancer.

use super::Pace;
use crate::balancer::Balancer;
use crate::fixture::Registration;
use crate::prelude::*;

pub const REPLICAS: usize = 3;

pub struct Replicas<'s, 'run> {
    fixture: &'s Fixture<'run>,
    config: Value,
    authority: Authority,
    pub members: Vec<Edgeward<'run>>,
    pub balancer: Balancer<'run>,
    _registered: Registration,
}

pub fn nodes<'run>(fixture: &Fixture<'run>) -> Result<Nodes<'run>> {
    let nodes = Nodes::new(fixture)?;
    nodes.wide_edge_node("edge-0")?;
    nodes.cloud_node("cloud-0")?;
    Ok(nodes)
}

impl<'s, 'run> Replicas<'s, 'run> {
    pub fn open(fixture: &'s Fixture<'run>, nodes: &Nodes<'_>, pace: Pace) -> Result<Self> {
        let config = nodes.config();
        let (authority, balancer) = (Authority::new()?, Balancer::open(fixture)?);
        let names = (0..REPLICAS).map(|i| format!("replica-{i}"));
        let members = names.map(|name| fixture.replica(&name, &config, &authority));
        let members = members.collect::<Result<Vec<_>>>()?;
        members.iter().try_for_each(|member| balancer.add(member))?;
        let _registered = match pace.has_long_timeout() {
            true => fixture.register(&balancer.url(), &authority.certificate)?,
            false => fixture.register_with_its_timeout(&balancer.url(), &authority.certificate)?,
        };
        Ok(Self {
            fixture,
            config,
            authority,
            members,
            balancer,
            _registered,
        })
    }

    pub fn add(&mut self, name: &str) -> Result<()> {
        let replica = self.fixture.replica(name, &self.config, &self.authority)?;
        self.balancer.add(&replica)?;
        self.members.push(replica);
        Ok(())
    }

    pub fn take_leader(&mut self) -> Result<Edgeward<'run>> {
        take_leader(&mut self.members)
    }

    pub fn report(&self, undecided: usize) -> Result<()> {
        eventually("the backstop reports each undecided pod", 2 * BOUND, || {
            let leader = self.members.iter().find(|member| member.leads().is_ok());
            let leader = leader.context("none leads")?;
            let found = |finding: &str| leader.count("edgeward_backstop_pods", &[("finding", finding)]);
            let found = found("bound")? + found("undecided")?;
            ensure!(found == undecided as u64, "{found} of {undecided}");
            Ok(())
        })
    }
}

/// Waits until one of these replicas leads, and removes it from them.
pub(crate) fn take_leader<'run>(members: &mut Vec<Edgeward<'run>>) -> Result<Edgeward<'run>> {
    let leader = eventually("one leads", BOUND, || {
        let leads = |member: &Edgeward<'_>| member.leads().is_ok();
        members.iter().position(leads).context("none does")
    })?;
    Ok(members.remove(leader))
}
