//! The live view of an idle cluster.

use edgeward_harness::live::is_quiet;
use edgeward_harness::prelude::*;

e2e! { "live::five_idle_minutes_keep_view_fresh", Machine, five_idle_minutes_keep_view_fresh }
/// With the default staleness limit, the view stays fresh while nothing happens for five minutes.
fn five_idle_minutes_keep_view_fresh(fixture: &Fixture<'_>) -> Result<()> {
    is_quiet(fixture, Duration::from_secs(300), "60s")
}
