//! A way to a server that can be cut. The API server keeps its connections to a webhook, and on them would see nothing of a
//! certificate that is served since.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Carries bytes to a server for as long as it lives.
pub(crate) struct Relay {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    way: Way,
    listener: JoinHandle<()>,
}

/// The connections of a [`Relay`].
#[derive(Clone, Default)]
pub(crate) struct Way {
    connections: Arc<Mutex<JoinSet<()>>>,
    cut: watch::Sender<()>,
}

impl Relay {
    pub(crate) fn start(runtime: &Runtime, server: SocketAddr) -> Result<Self> {
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let way = Way::default();
        let open = way.clone();
        let listener = runtime.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut connections = open.connections.lock().await;
                while connections.try_join_next().is_some() {}
                connections.spawn(carry(client, server, open.cut.subscribe()));
            }
        });
        Ok(Self { address, way, listener })
    }

    pub(crate) fn way(&self) -> Way {
        self.way.clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Way {
    /// Ends every connection, and returns when the clients know it. Nothing may be on its way.
    pub(crate) async fn cut(&self) {
        let mut connections = self.connections.lock().await;
        self.cut.send_replace(());
        while connections.join_next().await.is_some() {}
    }
}

async fn carry(mut client: TcpStream, server: SocketAddr, mut cut: watch::Receiver<()>) {
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = cut.changed() => {
            // Were it closed at once, the client could write the next request to it before it has seen the end.
            let _ = client.shutdown().await;
            while client.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
        }
    }
}
