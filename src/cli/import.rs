//! `edgeward import`: converts manifests of other schedulers.

mod appgroup;
mod codeco;
mod field;
mod part;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::Value;

use super::findings::Findings;
use crate::platform::yaml;
use part::Parts;

/// Convert manifests of other schedulers into manifests with edgeward's annotations.
#[derive(Debug, Args)]
pub(super) struct Import {
    #[command(subcommand)]
    from: Source,
}

#[derive(Debug, Subcommand)]
enum Source {
    /// Print Deployments made from CODECO's CodecoApps, or from Applications of its QoS scheduler.
    ///
    /// Names each value without an equal in edgeward on standard error.
    #[command(after_help = "Exit code 3: a finding remains (see --fix).")]
    Codeco(Input),
    /// Print patches for the workloads in AppGroups of kube-scheduler's network-aware plugins.
    ///
    /// For kustomize, or for `kubectl apply --server-side -f -` where the workloads exist. Names each value without
    /// an equal in edgeward on standard error.
    #[command(after_help = "Exit code 3: a finding remains (see --fix).")]
    Appgroup(Input),
}

#[derive(Debug, Args)]
struct Input {
    /// YAML or JSON, any number of documents; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Guess where the meaning is open, and say so.
    #[arg(long)]
    fix: bool,

    /// Configuration with the domain of the annotations: a file, or a directory with the keys of a ConfigMap.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
}

/// Converts the documents of a file. Returns how many it could read.
type Convert = fn(&[Value], &mut Parts, &mut Findings) -> usize;

impl Import {
    /// Prints the converted manifests.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (input, convert, kinds): (_, Convert, _) = match self.from {
            Source::Codeco(input) => (input, codeco::convert, "CodecoApp or Application"),
            Source::Appgroup(input) => (input, appgroup::convert, "AppGroup"),
        };
        let source = input.file.display().to_string();
        let documents = yaml::parse_all(&super::read_text(&input.file)?, &source)?;
        let keys = super::read_config(input.config.as_deref())?.keys;
        let mut findings = Findings::new(input.fix);
        let mut parts = Parts::default();
        let read = convert(&items(documents), &mut parts, &mut findings);
        if read == 0 {
            findings.report();
            bail!("{source}: has no {kinds}");
        }
        for manifest in parts.manifests(&keys, &mut findings) {
            super::print_document(&manifest)?;
        }
        Ok(findings.report())
    }
}

/// The documents, with each List replaced by its items.
fn items(documents: Vec<Value>) -> Vec<Value> {
    let mut all = vec![];
    for mut document in documents {
        match document.get_mut("items") {
            Some(Value::Array(items)) => all.append(items),
            _ => all.push(document),
        }
    }
    all
}

#[cfg(test)]
mod tests;
