//! edgeward's probes over a WAN. Two network namespaces, edge and cloud, are joined by a link that delays, drops and breaks on
//! command.
//!
//! Each test has its own namespaces and link, in a sandbox that ends with this process. No cleanup is needed, however the
//! process ends. Without a sandbox the tests are skipped, and the output says what is missing. Under `CI=true` this is a
//! failure.

mod history;
mod link;
mod peers;
mod probes;

use std::process::ExitCode;

use anyhow::{Context as _, Error, Result};
use edgeward_harness::control_plane;
use edgeward_harness::peering;
use edgeward_harness::sandbox;
use edgeward_harness::scripts::timed;
use edgeward_harness::wan::lateness::{Lateness, TOO_LATE};
use edgeward_harness::wan::{Wan, icmp, tcp};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

type Script = fn(&Wan) -> Result<()>;

const SCRIPTS: &[(&str, Script)] = &[
    ("link::rtt_is_seen_by_tcp_and_icmp", link::rtt_is_seen_by_tcp_and_icmp),
    (
        "link::cut_link_fails_probes_until_healed",
        link::cut_link_fails_probes_until_healed,
    ),
    ("probes::icmp_slow", |wan| probes::slow(wan, &icmp(wan)?)),
    ("probes::tcp_slow", |wan| probes::slow(wan, &tcp(wan)?)),
    ("probes::icmp_lossy", |wan| probes::lossy(wan, &icmp(wan)?)),
    ("probes::tcp_lossy", |wan| probes::lossy(wan, &tcp(wan)?)),
    ("probes::icmp_cut", |wan| probes::cut(wan, &icmp(wan)?)),
    ("probes::tcp_cut", |wan| probes::cut(wan, &tcp(wan)?)),
    ("probes::cost_map", |_| probes::cost_map()),
    ("peers::near_clusters_find_each_other", |_| {
        peers::near_clusters_find_each_other()
    }),
    ("peers::leaders_keep_near_clusters_as_objects", |_| {
        peers::leaders_keep_near_clusters_as_objects()
    }),
];

fn main() -> ExitCode {
    let (args, inside) = sandbox::arguments();
    let mut arguments = Arguments::from_iter(&args);
    // Tests mostly wait, so running all of them at once takes as long as the longest.
    arguments.test_threads.get_or_insert(SCRIPTS.len());
    let wanted = SCRIPTS
        .iter()
        .any(|(name, _)| !arguments.is_filtered_out(&Trial::test(*name, || Ok(()))));
    if !inside && wanted && !arguments.list {
        let enter = || -> Result<Error> {
            let binaries = control_plane::binaries()?.context("there is no Go to build the control plane with")?;
            let programs = [
                ("EDGEWARD_CONTROL_PLANE", binaries),
                ("EDGEWARD_LIQO", peering::liqo()?),
            ];
            Ok(sandbox::enter(sandbox::OF_WAN, &args[1..], &programs))
        };
        let missing = enter().unwrap_or_else(|error| error);
        if sandbox::report_missing("wan", &missing) {
            return ExitCode::FAILURE;
        }
    }

    edgeward::testkit::install_crypto_provider();
    let tests = SCRIPTS
        .iter()
        .map(|&(name, script)| test(name, script, inside))
        .collect();
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// Why a test does not pass.
enum Untold {
    Failed(Failed),
    Late(String),
}

fn test(name: &'static str, script: Script, inside: bool) -> Trial {
    Trial::ignorable_test(name, move || {
        if !inside {
            return Ok(Completion::ignored_with("no network namespaces"));
        }
        let tried = || -> Result<(), Untold> {
            let failed = |error: Error| Untold::Failed(Failed::from(format!("{error:#}")));
            let wan = Wan::open().map_err(failed)?;
            let lateness = Lateness::measure();
            let ended = timed(name, || script(&wan));
            let late = lateness.most();
            ended.map_err(|error| {
                let words = format!("{error:#}");
                match late >= TOO_LATE {
                    true => Untold::Late(format!("programs ran up to {late:.0?} late; {words}")),
                    false => Untold::Failed(Failed::from(words)),
                }
            })
        };
        // On the second attempt, other tests have ended and the machine is less busy.
        match tried().or_else(|first| match first {
            Untold::Late(words) => {
                println!("trying again: {name}: {words}");
                tried()
            }
            failed => Err(failed),
        }) {
            Ok(()) => Ok(Completion::Completed),
            Err(Untold::Failed(failed)) => Err(failed),
            Err(Untold::Late(words)) => {
                println!("too busy to tell: {name}: twice; {words}");
                Ok(Completion::ignored_with("too busy to tell"))
            }
        }
    })
}
