//! `cargo xtask fuzz`: each target of `fuzz/` for a while, by libFuzzer, with the pinned toolchain.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::report::{Report, timed};
use crate::shell::{cargo, follow, output, run, workspace};

/// How long each target runs, unless told otherwise, in seconds.
pub(crate) const SECONDS: u64 = 60;

/// What libFuzzer is guided by: each edge is counted, and comparisons are seen. cargo-fuzz passes the same. None of it is
/// unstable but sanitizers, which code without `unsafe` does without.
const INSTRUMENTATION: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Longer inputs are not made. One with more elements than are ever read of a pod has some 30 KB.
const MAX_LEN: usize = 1 << 16;

/// The largest input that is taken into the repository, in bytes.
const LARGEST: u64 = 1 << 10;

/// How much of the repository the corpus of a target takes at most, unless it is made by hand, in bytes.
const SHARE: u64 = 24 << 10;

/// `[TARGET...] [--seconds N | --merge]`.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    let (mut names, mut seconds, mut merges) = (Vec::new(), SECONDS, false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match &**arg {
            "--seconds" => {
                seconds = args
                    .next()
                    .context("--seconds needs a number")?
                    .parse()
                    .context("--seconds")?
            }
            "--merge" => merges = true,
            _ => names.push(arg.clone()),
        }
    }
    if merges {
        let programs = build(&names)?;
        return programs.iter().try_for_each(Program::merge);
    }
    let mut report = Report::new();
    let result = targets(&mut report, &names, seconds);
    println!("{report}");
    result
}

/// Each of these targets, or all, for so long. What became of each is a row of a table at the end.
pub(crate) fn targets(report: &mut Report, names: &[String], seconds: u64) -> Result<()> {
    let programs = report.stage("build of the targets", || build(names))?;
    let mut rows = Vec::new();
    for program in programs {
        let (stage, ran) = timed(&format!("fuzz {}", program.name), || {
            let found = program.run(seconds)?;
            rows.push(found.row(&program.name, seconds));
            found.verdict()
        });
        report.add([stage]);
        if let Err(error) = ran {
            eprintln!("{error:#}");
        }
    }
    println!("\n| target | seconds | executions | edges | features | corpus | findings |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    rows.iter().for_each(|row| println!("{row}"));
    report.verdict()
}

/// A target that is built.
struct Program {
    name: String,
    path: PathBuf,
    /// Where its inputs are kept from run to run, and what it finds.
    work: PathBuf,
}

/// Builds these targets, or all. They are not where other programs are built, which are not instrumented.
fn build(names: &[String]) -> Result<Vec<Program>> {
    let folder = workspace().join("fuzz");
    let all = fs::read_dir(folder.join("corpus")).context("fuzz/corpus")?;
    let mut all: Vec<_> = all
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    all.sort();
    if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
        bail!("there is no target {unknown}; there are {}", all.join(", "));
    }
    let version = output(Command::new("rustc").arg("-vV").current_dir(workspace()))?.context("there is no rustc")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not say for what it builds")?;
    let built = workspace().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let built = built.join("fuzz");
    // With a target, what runs while it is built is not instrumented.
    run(cargo([
        "build",
        "--release",
        "--locked",
        "--bins",
        "--target",
        host,
        "--manifest-path",
        "fuzz/Cargo.toml",
    ])
    .env("CARGO_TARGET_DIR", &built)
    .env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTATION.join("\x1f")))?;
    let programs = all.into_iter().filter(|name| names.is_empty() || names.contains(name));
    let program = |name: String| Program {
        path: built.join(host).join("release").join(&name),
        work: built.join("work").join(&name),
        name,
    };
    Ok(programs.map(program).collect())
}

impl Program {
    fn corpus(&self) -> PathBuf {
        workspace().join("fuzz/corpus").join(&self.name)
    }

    /// Its inputs from run to run.
    fn inputs(&self) -> Result<PathBuf> {
        let inputs = self.work.join("inputs");
        fs::create_dir_all(&inputs).with_context(|| inputs.display().to_string())?;
        Ok(inputs)
    }

