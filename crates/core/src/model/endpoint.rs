//! What is probed, as the configuration writes it.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// One end of a link that answers probes. Its [`Display`](fmt::Display) is the string it was parsed from.
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
        /// Port, not 0.
        port: u16,
    },
    /// Answers HTTP over TLS.
    Https {
        /// Name or address, without brackets.
        host: String,
        /// Port as written; 443 where it is not.
        port: Option<u16>,
        /// Path and query as written; empty stands for `/`.
        path: String,
    },
}

/// Why a string is not an [`Endpoint`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{:?} is not a WAN endpoint: {fault}; allowed are icmp://host, tcp://host:port and https://host[:port][/path], \
     an IPv6 address in brackets",
    without_user(value)
)]
pub struct BadEndpoint {
    /// The string.
    pub value: String,
    /// What is wrong with it.
    pub fault: &'static str,
}

impl Endpoint {
    /// Parses `icmp://host`, `tcp://host:port` or `https://host[:port][/path]`, where an IPv6 host stands in brackets.
    ///
    /// # Errors
    /// [`BadEndpoint`] names the value and what is allowed.
    pub fn parse(text: &str) -> Result<Self, BadEndpoint> {
        let bad = |fault| BadEndpoint {
            value: text.to_owned(),
            fault,
        };
        Self::try_parse(text).map_err(bad)
    }

    fn try_parse(text: &str) -> Result<Self, &'static str> {
        const NO_SCHEME: &str = "it begins with none of the schemes";
        let (scheme, rest) = text.split_once("://").ok_or(NO_SCHEME)?;
        match scheme {
            "icmp" => match authority(rest)? {
                (host, None) => Ok(Self::Icmp { host }),
                (_, Some(_)) => Err("ICMP has no ports"),
            },
            "tcp" => match authority(rest)? {
                (host, Some(port)) => Ok(Self::Tcp { host, port }),
                (_, None) => Err("the port is missing"),
            },
            "https" => {
                let (before, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                if !path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
                    return Err("its path has a blank, a # or a character outside ASCII");
                }
                let (host, port) = authority(before)?;
                let path = path.to_owned();
                Ok(Self::Https { host, port, path })
            }
            _ => Err(NO_SCHEME),
        }
    }

    /// Name or address of the host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        match self {
            Self::Icmp { host } | Self::Tcp { host, .. } | Self::Https { host, .. } => host,
        }
    }

    /// The port that is connected to; 0 for ICMP, which has none.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Icmp { .. } => 0,
            Self::Tcp { port, .. } => *port,
            Self::Https { port, .. } => port.unwrap_or(443),
        }
    }
}

/// An address as a message shows it: whatever stands before an `@` may be a password, and messages are logged.
pub(crate) fn without_user(address: &str) -> String {
    match address.rsplit_once('@') {
        None => address.to_owned(),
        Some((before, host)) => {
            let scheme = before.find("://").map_or("", |end| &before[..end + 3]);
            format!("{scheme}…@{host}")
        }
    }
}

/// Host and port of `host[:port]` or `[address][:port]`.
fn authority(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']').ok_or("a bracket is not closed")?;
        if address.parse::<Ipv6Addr>().is_err() {
            return Err("the brackets hold no IPv6 address");
        }
        let port = match rest {
            "" => None,
            rest => Some(
                rest.strip_prefix(':')
                    .ok_or("something other than a port follows the bracket")?,
            ),
        };
        (address, port)
    } else {
        let (host, port) = text
            .split_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port)));
        if !is_host(host) {
            return Err("its host is neither a DNS name nor an address");
        }
        (host, port)
    };
    Ok((host.to_owned(), port.map(parse_port).transpose()?))
}

/// Whole numbers only, and only as they are printed: no sign, no leading zero.
fn parse_port(text: &str) -> Result<u16, &'static str> {
    let port = text
        .parse::<u16>()
        .ok()
        .filter(|port| *port > 0 && port.to_string() == text);
    port.ok_or("its port is not a number from 1 to 65535")
}

/// A DNS name, a dot at its end allowed, or an IPv4 address. What ends in a number is an address or a mistake.
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
    fn what_is_parsed_is_printed() {
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
    fn a_bad_one_says_what_is_wrong_and_what_is_allowed() {
        for (text, fault) in [
            ("", "none of the schemes"),
            ("gw.example.com", "none of the schemes"),
            ("http://gw/", "none of the schemes"),
            ("ICMP://gw", "none of the schemes"),
            ("icmp://", "its host is neither"),
            ("icmp://gw:7", "ICMP has no ports"),
            ("icmp://gw/x", "its host is neither"),
            ("icmp:// gw", "its host is neither"),
            ("icmp://a..b", "its host is neither"),
            ("icmp://-a", "its host is neither"),
            ("icmp://192.0.2.256", "its host is neither"),
            ("icmp://192.0.2", "its host is neither"),
            ("icmp://::1", "its host is neither"),
            ("icmp://[::1", "not closed"),
            ("icmp://[192.0.2.1]", "no IPv6 address"),
            ("icmp://[fe80::1%eth0]", "no IPv6 address"),
            ("tcp://[::1]443", "follows the bracket"),
            ("tcp://gw", "the port is missing"),
            ("tcp://[::1]", "the port is missing"),
            ("tcp://gw:", "from 1 to 65535"),
            ("tcp://gw:0", "from 1 to 65535"),
            ("tcp://gw:065", "from 1 to 65535"),
            ("tcp://gw:+5", "from 1 to 65535"),
            ("tcp://gw:65536", "from 1 to 65535"),
            ("tcp://gw:443/", "from 1 to 65535"),
            ("https://user@gw/", "its host is neither"),
            ("https://gw/a b", "its path has"),
            ("https://gw/a\r\nX: y", "its path has"),
            ("https://gw/#top", "its path has"),
            ("https://gw?x", "its host is neither"),
        ] {
            let error = Endpoint::parse(text).expect_err(text).to_string();
            assert!(
                error.starts_with(&format!("{:?} is not a WAN endpoint: ", without_user(text))),
                "{error}"
            );
            assert!(error.contains(fault), "{text}: {error}");
            assert!(error.contains("tcp://host:port"), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
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
