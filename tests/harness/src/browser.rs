//! Pages in a real browser: the program that `EDGEWARD_CHROMIUM` names, or the first installed Chromium.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The browser; `None` if there is none. With `CI=true`, a missing browser is an error.
pub fn chromium() -> Result<Option<PathBuf>> {
    if let Some(program) = env::var_os("EDGEWARD_CHROMIUM").filter(|program| !program.is_empty()) {
        return Ok(Some(program.into()));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let names = [
        "chromium-headless-shell",
        "chrome-headless-shell",
        "chromium",
        "google-chrome",
    ];
    let mut programs = env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    let found = programs.find(|program| program.is_file());
    let is_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
    ensure!(
        found.is_some() || !is_ci,
        "there is no Chromium: Debian has it as chromium-headless-shell"
    );
    Ok(found)
}

/// Opens a page whose script writes JSON into the `pre` element with the id `seen`, and returns that JSON. The window is
/// `width` pixels wide.
pub fn seen(program: &Path, url: &str, width: u32, is_dark: bool) -> Result<Value> {
    let profile = tempfile::tempdir()?;
    let output = Command::new(program)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--dump-dom",
        ])
        .args(["--allow-file-access-from-files", "--virtual-time-budget=5000"])
        .arg(format!("--window-size={width},900"))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark)))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .output()?;
    let page = String::from_utf8(output.stdout)?;
    let found = page
        .rsplit_once("<pre id=\"seen\">")
        .with_context(|| format!("{url}: {page:.200}"))?
        .1;
    let (found, _) = found.split_once("</pre>").context("the element does not end")?;
    let text = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Ok(serde_json::from_str(&text)?)
}
