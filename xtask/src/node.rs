//! `cargo xtask node`: what a real node consists of.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, key, ready_made};
use crate::control_plane;
use crate::debian;
use crate::image;
use crate::shell::run;

const VARIABLE: &str = "EDGEWARD_NODE";

/// Part of the cache key. Raise the number when what is built below changes.
const RECIPE: &str = "2: containerd, runc, CNI plugins, pause, kubelet, kube-proxy";

/// Packages of Debian, unpacked, because installing containerd would start a service.
const PACKAGES: [&str; 3] = ["containerd", "runc", "containernetworking-plugins"];

/// What is needed of the packages.
const WANTED: [&str; 5] = [
    "usr/bin/containerd",
    "usr/bin/containerd-shim-runc-v2",
    "usr/bin/ctr",
    "usr/sbin/runc",
    "usr/lib/cni",
];

/// A container that waits to be stopped, as Kubernetes' own `pause` does.
const PAUSE: &str = "\
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void stop(int signal) { exit(0); }
int main(void) { signal(SIGTERM, stop); signal(SIGINT, stop); for (;;) pause(); }
";

/// Returns the directory with kubelet, kube-proxy, containerd, its shim, ctr, runc, `cni/`, and the image archive `pause.tar`.
/// Installs the packet filters that kube-proxy and kube-router run, if they are missing.
pub(crate) fn obtain() -> Result<PathBuf> {
    debian::packet_filters()?;
    if let Some(dir) = ready_made(VARIABLE)? {
        return Ok(dir);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let kubelet = control_plane::of_node()?;
    let parts = [RECIPE, PAUSE, &release, &kubelet.display().to_string()];
    let dir = cache::root()?.join("node").join(key(&parts));
    cache::once("node", &dir, |partial| {
        for name in ["kubelet", "kube-proxy"] {
            fs::copy(kubelet.join(name), partial.join(name)).context(name)?;
        }
        debian::unpack("node", partial, &PACKAGES, &WANTED)?;
        let (source, program) = (partial.join("pause.c"), partial.join("pause"));
        fs::write(&source, PAUSE)?;
        let mut compiler = Command::new("musl-gcc");
        run(compiler.args(["-static", "-Os", "-o"]).arg(&program).arg(&source))?;
        let archive = image::of_program("localhost/pause", "1", "pause", fs::read(&program)?)?;
        Ok(fs::write(partial.join("pause.tar"), archive)?)
    })?;
    Ok(dir)
}
