//! The training of the guide.

use std::process::Command;

use edgeward_harness::documentation::script;
use edgeward_harness::prelude::*;

e2e! { "training::guide_earns_more_than_the_paper", Machine, guide_earns_more_than_the_paper }
/// Runs the commands of the guide. Their numbers depend on the processor a little, so the bound is what the paper's agent
/// earns.
fn guide_earns_more_than_the_paper(fixture: &Fixture<'_>) -> Result<()> {
    let block = script("learn.md", "cargo run --release -p edgeward-lab -- train")?;
    let mut table = String::new();
    for command in block.replace("\\\n", " ").lines() {
        let (_, arguments) = command
            .split_once(" edgeward-lab -- ")
            .context("a command of the lab")?;
        let output = Command::new(env!("CARGO_BIN_EXE_edgeward-lab"))
            .args(arguments.split_whitespace())
            .current_dir(&fixture.dir)
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        table = String::from_utf8(output.stdout)?;
    }
    let reward = |policy: &str| -> Result<f64> {
        let row = table.lines().find(|line| line.contains(policy)).context("a row")?;
        let cell = row.split('|').nth(2).context("a cell")?;
        Ok(cell.split_whitespace().next().context("a number")?.parse()?)
    };
    ensure!(reward(" deepsets-ppo ")? > reward(" in the paper ")?, "{table}");
    Ok(())
}
