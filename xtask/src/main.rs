//! Developer commands of edgeward, run as `cargo xtask <command>`.
//!
//! Everything that continuous integration does is a command here. A person at a terminal, the `justfile` and `.ci/run`
//! therefore run the same thing.

mod archive;
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
mod gym;
mod image;
mod node;
mod program;
mod project;
mod release;
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
  test             run all tests, with the end-to-end tests on a real control plane; show how long each stage took
  test ARGS        run `cargo test --workspace --locked ARGS`
  soak [NAME]      run what `test` leaves out: each fuzz target for a minute, and the long tests on a control plane
  bench [NAME]     measure what edgeward costs in a cluster: create, pods, watching. Needs an otherwise idle machine
  fuzz [TARGET...] run all or the named fuzz targets for a minute each; --seconds 3600 sets the time
  check            check formatting, lints, workflows, documentation and dependencies; runs no test
  advisories       look for known vulnerabilities of the dependencies; fetches the advisory database
  static           build the static program that the image contains and start it with no other files; prints its path
  docs             build the documentation as a site with a search; prints its path
  program [OS/ARCH] build a release's program for this machine or another Linux into target/publish; prints its path
  image            write the image of these programs as an OCI archive, without a container engine; prints its path
  release TAG      write every file of a release into target/publish; --dry-run instead of a tag allows missing programs
  sbom             write the program's bill of materials (CycloneDX) to target/sbom; prints its path

Commands that build or fetch a tool of the tests into the cache, unless it is there, and print its path:
  control-plane    etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok;
                   --kubernetes 1.33 selects an older minor version
  cert-manager, constant-webhook, definitions, helm, karmada, kube-router, kubectl, liqo
  buildah, skopeo  installed ones, or else Debian's; installing takes root
  node             what a real node takes: kubelet and kube-proxy; containerd, runc and CNI plugins of Debian; an image of pause
  earlier          the version that the tests upgrade from
  gym              a Python that has the package edgeward-gym, built by maturin
  chromium         an installed Chromium, or else Debian's; installing it takes root
  prometheus, registry
                   an installed Prometheus with promtool, or registry of images, or else Debian's, unpacked

Environment:
  EDGEWARD_CONTROL_PLANE, EDGEWARD_CERT_MANAGER, EDGEWARD_EARLIER, EDGEWARD_KARMADA, EDGEWARD_LIQO, EDGEWARD_NODE,
  EDGEWARD_DEFINITIONS
                   a ready-made directory to use instead of building one
  EDGEWARD_ACTIONLINT, EDGEWARD_BUILDAH, EDGEWARD_CHROMIUM, EDGEWARD_CONSTANT_WEBHOOK, EDGEWARD_GYM,
  EDGEWARD_HELM, EDGEWARD_IP, EDGEWARD_KUBE_ROUTER, EDGEWARD_PROMETHEUS, EDGEWARD_REGISTRY, EDGEWARD_SKOPEO
                   a ready-made program to use instead of building or fetching one
  EDGEWARD_GATEKEEPER, EDGEWARD_KYVERNO
                   directories with other webhooks, which `bench create` compares with edgeward
  EDGEWARD_RELEASE a directory for `program`, `image` and `release` instead of target/publish
  EDGEWARD_CACHE   where built tools are kept [default: $XDG_CACHE_HOME/edgeward or ~/.cache/edgeward]

Exit codes: 0 success, 1 failure, 2 usage error, 3 a tool is unavailable: there is no Go to build it, no apt-get to fetch it, or no
history to build the earlier version from";

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const NO_TOOL: u8 = 3;

fn main() -> ExitCode {
    let mut args = env::args().skip(1);
    let command = args.next();
    let rest: Vec<String> = args.collect();
    // Prints the help, so that `soak --help` does not start a run of hours.
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
        (Some("advisories"), []) => checks::advisories(),
        (Some("control-plane"), [option, minor]) if option == "--kubernetes" => {
            print(control_plane::obtain_older(minor))
        }
        (Some("kubectl"), []) => print(control_plane::kubectl()),
        (Some("control-plane"), []) => print(control_plane::obtain()),
        (Some("buildah"), []) => print(debian::buildah()),
        (Some("cert-manager"), []) => print(go_programs::cert_manager()),
        (Some("chromium"), []) => print(debian::chromium()),
        (Some("constant-webhook"), []) => print(go_programs::constant_webhook()),
        (Some("earlier"), []) => print(earlier::obtain()),
        (Some("definitions"), []) => print(go_programs::definitions()),
        (Some("gym"), []) => print(gym::obtain()),
        (Some("helm"), []) => print(go_programs::helm()),
        (Some("karmada"), []) => print(go_programs::karmada()),
        (Some("kube-router"), []) => print(go_programs::kube_router()),
        (Some("liqo"), []) => print(go_programs::liqo()),
        (Some("prometheus"), []) => print(debian::prometheus()),
        (Some("registry"), []) => print(debian::registry()),
        (Some("skopeo"), []) => print(debian::skopeo()),
        (Some("static"), []) => print(static_program::build_for_this_machine()),
        (Some("program"), []) => print(program::build(None)),
        (Some("program"), [platform]) => print(program::build(Some(platform))),
        (Some("node"), []) => print(node::obtain()),
        (Some("image"), []) => print(image::write()),
        (Some("release"), [tag]) => release::release(tag),
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
