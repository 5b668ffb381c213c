//! Why a probe has no answer.

use std::fmt;
use std::io;

use edgeward_core::cluster::wan::Cause;

/// Why a probe was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Lost {
    /// In a word.
    pub cause: Cause,
    /// In the words of who noticed.
    pub reason: String,
}

impl Lost {
    pub(super) fn new(cause: Cause, reason: impl fmt::Display) -> Self {
        Self {
            cause,
            reason: reason.to_string(),
        }
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        let cause = match error.kind() {
            io::ErrorKind::ConnectionRefused => Cause::Refused,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Cause::NoRoute,
            io::ErrorKind::TimedOut => Cause::Timeout,
            _ => Cause::Socket,
        };
        Self::new(cause, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sockets_error_has_a_cause() {
        for (kind, cause) in [
            (io::ErrorKind::ConnectionRefused, Cause::Refused),
            (io::ErrorKind::HostUnreachable, Cause::NoRoute),
            (io::ErrorKind::NetworkUnreachable, Cause::NoRoute),
            (io::ErrorKind::ConnectionReset, Cause::Socket),
        ] {
            assert_eq!(Lost::from(io::Error::from(kind)).cause, cause);
        }
    }
}
