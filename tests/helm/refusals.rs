//! The chart refuses values that contradict each other or that it does not know.

use edgeward_harness::chart;
use edgeward_harness::prelude::*;

use crate::Tools;
use crate::rendered::least;

pub(crate) fn wrong_values_are_refused_by_name(tools: &Tools) -> Result<()> {
    // Columns: values to add to the smallest ones, and words of the refusal.
    let table = include_str!("../golden/refused-values.txt").replace("\"CA\"", r#""-----BEGIN CERTIFICATE-----\n""#);
    for line in table.lines() {
        let (more, words) = line.split_once(" | ").context("two columns")?;
        let more: Value = serde_json::from_str(more)?;
        let mut values = least();
        for (name, value) in more.as_object().into_iter().flatten() {
            values[name] = value.clone();
        }
        let Err(refused) = tools.template(&values) else {
            bail!("{more} is taken");
        };
        ensure!(format!("{refused:#}").contains(words), "{more}: {refused:#}");
    }
    let Err(refused) = tools.template_of(&chart::folder(), "default", &least()) else {
        bail!("the namespace default is taken");
    };
    ensure!(format!("{refused:#}").contains("namespace default: "), "{refused:#}");
    ensure!(
        format!("{refused:#}").contains("-f deploy/base/namespace.yaml"),
        "{refused:#}"
    );
    Ok(())
}
