//! `cargo xtask test`, `cargo xtask soak` and `cargo xtask wan`: the tests, in stages that say how long they took.

use std::io::{self, Write as _};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::fuzz;
use crate::report::{Report, Stage, timed};
use crate::shell::{cargo, follow, run, side_by_side};
use crate::targets::{self, Target};
use crate::test_output::TestOutput;
use crate::tools::Tools;

/// The tests that mostly wait: they have a lane of their own.
const E2E: &str = "e2e";

/// Those that take long, on a machine that does nothing else. `cargo test` does not run them, unless they are named.
pub(crate) const SOAK: &str = "soak";

/// What edgeward costs in a cluster: programs as they are released, and tables.
pub(crate) const CLUSTER: &str = "cluster";

/// What of that is a long test, too.
const BENCHES_OF_SOAK: &str = "pods";

/// It waits as well, and is the last of the other lane: what needs the processor is over when e2e comes to its last tests.
const WAN: &str = "wan";

/// `core [FILTER...]`: the unit tests of edgeward-core. Nothing: everything. Else what `cargo test` is given.
pub(crate) fn test(args: &[String]) -> Result<()> {
    let mut report = Report::new();
    let result = match args {
        [] => everything(&mut report),
        [name, filters @ ..] if name == "core" => core(&mut report, filters),
        args => some(&mut report, args),
    };
    println!("{report}");
    result
}

/// What nothing else runs: `fuzz [TARGET...]`, the fuzz targets, or the long tests on a control plane of these names. Nothing: both,
/// and what of the benchmarks is a long test.
pub(crate) fn soak(filters: &[String]) -> Result<()> {
    let mut report = Report::new();
    let result = match filters {
        [] => fuzz::targets(&mut report, &[], fuzz::SECONDS)
            .and_then(|()| long_tests(&mut report, &[]))
            .and_then(|()| benches(&mut report, &[BENCHES_OF_SOAK.to_owned()])),
        [name] if name == BENCHES_OF_SOAK => benches(&mut report, filters),
        [name, targets @ ..] if name == "fuzz" => fuzz::targets(&mut report, targets, fuzz::SECONDS),
        filters => long_tests(&mut report, filters),
    };
    println!("{report}");
    result
}

/// What edgeward costs in a cluster, all or what these names match.
pub(crate) fn bench(filters: &[String]) -> Result<()> {
    let mut report = Report::new();
    let result = benches(&mut report, filters);
    println!("{report}");
    result
}

/// The tests over an emulated WAN, a part of [`test()`]. Where the system has no place for one, they say what is missing
/// and are skipped, or under `CI=true` fail.
pub(crate) fn wan(filters: &[String]) -> Result<()> {
    let mut report = Report::new();
    let command = cargo(["test", "--locked", "--test", WAN, "--"]);
    report.add([Run::new(WAN, command).live().only(filters).finish()]);
    println!("{report}");
    report.verdict()
}

/// Two lanes at once, each of which runs its targets one after the other: e2e, and all others.
fn everything(report: &mut Report) -> Result<()> {
    let (tools, targets) = prepare(report, &["--workspace"])?;
    let (mut e2e, mut others) = (Vec::new(), Vec::new());
    for target in targets {
        let run = Run::of(&target, &tools)?;
        match target.name.as_str() {
            E2E => e2e.push(run.live()),
            _ => others.push(run),
        }
    }
    ensure!(!e2e.is_empty(), "cargo built no test target {E2E}");
    others.sort_by_key(|run| run.name == WAN);
    // The examples in the documentation, which rustdoc builds and runs.
    let command = cargo(["test", "--workspace", "--locked", "--doc"]);
    others.insert(0, Run::new("doc", command));
    let (e2e, others) = side_by_side(|| one_by_one(e2e), || one_by_one(others));
    report.add(e2e.into_iter().chain(others));
    report.verdict()
}

/// What the tests need and the tests themselves, at once.
fn prepare(report: &mut Report, tests: &[&str]) -> Result<(Tools, Vec<Target>)> {
    let ((stages, tools), (build, targets)) =
        side_by_side(Tools::obtain, || timed("build of the tests", || targets::build(tests)));
    report.add(stages);
    report.add([build]);
    // That the tests do not compile is said before what else there is.
    let targets = targets?;
    Ok((tools?, targets))
}

fn core(report: &mut Report, filters: &[String]) -> Result<()> {
    let tests = ["--package", "edgeward-core", "--lib"];
    let targets = report.stage("build of the tests", || targets::build(&tests))?;
    for target in targets {
        report.add([Run::new("core", target.command()?).live().only(filters).finish()]);
    }
    report.verdict()
}

