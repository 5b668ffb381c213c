//! Commands that ask a cluster once.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use crate::inspect::Connection;
use crate::serve;

/// Which cluster a command asks, and for how long.
#[derive(Debug, Args)]
pub(super) struct Cluster {
    /// Context of the kubeconfig; without, its current one or, where there is no kubeconfig, the cluster of the pod that
    /// this runs in.
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,

    /// Seconds to wait for the cluster.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
}

impl Cluster {
    /// Asks the cluster of this context, or of the current one, within this time.
    pub(super) fn ask<T>(&self, question: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let (runtime, timeout) = (serve::tokio_runtime()?, self.timeout);
        let answer = runtime.block_on(async {
            let connection = Connection::open(self.context.as_deref()).await?;
            let answer = tokio::time::timeout(Duration::from_secs(timeout), question(&connection)).await;
            answer.with_context(|| format!("{}: no answer within {timeout} s", connection.name))?
        });
        runtime.shutdown_background();
        answer
    }
}
