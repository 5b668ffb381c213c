//! What the API server calls a webhook with: Go's `http.Transport`, as far as it matters to who closes a connection.

use std::io::Result;

use crate::client::{Answered, Client, Connection};

/// Keeps connections. The one used last goes first; one that the server has closed is put away as soon as that is seen; and
/// a POST that was written is never sent again, whatever becomes of it.
pub(crate) struct Transport {
    client: Client,
    idle: Vec<Connection>,
}

impl Transport {
    /// With so many connections that have had an answer.
    pub(crate) async fn warm(client: Client, connections: usize) -> Result<Self> {
        let mut idle = Vec::new();
        for _ in 0..connections {
            let mut connection = client.connect().await?;
            connection.post().await?;
            idle.push(connection);
        }
        Ok(Self { client, idle })
    }

    /// How many connections idle that the server has not closed.
    pub(crate) fn idle(&mut self) -> usize {
        self.idle.retain_mut(Connection::is_open);
        self.idle.len()
    }

    pub(crate) async fn post(&mut self) -> Result<Answered> {
        self.idle();
        let mut connection = match self.idle.pop() {
            Some(connection) => connection,
            None => self.client.connect().await?,
        };
        let answered = connection.post().await?;
        if answered.header("connection") != Some("close") {
            self.idle.push(connection);
        }
        Ok(answered)
    }
}
