//! A burst that no single cluster can hold.

use edgeward_harness::peering::{Strategy, running};
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;

use super::{FAR, NEAR, config, near_and_far, slo};

const REPLICAS: usize = 300;

const EDGE_ROOM: usize = 40;
const NEAR_ROOM: usize = 120;

e2e! { "liqo::elastic_cluster", Peering, elastic_cluster }
/// A burst of pods fills the edge, then the near cloud, then the far one. In the home cluster, all of them show as Running.
/// Scaling down empties the clouds first.
fn elastic_cluster(fixture: &Fixture<'_>) -> Result<()> {
    let [near, far] = near_and_far(fixture)?;
    fixture.offload(&fixture.namespace, Strategy::Local)?;
    let (_edgeward, _registered) = fixture.registered_live(&config(fixture))?;
    let begun = Instant::now();
    let deployment = workloads::deployment("elastic", REPLICAS as u32, slo());
    fixture.kubectl.create(&deployment)?;
    let pods = running(&fixture.kubectl, "app=elastic", REPLICAS)?;
    let counts = told("300 replicas", &pods, begun);
    let [at_the_edge, at_near, at_far] = counts;
    ensure!(
        at_the_edge * 100 >= EDGE_ROOM * 95
            && at_near * 100 >= NEAR_ROOM * 95
            && counts.iter().sum::<usize>() == REPLICAS,
        "{counts:?}"
    );
    for (provider, count) in [(near, at_near), (far, at_far)] {
        let copies = running(&provider.kubectl_in(&fixture.namespace), "", count)?;
        let is_copy = |pod: &Value| pod["metadata"]["labels"]["liqo.io/managed-by"] == "shadowpod";
        ensure!(copies.iter().all(is_copy), "not all in {} are copies", provider.id);
    }

    for replicas in [REPLICAS / 2, at_the_edge] {
        let begun = Instant::now();
        let args = ["scale", "deployment", "elastic", &format!("--replicas={replicas}")];
        fixture.kubectl.run(&args, "")?;
        let pods = running(&fixture.kubectl, "app=elastic", replicas)?;
        let left = told(&format!("{replicas} replicas"), &pods, begun);
        ensure!(left[0] == at_the_edge, "{left:?}: the edge had {at_the_edge}");
    }
    for provider in [near, far] {
        eventually("the clouds are empty", BOUND, || {
            let left = provider.kubectl_in(&fixture.namespace).list("pods", "")?.len();
            ensure!(left == 0, "{left} in {}", provider.id);
            Ok(())
        })?;
    }
    Ok(())
}

/// Number of pods at each site. Also adds a row to the table.
fn told(of: &str, pods: &[Value], begun: Instant) -> [usize; 3] {
    let count = |site| pods.iter().filter(|pod| annotation(pod, "site") == Some(site)).count();
    let [edge, near, far] = ["edge", NEAR, FAR].map(count);
    let seconds = format!("{:.1}", begun.elapsed().as_secs_f64());
    println!("liqo: {of}: {edge} at the edge, {near} near, {far} far after {seconds} s");
    Table::ElasticCluster.row(of, &[&edge, &near, &far, &seconds]);
    [edge, near, far]
}
