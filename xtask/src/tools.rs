//! What the tests need beside programs of ours.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::Result;

use crate::go::NoGo;
use crate::prometheus::NoPrometheus;
use crate::report::Stage;
use crate::shell::joined;
use crate::{cert_manager, control_plane, earlier, helm, liqo, prometheus};

type Obtain = fn() -> Result<PathBuf>;

/// Each by its name and by the variable that tells the tests where it is.
const TOOLS: [(&str, &str, Obtain); 6] = [
    (control_plane::NAME, control_plane::VARIABLE, control_plane::obtain),
    (cert_manager::NAME, cert_manager::VARIABLE, cert_manager::obtain),
    (helm::NAME, helm::VARIABLE, helm::obtain),
    (liqo::NAME, liqo::VARIABLE, liqo::obtain),
    (earlier::NAME, earlier::VARIABLE, earlier::obtain),
    (prometheus::NAME, prometheus::VARIABLE, prometheus::obtain),
];

/// Where they are.
pub(crate) struct Tools(Vec<(&'static str, PathBuf)>);

impl Tools {
    /// All at once, where progress can be seen. One that cannot be had is left out: the tests themselves say what that means
    /// (skipped, or under `CI=true` a failure). Any other error is one, when all have ended.
    pub(crate) fn obtain() -> (Vec<Stage>, Result<Self>) {
        let obtained: Vec<_> = thread::scope(|scope| {
            let threads = TOOLS.map(|tool| scope.spawn(move || obtain(tool)));
            threads.into_iter().map(joined).collect()
        });
        let (stages, places): (Vec<_>, Vec<_>) = obtained.into_iter().unzip();
        let places: Result<Vec<_>> = places.into_iter().collect();
        (
            stages,
            places.map(|places| Self(places.into_iter().flatten().collect())),
        )
    }

    /// Tells the command, and whatever it starts, where they are.
    pub(crate) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.envs(self.0.iter().map(|(variable, place)| (variable, place)))
    }
}

fn obtain((name, variable, obtain): (&str, &'static str, Obtain)) -> (Stage, Result<Option<(&'static str, PathBuf)>>) {
    let (mut stage, place) = Stage::done(name, || match obtain() {
        Ok(place) => Ok(Some((variable, place))),
        Err(error) if error.is::<NoGo>() || error.is::<NoPrometheus>() => {
            eprintln!("{name} | {error:#}");
            Ok(None)
        }
        Err(error) => {
            eprintln!("{name} | {error:#}");
            Err(error.context(name.to_owned()))
        }
    });
    if matches!(place, Ok(None)) {
        stage.ended = "not to be had".to_owned();
    }
    stage.say();
    (stage, place)
}
