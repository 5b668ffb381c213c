//! Programs of tests: functions that take what the program obtains at its start.

use std::fmt;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::checkout::is_ci;
use crate::prelude::*;

/// Shorter tests are not printed.
const LONG: Duration = Duration::from_secs(10);

/// Functions, each with its path as its name.
#[macro_export]
macro_rules! scripts {
    ($($script:path),* $(,)?) => {
        &[$((stringify!($script), $script)),*]
    };
}

pub type Script<T> = fn(&T) -> Result<()>;

/// Runs the scripts that the arguments select, with what `obtain` returns. If that is `None`, because of `missing`, they are
/// skipped, and continuous integration fails.
pub fn run<T: Send + Sync + 'static>(
    target: &str,
    missing: &'static str,
    scripts: &[(&'static str, Script<T>)],
    obtain: impl FnOnce() -> Result<Option<T>>,
) -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(2);
    let tools = if args.list { Ok(None) } else { obtain() };
    let tools = match tools {
        Ok(None) if is_ci() && !args.list => Err(anyhow::anyhow!("{missing}, and CI runs every test")),
        tools => tools,
    };
    let tools = match tools {
        Ok(tools) => tools.map(Arc::new),
        Err(error) => {
            eprintln!("{target}: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    libtest_mimic::run(&args, trials(scripts, missing, tools.as_ref())).exit_code()
}

/// These scripts as tests. Without tools, because of `missing`, they are skipped.
pub fn trials<T: Send + Sync + 'static>(
    scripts: &[(&'static str, Script<T>)],
    missing: &'static str,
    tools: Option<&Arc<T>>,
) -> Vec<Trial> {
    let test = |&(name, script): &(&'static str, Script<T>)| {
        let tools = tools.cloned();
        Trial::ignorable_test(name, move || {
            let Some(tools) = tools else {
                return Ok(Completion::ignored_with(missing));
            };
            timed(name, || script(&tools)).map_err(|error| Failed::from(format!("{error:#}")))?;
            Ok(Completion::Completed)
        })
    };
    scripts.iter().map(test).collect()
}

/// Runs the test of this name and prints its duration if it was long, which libtest-mimic does not do.
pub fn timed<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let ended = run();
    let took = started.elapsed();
    if took >= LONG {
        println!("time: {name} {:.1} s", took.as_secs_f64());
    }
    ended
}

/// An inconclusive result: the machine was too busy to tell whether edgeward works.
#[derive(Debug)]
pub struct TooBusy(pub String);

impl fmt::Display for TooBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooBusy {}
