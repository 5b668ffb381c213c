//! Clusters that bid for pods by the scores that their edgewards export.

use edgeward_harness::clusters::in_another;
use edgeward_harness::fixture::Registration;
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};

/// A profile without hysteresis that ranks sites by this metric, the higher the better.
fn profile(name: &str, metric: &Value) -> Value {
    let mut metric = metric.clone();
    metric["name"] = json!("bid");
    json!({
        "apiVersion": "edgeward.io/v1alpha1", "kind": "PerformanceProfile", "metadata": {"name": name},
        "spec": {"better": "higher", "equation": "cm_normalized_bid", "metrics": [metric], "margin": 0, "dwell": "0s", "period": "5s", "staleness": "20s"},
    })
}

e2e! { "auction::highest_bidder_with_room_gets_the_pod", Cluster, highest_bidder_with_room_gets_the_pod }
/// The edgeward of another cluster exports how much room it has, and a Prometheus server there scrapes it. Another server in the
/// first cluster takes the bid from that one, and a rival's. The pod goes to the highest bidder, to the other while that one is
/// full, and a bid that ends or is NaN does not count.
fn highest_bidder_with_room_gets_the_pod(fixture: &Fixture<'_>) -> Result<()> {
    in_another(fixture, "auction::provider", true, |provider| {
        let program = program()?;
        provider.install_custom_resources()?;
        let nodes = Nodes::edge_and_cloud(provider, "8")?;
        let bidder = provider.live_edgeward_as("bidder", &nodes.config())?;
        let room = json!({"builtIn": "free_cpu", "normMin": 0, "normMax": 16});
        provider.kubectl.create(&profile("room", &room))?;
        eventually("the provider bids", BOUND, || {
            let score = bidder.metric("edgeward_profile_score", &[("profile", "room"), ("site", "edge")])?;
            ensure!(score == 0.5, "{score}");
            bidder.metric("edgeward_profile_preferred", &[("profile", "room"), ("site", "cloud")])
        })?;
        let job = json!({"job_name": "edgeward", "static_configs": [{"targets": [bidder.health()]}]});
        let theirs = Server::scraping(&program, &[job])?;

        let consumer = Consumer::open(fixture, &program, &theirs)?;
        consumer.rival_bids("0.9");
        consumer.places("far")?;
        consumer.rival_bids("0.3");
        consumer.places("near")?;

        let mut filler = workloads::pod_of("filler", json!({}), "7");
        filler["spec"]["nodeSelector"] = consumer.nodes.selector("near");
        filler["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        fixture.kubectl.create(&filler)?;
        consumer.places("far")?;
        let delete = ["delete", "pod", "filler", "--grace-period=0", "--force"];
        fixture.kubectl.run(&delete, "")?;
        consumer.places("near")?;

        consumer.rival_bids("NaN");
        consumer.has_no_score("far")?;
        consumer.rival_bids("0.3");
        drop(bidder);
        consumer.has_no_score("near")
    })
}

/// The cluster whose pods are bid for. Its edge has no room for them.
struct Consumer<'f, 'run> {
    fixture: &'f Fixture<'run>,
    nodes: Nodes<'run>,
    rival: Exporter,
    _server: Server,
    _edgeward: (Edgeward<'run>, Registration),
}

impl<'f, 'run> Consumer<'f, 'run> {
    fn open(fixture: &'f Fixture<'run>, program: &Path, theirs: &Server) -> Result<Self> {
        let rival = Exporter::start(fixture.runtime.handle())?;
        let federated = json!({
            "job_name": "near", "honor_labels": true, "metrics_path": "/federate",
            "params": {"match[]": ["edgeward_profile_score"]}, "track_timestamps_staleness": true,
            "static_configs": [{"targets": [theirs.address], "labels": {"bidder": "near"}}],
        });
        let job = json!({"job_name": "far", "honor_labels": true, "static_configs": [{"targets": [rival.address]}]});
        let server = Server::scraping(program, &[federated, job])?;
        fixture.install_custom_resources()?;
        let nodes = Nodes::new(fixture)?;
        nodes.edge_node("edge-0", "500m")?;
        let mut config = nodes.config();
        nodes.put_clouds(&mut config, &["near", "far"])?;
        config["prometheus"] = json!({"url": format!("http://{}", server.address)});
        let edgeward = fixture.registered_live(&config)?;
        let of_site = r#"max by (site) (label_replace(edgeward_profile_score{profile="room",site="edge"}, "site", "$1", "bidder", "(.+)"))"#;
        let metric = json!({"promQL": of_site, "by": "site", "normMin": 0, "normMax": 1});
        fixture.kubectl.create(&profile("bids", &metric))?;
        Ok(Self {
            fixture,
            nodes,
            rival,
            _server: server,
            _edgeward: edgeward,
        })
    }

    fn rival_bids(&self, bid: &str) {
        let labels = r#"bidder="far",profile="room",site="edge""#;
        self.rival.says(&[&format!("edgeward_profile_score{{{labels}}} {bid}")]);
    }

    fn places(&self, site: &str) -> Result<()> {
        let slo = json!({"slo.example.io/class": "batch", "slo.example.io/profile": "bids"});
        let pod = self.fixture.in_its_domain(workloads::pod_of("asked", slo, "2"));
        eventually(&format!("the pod goes to {site}"), BOUND, || {
            let found = self.fixture.kubectl.dry_run(&pod)?;
            ensure!(annotation(&found, "site") == Some(site), "{found}\n{}", self.status()?);
            Ok(())
        })
    }

    fn has_no_score(&self, site: &str) -> Result<()> {
        eventually(&format!("{site} has no score"), BOUND, || {
            let status = self.status()?;
            let scores = status["scores"].as_array().context("no scores")?;
            let found = scores.iter().find(|score| score["site"] == site).context("no site")?;
            ensure!(found.get("score").is_none_or(Value::is_null), "{status}");
            Ok(())
        })
    }

    fn status(&self) -> Result<Value> {
        Ok(self.fixture.kubectl.get("performanceprofile", "bids")?["status"].take())
    }
}