    fn run(&self, seconds: u64) -> Result<Found> {
        let mut command = Command::new(&self.path);
        command
            .args([self.inputs()?, self.corpus()])
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-max_len={MAX_LEN}"))
            .arg(format!("-dict={}", workspace().join("fuzz/words.dict").display()))
            .arg(format!("-artifact_prefix={}/", self.work.display()))
            // On a machine in use one input may wait for a minute.
            .args(["-timeout=300", "-report_slow_units=300"])
            .args(["-rss_limit_mb=2048", "-print_final_stats=1"]);
        let mut found = Found::default();
        let status = follow(command, |line| {
            let Some(line) = line else { return };
            found.read(line);
            // Each new input is a line, of which a minute has thousands.
            let is_new = line.starts_with('#') && !["INITED", "pulse", "DONE"].iter().any(|word| line.contains(word));
            let is_hint = line.starts_with('"');
            if !is_new && !is_hint {
                println!("{} | {line}", self.name);
            }
        })?;
        ensure!(status.success() || found.input.is_some(), "{}: {status}", self.name);
        Ok(found)
    }

    /// Takes into the repository what reaches an edge that nothing there does, what reaches most first, until the share of
    /// the target is full.
    fn merge(&self) -> Result<()> {
        let (corpus, small, chosen) = (self.corpus(), self.work.join("small"), self.work.join("chosen"));
        for folder in [&small, &chosen] {
            if folder.exists() {
                fs::remove_dir_all(folder)?;
            }
            fs::create_dir_all(folder)?;
        }
        copy(&self.inputs()?, &small, |bytes| bytes <= LARGEST)?;
        let mut taken = copy(&corpus, &chosen, |_| true)?;
        // The first folder gets what it lacks, one after the other.
        let args = ["-set_cover_merge=1", "-use_counters=0"];
        run(Command::new(&self.path).args(args).args([&chosen, &small]))?;
        let mut new = Vec::new();
        for entry in fs::read_dir(&chosen)? {
            let (name, metadata) = entry.and_then(|entry| Ok((entry.file_name(), entry.metadata()?)))?;
            if !corpus.join(&name).exists() {
                new.push((metadata.modified()?, name, metadata.len()));
            }
        }
        new.sort();
        for (_, name, bytes) in new {
            if taken + bytes <= SHARE {
                taken += bytes;
                fs::copy(chosen.join(&name), corpus.join(&name))?;
            }
        }
        println!("{}: {taken} bytes", self.name);
        Ok(())
    }
}

/// Copies the files that are of such a size; returns how many bytes they have together.
fn copy(from: &Path, to: &Path, is_wanted: impl Fn(u64) -> bool) -> Result<u64> {
    let mut all = 0;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let bytes = entry.metadata()?.len();
        if is_wanted(bytes) {
            all += fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(all)
}

/// What libFuzzer says of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    executions: u64,
    edges: u64,
    features: u64,
    inputs: u64,
    /// The input that broke an invariant, which was the last.
    input: Option<String>,
}

impl Found {
    /// A line: `#2097152 pulse  cov: 1325 ft: 4108 corp: 642/37Kb lim: 4096 exec/s: 58254 rss: 512Mb`, or how it ends.
    fn read(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            let into = match word {
                "cov:" => &mut self.edges,
                "ft:" => &mut self.features,
                "corp:" => &mut self.inputs,
                "stat::number_of_executed_units:" => &mut self.executions,
                _ => continue,
            };
            let number = words.next().and_then(|word| word.split('/').next()?.parse().ok());
            *into = number.unwrap_or(*into);
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.input = Some(path.to_owned());
        }
    }

    fn row(&self, name: &str, seconds: u64) -> String {
        let Self {
            executions,
            edges,
            features,
            inputs,
            input,
        } = self;
        let findings = input.iter().count();
        format!("| {name} | {seconds} | {executions} | {edges} | {features} | {inputs} | {findings} |")
    }

    fn verdict(&self) -> Result<()> {
        match &self.input {
            None => Ok(()),
            Some(path) => bail!("an invariant does not hold: {path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libfuzzer_says_is_a_row() {
        let mut found = Found::default();
        for line in [
            "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 40Mb",
            "#524288\tDONE   cov: 1325 ft: 4108 corp: 642/37Kb lim: 4096 exec/s: 58254 rss: 512Mb",
            "stat::number_of_executed_units: 524288",
            "stat::average_exec_per_sec:     8595",
        ] {
            found.read(line);
        }
        assert_eq!(found.row("pod", 60), "| pod | 60 | 524288 | 1325 | 4108 | 642 | 0 |");
        found.verdict().unwrap();
        found.read("artifact_prefix='/t/'; Test unit written to /t/crash-1");
        assert_eq!(found.row("pod", 60), "| pod | 60 | 524288 | 1325 | 4108 | 642 | 1 |");
        assert!(found.verdict().unwrap_err().to_string().ends_with("/t/crash-1"));
    }
}
