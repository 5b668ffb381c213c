//! The API server's timeout, and when our answer must leave to arrive in time.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;
use edgeward_kube::units::Micros;
use serde::Deserialize;

/// The API server's timeout if the request does not state one.
pub(super) const DEFAULT: Duration = Duration::from_secs(10);

/// The longest timeout a webhook configuration can state. A client that asks for more does not hold a task for longer.
const LONGEST: Duration = Duration::from_secs(30);

/// The answer leaves a tenth of the timeout early: the caller's clock starts before the request reaches us and stops
/// when the answer arrives.
const MARGIN_SHARE: u32 = 10;
/// Minimum margin; a scheduling delay on a busy machine is of this order.
const MARGIN_LEAST: Duration = Duration::from_millis(50);
/// Maximum margin.
const MARGIN_MOST: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct Asked {
    timeout: Option<String>,
}

/// How long after the request head a review must be answered, from the `timeout` query parameter. This is the timeout
/// minus a margin of a tenth, between 50 ms and 500 ms, but at most half of the timeout. Our own configuration, `1s`,
/// leaves 900 ms.
///
/// A missing or unreadable parameter counts as `default`, and is no reason to refuse a review.
pub(super) fn answer_within(uri: &Uri, default: Duration) -> Duration {
    let asked = Query::<Asked>::try_from_uri(uri).ok().and_then(|query| query.0.timeout);
    let stated = asked.as_deref().and_then(Micros::parse).filter(|stated| stated.0 > 0);
    let timeout = stated
        .map_or(default, |stated| Duration::from_micros(stated.0))
        .min(LONGEST);
    let margin = (timeout / MARGIN_SHARE)
        .clamp(MARGIN_LEAST, MARGIN_MOST)
        .min(timeout / 2);
    timeout - margin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_deadline_precedes_request_timeout() {
        let cases = [
            ("/mutate?timeout=1s", 900),
            ("/mutate?timeout=2s", 1_800),
            ("/mutate?timeout=10s", 9_500),
            ("/mutate?timeout=30s", 29_500),
            ("/mutate?timeout=5m", 29_500),
            ("/mutate?timeout=200ms", 150),
            ("/mutate?timeout=20ms", 10),
            ("/mutate", 9_500),
            ("/mutate?timeout=", 9_500),
            ("/mutate?timeout=soon", 9_500),
            ("/mutate?timeout=0s", 9_500),
            ("/mutate?timeout=-1s", 9_500),
            ("/mutate?timeout=99999999999999999999s", 9_500),
            ("/mutate?timeout=1s&timeout=2s", 9_500),
            ("/mutate?other=1&timeout=1%73", 900),
        ];
        for (uri, milliseconds) in cases {
            let uri: Uri = uri.parse().expect("a URI");
            assert_eq!(
                answer_within(&uri, DEFAULT),
                Duration::from_millis(milliseconds),
                "{uri}"
            );
        }
    }
}
