//! `cargo xtask test`, `soak` and `bench`: the tests, in timed stages.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::fuzz;
use crate::report::{Report, Stage, timed};
use crate::shell::{cargo, follow, nice, run, side_by_side};
use crate::targets::{self, Target};
use crate::test_output::TestOutput;
use crate::tools::Tools;

/// The end-to-end tests mostly wait, so they have a lane of their own.
const E2E: &str = "e2e";

/// Long tests that need an otherwise idle machine. `cargo test` runs them only if they are named.
pub(crate) const SOAK: &str = "soak";

/// Tests of the image on a real node, which also take minutes.
pub(crate) const NODE: &str = "node";

/// Benchmarks of edgeward in a cluster. They use release builds and print tables.
pub(crate) const CLUSTER: &str = "cluster";

const BENCHES_OF_SOAK: &str = "pods";

/// The WAN tests also wait, so they follow in the lane of e2e.
const WAN: &str = "wan";

/// Runs all tests, or `cargo test` with these arguments.
pub(crate) fn test(args: &[String]) -> Result<()> {
    Report::of(|report| {
        if args.is_empty() {
            everything(report)
        } else {
            some(report, args)
        }
    })
}

/// Runs the long tests of these names. Without names, also runs the fuzz targets and the benchmark that counts as a long test.
pub(crate) fn soak(filters: &[String]) -> Result<()> {
    let long_tests = ["--workspace", "--test", SOAK, "--test", NODE];
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
        report.stage("property of the scorer", || {
            let test = [
                "test",
                "--workspace",
                "--locked",
                "--lib",
                "scorer_only_ranks_feasible_clouds",
            ];
            run(cargo(test).env("PROPTEST_CASES", "100000"))
        })?;
        benches(report, &pods)
    })
}

/// Runs all cluster benchmarks, or those whose names match.
pub(crate) fn bench(filters: &[String]) -> Result<()> {
    Report::of(|report| benches(report, filters))
}

/// Runs two lanes at once: e2e and WAN, which mostly wait, and all others, which are built and mostly compute. Each lane runs its
/// targets one after another. The others leave the processor to e2e when it needs it.
fn everything(report: &mut Report) -> Result<()> {
    const WAITING: [&str; 2] = [E2E, WAN];
    let (tools, targets) = prepare(report, &["--workspace", "--test", E2E, "--test", WAN])?;
    ensure!(targets.len() == 2, "cargo built no test target {E2E} or {WAN}");
    let waiting = || {
        let runs = targets.iter().map(|target| Run::of(target, &tools));
        runs.map(|run| run.finish().0).collect::<Vec<_>>()
    };
    let others = || {
        let (build, targets) = timed("build of the others", || {
            targets::build(nice(&cargo([])), &["--workspace"])
        });
        let others = targets.into_iter().flatten();
        let others = others.filter(|target| !WAITING.contains(&&*target.name));
        // The examples in the documentation, which rustdoc builds and runs.
        let doc = Run::new("doc", cargo(["test", "--workspace", "--locked", "--doc"]));
        let runs = others.map(|target| Run::of(&target, &tools)).chain([doc]);
        let ended = runs.map(|run| run.at_leisure().finish().0);
        [build].into_iter().chain(ended).collect::<Vec<_>>()
    };
    let (waiting, others) = side_by_side(waiting, others);
    report.add(waiting.into_iter().chain(others));
    report.verdict()
}

/// Obtains the tools and compiles the tests at the same time.
fn prepare(report: &mut Report, tests: &[&str]) -> Result<(Tools, Vec<Target>)> {
    let ((stages, tools), (build, targets)) = side_by_side(Tools::obtain, || {
        timed("build of the tests", || targets::build(cargo([]), tests))
    });
    report.add(stages);
    report.add([build]);
    // Reports a compile error of the tests before an error of the tools.
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

/// Runs tests that print measurements. Fails if no test matches the filters.
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

    fn at_leisure(mut self) -> Self {
        self.command = nice(&self.command);
        self
    }

    /// Waits for the target and prints each of its lines with its name. Returns its stage, and whether it ran any test.
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
    fn program_without_reported_test_fails() {
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
