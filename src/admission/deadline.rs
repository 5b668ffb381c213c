//! How long the API server waits, and when our answer must leave so that it arrives in time.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;
use edgeward_core::units::Micros;
use serde::Deserialize;

/// What the API server waits when it does not say.
const DEFAULT: Duration = Duration::from_secs(10);

/// The longest that a webhook configuration can say. A client that asks for more does not get to hold a task longer.
const LONGEST: Duration = Duration::from_secs(30);

/// The answer leaves a tenth of the timeout early, because the caller's clock started before the request reached us
/// and stops when the answer has reached it.
const MARGIN_SHARE: u32 = 10;
/// No less than this: a scheduling hiccup on a busy machine is of this order.
const MARGIN_LEAST: Duration = Duration::from_millis(50);
/// No more than this.
const MARGIN_MOST: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
struct Asked {
    timeout: Option<String>,
}

/// How long after its head arrived a request must be answered, from the `timeout` parameter of its query: the
/// timeout less a tenth, at least 50 ms (but never more than half of the timeout), at most 500 ms. So `1s`, our own
/// configuration, leaves 900 ms.
///
/// A missing or unreadable parameter is 10 s, the API server's default: it is no reason to refuse a review.
pub(super) fn answer_within(uri: &Uri) -> Duration {
    let asked = Query::<Asked>::try_from_uri(uri).ok().and_then(|query| query.0.timeout);
    let stated = asked.as_deref().and_then(Micros::parse).filter(|stated| stated.0 > 0);
    let timeout = stated
        .map_or(DEFAULT, |stated| Duration::from_micros(stated.0))
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
    fn the_answer_leaves_before_the_timeout_passes() {
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
            assert_eq!(answer_within(&uri), Duration::from_millis(milliseconds), "{uri}");
        }
    }
}
