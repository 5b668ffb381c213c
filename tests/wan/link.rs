//! Tests of the link itself, on which the other tests rely.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::thread;

use edgeward_harness::prelude::*;
use edgeward_harness::wan::Wan;
use edgeward_link::link::losses;
use edgeward_link::relay::CLOUD;
use surge_ping::{Client, Config, PingIdentifier, PingSequence};

/// Datagrams sent before any is read. The receiving socket certainly buffers 25, but not 300.
const BURST: usize = 25;

pub(crate) fn rtt_is_seen_by_tcp_and_icmp(wan: &mut Wan) -> Result<()> {
    // Extra delay from programs that run at the same time.
    const MARGIN: Duration = Duration::from_millis(50);
    const TRIES: usize = 20;
    let listener = wan.cloud_listener()?;
    for millis in [20, 150] {
        wan.tell(&format!("rtt {millis}ms"))?;
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

pub(crate) fn loses_what_its_schedule_says(wan: &mut Wan) -> Result<()> {
    const SENT: u32 = 400;
    wan.tell("rtt 20ms loss 5%")?;
    wan.tell("seed 7")?;
    let fates: Vec<(u32, bool)> = (0..SENT).zip(losses(7, 0.05)).collect();

    let [edge, cloud] = wan.datagrams()?;
    for burst in fates.chunks(BURST) {
        for (number, _) in burst {
            edge.send(&number.to_be_bytes())?;
        }
        for (number, _) in burst.iter().filter(|(_, lost)| !lost) {
            let arrived = receive(&cloud)?;
            ensure!(arrived == *number, "{arrived} arrived in place of {number}");
        }
    }
    eventually("those after the last that arrives are lost", BOUND, || {
        let [forth, _] = wan.counts()?;
        let lost = fates.iter().filter(|(_, lost)| *lost).count() as u64;
        ensure!(
            forth.entered == u64::from(SENT) && forth.lost == lost,
            "{forth:?}, to lose {lost}"
        );
        Ok(())
    })
}

pub(crate) fn keeps_the_order(wan: &mut Wan) -> Result<()> {
    wan.tell("rtt 4ms jitter 40ms")?;
    let [edge, cloud] = wan.datagrams()?;
    let numbers: Vec<u32> = (0..300).collect();
    for burst in numbers.chunks(BURST) {
        for number in burst {
            edge.send(&number.to_be_bytes())?;
        }
        for number in burst {
            let arrived = receive(&cloud)?;
            ensure!(arrived == *number, "{arrived} arrived in place of {number}");
        }
    }
    Ok(())
}

pub(crate) fn cut_and_healed(wan: &mut Wan) -> Result<()> {
    const SHORT: Duration = Duration::from_millis(300);
    wan.tell("rtt 20ms")?;
    let listener = wan.cloud_listener()?;
    let [edge, cloud] = wan.datagrams()?;
    edge.send(&u32::to_be_bytes(0))?;
    ensure!(receive(&cloud)? == 0);

    wan.tell("cut")?;
    for number in 1..=10 {
        edge.send(&u32::to_be_bytes(number))?;
    }
    eventually("all ten are cut off", BOUND, || {
        let [forth, _] = wan.counts()?;
        ensure!(forth.cut == 10, "{forth:?}");
        Ok(())
    })?;
    for probe in [tcp, icmp] {
        ensure!(
            probe(wan, listener, SHORT).is_err(),
            "something passed a link that is cut"
        );
    }

    wan.tell("heal")?;
    edge.send(&u32::to_be_bytes(11))?;
    let first = receive(&cloud)?;
    ensure!(first == 11, "{first} passed a link that was cut");
    for probe in [tcp, icmp] {
        probe(wan, listener, BOUND).context("after it healed")?;
    }
    Ok(())
}

pub(crate) fn flaps(wan: &mut Wan) -> Result<()> {
    const OUTAGES: usize = 3;
    let begun = Instant::now();
    wan.tell("flap 200ms")?;
    let [edge, cloud] = wan.datagrams()?;
    // Records whether the link was cut, at each change.
    let mut states = Vec::new();
    let mut sent = 0;
    let mut passed = 0;
    while states.iter().filter(|&&cut| cut).count() < OUTAGES || states.last() == Some(&true) {
        ensure!(begun.elapsed() < BOUND, "only {states:?} after {sent} datagrams");
        edge.send(&u32::to_be_bytes(sent))?;
        sent += 1;
        let [forth, _] = eventually("its fate is known", BOUND, || {
            let counts = wan.counts()?;
            ensure!(counts[0].cut + counts[0].passed == u64::from(sent), "{counts:?}");
            Ok(counts)
        })?;
        let cut = forth.passed == passed;
        passed = forth.passed;
        if !cut {
            let arrived = receive(&cloud)?;
            ensure!(arrived + 1 == sent, "{arrived} arrived in place of {}", sent - 1);
        }
        if states.last() != Some(&cut) {
            states.push(cut);
        }
        // A stream with gaps, not a flood.
        thread::sleep(Duration::from_millis(5));
    }
    // Expects two outages, each followed by whole time, and a third outage.
    ensure!(
        begun.elapsed() >= Duration::from_secs(1),
        "{states:?} is over too early"
    );

    wan.tell("heal")?;
    for number in sent..sent + 50 {
        edge.send(&u32::to_be_bytes(number))?;
        let arrived = receive(&cloud)?;
        ensure!(arrived == number, "{arrived} arrived in place of {number}");
    }
    Ok(())
}

pub(crate) fn refuses_what_it_does_not_know(wan: &mut Wan) -> Result<()> {
    let refusal = wan.tell("delay 20ms").err().context("it took `delay`")?;
    ensure!(format!("{refusal:#}").contains("`delay`"), "{refusal:#}");
    wan.tell("rtt 20ms")
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

fn receive(socket: &UdpSocket) -> Result<u32> {
    let mut number = [0; 4];
    loop {
        match socket.recv(&mut number) {
            // A signal interrupts a read with a timeout for good, for example SIGCHLD from another test's child.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => {
                received.context("nothing arrives")?;
                return Ok(u32::from_be_bytes(number));
            }
        }
    }
}
