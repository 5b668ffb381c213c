//! A proxy in front of the Prometheus server that can inject failures.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    Open,
    /// The proxy accepts requests and never answers.
    Slow,
    Answers(&'static str),
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    way: watch::Sender<Way>,
}

impl Proxy {
    pub(crate) fn start(runtime: &Handle, server: SocketAddr) -> Result<Self> {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let (way, ways) = watch::channel(Way::Open);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut ways = ways.clone();
                tokio::spawn(async move {
                    let way = *ways.borrow_and_update();
                    tokio::select! {
                        _ = lead(stream, way, server) => {}
                        // Open connections end, so that they see the same failure as new ones.
                        _ = ways.changed() => {}
                    }
                });
            }
        });
        Ok(Self { address, way })
    }

    pub(crate) fn leads(&self, way: Way) {
        self.way.send_replace(way);
    }
}

async fn lead(mut client: TcpStream, way: Way, server: SocketAddr) -> std::io::Result<()> {
    let mut asked = vec![0; 16 * 1024];
    match way {
        Way::Open => {
            let mut server = TcpStream::connect(server).await?;
            copy_bidirectional(&mut client, &mut server).await?;
        }
        Way::Slow => while client.read(&mut asked).await? > 0 {},
        Way::Answers(answer) => {
            while client.read(&mut asked).await? > 0 {
                client.write_all(answer.as_bytes()).await?;
            }
        }
    }
    Ok(())
}
