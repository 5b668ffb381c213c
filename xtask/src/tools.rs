//! External tools that the tests need.

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::Result;

use crate::report::Stage;
use crate::shell::joined;
use crate::{book, control_plane, debian, earlier, go_programs, gym};

/// The means to build or fetch a tool are missing. Tests that need the tool are skipped, or say why they fail.
#[derive(Debug)]
pub(crate) struct NoTool(pub(crate) String);

impl fmt::Display for NoTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoTool {}

/// A tool's name, the variable that tells the tests where it is, and the function that obtains it.
type Tool = (&'static str, &'static str, fn() -> Result<PathBuf>);

/// Lanes of tools. Within a lane, tools are obtained one after another, so at most two Go builds and one `apt-get` run at a
/// time.
const LANES: [&[Tool]; 3] = [
    &[("control plane", control_plane::VARIABLE, control_plane::obtain)],
    &[
        ("cert-manager", go_programs::CERT_MANAGER, go_programs::cert_manager),
        ("Helm", go_programs::HELM, go_programs::helm),
        ("Karmada", go_programs::KARMADA, go_programs::karmada),
        ("Liqo", go_programs::LIQO, go_programs::liqo),
        ("definitions", go_programs::DEFINITIONS, go_programs::definitions),
    ],
    &[
        ("ip", debian::IP, debian::ip),
        ("Prometheus", debian::PROMETHEUS, debian::prometheus),
        ("Chromium", debian::CHROMIUM, debian::chromium),
        ("documentation site", book::BOOK, book::build),
        ("earlier edgeward", earlier::VARIABLE, earlier::obtain),
        ("Python gym", gym::GYM, gym::obtain),
    ],
];

pub(crate) struct Tools(Vec<(&'static str, PathBuf)>);

impl Tools {
    /// Obtains all tools. Leaves out unavailable tools. Returns any other error after all lanes have ended.
    pub(crate) fn obtain() -> (Vec<Stage>, Result<Self>) {
        let obtained: Vec<_> = thread::scope(|scope| {
            let lanes = LANES.map(|lane| scope.spawn(move || lane.iter().map(obtain).collect::<Vec<_>>()));
            lanes.into_iter().flat_map(joined).collect()
        });
        let (stages, places): (Vec<_>, Vec<_>) = obtained.into_iter().unzip();
        let places: Result<Vec<_>> = places.into_iter().collect();
        (
            stages,
            places.map(|places| Self(places.into_iter().flatten().collect())),
        )
    }

    /// Sets the variables for the command and its children.
    pub(crate) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.0.iter().map(|(variable, place)| (variable, place)))
    }
}

fn obtain((name, variable, obtain): &Tool) -> (Stage, Result<Option<(&'static str, PathBuf)>>) {
    let mut lacking = None;
    let (mut stage, place) = Stage::done(name, || match obtain() {
        Ok(place) => Ok(Some((*variable, place))),
        Err(error) if error.is::<NoTool>() => {
            lacking = Some(format!("unavailable: {error:#}"));
            Ok(None)
        }
        Err(error) => Err(error.context(*name)),
    });
    stage.ended = lacking.unwrap_or(stage.ended);
    stage.say();
    (stage, place)
}
