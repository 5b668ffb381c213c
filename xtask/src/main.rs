//! Developer commands of edgeward, run as `cargo xtask <command>`.
//!
//! Everything that continuous integration does is a command here, so that a person at a terminal, the
//! `justfile` and `.ci/run` cannot drift apart.

mod book;
mod cache;
mod cargo_tools;
mod checks;
mod control_plane;
mod debian;
mod earlier;
mod fuzz;
mod go;
mod go_programs;
mod report;
mod sbom;
mod shell;
mod static_program;
mod suite;
mod targets;
mod test_output;
mod tools;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::tools::NoTool;

const HELP: &str = "\
Developer commands of edgeward

Usage: cargo xtask <command>

Commands:
  test             every test: the end-to-end tests on a real control plane beside all others; says how long each stage took
  test ARGS        some: `cargo test --workspace --locked ARGS`
  soak [NAME]      what `test` leaves out: the fuzz targets for a minute each, and the long tests on a control plane
  bench [NAME]     what edgeward costs in a cluster, as tables: create, pods, watching. On a machine that does nothing else
  fuzz [TARGET...] the fuzz targets, all or some, a minute each; --seconds 3600: for so long
  check            formatting, lints, documentation, dependencies; runs no test
  static           build the static program that the image contains, and start it where there is nothing else; prints it
  docs             build the documentation as a site with a search; prints where it is
  sbom             write what the program is made of, as CycloneDX, to target/sbom; prints the file

Commands that build or bring a tool of the tests once into the cache, and print where it is:
  control-plane    etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok.
                   --kubernetes 1.33: of that minor, not the newest
  cert-manager, constant-webhook, helm, liqo
  earlier          the version that the tests upgrade from
  chromium         an installed Chromium, or Debian's, which root installs
  prometheus       an installed Prometheus, or Debian's, unpacked; it has promtool beside it

Environment:
  EDGEWARD_CONTROL_PLANE, EDGEWARD_CERT_MANAGER, EDGEWARD_EARLIER, EDGEWARD_LIQO
                   a directory with a ready-made one, instead of building it
  EDGEWARD_CHROMIUM, EDGEWARD_CONSTANT_WEBHOOK, EDGEWARD_HELM, EDGEWARD_PROMETHEUS
                   a ready-made program, instead of building or bringing it
  EDGEWARD_GATEKEEPER, EDGEWARD_KYVERNO
                   directories with other webhooks, which `bench create` puts beside edgeward
  EDGEWARD_CACHE   where built tools are kept [default: $XDG_CACHE_HOME/edgeward or ~/.cache/edgeward]

Exit codes: 0 success, 1 failure, 2 usage, 3 a tool is not to be had: there is no Go to build it, no apt-get to bring it, or no
history to build the earlier version from";

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const NO_TOOL: u8 = 3;

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let command = args.next();
    let rest: Vec<String> = args.collect();
    // `soak --help` is not to begin a run of hours.
    let mut words = command.iter().chain(rest.iter().take_while(|word| *word != "--"));
    if words.any(|word| word == "--help" || word == "-h") || command.as_deref() == Some("help") {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }

    let outcome = match (command.as_deref(), rest.as_slice()) {
        (Some("test"), args) => suite::test(args),
        (Some("soak"), filters) => suite::soak(filters),
        (Some("bench"), filters) => suite::bench(filters),
        (Some("fuzz"), args) => fuzz::fuzz(args),
        (Some("check"), []) => checks::check(),
        (Some("control-plane"), [option, minor]) if option == "--kubernetes" => {
            print(control_plane::obtain_older(minor))
        }
        (Some("control-plane"), []) => print(control_plane::obtain()),
        (Some("cert-manager"), []) => print(go_programs::cert_manager()),
        (Some("chromium"), []) => print(debian::chromium()),
        (Some("constant-webhook"), []) => print(go_programs::constant_webhook()),
        (Some("earlier"), []) => print(earlier::obtain()),
        (Some("helm"), []) => print(go_programs::helm()),
        (Some("liqo"), []) => print(go_programs::liqo()),
        (Some("prometheus"), []) => print(debian::prometheus()),
        (Some("static"), []) => print(static_program::build()),
        (Some("docs"), []) => print(book::build()),
        (Some("sbom"), []) => print(sbom::write()),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(USAGE);
        }
    };

    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<NoTool>() { NO_TOOL } else { FAILURE })
        }
    }
}

fn print(made: Result<PathBuf>) -> Result<()> {
    println!("{}", made?.display());
    Ok(())
}
