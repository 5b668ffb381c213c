//! Identity of this cluster, and the addresses that it may contact.

use std::collections::BTreeSet;
use std::net::IpAddr;

use edgeward_kube::units::Micros;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The id of a cluster in its federation: 1 to 63 lower-case letters, digits and `-`, and no `-` at either end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ClusterId(String);

impl ClusterId {
    /// Parses an id.
    pub fn parse(id: &str) -> Option<Self> {
        let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        let is_valid = (1..=63).contains(&id.len()) && id.bytes().all(is_plain) && id.trim_matches('-') == id;
        is_valid.then(|| Self(id.to_owned()))
    }

    /// Reads the URI name `spiffe://DOMAIN/cluster/ID` of a certificate.
    pub fn of_uri(uri: &str) -> Option<(&str, Self)> {
        let (domain, id) = uri.strip_prefix("spiffe://")?.split_once("/cluster/")?;
        Some((domain, Self::parse(id)?))
    }

    /// The URI name of this cluster in a trust domain.
    pub fn uri(&self, domain: &str) -> String {
        format!("spiffe://{domain}/cluster/{}", self.0)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ClusterId {
    type Error = &'static str;
    fn try_from(id: String) -> Result<Self, Self::Error> {
        Self::parse(&id).ok_or("is not a cluster id")
    }
}

/// The settings of discovery.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The id of this cluster.
    pub id: ClusterId,
    /// The address at which this cluster answers its peers. All peers use one port, so it is not part of an address.
    pub address: IpAddr,
    /// The trust domain of the federation.
    pub domain: String,
    /// Ids that are refused despite a valid certificate.
    pub denied: BTreeSet<ClusterId>,
    /// Peers are contacted at these addresses only.
    pub allowed_cidrs: Vec<IpNet>,
    /// The cluster's own Service and Pod ranges, which are never contacted.
    pub own_ranges: Vec<IpNet>,
    /// Peers that are known from the start and never forgotten.
    pub seeds: Vec<IpAddr>,
    /// A peer is near if its RTT is at most this, or a few times this where there are less than ten.
    pub max_rtt: Micros,
}

impl Settings {
    /// The peer that a verified certificate belongs to, by its URI SAN `spiffe://DOMAIN/cluster/ID`. `None` if it is of
    /// another federation, denied or this cluster. Call it before anything is sent or read.
    pub fn identify(&self, uri: &str) -> Option<ClusterId> {
        let (domain, id) = ClusterId::of_uri(uri)?;
        (domain == self.domain && self.admits(&id)).then_some(id)
    }

    pub(crate) fn admits(&self, id: &ClusterId) -> bool {
        *id != self.id && !self.denied.contains(id)
    }

    /// The address in its plain form, if it may be contacted.
    pub(crate) fn allowed(&self, address: IpAddr) -> Option<IpAddr> {
        let address = address.to_canonical();
        let is_special = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        let is_special = is_special || address.is_loopback() || address.is_unspecified() || address.is_multicast();
        let is_in = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&address));
        let is_allowed = !is_special && is_in(&self.allowed_cidrs) && !is_in(&self.own_ranges);
        (is_allowed && address != self.address.to_canonical()).then_some(address)
    }
}
