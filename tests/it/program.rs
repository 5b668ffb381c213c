//! The built program, isolated from the caller's environment, and recordings of its output.

use std::env;
use std::path::Path;
use std::process::Command;

/// `edgeward`, or the build that `EDGEWARD_PROGRAM` names. The variables that edgeward reads are removed, because they would
/// change its output.
pub(crate) fn edgeward() -> Command {
    let other = env::var_os("EDGEWARD_PROGRAM");
    let mut command = Command::new(other.unwrap_or_else(|| env!("CARGO_BIN_EXE_edgeward").into()));
    command
        .env_remove("EDGEWARD_LOG")
        .env_remove("POD_NAMESPACE")
        .env_remove("KUBECONFIG");
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
        command.env_remove(proxy).env_remove(proxy.to_lowercase());
    }
    command
}

/// Whether `found` equals the file's content. `EDGEWARD_BLESS=1` updates the file, except in continuous integration, where
/// every output would then pass.
pub(crate) fn is_recorded(file: &Path, found: &str) -> bool {
    if env::var_os("EDGEWARD_BLESS").is_some() {
        let in_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!in_ci, "EDGEWARD_BLESS is set with CI=true: nothing is recorded there");
        std::fs::write(file, found).unwrap();
    }
    std::fs::read_to_string(file).is_ok_and(|recorded| recorded == found)
}
