use edgeward_decision::config::Config;
use edgeward_decision::fleet_file;
use edgeward_kube::units::Moment;

use super::*;

const NOW: Moment = Moment(100_000_000);
const TTL: Micros = Micros::from_secs(60);

fn fleet() -> Snapshot {
    let fleet = json!({
        "sites": [
            {"name": "edge", "kind": "edge", "uplink": "20M", "energy": {"joulesPerGigabyte": 500}},
            {"name": "eu.near", "kind": "liqo", "wan": {"rttMs": 12.345, "lossPct": 0.1, "jitterMs": 0.4}, "downlink": "50M"},
            {"name": "far", "kind": "liqo", "wan": {"reachable": false}},
        ],
        "links": [{"source": "edge", "target": "eu.near", "bytesPerSecond": 2_000_000}],
    });
    fleet_file::read(&fleet, &Config::default(), NOW).unwrap()
}

fn document_of(format: Format) -> Value {
    let wall = "2026-11-29T10:00:00Z".parse().unwrap();
    document(format, &fleet(), TTL, Now { moment: NOW, wall })
}

#[test]
fn table_shows_unknown_figures_as_dashes() {
    let rows = fleet()
        .cost_map(TTL, NOW)
        .iter()
        .map(|route| row(route).join("  "))
        .collect::<Vec<_>>();
    let expected = [
        "edge  eu.near  12.345 ms  0.4 ms  0.1 %  20M  1 W  stated",
        "edge  far  -  -  100 %  20M  -  -",
        "eu.near  edge  12.345 ms  0.4 ms  0.1 %  -  -  stated",
        "eu.near  far  -  -  100 %  -  -  -",
        "far  edge  -  -  100 %  -  -  -",
        "far  eu.near  -  -  100 %  -  -  -",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn json_leaves_unknown_figures_out() {
    let links = &document_of(Format::Json)["links"];
    let from = json!({"rtt": "stated", "jitter": "stated", "loss": "stated", "bandwidth": "stated"});
    let near = json!({"source": "edge", "target": "eu.near", "rttMs": 12.345, "jitterMs": 0.4, "lossPct": 0.1, "bandwidth": "20M",
        "watts": 1.0, "from": from});
    assert_eq!(links[0], near);
    assert_eq!(
        links[4],
        json!({"source": "far", "target": "edge", "lossPct": 100, "from": {"loss": "stated"}})
    );
}

#[test]
fn alto_has_the_units_of_its_rfc() {
    let found = document_of(Format::Alto);
    let tag = &found["networkmap"]["meta"]["vtag"];
    assert_eq!(
        found["networkmap"]["network-map"],
        json!({"edge": {}, "eu:near": {}, "far": {}})
    );
    let map = |metric: &str| {
        let map = &found["costmaps"][metric];
        assert_eq!(map["meta"]["dependent-vtags"], json!([tag]));
        assert_eq!(map["meta"]["cost-type"]["cost-metric"], metric);
        map["cost-map"].clone()
    };
    // Microseconds, percent, and bytes per second.
    assert_eq!(
        map("delay-rt"),
        json!({"edge": {"eu:near": 12_345}, "eu:near": {"edge": 12_345}})
    );
    assert_eq!(
        map("delay-variation"),
        json!({"edge": {"eu:near": 400}, "eu:near": {"edge": 400}})
    );
    assert_eq!(map("lossrate")["edge"], json!({"eu:near": 0.1, "far": 100}));
    assert_eq!(
        map("bw-available")["edge"],
        json!({"eu:near": 2_500_000, "far": 2_500_000})
    );
    assert_eq!(map("priv:edgeward-watts"), json!({"edge": {"eu:near": 1.0}}));
    let directory = &found["directory"];
    for (name, resource) in directory["resources"].as_object().unwrap() {
        let metric = &resource["capabilities"]["cost-type-names"][0];
        match metric.as_str() {
            Some(metric) => assert!(directory["meta"]["cost-types"].get(metric).is_some(), "{name}"),
            None => assert_eq!(name, "networkmap"),
        }
    }
}

#[test]
fn alto_tag_changes_with_the_network_map_only() {
    let tag = |snapshot: &Snapshot| alto::documents(snapshot, &[])["networkmap"]["meta"]["vtag"]["tag"].clone();
    let (before, mut after) = (fleet(), fleet());
    after.sites[1].link = None;
    assert_eq!(tag(&before), tag(&after));
    after.sites.pop();
    assert_ne!(tag(&before), tag(&after));
}

#[test]
fn topologies_leave_unknown_links_out() {
    let diktyo = &document_of(Format::Diktyo)["spec"]["weights"][0]["topologyList"][0]["originList"];
    let expected = json!([
        {"origin": "edge", "costList": [{"destination": "eu.near", "networkCost": 13, "bandwidthCapacity": "20M"}]},
        {"origin": "eu.near", "costList": [{"destination": "edge", "networkCost": 13}]},
    ]);
    assert_eq!(*diktyo, expected);
    let codeco = &document_of(Format::Codeco)["spec"];
    let capabilities = json!({"latencyNanos": "12345000", "bandWidthBits": "20M"});
    let links = json!([{"source": "edge", "target": "eu.near", "capabilities": capabilities}]);
    assert_eq!(codeco["links"], links);
    assert_eq!(codeco["nodes"].as_array().map(Vec::len), Some(3));
}
