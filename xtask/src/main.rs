//! Developer commands of edgeward, run as `cargo xtask <command>`.
//!
//! Everything that continuous integration does is a command here, so that a person at a terminal, the
//! `justfile` and `.ci/run` cannot drift apart.

mod cache;
mod cargo_tools;
mod cert_manager;
mod checks;
mod constant_webhook;
mod control_plane;
mod earlier;
mod fuzz;
mod go;
mod helm;
mod liqo;
mod prometheus;
mod report;
mod sbom;
mod shell;
mod static_program;
mod suite;
mod targets;
mod test_output;
mod tools;

use std::env;
use std::process::ExitCode;

use crate::go::NoGo;
use crate::prometheus::NoPrometheus;

const HELP: &str = "\
Developer commands of edgeward

Usage: cargo xtask <command>

Commands:
  test             every test: the end-to-end tests on a real control plane beside all others, those over an emulated WAN
                   included; says how long each stage and each long test took
  test ARGS        some: `cargo test --workspace --locked ARGS`
  test core [NAME] the unit tests of edgeward-core alone
  soak [NAME]      the fuzz targets for a minute each, and the long tests on a control plane, all of which `test` leaves out;
                   `soak fuzz [TARGET...]`: the former alone
  bench [NAME]     what edgeward costs in a cluster, release build, as tables: create, pods, watching. On a machine that does
                   nothing else
  fuzz [TARGET...] the fuzz targets, all or some, a minute each; --seconds 3600: for so long. With --merge they are not run:
                   inputs of earlier runs that reach something new are taken into the corpus of the repository
  wan [NAME]       the tests over an emulated WAN alone; they need network namespaces and /dev/net/tun
  check            formatting, lints, documentation, dependencies, also of the core; runs no test
  constant-webhook build the webhook that always answers the same once into the cache; prints the program
  control-plane    build etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok once into the
                   cache; prints their directory. --kubernetes 1.33: of that minor, not the newest
  cert-manager     build cert-manager once into the cache; prints its directory
  earlier          build the version that the tests upgrade from once into the cache; prints its directory
  helm             build Helm once into the cache; prints the program
  liqo             build Liqo once into the cache; prints its directory
  static           build the static program that the image contains, and start it where there is nothing else; prints it
  sbom             write what the program is made of, as CycloneDX, to target/sbom; prints the file
  prometheus       unpack Debian's Prometheus once into the cache, unless one is installed; prints the program, which has
                   promtool beside it

Environment:
  EDGEWARD_CONTROL_PLANE   directory with ready-made binaries, instead of building them
  EDGEWARD_CONSTANT_WEBHOOK  ready-made program, instead of building it
  EDGEWARD_CERT_MANAGER    directory with a ready-made one, instead of building it
  EDGEWARD_EARLIER         directory with a ready-made one, instead of building it
  EDGEWARD_HELM            ready-made program, instead of building it
  EDGEWARD_LIQO            directory with a ready-made one, instead of building it
  EDGEWARD_PROMETHEUS      ready-made program, instead of Debian's
  EDGEWARD_GATEKEEPER, EDGEWARD_KYVERNO  directories with other webhooks, which `bench create` puts beside edgeward
  EDGEWARD_CACHE           where built tools are kept [default: $XDG_CACHE_HOME/edgeward or ~/.cache/edgeward]

Exit codes: 0 success, 1 failure, 2 usage, 3 there is no Go that could build the control plane,
cert-manager, Helm or Liqo, or no apt-get to bring Prometheus";

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
        (Some("wan"), filters) => suite::wan(filters),
        (Some("check"), []) => checks::check(),
        (Some("constant-webhook"), []) => constant_webhook::obtain().map(|program| println!("{}", program.display())),
        (Some("control-plane"), []) => control_plane::obtain().map(|dir| println!("{}", dir.display())),
        (Some("control-plane"), [option, minor]) if option == "--kubernetes" => {
            control_plane::obtain_older(minor).map(|dir| println!("{}", dir.display()))
        }
        (Some("cert-manager"), []) => cert_manager::obtain().map(|dir| println!("{}", dir.display())),
        (Some("earlier"), []) => earlier::obtain().map(|dir| println!("{}", dir.display())),
        (Some("helm"), []) => helm::obtain().map(|program| println!("{}", program.display())),
        (Some("liqo"), []) => liqo::obtain().map(|dir| println!("{}", dir.display())),
        (Some("static"), []) => static_program::build().map(|program| println!("{}", program.display())),
        (Some("sbom"), []) => sbom::write().map(|file| println!("{}", file.display())),
        (Some("prometheus"), []) => prometheus::obtain().map(|program| println!("{}", program.display())),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(USAGE);
        }
    };

    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(if error.is::<NoGo>() || error.is::<NoPrometheus>() {
                NO_TOOL
            } else {
                FAILURE
            })
        }
    }
}
