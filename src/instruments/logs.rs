//! Structured logs on standard error. Standard output belongs to the commands.

use std::collections::BTreeMap;
use std::io::{BufWriter, IsTerminal as _, stderr};
use std::panic;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, bail};
use edgeward_kube::units::Micros;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::platform::token_bucket::TokenBucket;

/// The environment variable with the log filter, in tracing-subscriber's syntax: `debug`, `info,edgeward::tls=debug`.
pub const FILTER_VARIABLE: &str = "EDGEWARD_LOG";

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object per line, with `timestamp`, `level`, `target`, `message` and the fields of the event.
    Json,
    /// Text for people; coloured on a terminal.
    Pretty,
}

/// How many lines are buffered for a slow reader. Further lines are dropped and counted.
const WAITING: usize = 4_096;

/// Sends the logs of the process, including panics, to standard error. The filter comes from [`FILTER_VARIABLE`], or
/// from `filter` if the variable is unset or empty. Call it once per process. A log call never waits for standard
/// error. The guard waits up to a second until the last lines are written.
///
/// # Errors
/// The filter in [`FILTER_VARIABLE`] is invalid, or a logger is already installed.
pub fn init_logging(format: LogFormat, filter: &str, metrics: &Metrics) -> anyhow::Result<WorkerGuard> {
    let stated = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let filter = if stated.is_empty() { filter } else { &stated };
    let filter = read_filter(filter).with_context(|| format!("{FILTER_VARIABLE}={filter} is not a log filter"))?;
    let lines = NonBlockingBuilder::default()
        .buffered_lines_limit(WAITING)
        .thread_name("log");
    let (writer, guard) = lines.finish(BufWriter::new(stderr()));
    metrics.count_dropped_lines(writer.error_counter());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would write to standard error and panic if that is closed.
        .log_internal_errors(false)
        .with_writer(writer);
    match format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .finish()
            .try_init(),
        LogFormat::Pretty => builder.with_ansi(stderr().is_terminal()).finish().try_init(),
    }
    .context("logs cannot be set up")?;
    log_panics();
    Ok(guard)
}

/// Targets that log only errors by default. kube-client warns with the whole body of an answer that it cannot parse,
/// which for a Secret contains private keys. kube-runtime warns of every forbidden request, which edgeward reports
/// itself.
const QUIET: [&str; 2] = ["kube_client::client", "kube_runtime::watcher"];

/// Parses a filter in tracing-subscriber's syntax. [`QUIET`] targets log only errors unless the filter names them. A
/// bare word that is not a level is an error: tracing-subscriber would take `verbose` for a target and silence all
/// others.
fn read_filter(text: &str) -> anyhow::Result<EnvFilter> {
    let directives = text.split(',').map(str::trim);
    let mut bare = directives.filter(|directive| !directive.is_empty() && !directive.contains(['=', '[', ']']));
    if let Some(word) = bare.find(|word| word.parse::<LevelFilter>().is_err()) {
        bail!("{word:?} is not a level (off, error, warn, info, debug, trace) and not of the form target=level");
    }
    let mut filter = EnvFilter::try_new(text)?;
    if filter.max_level_hint().is_some_and(|most| most <= LevelFilter::ERROR) {
        return Ok(filter);
    }
    for target in QUIET.into_iter().filter(|target| !text.contains(target)) {
        filter = filter.add_directive(format!("{target}=error").parse()?);
    }
    Ok(filter)
}

/// Logs panics like other lines, so that the same reader sees them. The hook must not panic: that aborts the process.
fn log_panics() {
    let limit = LogLimit::new(Clock::start());
    panic::set_hook(Box::new(move |info| {
        // A client can repeat a review that panics.
        let Some(held_back) = limit.due("panic") else { return };
        let text = info.payload_as_str().unwrap_or("without a message");
        let location = info.location().map(ToString::to_string);
        tracing::error!(location, held_back, "panic: {text}");
    }));
}

/// Returns the text of a failure that is tried again, so that equal ones in a row are logged once. `None` if it equals the `last`
/// one.
pub fn news(error: &anyhow::Error, last: &mut String) -> Option<String> {
    let error = format!("{error:#}");
    (error != *last).then(|| {
        last.clone_from(&error);
        error
    })
}

/// How many lines of a kind are written at once, and the interval for each further line.
const BURST: u64 = 10;
const INTERVAL: Micros = Micros::from_secs(1);

/// Limits log lines that clients can cause at will. Each kind may log ten lines at once, then one per second. The next
/// line states how many were held back.
#[derive(Debug)]
pub struct LogLimit {
    clock: Clock,
    /// For each kind, its token bucket and the number of lines held back.
    kinds: Mutex<BTreeMap<&'static str, (TokenBucket, u64)>>,
}

impl LogLimit {
    /// Starts without any lines written.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            kinds: Mutex::default(),
        }
    }

    /// Returns how many lines of this kind were held back since the last one; `None` if this line is held back too.
    pub fn due(&self, kind: &'static str) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || (TokenBucket::new(BURST, INTERVAL), 0);
        let (bucket, held_back) = kinds.entry(kind).or_insert_with(new);
        if bucket.take(self.clock.moment()) {
            return Some(std::mem::take(held_back));
        }
        *held_back += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn log_limit_passes_ten_lines_then_one_a_second_with_count() {
        let limit = LogLimit::new(Clock::start());
        let due = |lines: usize| (0..lines).filter_map(|_| limit.due("flood")).collect::<Vec<_>>();
        assert_eq!(due(100), [0; 10]);
        assert_eq!(limit.due("other"), Some(0));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(due(1).is_empty());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(due(3), [91]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(due(11), [2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn invalid_log_level_is_refused() {
        for text in ["info", "DEBUG", "off", "info,edgeward::tls=debug", "[review]=trace"] {
            assert!(read_filter(text).is_ok(), "{text}");
        }
        for (text, word) in [("verbose", "verbose"), ("info,edgeward", "edgeward"), ("inf", "inf")] {
            let error = format!("{:#}", read_filter(text).unwrap_err());
            assert!(error.starts_with(&format!("{word:?} is not a level (off")), "{error}");
        }
        assert!(read_filter("edgeward=loud").is_err());
    }

    #[test]
    fn response_bodies_are_logged_only_on_explicit_request() {
        for (text, is_told) in [
            ("info", false),
            ("kube_client=debug", false),
            ("trace", false),
            ("error", false),
            ("info,kube_client::client=warn", true),
        ] {
            let filter = read_filter(text).unwrap().to_string();
            let levels = filter.split(',').filter(|directive| directive.starts_with(QUIET[0]));
            let levels: Vec<_> = levels.collect();
            assert_eq!(levels == ["kube_client::client=warn"], is_told, "{filter}");
            assert!(
                is_told || text == "error" || levels == ["kube_client::client=error"],
                "{filter}"
            );
        }
    }
}
