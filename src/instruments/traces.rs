//! Traces: one span for each request to the admission port, for an OpenTelemetry collector. Only where asked for.
//!
//! Whether a request is traced is for the API server to say, which passes on its own span in `traceparent`; one that says
//! nothing of traces begins a trace of its own. A request never waits for a collector: its span goes to a queue, and is
//! dropped where that is full. [`Exporter`] sends what is in it.

use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::platform::clock::Clock;

mod export;

pub use export::Exporter;

/// How many spans wait at most: some seconds of more reviews than an API server sends.
const QUEUE: usize = 2_048;

/// What is known of a request: names by OpenTelemetry's conventions or under `edgeward.`, and values. Never what a pod contains.
pub type Attributes = Vec<(&'static str, String)>;

/// Where spans are put. A copy is the same place.
#[derive(Debug, Clone)]
pub struct Spans {
    queue: mpsc::Sender<Span>,
    clock: Clock,
}

/// A span of the past.
#[derive(Debug)]
struct Span {
    context: Context,
    id: u64,
    began: Timestamp,
    us: u64,
    status: StatusCode,
    attributes: Attributes,
}

/// The trace that a span belongs to, and the span of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Context {
    trace: u128,
    parent: Option<u64>,
}

/// A span that lasts.
#[derive(Debug)]
pub struct Begun {
    context: Context,
    began: Timestamp,
    began_us: u64,
}

impl Spans {
    /// A place for spans, and who sends them from there to this URL, by OTLP over HTTP in JSON.
    ///
    /// # Errors
    /// There can be no client for the URL, which is not of `http` or `https`.
    pub fn new(url: &str, clock: Clock) -> anyhow::Result<(Self, Exporter)> {
        let (queue, spans) = mpsc::channel(QUEUE);
        let exporter = Exporter::new(url, spans)?;
        Ok((Self { queue, clock }, exporter))
    }

    /// A request with these headers has come. `None` if its trace is not sampled.
    #[must_use]
    pub fn begin(&self, headers: &HeaderMap) -> Option<Begun> {
        let stated = headers.get("traceparent").and_then(|value| value.to_str().ok());
        let (context, is_sampled) = stated.and_then(read).unwrap_or_else(|| {
            let root = Context {
                trace: Uuid::new_v4().as_u128(),
                parent: None,
            };
            (root, true)
        });
        is_sampled.then(|| Begun {
            context,
            began: self.clock.wall(),
            began_us: self.clock.monotonic_us(),
        })
    }

    /// It was answered so.
    pub fn end(&self, begun: Begun, status: StatusCode, attributes: Attributes) {
        let span = Span {
            context: begun.context,
            id: Uuid::new_v4().as_u64_pair().1,
            began: begun.began,
            us: self.clock.monotonic_us().saturating_sub(begun.began_us),
            status,
            attributes,
        };
        // Dropped where the queue is full.
        let _ = self.queue.try_send(span);
    }
}

/// Reads `traceparent` (W3C Trace Context, level 1): the context, and whether it is sampled. A version to come may say more.
fn read(traceparent: &str) -> Option<(Context, bool)> {
    let mut fields = traceparent.split('-');
    let mut hex = |digits: usize| {
        let field = fields.next().filter(|field| field.len() == digits)?;
        let is_hex = field.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| u128::from_str_radix(field, 16).ok())?
    };
    let (version, trace, parent, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let is_valid = version != 0xff && trace != 0 && parent != 0 && (version > 0 || fields.next().is_none());
    let parent = u64::try_from(parent).ok();
    is_valid.then_some((Context { trace, parent }, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn spans(clock: Clock) -> (Spans, mpsc::Receiver<Span>) {
        let (queue, sent) = mpsc::channel(1);
        (Spans { queue, clock }, sent)
    }

    fn headers(traceparent: &str) -> HeaderMap {
        let value = traceparent.parse().unwrap();
        HeaderMap::from_iter([(http::HeaderName::from_static("traceparent"), value)])
    }

    #[test]
    fn a_traceparent_is_read_as_the_standard_says() {
        let of = |parent: u64| Context {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            parent: Some(parent),
        };
        let id = "00f067aa0ba902b7";
        assert_eq!(
            read(&format!("00-{TRACE}-{id}-01")),
            Some((of(0x00f0_67aa_0ba9_02b7), true))
        );
        assert_eq!(
            read(&format!("00-{TRACE}-{id}-02")),
            Some((of(0x00f0_67aa_0ba9_02b7), false))
        );
        assert_eq!(
            read(&format!("cc-{TRACE}-{id}-03-more")),
            Some((of(0x00f0_67aa_0ba9_02b7), true))
        );
        for wrong in [
            String::new(),
            "00".to_owned(),
            format!("ff-{TRACE}-{id}-01"),
            format!("00-{TRACE}-{id}-01-more"),
            format!("00-{TRACE}-{id}-1"),
            format!("00-{TRACE}-{id}"),
            format!("00-{}-{id}-01", TRACE.to_uppercase()),
            format!("00-{}-{id}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-+0f067aa0ba902b7-01"),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn who_is_traced_is_the_callers_word() {
        let (spans, _) = spans(Clock::start());
        let begin = |traceparent: &str| spans.begin(&headers(traceparent));
        assert!(begin(&format!("00-{TRACE}-00f067aa0ba902b7-00")).is_none());
        let called = begin(&format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
        assert_eq!(called.context.parent, Some(0x00f0_67aa_0ba9_02b7));
        let [one, other] = [begin("nonsense"), spans.begin(&HeaderMap::new())].map(Option::unwrap);
        assert_eq!((one.context.parent, other.context.parent), (None, None));
        assert_ne!(one.context.trace, other.context.trace);
    }

    #[test]
    fn nobody_waits_for_room_in_the_queue() {
        let (spans, mut sent) = spans(Clock::start());
        for _ in 0..3 {
            let begun = spans.begin(&HeaderMap::new()).unwrap();
            spans.end(begun, StatusCode::OK, vec![]);
        }
        assert!(sent.try_recv().is_ok() && sent.try_recv().is_err());
    }
}
