//! Queries from edgeward to a real Prometheus server.

use edgeward::testkit::{Outcome, yaml};
use edgeward_cluster::telemetry::Telemetry;
use edgeward_decision::config::{Config, Input};
use edgeward_decision::model::link::LinkState;
use edgeward_decision::model::slo::{Class, PerClass};
use edgeward_decision::model::snapshot::ProcessingTime;
use edgeward_harness::documentation::blocks;
use edgeward_harness::prelude::*;
use edgeward_kube::units::{Micros, Moment, Permille};

use crate::fixture::{Asker, Fixture};

const CPU: (Input, &str) = (Input::EdgeFreeCpu, "sum(free_cores)");

fn cpu(telemetry: &Telemetry, now: Moment) -> Option<u64> {
    telemetry.edge_free(Input::EdgeFreeCpu, now).map(|sample| sample.value)
}

fn learns_cpu(asker: &Asker, millicores: Option<u64>) -> Result<()> {
    asker.learns(&format!("free CPU is {millicores:?}"), |telemetry, now| {
        cpu(telemetry, now) == millicores
    })
}

pub(crate) fn query_results_are_converted_to_units(fixture: &Fixture) -> Result<()> {
    fixture.exporter.says(&[
        "free_cores{node=\"e1\"} 1.5",
        "free_cores{node=\"e2\"} 2.25",
        "free_bytes 1073741824.9",
        // The series that a histogram of seconds exports.
        "work_seconds_sum{site=\"edge\",class=\"batch\"} 90",
        "work_seconds_count{site=\"edge\",class=\"batch\"} 60",
        "work_seconds_sum{site=\"cloud\",class=\"latency\"} 3",
        "work_seconds_count{site=\"cloud\",class=\"latency\"} 40",
        "wan_rtt_seconds{site=\"cloud\"} 0.0255",
        "wan_lost{site=\"cloud\"} 1",
        "wan_sent{site=\"cloud\"} 400",
    ]);
    let asker = fixture.asker(&[
        CPU,
        (Input::EdgeFreeMemory, "free_bytes"),
        (
            Input::Processing,
            "sum by (site, class) (work_seconds_sum) / sum by (site, class) (work_seconds_count)",
        ),
        (Input::WanRtt, "max by (site) (wan_rtt_seconds)"),
        (Input::WanLoss, "sum by (site) (wan_lost) / sum by (site) (wan_sent)"),
    ])?;
    learns_cpu(&asker, Some(3_750))?;
    asker.learns("free memory", |telemetry, now| {
        telemetry
            .edge_free(Input::EdgeFreeMemory, now)
            .map(|sample| sample.value)
            == Some(1 << 30)
    })?;
    asker.learns("processing times", |telemetry, now| {
        let [edge, cloud] = ["edge", "cloud"].map(|site| telemetry.processing(site, now));
        let batch = Some(ProcessingTime::all(Micros::from_millis(1_500)));
        let latency = Some(ProcessingTime::all(Micros::from_millis(75)));
        edge.get("").is_some_and(|times| times[Class::Batch] == batch)
            && cloud.get("").is_some_and(|times| times[Class::Latency] == latency)
    })?;
    asker.learns("a link", |telemetry, now| {
        telemetry.link("cloud", None, now).is_some_and(|link| {
            link.state == LinkState::Healthy
                && link.rtt == Some(Micros(25_500))
                && link.loss == Some(Permille(3))
                && link.as_of <= now
        })
    })?;
    // All inputs have answers, so the cluster's data is as old as it was observed.
    let ttl = Micros::from_secs(60);
    asker.learns("a view that is not stale", |telemetry, now| {
        telemetry.kubernetes_as_of(now, ttl) == now
    })?;

    fixture.exporter.says(&["free_cores 0"]);
    learns_cpu(&asker, Some(0))
}

/// The queries of every Prometheus configuration in `docs/guide/clouds.md`.
fn documented() -> Result<Vec<BTreeMap<Input, String>>> {
    let page = include_str!("../../docs/guide/clouds.md");
    let blocks = blocks(page).filter(|(language, block)| *language == "yaml" && block.starts_with("prometheus:"));
    let read = |(_, block)| {
        let document = yaml::parse_one(block, "docs/guide/clouds.md")?;
        let config = Config::read(&document)?;
        Ok(config.prometheus.context("no section `prometheus`")?.queries)
    };
    blocks.map(read).collect()
}

