//! The cluster types and deployments of the environment, with the figures of the published code. The paper's tables
//! differ in some places, but its results come from these figures.

#[derive(Debug, PartialEq)]
pub struct ClusterType {
    pub name: &'static str,
    pub cpu: f64,
    pub memory: f64,
    /// Cost of a request on such a cluster, 1 to 16.
    pub cost: f64,
}

pub static CLUSTER_TYPES: [ClusterType; 5] = [
    cluster("edge_tier_1", 2.0, 2.0, 1.0),
    cluster("edge_tier_2", 2.0, 4.0, 2.0),
    cluster("fog_tier_1", 2.0, 8.0, 4.0),
    cluster("fog_tier_2", 4.0, 16.0, 8.0),
    cluster("cloud", 8.0, 32.0, 16.0),
];

const fn cluster(name: &'static str, cpu: f64, memory: f64, cost: f64) -> ClusterType {
    ClusterType {
        name,
        cpu,
        memory,
        cost,
    }
}

#[derive(Debug, PartialEq)]
pub struct Deployment {
    pub name: &'static str,
    pub cpu: f64,
    pub memory: f64,
    /// Latency limit in ms; the latency must stay below it.
    pub threshold: f64,
}

pub static DEPLOYMENTS: [Deployment; 16] = [
    deployment("adapter-amqp", 0.2, 0.3, 200.0),
    deployment("adapter-http", 0.2, 0.3, 200.0),
    deployment("adapter-mqtt", 0.2, 0.3, 200.0),
    deployment("artemis", 0.2, 0.6, 200.0),
    deployment("dispatch-router", 0.2, 0.06, 200.0),
    deployment("ditto-connectivity", 0.2, 0.7, 100.0),
    deployment("ditto-gateway", 0.2, 0.5, 100.0),
    deployment("ditto-nginx", 0.05, 0.016, 100.0),
    deployment("ditto-policies", 0.2, 0.5, 100.0),
    deployment("ditto-swagger-ui", 0.05, 0.016, 400.0),
    deployment("ditto-things", 0.2, 0.5, 200.0),
    deployment("ditto-things-search", 0.2, 0.5, 200.0),
    deployment("ditto-mongo-db", 0.2, 0.5, 200.0),
    deployment("service-auth", 0.2, 0.2, 300.0),
    deployment("service-command-router", 0.15, 0.2, 300.0),
    deployment("service-device-registry", 0.2, 0.4, 200.0),
];

const fn deployment(name: &'static str, cpu: f64, memory: f64, threshold: f64) -> Deployment {
    Deployment {
        name,
        cpu,
        memory,
        threshold,
    }
}
