//! Structured logs on standard error; standard output belongs to the commands.

use std::io::IsTerminal as _;
use std::panic;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The environment variable with the log filter, in the notation of tracing-subscriber: `debug`,
/// `info,edgeward::tls=debug`. Unset or empty is `info`.
pub const FILTER_VARIABLE: &str = "EDGEWARD_LOG";

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line, its fields beside `timestamp`, `level`, `target` and `message`.
    Json,
    /// For people; coloured on a terminal.
    Pretty,
}

/// Sends the process's logs, panics included, to standard error. Once per process.
///
/// # Errors
/// The filter in [`FILTER_VARIABLE`] cannot be read, or logs already go elsewhere.
pub fn init_logging(format: LogFormat) -> anyhow::Result<()> {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let filter = if filter.is_empty() { "info" } else { &filter };
    let filter = EnvFilter::try_new(filter).with_context(|| format!("{FILTER_VARIABLE}={filter} is no log filter"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_span_list(false)
            .finish()
            .try_init(),
        LogFormat::Pretty => builder.with_ansi(std::io::stderr().is_terminal()).finish().try_init(),
    }
    .context("logs cannot be set up")?;
    log_panics();
    Ok(())
}

/// A panic is a log line like any other, so that it reaches whoever reads the others.
fn log_panics() {
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or_else(|| payload.downcast_ref::<&str>().copied())
            .unwrap_or("without a message");
        let location = info.location().map(ToString::to_string);
        tracing::error!(location, "panic: {text}");
    }));
}
