//! Commands that ask a cluster once.

use std::time::Duration;

use anyhow::Context as _;

use crate::observe::Connection;
use crate::runtime;

/// Seconds to wait for a cluster, unless told otherwise.
pub(super) const TIMEOUT: u64 = 30;

/// Asks the cluster of a context of the kubeconfig, or of the current one, within so many seconds.
pub(super) fn ask<T>(
    context: Option<&str>,
    timeout: u64,
    question: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = runtime::tokio_runtime()?;
    let answer = runtime.block_on(async {
        let connection = Connection::open(context).await?;
        let answer = tokio::time::timeout(Duration::from_secs(timeout), question(&connection)).await;
        answer.with_context(|| format!("{}: no answer within {timeout} s", connection.name()))?
    });
    runtime.shutdown_background();
    answer
}
