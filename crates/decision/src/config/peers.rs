//! The section `peers`: how this cluster finds the clusters near it.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::document::texts::{ClusterId, IpAddress};
use crate::document::{Checks, Decimal, Fault};
use edgeward_kube::units::Micros;

/// Maximum number of entries of each list.
const MAX_ENTRIES: usize = 64;

/// How this cluster finds the clusters near it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(deny_unknown_fields, extend("required" = ["address", "allowedCidrs", "ownCidrs"]))]
pub struct Peers {
    /// Whether this cluster looks for peers. Needs `deploy/peers`
    pub enabled: bool,
    /// The IP address at which peers reach this cluster
    #[schemars(with = "IpAddress")]
    pub address: IpAddr,
    /// The TCP port at which all clusters of the federation are reached
    #[schemars(with = "Decimal<0, 1, 65_535>")]
    pub port: u16,
    /// Networks in which peers are contacted, 1 to 64. Addresses outside are ignored, whoever offers them
    #[schemars(length(min = 1, max = MAX_ENTRIES))]
    pub allowed_cidrs: Vec<Cidr>,
    /// The Pod and Service networks of this cluster, at most 64; `[]` without Kubernetes. They are never contacted
    #[schemars(length(max = MAX_ENTRIES))]
    pub own_cidrs: Vec<Cidr>,
    /// Addresses of peers that are known from the start, in allowedCidrs, at most 64
    #[schemars(with = "Vec<IpAddress>", length(max = MAX_ENTRIES))]
    pub seeds: Vec<IpAddr>,
    /// A cluster up to this RTT in ms is near. With fewer than ten near ones, the bound is wider: at most √10 times
    #[serde(rename = "maxRttMs", with = "Decimal::<3, 1, 10_000_000>")]
    #[schemars(with = "Decimal<3, 1, 10_000_000>")]
    pub max_rtt: Micros,
    /// Ids of clusters that are refused although their certificate is valid, at most 64
    #[schemars(with = "Vec<ClusterId>", length(max = MAX_ENTRIES))]
    pub denied: Vec<String>,
}

impl Default for Peers {
    fn default() -> Self {
        Self {
            enabled: false,
            address: IpAddr::from([0, 0, 0, 0]),
            port: 8444,
            allowed_cidrs: vec![],
            own_cidrs: vec![],
            seeds: vec![],
            max_rtt: Micros::from_millis(20),
            denied: vec![],
        }
    }
}

impl Peers {
    /// Checks that peers could use the address, and the number of entries of each list.
    pub(super) fn check(&self, faults: &mut Vec<Fault>) {
        let mut checks = Checks { at: "peers", faults };
        let address = self.address;
        if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
            checks.fault(
                "address",
                format_args!("{address} is not reachable from other clusters"),
            );
        }
        if let Some(own) = self.own_cidrs.iter().find(|own| own.0.contains(&address)) {
            checks.fault("address", format_args!("{address} is in ownCidrs: {}", own.0));
        }
        for (i, seed) in self.seeds.iter().enumerate() {
            let field = format!("seeds[{i}]");
            if !self.allowed_cidrs.iter().any(|allowed| allowed.0.contains(seed)) {
                checks.fault(&field, format_args!("{seed} is not in allowedCidrs"));
            }
            if let Some(own) = self.own_cidrs.iter().find(|own| own.0.contains(seed)) {
                checks.fault(&field, format_args!("{seed} is in ownCidrs: {}", own.0));
            }
        }
        if self.allowed_cidrs.is_empty() {
            checks.fault("allowedCidrs", "is empty: no peer may be contacted");
        }
        for (field, entries) in [
            ("allowedCidrs", self.allowed_cidrs.len()),
            ("ownCidrs", self.own_cidrs.len()),
            ("seeds", self.seeds.len()),
            ("denied", self.denied.len()),
        ] {
            if entries > MAX_ENTRIES {
                checks.fault(field, format_args!("has {entries} entries, not at most {MAX_ENTRIES}"));
            }
        }
    }
}

/// A network, such as `192.0.2.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(pub IpNet);

impl From<Cidr> for String {
    fn from(Cidr(network): Cidr) -> Self {
        network.to_string()
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let network = text.parse().map(Self);
        network.map_err(|_| format!("{text:?} is not a network such as 192.0.2.0/24"))
    }
}

impl JsonSchema for Cidr {
    fn schema_name() -> Cow<'static, str> {
        "Cidr".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": "a network, such as 192.0.2.0/24 or 2001:db8::/32",
            "type": "string",
            "pattern": "^([0-9.]{7,15}|[0-9A-Fa-f:.]{2,45})/[0-9]{1,3}$",
        })
    }
}
