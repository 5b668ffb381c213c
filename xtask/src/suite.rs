//! `cargo xtask test`, `cargo xtask soak` and `cargo xtask bench`: the tests, in stages that say how long they took.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::fuzz;
use crate::report::{Report, Stage, timed};
use crate::shell::{cargo, follow, run, side_by_side};
use crate::targets::{self, Target};
use crate::test_output::TestOutput;
use crate::tools::Tools;

/// The tests that mostly wait: they have a lane of their own.
const E2E: &str = "e2e";

/// Those that take long, on a machine that does nothing else. `cargo test` does not run them unless they are named.
pub(crate) const SOAK: &str = "soak";

/// What edgeward costs in a cluster: programs as they are released, and tables.
pub(crate) const CLUSTER: &str = "cluster";

const BENCHES_OF_SOAK: &str = "pods";

/// It waits as well, and is the last of the other lane: what needs the processor is over when e2e comes to its last tests.
const WAN: &str = "wan";

/// Everything, or what `cargo test` is told.
pub(crate) fn test(args: &[String]) -> Result<()> {
    Report::of(|report| {
        if args.is_empty() {
            everything(report)
        } else {
            some(report, args)
        }
    })
}

/// The long tests of these names; without names also the fuzz targets, and the benchmark that is a long test.
pub(crate) fn soak(filters: &[String]) -> Result<()> {
    let long_tests = ["--workspace", "--test", SOAK];
    let pods = [BENCHES_OF_SOAK.to_owned()];
    Report::of(|report| {
        if filters == pods {
            return benches(report, filters);
        }
        if !filters.is_empty() {
            return measured(report, &long_tests, filters);
        }
        fuzz::targets(report, &[], fuzz::SECONDS)?;
        measured(report, &long_tests, &[])?;
        benches(report, &pods)
    })
}

/// What edgeward costs in a cluster, all or what these names match.
pub(crate) fn bench(filters: &[String]) -> Result<()> {
    Report::of(|report| benches(report, filters))
}

/// Two lanes at once, each of which runs its targets one after the other: e2e, and all others.
fn everything(report: &mut Report) -> Result<()> {
    let (tools, targets) = prepare(report, &["--workspace"])?;
    let runs = targets.iter().map(|target| Run::of(target, &tools));
    let (e2e, mut others): (Vec<_>, Vec<_>) = runs.partition(|run| run.name == E2E);
    ensure!(!e2e.is_empty(), "cargo built no test target {E2E}");
    others.sort_by_key(|run| run.name == WAN);
    // The examples in the documentation, which rustdoc builds and runs.
    let doc = cargo(["test", "--workspace", "--locked", "--doc"]);
    others.insert(0, Run::new("doc", doc));
    let one_by_one = |runs: Vec<Run>| runs.into_iter().map(|run| run.finish().0).collect::<Vec<_>>();
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

fn some(report: &mut Report, args: &[String]) -> Result<()> {
    let (stages, tools) = Tools::obtain();
    report.add(stages);
    let mut tests = cargo(["test", "--workspace", "--locked"]);
    tools?.tell(&mut tests).args(args);
    report.stage("cargo test", || run(&mut tests))
}

fn benches(report: &mut Report, filters: &[String]) -> Result<()> {
    let target = ["--package", "edgeward", "--profile", "dist", "--bench", CLUSTER];
    measured(report, &target, filters)
}

/// Tests that print what they find. One of them must match.
fn measured(report: &mut Report, target: &[&str], filters: &[String]) -> Result<()> {
    let (tools, targets) = prepare(report, target)?;
    let mut matched = false;
    for target in targets {
        let mut run = Run::of(&target, &tools);
        run.command.arg("--nocapture").args(filters);
        let (stage, has_tests) = run.finish();
        report.add([stage]);
        matched |= has_tests;
    }
    report.verdict()?;
    ensure!(matched, "no test matches `{}`", filters.join(" "));
    Ok(())
}

struct Run {
    name: String,
    command: Command,
}

impl Run {
    fn new(name: &str, command: Command) -> Self {
        let name = name.to_owned();
        Self { name, command }
    }

    fn of(target: &Target, tools: &Tools) -> Self {
        let mut command = target.command();
        tools.tell(&mut command);
        Self::new(&target.name, command)
    }

    /// Runs it and shows each of its lines with its name. Whether it had any test comes with the stage.
    fn finish(self) -> (Stage, bool) {
        let Self { name, command } = self;
        println!("{name} | started");
        let mut output = TestOutput::default();
        let (mut stage, _) = Stage::done(&name, || {
            let status = follow(command, |line| {
                if let Some(line) = line {
                    output.read(line);
                    println!("{name} | {line}");
                }
            })?;
            ensure!(status.success(), "{status}");
            ensure!(!output.counts.is_empty(), "it reported no test");
            Ok(())
        });
        let counts = output.counts.join(", ");
        stage.ended = if stage.ended == "ok" {
            counts
        } else {
            format!("{}; {counts}", stage.ended)
        };
        stage.say();
        let has_tests = !output.has_no_test();
        stage.notes = output.notes;
        (stage, has_tests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_reports_no_test_has_failed() {
        let verdict = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let (stage, _) = Run::new("it", command).finish();
            Report::of(|report| {
                report.add([stage]);
                report.verdict()
            })
        };
        let passed = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'";
        verdict(passed).unwrap();
        verdict(&format!("{passed}; exit 1")).unwrap_err();
        verdict("true").unwrap_err();
    }
}