pub(crate) fn documented_queries_give_expected_values(fixture: &Fixture) -> Result<()> {
    let mut documented = documented()?;
    // One example is about traits.
    documented.retain(|queries| !queries.is_empty());
    ensure!(documented.len() == 2);
    let said = |work_seconds: u32, work: u32| {
        let work = format!(
            "work_seconds_sum{{site=\"edge\",class=\"batch\"}} {work_seconds}\n\
             work_seconds_count{{site=\"edge\",class=\"batch\"}} {work}\n\
             work_seconds_bucket{{site=\"edge\",class=\"batch\",le=\"1\"}} 0\n\
             work_seconds_bucket{{site=\"edge\",class=\"batch\",le=\"2\"}} {work}\n\
             work_seconds_bucket{{site=\"edge\",class=\"batch\",le=\"+Inf\"}} {work}\n\
             work_seconds_bucket{{site=\"edge\",class=\"latency\",le=\"+Inf\"}} 7\n\
             work_seconds_count{{site=\"edge\",class=\"latency\"}} 7"
        );
        fixture.exporter.says(&[
            "node_cpu_seconds_total{mode=\"idle\",node=\"edge-1\",cpu=\"0\"} 5",
            "node_memory_MemAvailable_bytes{node=\"edge-1\"} 4096",
            "node_memory_MemAvailable_bytes{node=\"edge-2\"} 4096",
            "node_memory_MemAvailable_bytes{node=\"cloud-1\"} 4096",
            &work,
            "probe_icmp_duration_seconds{phase=\"rtt\",job=\"wan\",site=\"cloud\"} 0.02",
            "probe_icmp_duration_seconds{phase=\"setup\",job=\"wan\",site=\"cloud\"} 9",
            "probe_success{job=\"wan\",site=\"cloud\"} 1",
            "kube_node_status_allocatable{resource=\"cpu\",node=\"edge-1\"} 4",
            "kube_node_status_allocatable{resource=\"cpu\",node=\"cloud-1\"} 64",
            "kube_node_status_allocatable{resource=\"memory\",node=\"edge-1\"} 4096",
            "kube_pod_container_resource_requests{resource=\"cpu\",node=\"edge-1\",namespace=\"n\",pod=\"a\",container=\"x\"} 1",
            "kube_pod_container_resource_requests{resource=\"cpu\",node=\"edge-1\",namespace=\"n\",pod=\"a\",container=\"y\"} 0.5",
            "kube_pod_container_resource_requests{resource=\"cpu\",node=\"edge-1\",namespace=\"n\",pod=\"done\",container=\"x\"} 2",
            "kube_pod_container_resource_requests{resource=\"memory\",node=\"edge-1\",namespace=\"n\",pod=\"a\",container=\"x\"} 96",
            "kube_pod_status_phase{namespace=\"n\",pod=\"a\",phase=\"Pending\"} 0",
            "kube_pod_status_phase{namespace=\"n\",pod=\"a\",phase=\"Running\"} 1",
            "kube_pod_status_phase{namespace=\"n\",pod=\"done\",phase=\"Running\"} 0",
            "kube_pod_status_phase{namespace=\"n\",pod=\"done\",phase=\"Succeeded\"} 1",
        ]);
    };
    let ask = |queries: &BTreeMap<Input, String>| {
        let questions: Vec<_> = queries.iter().map(|(input, promql)| (*input, &**promql)).collect();
        fixture.asker(&questions)
    };
    said(10, 5);
    let memory = |bytes: u64| {
        move |telemetry: &Telemetry, now: Moment| {
            telemetry
                .edge_free(Input::EdgeFreeMemory, now)
                .map(|sample| sample.value)
                == Some(bytes)
        }
    };
    let measured = ask(&documented[0])?;
    measured.learns("available memory", memory(8_192))?;
    // A rate needs two scrapes with different values.
    said(13, 7);
    measured.learns("a mean time and its p95", |telemetry, now| {
        let [mean, p95] = [1_500, 1_950].map(Micros::from_millis);
        let times = PerClass([None, None, Some(ProcessingTime { mean, p95 })]);
        telemetry.processing("edge", now) == [("".into(), times)].into()
    })?;
    learns_cpu(&measured, Some(0))?;
    measured.learns("a link", |telemetry, now| {
        let link = telemetry.link("cloud", None, now);
        link.is_some_and(|link| link.rtt == Some(Micros(20_000)) && link.loss == Some(Permille(0)))
    })?;

    let requested = ask(&documented[1])?;
    learns_cpu(&requested, Some(2_500))?;
    requested.learns("memory not requested", memory(4_000))
}

pub(crate) fn wrong_queries_are_refused_with_cause(fixture: &Fixture) -> Result<()> {
    fixture.exporter.says(&[
        "free_cores 4",
        "wan_rtt_seconds{site=\"moon\"} 0.02",
        "wan_lost_ratio 0.001",
    ]);
    // Once this query is answered, the server is up.
    learns_cpu(&fixture.asker(&[CPU])?, Some(4_000))?;
    for (input, promql, expected) in [
        (Input::EdgeFreeCpu, "sum(free_cores", Outcome::Rejected),
        (
            Input::EdgeFreeCpu,
            "up * on () {__name__=~'free_cores|wan_lost_ratio'}",
            Outcome::Rejected,
        ),
        (Input::EdgeFreeCpu, "scalar(free_cores)", Outcome::NotAVector),
        (Input::EdgeFreeCpu, "free_cores[1m]", Outcome::NotAVector),
        (Input::EdgeFreeCpu, "'four'", Outcome::Malformed),
        (Input::WanRtt, "wan_rtt_seconds", Outcome::Label),
        (Input::WanLoss, "wan_lost_ratio", Outcome::Label),
        (Input::Processing, "free_cores", Outcome::Label),
    ] {
        let asker = fixture.asker(&[(input, promql)])?;
        asker.sees(input, expected).map_err(|error| error.context(promql))?;
    }
    Ok(())
}
