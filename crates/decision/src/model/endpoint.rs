//! Targets of WAN probes, as the configuration writes them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A target that answers probes. Its [`Display`](fmt::Display) is the string it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Answers ICMP echo requests.
    Icmp {
        /// Name or address, without brackets.
        host: String,
    },
    /// Accepts TCP connections.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port, never 0.
        port: u16,
    },
    /// Answers HTTP over TLS.
    Https {
        /// Name or address, without brackets.
        host: String,
        /// Port as written. `None` stands for 443.
        port: Option<u16>,
        /// Path and query as written. Empty stands for `/`.
        path: String,
    },
}

/// Description of a valid endpoint, for messages.
pub const ALLOWED: &str =
    "a WAN endpoint: icmp://host, tcp://host:port or https://host[:port][/path], an IPv6 address in brackets";

/// Error for a string that is not an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{:?} is not {ALLOWED}", without_user(.0))]
pub struct BadEndpoint(pub String);

impl Endpoint {
    /// Parses `icmp://host`, `tcp://host:port` or `https://host[:port][/path]`. An IPv6 host must be in brackets.
    ///
    /// # Errors
    /// [`BadEndpoint`] names the value and the allowed forms.
    pub fn parse(text: &str) -> Result<Self, BadEndpoint> {
        Self::try_parse(text).ok_or_else(|| BadEndpoint(text.to_owned()))
    }

    fn try_parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (before, path) = match scheme {
            "https" => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            _ => (rest, ""),
        };
        let is_path = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let (host, port) = authority(before)?;
        let path = path.to_owned();
        match (scheme, port) {
            ("icmp", None) => Some(Self::Icmp { host }),
            ("tcp", Some(port)) => Some(Self::Tcp { host, port }),
            ("https", _) if is_path => Some(Self::Https { host, port, path }),
            _ => None,
        }
    }

    /// Name or address of the host, without brackets.
    pub fn host(&self) -> &str {
        match self {
            Self::Icmp { host } | Self::Tcp { host, .. } | Self::Https { host, .. } => host,
        }
    }

    /// Port to connect to. 0 for ICMP, which has no ports.
    pub fn port(&self) -> u16 {
        match self {
            Self::Icmp { .. } => 0,
            Self::Tcp { port, .. } => *port,
            Self::Https { port, .. } => port.unwrap_or(443),
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

/// Splits a text into host and port. An IPv6 address must be in brackets.
fn authority(text: &str) -> Option<(String, Option<u16>)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_valid = match text.starts_with('[') {
        true => host.parse::<Ipv6Addr>().is_ok(),
        false => is_host(host),
    };
    let port = match rest {
        "" => None,
        rest => Some(parse_port(rest.strip_prefix(':')?)?),
    };
    is_valid.then(|| (host.to_owned(), port))
}

/// Parses a port that has no sign and no leading zeros.
fn parse_port(text: &str) -> Option<u16> {
    let port = text.parse::<u16>().ok()?;
    (port > 0 && port.to_string() == text).then_some(port)
}

/// Whether this is an IPv4 address or a DNS name; a trailing dot is allowed. A name that ends in a number must be an
/// IPv4 address.
fn is_host(host: &str) -> bool {
    let name = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    let ends_in_number = name
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && name.split('.').all(label) && (!ends_in_number || host.parse::<Ipv4Addr>().is_ok())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, port, path) = match self {
            Self::Icmp { .. } => ("icmp", None, ""),
            Self::Tcp { port, .. } => ("tcp", Some(*port), ""),
            Self::Https { port, path, .. } => ("https", *port, path.as_str()),
        };
        write!(f, "{scheme}://")?;
        match self.host() {
            address if address.contains(':') => write!(f, "[{address}]")?,
            name => f.write_str(name)?,
        }
        if let Some(port) = port {
            write!(f, ":{port}")?;
        }
        f.write_str(path)
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
            assert_eq!((endpoint.host(), endpoint.port()), (host, port), "{text}");
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
