//! A cloud whose API server does not answer: when verdicts change, and what happens to the pods there.

use edgeward_harness::peering::{Strategy, running};
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;

use super::{FAR, NEAR, config, near_and_far, slo};

e2e! { "liqo::frozen_near_cloud_sends_pods_to_far", Peering, frozen_near_cloud_sends_pods_to_far }
/// The edge is full, so pods go to the near cloud. Then the near cloud's API server is frozen. Once edgeward's probe has
/// noticed, new pods go to the far cloud. The Deployment's pods are replaced there. When the API server answers again, pods go
/// to the near cloud again.
fn frozen_near_cloud_sends_pods_to_far(fixture: &Fixture<'_>) -> Result<()> {
    let [near, _far] = near_and_far(fixture)?;
    fixture.offload(&fixture.namespace, Strategy::Local)?;
    let mut config = config(fixture);
    for cloud in config["sites"].as_array_mut().into_iter().flatten().skip(1) {
        cloud["unreachableSeconds"] = json!(15);
    }
    let (edgeward, _registered) = fixture.registered_live(&config)?;
    for (name, replicas, cpu) in [("fills", 8, "1"), ("moves", 4, "200m")] {
        let mut deployment = workloads::deployment(name, replicas, slo());
        let spec = &mut deployment["spec"]["template"]["spec"];
        spec["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        fixture.kubectl.create(&deployment)?;
        let pods = running(&fixture.kubectl, &format!("app={name}"), replicas as usize)?;
        let site = if name == "fills" { "edge" } else { NEAR };
        ensure!(
            pods.iter().all(|pod| annotation(pod, "site") == Some(site)),
            "{name}: not all at {site}"
        );
    }

    let frozen = near.freeze()?;
    let mut watched = Watched::new(fixture, &edgeward);
    watched.until("the Deployment's pods run far away", |seen| {
        seen.moved_to(FAR) == 4 && seen.health != "healthy"
    })?;
    let first = watched.first_away.unwrap_or_default();
    ensure!(first > 0.0, "no pod was sent elsewhere");
    drop(frozen);
    watched.begins_again("thawed");
    watched.until("the near cloud takes pods again", |seen| {
        seen.health == "healthy" && seen.sent == NEAR && seen.node == "True" && seen.duplicates == 0
    })?;
    // All pods created during the outage run.
    running(&fixture.kubectl, "app=stream", watched.created)?;
    Ok(())
}

struct Seen {
    /// edgeward's view of the WAN to the near cloud.
    health: &'static str,
    /// Site of the pod that was created right afterwards.
    sent: String,
    /// Whether the near cloud's virtual node is Ready.
    node: String,
    /// Liqo's status of the near cloud's API server.
    peer: String,
    moves: BTreeMap<String, usize>,
    /// Pods of the Deployment that are terminating and still exist.
    duplicates: usize,
}

impl Seen {
    fn moved_to(&self, site: &str) -> usize {
        self.moves.get(site).copied().unwrap_or_default()
    }
}

/// Creates a pod every second and reports each change.
struct Watched<'f, 'run> {
    kubectl: &'f Kubectl,
    edgeward: &'f Edgeward<'run>,
    begun: Instant,
    since: &'static str,
    last: BTreeMap<&'static str, String>,
    created: usize,
    first_away: Option<f64>,
}

impl<'f, 'run> Watched<'f, 'run> {
    fn new(fixture: &'f Fixture<'run>, edgeward: &'f Edgeward<'run>) -> Self {
        Self {
            kubectl: &fixture.kubectl,
            edgeward,
            begun: Instant::now(),
            since: "frozen",
            last: BTreeMap::new(),
            created: 0,
            first_away: None,
        }
    }

    fn begins_again(&mut self, since: &'static str) {
        (self.begun, self.since) = (Instant::now(), since);
    }

    fn until(&mut self, what: &str, is_it: impl Fn(&Seen) -> bool) -> Result<()> {
        while self.begun.elapsed() < 3 * BOUND {
            let turn = Instant::now();
            let seen = self.look()?;
            if is_it(&seen) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(1).saturating_sub(turn.elapsed()));
        }
        bail!("not within {:?}: {what}", 3 * BOUND)
    }

    fn look(&mut self) -> Result<Seen> {
        let health = self.health()?;
        // This pod is created after the probe's result, so it must follow that result.
        let mut pod = workloads::pod(&format!("stream-{}", self.created), slo());
        pod["metadata"]["labels"] = json!({"app": "stream"});
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("50m");
        let pod = self.kubectl.create(&pod)?;
        self.created += 1;
        let sent = annotation(&pod, "site").unwrap_or("nowhere").to_owned();
        ensure!(
            health == "healthy" || sent != NEAR,
            "sent there while it is {health}: {pod}"
        );
        if sent != NEAR {
            self.first_away.get_or_insert(self.begun.elapsed().as_secs_f64());
        }
        let node = self.kubectl.get("node", NEAR)?;
        let peer = self.kubectl.get("foreignclusters", NEAR)?;
        let pods = self.kubectl.list("pods", "app=moves")?;
        let is_terminating = |pod: &&Value| !pod["metadata"]["deletionTimestamp"].is_null();
        let mut moves = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !is_terminating(pod)) {
            let site = annotation(pod, "site").unwrap_or("nowhere");
            *moves
                .entry(format!(
                    "{site} {}",
                    pod["status"]["phase"].as_str().unwrap_or_default()
                ))
                .or_insert(0) += 1;
        }
        let seen = Seen {
            health,
            sent,
            node: condition(&node, "Ready"),
            peer: condition(&peer, "APIServerStatus"),
            duplicates: pods.iter().filter(is_terminating).count(),
            moves: moves
                .iter()
                .filter_map(|(what, count)| Some((what.strip_suffix(" Running")?.to_owned(), *count)))
                .collect(),
        };
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let taints: Vec<_> = taints.filter_map(|taint| taint["key"].as_str()).collect();
        for (key, value) in [
            ("edgeward: the WAN is", seen.health.to_owned()),
            (
                "edgeward sends pods",
                format!("{} ({})", seen.sent, annotation(&pod, "reason").unwrap_or("undecided")),
            ),
            ("Liqo: APIServerStatus", seen.peer.clone()),
            ("the virtual node's Ready is", seen.node.clone()),
            ("its taints", taints.join(", ")),
            ("the Deployment's pods", {
                let moves = moves.iter().map(|(what, count)| format!("{count} {what}, "));
                format!("{}{} terminating", moves.collect::<String>(), seen.duplicates)
            }),
        ] {
            self.tell(key, value);
        }
        Ok(seen)
    }

    fn tell(&mut self, key: &'static str, value: String) {
        if self.last.get(key) == Some(&value) {
            return;
        }
        let seconds = format!("{:.1}", self.begun.elapsed().as_secs_f64());
        println!("liqo: {}, {seconds} s: {key} {value}", self.since);
        let of = format!("{}: {key} {value}", self.since);
        // The first value is the state before the outage.
        if self.last.insert(key, value).is_some() {
            Table::FrozenCloud.row(&of, &[&seconds]);
        }
    }

    fn health(&self) -> Result<&'static str> {
        let is_in = |state: &&str| {
            let labels = [("site", NEAR), ("state", *state)];
            // The server may close an idle connection just as a request arrives, so this retries.
            let count = eventually("edgeward shows its metrics", BOUND, || {
                self.edgeward.count("edgeward_wan_state", &labels)
            });
            count.map(|count| count == 1)
        };
        for state in ["healthy", "degraded", "unreachable"] {
            if is_in(&state)? {
                return Ok(state);
            }
        }
        Ok("unknown")
    }
}

fn condition(object: &Value, of: &str) -> String {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == of);
    condition
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or("none")
        .to_owned()
}
