//! Tests of the link itself, on which the other tests rely.

use std::net::{IpAddr, SocketAddr, TcpStream};

use edgeward_harness::prelude::*;
use edgeward_harness::wan::{CLOUD, Conditions, Wan};
use surge_ping::{Client, Config, PingIdentifier, PingSequence};

pub(crate) fn rtt_is_seen_by_tcp_and_icmp(wan: &Wan) -> Result<()> {
    // Extra delay from programs that run at the same time.
    const MARGIN: Duration = Duration::from_millis(50);
    const TRIES: usize = 20;
    let listener = wan.cloud_listener()?;
    for millis in [20, 150] {
        wan.set(Conditions::rtt(millis));
        let rtt = Duration::from_millis(millis);
        for probe in [tcp, icmp] {
            // One attempt may wait for a processor, so the fastest counts.
            let mut best = Duration::MAX;
            for _ in 0..TRIES {
                let took = probe(wan, listener, BOUND)?;
                ensure!(took >= rtt, "{took:?} over a link of {rtt:?}");
                best = best.min(took);
                if best < rtt + MARGIN {
                    break;
                }
            }
            ensure!(best < rtt + MARGIN, "{best:?} at best over a link of {rtt:?}");
        }
    }
    Ok(())
}

pub(crate) fn cut_link_fails_probes_until_healed(wan: &Wan) -> Result<()> {
    const SHORT: Duration = Duration::from_millis(300);
    let listener = wan.cloud_listener()?;
    for is_cut in [true, false] {
        wan.set(Conditions {
            is_cut,
            ..Conditions::rtt(20)
        });
        let bound = if is_cut { SHORT } else { BOUND };
        for probe in [tcp, icmp] {
            let answered = probe(wan, listener, bound);
            ensure!(
                answered.is_err() == is_cut,
                "{answered:?} over a link with is_cut={is_cut}"
            );
        }
    }
    Ok(())
}

/// Time to establish a connection. The address is numeric, so DNS plays no part.
fn tcp(wan: &Wan, listener: SocketAddr, bound: Duration) -> Result<Duration> {
    wan.edge.enter(|| {
        let begun = Instant::now();
        TcpStream::connect_timeout(&listener, bound)?;
        Ok(begun.elapsed())
    })
}

/// Time of an ICMP echo, which the cloud's kernel answers.
fn icmp(wan: &Wan, _: SocketAddr, bound: Duration) -> Result<Duration> {
    wan.edge.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = Client::new(&Config::default())?;
            let mut pinger = client.pinger(IpAddr::V4(CLOUD), PingIdentifier(0)).await;
            // Starts the clock after sending, because the thread may be descheduled while it sends.
            let begun = Instant::now();
            pinger.timeout(bound).ping(PingSequence(0), &[0; 56]).await?;
            Ok(begun.elapsed())
        })
    })
}