fn some(report: &mut Report, args: &[String]) -> Result<()> {
    let (stages, tools) = Tools::obtain();
    report.add(stages);
    let mut tests = cargo(["test", "--workspace", "--locked"]);
    tools?.tell(&mut tests).args(args);
    report.stage("cargo test", || run(&mut tests))
}

fn long_tests(report: &mut Report, filters: &[String]) -> Result<()> {
    measured(report, &["--workspace", "--test", SOAK], filters)
}

fn benches(report: &mut Report, filters: &[String]) -> Result<()> {
    measured(
        report,
        &["--package", "edgeward", "--release", "--bench", CLUSTER],
        filters,
    )
}

/// The tests of one target that print what they find.
fn measured(report: &mut Report, target: &[&str], filters: &[String]) -> Result<()> {
    let (tools, targets) = prepare(report, target)?;
    let target = targets.first().context("cargo built no tests")?;
    let mut soak = Run::of(target, &tools)?.live();
    soak.command.arg("--nocapture");
    report.add([soak.only(filters).finish()]);
    report.verdict()
}

/// The run of a test program.
struct Run {
    name: String,
    command: Command,
    /// Whether its lines are shown as they come, each with its name, or all together at its end.
    is_live: bool,
    /// What the names of its tests have to match.
    filters: Vec<String>,
}

impl Run {
    fn new(name: &str, command: Command) -> Self {
        Self {
            name: name.to_owned(),
            command,
            is_live: false,
            filters: vec![],
        }
    }

    fn of(target: &Target, tools: &Tools) -> Result<Self> {
        let mut command = target.command()?;
        tools.tell(&mut command);
        Ok(Self::new(&target.name, command))
    }

    fn live(self) -> Self {
        Self { is_live: true, ..self }
    }

    /// Of these tests alone, of which there must be one.
    fn only(mut self, filters: &[String]) -> Self {
        self.command.args(filters);
        self.filters = filters.to_vec();
        self
    }

    fn finish(self) -> Stage {
        let Self {
            name,
            command,
            is_live,
            filters,
        } = self;
        println!("{name} | started");
        let (mut output, mut lines) = (TestOutput::default(), Vec::new());
        let (mut stage, result) = Stage::done(&name, || {
            let status = follow(command, |line| {
                let Some(line) = line else { return };
                output.read(line);
                match is_live {
                    true => println!("{name} | {line}"),
                    false => lines.push(line.to_owned()),
                }
            })?;
            ensure!(status.success(), "{status}");
            ensure!(!output.counts.is_empty(), "it reported no test");
            let is_unmatched = !filters.is_empty() && output.has_no_test();
            ensure!(!is_unmatched, "no test matches `{}`;", filters.join(" "));
            Ok(())
        });
        show(&name, &lines);
        let counts = output.counts.join(", ");
        stage.ended = match result {
            // It says so itself.
            Err(_) if counts.contains("FAILED") => counts,
            Err(error) => format!("FAILED, {error:#} {counts}"),
            Ok(()) => counts,
        };
        stage.output = output;
        stage.say();
        stage
    }
}

/// Nothing comes in between.
fn show(name: &str, lines: &[String]) {
    let mut stdout = io::stdout().lock();
    for line in lines {
        let _ = writeln!(stdout, "{name} | {line}");
    }
}

fn one_by_one(runs: Vec<Run>) -> Vec<Stage> {
    runs.into_iter().map(Run::finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Run {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Run::new("it", command)
    }

    fn verdict(script: &str) -> Result<()> {
        let mut report = Report::new();
        report.add([run(script).finish()]);
        report.verdict()
    }

    #[test]
    fn a_program_that_reports_no_test_has_failed_whatever_its_status() {
        let passed = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'";
        verdict(passed).unwrap();
        verdict(&format!("{passed}; exit 1")).unwrap_err();
        verdict("true").unwrap_err();
    }

    #[test]
    fn a_filter_that_matches_no_test_is_named() {
        let ended = |passed: u32, filters: &[&str]| {
            let script =
                format!("echo 'test result: ok. {passed} passed; 0 failed; 0 ignored; 0 measured; 9 filtered out'");
            let filters: Vec<_> = filters.iter().map(ToString::to_string).collect();
            run(&script).only(&filters).finish().ended
        };
        let words = ended(0, &["cach", "quue"]);
        assert!(words.starts_with("FAILED, no test matches `cach quue`"), "{words}");
        assert!(ended(1, &["cache"]).starts_with("ok"));
        assert!(ended(0, &[]).starts_with("ok"));
    }
}
