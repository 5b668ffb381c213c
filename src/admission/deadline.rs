//! How long the API server waits, and when our answer must leave so that it arrives in time.

use std::time::Duration;

use axum::extract::Query;
use axum::http::Uri;
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
    let timeout = asked.as_deref().and_then(go_duration).unwrap_or(DEFAULT).min(LONGEST);
    let margin = (timeout / MARGIN_SHARE)
        .clamp(MARGIN_LEAST, MARGIN_MOST)
        .min(timeout / 2);
    timeout - margin
}

/// Reads a positive duration as Go writes it: `1s`, `500ms`, `2m30s`, `1.5h`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total_ns: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        total_ns = total_ns.checked_add(nanoseconds(number, unit_ns(unit)?)?)?;
        rest = tail;
    }
    (total_ns > 0).then(|| Duration::from_nanos(total_ns))
}

fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // U+00B5 and U+03BC look the same, and Go reads both.
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3_600 * 1_000_000_000,
        _ => return None,
    })
}

/// `number` units in nanoseconds, digits past the nanosecond dropped.
fn nanoseconds(number: &str, unit_ns: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(unit_ns)?;
    let mut place = unit_ns;
    for digit in fraction.chars() {
        place /= 10;
        total = total.checked_add(place * u64::from(digit.to_digit(10)?))?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_go_reads_them() {
        let cases = [
            ("1s", 1_000_000_000),
            ("+1s", 1_000_000_000),
            ("500ms", 500_000_000),
            ("2m30s", 150_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1m0.000000001s", 60_000_000_001),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("3μs", 3_000),
            ("7ns", 7),
        ];
        for (text, nanoseconds) in cases {
            assert_eq!(go_duration(text), Some(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in [
            "",
            "0",
            "0s",
            "-1s",
            "1",
            "s",
            "1x",
            "1 s",
            ".s",
            "1..2s",
            "1s2",
            "99999999999999999999s",
            "9999999h",
            "1sm",
        ] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }

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
            ("/mutate?timeout=1s&timeout=2s", 9_500),
            ("/mutate?other=1&timeout=1%73", 900),
        ];
        for (uri, milliseconds) in cases {
            let uri: Uri = uri.parse().expect("a URI");
            assert_eq!(answer_within(&uri), Duration::from_millis(milliseconds), "{uri}");
        }
    }
}
