//! The live view of a cluster where nothing happens.

use edgeward_harness::live::is_quiet;
use edgeward_harness::prelude::*;

e2e! { "live::five_quiet_minutes", Machine, five_quiet_minutes }
/// Nothing happens for five minutes, and with the default the view is not stale.
fn five_quiet_minutes(fixture: &Fixture<'_>) -> Result<()> {
    is_quiet(fixture, Duration::from_secs(300), "60s")
}
