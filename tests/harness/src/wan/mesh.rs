//! Many network namespaces, each with its own RTT to each other one.
//!
//! ```text
//! namespace "mesh-0"   wan 198.51.100.1 ──TUN──►            ──TUN──► wan 198.51.100.2   namespace "mesh-1"
//!                                                   delays
//! namespace "mesh-2"   wan 198.51.100.3 ◄──TUN──            ◄──TUN── …
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use tokio::runtime::Runtime;
use tokio_tun::Tun;

use super::{MTU, Namespace, runtime};
use crate::prelude::*;

const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// The network of the nodes, at most 254.
pub struct Mesh {
    // The first field, so that the devices are gone before their namespaces.
    _runtime: Runtime,
    pub nodes: Vec<Namespace>,
}

/// A packet with the time at which it arrives, its number, and its destination.
type Sent = (Instant, u64, usize, Vec<u8>);

impl Mesh {
    /// Opens a network with these RTTs from node to node in ms.
    pub fn open(rtt_ms: &[Vec<f64>]) -> Result<Self> {
        let nodes = (0..rtt_ms.len()).map(|node| Namespace::create(format!("mesh-{node}")));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let runtime = runtime()?;
        let devices = nodes.iter().zip(0..);
        let devices = devices.map(|(node, i)| Ok(Arc::new(node.device(&runtime, address(i), NETMASK)?)));
        let devices = devices.collect::<Result<Vec<_>>>()?;
        let (sender, on_the_way) = mpsc::channel();
        for (from, device) in devices.iter().enumerate() {
            let (device, sender, row) = (Arc::clone(device), sender.clone(), rtt_ms[from].clone());
            runtime.spawn(async move {
                let mut packet = [0; MTU];
                while let Ok(length) = device.recv(&mut packet).await {
                    // Byte 19 of an IPv4 header is the last one of its destination.
                    let to = usize::from(packet[19].wrapping_sub(1));
                    if packet[0] >> 4 == 4 && length >= 20 && to < row.len() {
                        let due = Instant::now() + Duration::from_secs_f64(row[to] / 2_000.0);
                        let _ = sender.send((due, to, packet[..length].to_vec()));
                    }
                }
            });
        }
        // A thread, because tokio's timers are up to a millisecond late.
        thread::spawn(move || deliver(&on_the_way, &devices));
        Ok(Self {
            _runtime: runtime,
            nodes,
        })
    }
}

/// The address of a node.
pub fn address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, node as u8 + 1)
}

/// Delivers each packet when it is due.
fn deliver(on_the_way: &Receiver<(Instant, usize, Vec<u8>)>, devices: &[Arc<Tun>]) {
    let (mut waiting, mut count) = (BinaryHeap::<Reverse<Sent>>::new(), 0);
    loop {
        let now = Instant::now();
        while waiting.peek().is_some_and(|Reverse(next)| next.0 <= now)
            && let Some(Reverse((_, _, to, packet))) = waiting.pop()
        {
            // A device whose queue is full drops the packet.
            let _ = devices[to].try_send(&packet);
        }
        let next = waiting.peek().map_or(BOUND, |Reverse(next)| next.0 - now);
        match on_the_way.recv_timeout(next) {
            Ok((due, to, packet)) => {
                count += 1;
                waiting.push(Reverse((due, count, to, packet)));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
