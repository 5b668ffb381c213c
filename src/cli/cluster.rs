//! Commands that ask a cluster once.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::inspect::Connection;
use crate::serve;

/// Seconds to wait for a cluster, unless told otherwise.
pub(super) const TIMEOUT: u64 = 30;

/// Which cluster a command asks, and for how long.
#[derive(Debug, Args)]
pub(super) struct Cluster {
    /// Context of the kubeconfig; without, its current one or, where there is no kubeconfig, the cluster of the pod that
    /// this runs in.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Seconds to wait for the cluster.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT)]
    timeout: u64,
}

impl Cluster {
    /// [`ask`].
    pub(super) fn ask<T>(&self, question: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>) -> anyhow::Result<T> {
        ask(self.context.as_deref(), self.timeout, question)
    }
}

/// Asks the cluster of a context of the kubeconfig, or of the current one, within so many seconds.
pub(super) fn ask<T>(
    context: Option<&str>,
    timeout: u64,
    question: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = serve::tokio_runtime()?;
    let answer = runtime.block_on(async {
        let connection = Connection::open(context).await?;
        let answer = tokio::time::timeout(Duration::from_secs(timeout), question(&connection)).await;
        answer.with_context(|| format!("{}: no answer within {timeout} s", connection.name()))?
    });
    runtime.shutdown_background();
    answer
}
