//! `edgeward profile backtest` against a server that holds a day of samples.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use edgeward_harness::documentation::script;
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::Server;

use crate::Run;

/// The metric of the example.
const ROOM: &str = "edgeward_site_free_cpu_cores";

const PROFILE: &str = "examples/profiles/room-ahead.yaml";

/// Minutes of samples: the day, and the window of the first forecast.
const MINUTES: i64 = 24 * 60 + 45;

/// Returns a day of samples until `now`. At the edge, the free cores fall by one each hour, with an hour of gaps and one NaN.
/// The cloud is flat with noise that lasts some minutes. One site of each metric has no counterpart.
fn samples(now: i64) -> String {
    let (mut text, mut state, mut noise) = ("# TYPE edgeward_site_free_cpu_cores gauge\n".to_owned(), 1_u64, 0.0);
    let minutes = || (0..=MINUTES).map(|minute| (minute, now - 60 * (MINUTES - minute)));
    for (minute, at) in minutes().filter(|(minute, _)| !(600..660).contains(minute)) {
        let free = if minute == 900 {
            f64::NAN
        } else {
            40.0 - minute as f64 / 60.0
        };
        text += &format!("edgeward_site_free_cpu_cores{{site=\"edge\"}} {free} {at}\n");
    }
    text += "# TYPE noisy gauge\n";
    for (_, at) in minutes() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        noise = 0.95 * noise + (state >> 40) as f64 / f64::from(1 << 24) - 0.5;
        text += &format!("noisy{{site=\"cloud\"}} {} {at}\n", 8.0 + noise);
    }
    text + &format!("# TYPE free_elsewhere gauge\nfree_elsewhere{{site=\"other\"}} 1 {now}\n# EOF\n")
}

/// Runs the command. Returns its exit code, its document, and its standard error.
fn backtest(config: &Path, profile: &Path, actual: &str, more: &[&str]) -> Result<(Option<i32>, Value, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward"));
    command.args(["profile", "backtest", "-o", "json", "--actual", actual, "--config"]);
    let output = command.arg(config).arg(profile).args(more).output()?;
    let document = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output.status.code(), document, stderr))
}

/// Runs the command of the guide in this folder, which has its configuration.
fn shown_command_prints_skill(folder: &Path) -> Result<()> {
    std::os::unix::fs::symlink(workspace().join("examples"), folder.join("examples"))?;
    let block = script("decide.md", "edgeward profile backtest")?;
    let programs = Path::new(env!("CARGO_BIN_EXE_edgeward")).with_file_name("");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH")?);
    let mut sh = Command::new("sh");
    let output = sh.args(["-c", block]).current_dir(folder).env("PATH", path).output()?;
    let table = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "{table}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let overall = table.lines().last().unwrap_or_default();
    ensure!(table.starts_with(" SITE ") || table.starts_with("SITE "), "{table}");
    ensure!(overall.contains("(overall)"), "{table}");
    Ok(())
}

pub(crate) fn backtest_finds_skill_on_ramp_and_none_on_noise(run: &Run) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let server = Server::holding(&run.program, &samples(i64::try_from(now)?))?;
    let dir = tempfile::tempdir()?;
    let config = dir.path().join("config.yaml");
    fs::write(&config, format!("prometheus: {{url: \"http://{}\"}}\n", server.address))?;
    let noise = dir.path().join("noise.yaml");
    fs::write(&noise, fs::read_to_string(PROFILE)?.replace(ROOM, "noisy"))?;
    let ramp = Path::new(PROFILE);
    eventually("the server answers", BOUND, || {
        let (code, _, stderr) = backtest(&config, ramp, ROOM, &[])?;
        ensure!(code != Some(1), "{stderr}");
        Ok(())
    })
    .with_context(|| server.tail())?;
    shown_command_prints_skill(dir.path())?;

    // 1,426 forecasts. The gap and the NaN remove forecasts, and actual values at both ends of the horizon.
    let actual = format!("{ROOM} or free_elsewhere");
    let (code, ramp_found, stderr) = backtest(&config, ramp, &actual, &[])?;
    let [edge, other] = ["edge", "other"].map(|name| {
        let mut sites = ramp_found["sites"].as_array().into_iter().flatten();
        sites.find(|site| site["site"] == name).cloned().unwrap_or_default()
    });
    let counts = |site: &Value| ["pairs", "missing", "unusable"].map(|key| site[key].as_u64().unwrap_or(0));
    let [pairs, missing, unusable] = counts(&edge);
    ensure!(code == Some(0), "{stderr}{ramp_found}");
    ensure!(
        pairs + missing + unusable == 1_426 && missing > 50 && unusable > 20,
        "{ramp_found}"
    );
    ensure!(counts(&other)[0] == 0 && other["error"].is_null(), "{ramp_found}");
    let close = |value: &Value, expected: f64| value.as_f64().is_some_and(|value| (value - expected).abs() < 0.1);
    // A quarter of an hour costs a quarter of a core.
    ensure!(
        close(&edge["persistenceError"], 0.25) && close(&edge["skill"], 1.0),
        "{ramp_found}"
    );
    ensure!(ramp_found["overall"]["skill"] == edge["skill"], "{ramp_found}");

    let (code, _, stderr) = backtest(&config, ramp, ROOM, &["--horizon", "5m", "--last", "8h"])?;
    ensure!(code == Some(2), "a forecast for 15 minutes has no skill at 5: {stderr}");
    let (code, noise_found, stderr) = backtest(&config, &noise, "noisy", &[])?;
    let skill = noise_found["overall"]["skill"].as_f64();
    ensure!(
        code == Some(2) && skill.is_some_and(|skill| skill < 0.0),
        "{stderr}{noise_found}"
    );
    let (code, _, stderr) = backtest(&config, &noise, ROOM, &[])?;
    ensure!(code == Some(1) && stderr.contains("nothing to compare"), "{stderr}");
    let (code, _, stderr) = backtest(&config, &noise, "noisy{", &[])?;
    ensure!(code == Some(1) && stderr.contains("rejected"), "{stderr}");
    Ok(())
}
