//! The live view of an idle cluster.

use edgeward_harness::live::is_quiet;
use edgeward_harness::prelude::*;

e2e! { "live::five_quiet_minutes", Machine, five_quiet_minutes }
/// With the default staleness limit, the view stays fresh while nothing happens for five minutes.
fn five_quiet_minutes(fixture: &Fixture<'_>) -> Result<()> {
    is_quiet(fixture, Duration::from_secs(300), "60s")
}
