//! Random scenarios, on which the learned scorer is trained.

use serde_json::{Value, json};

use crate::random::{Purpose, Stream};

/// Returns a scenario in its written form. It has this number of clouds, or 1 to 6.
pub fn random(seed: u64, number: u64, clouds: Option<usize>) -> Value {
    let mut stream = Stream::new(seed, Purpose::Scenarios, number, 0);
    let clouds = clouds.unwrap_or_else(|| 1 + stream.below(6));
    let mut sites = vec![json!({
        "name": "edge", "kind": "edge",
        "nodes": [{"count": 1 + stream.below(4), "allocatable": {"cpu": 4, "memory": "8Gi"}}],
    })];
    let (mut cores, mut failures) = (0, vec![]);
    for cloud in 1..=clouds {
        let own = 6 + stream.below(27);
        cores += own;
        let (rtt, sigma) = (logarithmic(&mut stream, 5.0, 120.0), 0.05 + 0.25 * stream.unit());
        let mut wan = json!({
            "rttMs": {"logNormal": {"medianMs": rtt, "sigma": rounded(sigma)}},
            "lossPct": rounded(stream.unit()),
        });
        if stream.unit() < 0.15 {
            wan["flapping"] = json!({"everySeconds": 60 + stream.below(240), "downSeconds": 2 + stream.below(20)});
        }
        if stream.unit() < 0.15 {
            wan["congestion"] = json!({
                "everySeconds": 60 + stream.below(240), "lastingSeconds": 10 + stream.below(60),
                "addedMs": stream.below(60), "lossPct": rounded(2.0 * stream.unit()),
            });
        }
        let name = format!("cloud-{cloud}");
        if stream.unit() < 0.2 {
            let (at, lasting) = (60 + stream.below(300), 20 + stream.below(120));
            failures.push(json!({"atSeconds": at, "lastingSeconds": lasting, "site": name}));
        }
        sites.push(json!({
            "name": name, "kind": "cloud", "wan": wan,
            "costPerCpuHour": logarithmic(&mut stream, 0.02, 0.25),
            "speed": logarithmic(&mut stream, 0.5, 2.0),
            "nodes": [{"allocatable": {"cpu": own, "memory": format!("{}Gi", 4 * own), "pods": 500}}],
        }));
    }
    let kinds = 2 + stream.below(3);
    let load = (0.2 + 0.5 * stream.unit()) * cores as f64 / kinds as f64;
    let workloads: Vec<_> = (0..kinds).map(|number| workload(number, load, &mut stream)).collect();
    json!({
        "name": format!("random {seed}-{number}"), "warmupSeconds": 60, "durationSeconds": 420, "drainSeconds": 120,
        "replicas": 1, "sites": sites, "workloads": workloads, "failures": failures,
    })
}

/// A workload that uses about this number of CPUs.
fn workload(number: usize, load: f64, stream: &mut Stream) -> Value {
    let cpu = [250, 500, 1_000, 2_000][stream.below(4)];
    let count = 1_000.0 * load / f64::from(cpu);
    let sigma = rounded(0.2 + 0.4 * stream.unit());
    let mut workload = json!({
        "name": format!("workload-{number}"), "sloPriority": 1 + stream.below(9),
        "requests": {"cpu": format!("{cpu}m"), "memory": format!("{}Mi", cpu / 2)},
    });
    let class = stream.below(3);
    workload["class"] = ["latency", "throughput", "batch"][class].into();
    let slack = 1.3 + 3.0 * stream.unit();
    if class == 0 {
        let median = 20.0 + 130.0 * stream.unit();
        let target = slack * median * (1.65 * sigma).exp() + 20.0 + 200.0 * stream.unit();
        workload["serviceMs"] = json!({"logNormal": {"medianMs": rounded(median), "sigma": sigma}});
        workload["latencyTargetMs"] = (target.round() as u64).into();
        workload["deployment"] =
            json!({"replicas": count.ceil() as u64, "rolloutsAtSeconds": [90 + stream.below(300)]});
        return workload;
    }
    let median = logarithmic(stream, 5_000.0, 60_000.0).round();
    workload["serviceMs"] = json!({"logNormal": {"medianMs": median, "sigma": sigma}});
    if class == 1 || stream.unit() < 0.5 {
        let deadline = slack * median * (1.65 * sigma).exp();
        workload["deadlineMs"] = (deadline.round() as u64).into();
    }
    let rate = rounded(count * 1_000.0 / median).max(0.01);
    let rate = match stream.below(3) {
        0 => json!({"bursty": {
            "perSecond": rounded(0.7 * rate), "burstPerSecond": rounded(2.0 * rate), "everySeconds": 120, "lastingSeconds": 30,
        }}),
        1 => json!({"diurnal": {"perSecond": rate, "amplitude": 0.5, "periodSeconds": 600}}),
        _ => json!({"perSecond": rate}),
    };
    workload["jobs"] = json!({"poisson": rate});
    workload
}

/// A number whose logarithm is uniform.
fn logarithmic(stream: &mut Stream, least: f64, most: f64) -> f64 {
    rounded(least * (most / least).powf(stream.unit()))
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
