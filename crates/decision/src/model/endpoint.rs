//! Targets of WAN probes, as the configuration writes them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

/// A target that answers probes. Its [`Display`](fmt::Display) is the string it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    text: String,
    /// How the target is probed.
    pub protocol: Protocol,
    /// Name or address, without brackets.
    pub host: String,
    /// Port as written. A TCP endpoint has one; `None` stands for 443 with HTTPS.
    pub port: Option<u16>,
    /// Path and query of an HTTPS endpoint, as written. Empty stands for `/`.
    pub path: String,
}

/// How an endpoint is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// By ICMP echo requests.
    Icmp,
    /// By a TCP connection.
    Tcp,
    /// By an HTTP request over TLS.
    Https,
}

/// Description of a valid endpoint, for messages.
pub const ALLOWED: &str =
    "a WAN endpoint: icmp://host, tcp://host:port or https://host[:port][/path], an IPv6 address in brackets";

/// Error for a string that is not an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{:?} is not {ALLOWED}", without_user(.0))]
pub struct BadEndpoint(pub String);

/// Scheme, host, port and path.
static PARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let label = "[0-9A-Za-z_](?:[-0-9A-Za-z_]{0,61}[0-9A-Za-z_])?";
    let host = format!(r"\[[0-9A-Fa-f:.]+\]|{label}(?:\.{label})*\.?");
    Regex::new(&format!(
        r#"^(icmp|tcp|https)://({host})(?::([1-9][0-9]{{0,4}}))?(/[!"$-~]*)?$"#
    ))
    .ok()
});

impl Endpoint {
    /// Parses `icmp://host`, `tcp://host:port` or `https://host[:port][/path]`. An IPv6 host must be in brackets.
    ///
    /// # Errors
    /// [`BadEndpoint`] names the value and the allowed forms.
    pub fn parse(text: &str) -> Result<Self, BadEndpoint> {
        Self::try_parse(text).ok_or_else(|| BadEndpoint(text.to_owned()))
    }

    fn try_parse(text: &str) -> Option<Self> {
        let parts = PARTS.as_ref()?.captures(text)?;
        let part = |at| parts.get(at).map(|part| part.as_str());
        let port = part(3).map(str::parse).transpose().ok()?;
        let protocol = match (part(1)?, port, part(4)) {
            ("icmp", None, None) => Protocol::Icmp,
            ("tcp", Some(_), None) => Protocol::Tcp,
            ("https", ..) => Protocol::Https,
            _ => return None,
        };
        Some(Self {
            text: text.to_owned(),
            protocol,
            host: host(part(2)?)?.to_owned(),
            port,
            path: part(4).unwrap_or_default().to_owned(),
        })
    }

    /// Port to connect to. 0 for ICMP, which has no ports.
    pub fn connect_port(&self) -> u16 {
        match self.protocol {
            Protocol::Icmp => 0,
            Protocol::Tcp | Protocol::Https => self.port.unwrap_or(443),
        }
    }
}

/// Hides the part of an address before an `@`. It may be a password, and messages are logged.
pub(crate) fn without_user(address: &str) -> String {
    match address.rsplit_once('@') {
        None => address.to_owned(),
        Some((before, host)) => {
            let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
            format!("{scheme}…@{host}")
        }
    }
}

/// The host without brackets. An address in brackets is of IPv6, and a name that ends in a number is an IPv4 address.
fn host(text: &str) -> Option<&str> {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.trim_end_matches(']');
        return address.parse::<Ipv6Addr>().is_ok().then_some(address);
    }
    let name = text.trim_end_matches('.');
    let last = name.rsplit('.').next().unwrap_or_default();
    let ends_in_number = last.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = name.len() <= 253 && (!ends_in_number || text.parse::<Ipv4Addr>().is_ok());
    is_host.then_some(text)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_endpoint_prints_as_written() {
        for (text, host, port) in [
            ("icmp://gw.example.com", "gw.example.com", 0),
            ("icmp://gw.example.com.", "gw.example.com.", 0),
            ("icmp://192.0.2.1", "192.0.2.1", 0),
            ("icmp://[2001:DB8::1]", "2001:DB8::1", 0),
            ("tcp://gw:1", "gw", 1),
            ("tcp://[::1]:65535", "::1", 65_535),
            ("tcp://10.0.0.1:6443", "10.0.0.1", 6_443),
            ("https://k8s.example.com", "k8s.example.com", 443),
            ("https://k8s.example.com/", "k8s.example.com", 443),
            ("https://a-b_c:6443/readyz?verbose=1", "a-b_c", 6_443),
            ("https://[::1]/x:y", "::1", 443),
        ] {
            let endpoint = Endpoint::parse(text).unwrap();
            assert_eq!((&*endpoint.host, endpoint.connect_port()), (host, port), "{text}");
            assert_eq!(endpoint.to_string(), text);
        }
    }

    #[test]
    fn invalid_endpoint_error_names_allowed_forms() {
        for text in [
            "",
            "gw.example.com",
            "http://gw/",
            "ICMP://gw",
            "icmp://",
            "icmp://gw:7",
            "icmp://gw/x",
            "icmp:// gw",
            "icmp://a..b",
            "icmp://-a",
            "icmp://192.0.2.256",
            "icmp://192.0.2",
            "icmp://::1",
            "icmp://[::1",
            "icmp://[192.0.2.1]",
            "icmp://[fe80::1%eth0]",
            "tcp://[::1]443",
            "tcp://gw",
            "tcp://[::1]",
            "tcp://gw:",
            "tcp://gw:0",
            "tcp://gw:065",
            "tcp://gw:+5",
            "tcp://gw:65536",
            "tcp://gw:443/",
            "https://user@gw/",
            "https://gw/a b",
            "https://gw/a\r\nX: y",
            "https://gw/#top",
            "https://gw?x",
        ] {
            let error = Endpoint::parse(text).expect_err(text).to_string();
            assert!(
                error.starts_with(&format!("{:?} is not a WAN endpoint: ", without_user(text))),
                "{error}"
            );
            assert!(error.contains("tcp://host:port"), "{error}");
        }
    }

    #[test]
    fn endpoint_error_hides_the_password() {
        for (text, shown) in [
            ("https://me:word@gw:6443/x", "\"https://…@gw:6443/x\""),
            ("https://me:w/o@rd@gw", "\"https://…@gw\""),
            ("me:word@gw", "\"…@gw\""),
        ] {
            let error = Endpoint::parse(text).expect_err(text).to_string();
            assert!(
                error.starts_with(&format!("{shown} is not a WAN endpoint: ")),
                "{error}"
            );
        }
    }
}
