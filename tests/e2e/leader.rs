//! Leader election among replicas.

pub(crate) mod backstop;
pub(crate) mod events;

use edgeward_harness::documentation::documented;
use edgeward_harness::prelude::*;

const LEASE: &str = "edgeward";

const DURATION_SECONDS: u64 = 15;

e2e! { "leader::lease_passes_to_other_replica", Nodes, 77, lease_passes_to_other_replica }
/// One of two replicas holds the Lease. It is asked to stop, and the other one takes the Lease at once, while the first still
/// serves. The second one is killed, and a third takes the Lease before it expires.
fn lease_passes_to_other_replica(fixture: &Fixture<'_>) -> Result<()> {
    let start = |name: &str| fixture.live_edgeward_as(name, &json!({}));
    let mut pair = vec![start("first")?, start("second")?];
    let (leader, holder) = eventually("one holds the Lease", BOUND, || one_leads(fixture, &pair))?;
    let mut other = pair.remove(1 - leader);
    let first = pair.remove(0);

    let before = Instant::now();
    first.terminate()?;
    let next = eventually("the other holds it", BOUND, || holder_but(fixture, &holder))?;
    println!("leader: handed over in {:.2} s", before.elapsed().as_secs_f64());
    eventually("the other knows", BOUND, || other.leads())?;
    drop(first);
    let spec = lease(fixture)?;
    ensure!(spec["leaseTransitions"] == 1, "{spec}");
    ensure!(spec["leaseDurationSeconds"] == DURATION_SECONDS, "{spec}");

    let third = start("third")?;
    ensure!(
        lease(fixture)?["holderIdentity"] == next.as_str(),
        "it is not taken away"
    );
    let before = Instant::now();
    other.kill()?;
    // The machine may be busy. Unit tests check that no replica takes it earlier.
    eventually("the third holds it", BOUND, || holder_but(fixture, &next))?;
    println!("leader: taken over in {:.2} s", before.elapsed().as_secs_f64());
    eventually("it knows", BOUND, || third.leads())
}

/// The replica that certainly holds the Lease, and its identity.
fn one_leads(fixture: &Fixture<'_>, edgewards: &[Edgeward<'_>]) -> Result<(usize, String)> {
    let leading = edgewards.iter().map(Edgeward::leads).collect::<Vec<_>>();
    let leaders: Vec<usize> = (0..leading.len()).filter(|&i| leading[i].is_ok()).collect();
    ensure!(leaders.len() == 1, "{leaders:?}");
    let spec = lease(fixture)?;
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    ensure!(!holder.is_empty(), "{spec}");
    Ok((leaders[0], holder.to_owned()))
}

/// The Lease's holder, once it is another one.
fn holder_but(fixture: &Fixture<'_>, before: &str) -> Result<String> {
    let spec = lease(fixture)?;
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    ensure!(!holder.is_empty() && holder != before, "{spec}");
    Ok(holder.to_owned())
}

fn lease(fixture: &Fixture<'_>) -> Result<Value> {
    let kubectl = fixture.kubectl_in(&fixture.home()?);
    Ok(kubectl.get("lease", LEASE)?["spec"].take())
}

/// Gives a user the rights that edgeward needs according to `docs/guide/operate.md`.
pub(crate) fn allow_user(fixture: &Fixture<'_>, user: &str) -> Result<()> {
    let home = fixture.home()?;
    let user = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]);
    let manifests = documented("yaml", "kind: ClusterRole")?;
    for manifest in manifests.split("---\n") {
        let mut role: Value = serde_saphyr::from_str(manifest)?;
        let kind = role["kind"].as_str().unwrap_or_default().to_owned();
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        let name = name.replace("edgeward", &fixture.namespace);
        role["metadata"] = json!({"name": name});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": format!("{kind}Binding"),
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": user,
        });
        let kubectl = fixture.kubectl_in(&home);
        kubectl.create(&role)?;
        kubectl.create(&binding)?;
    }
    Ok(())
}
