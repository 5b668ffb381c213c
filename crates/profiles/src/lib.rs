//! Performance profiles: what operators prefer among the feasible sites. Turns the text of a profile and metrics into
//! scores.
//!
//! Pure and synchronous: no I/O and no clock; time and data are arguments. This is a crate of its own,
//! because the language of the equations needs a library that decisions do without.
//!
//! | module | what it is |
//! |---|---|
//! | [`profile`] | the text of a profile, with every fault named |
//! | [`equation`] | its equation, in CEL |
//! | [`evaluation`] | metrics to scores |
//! | [`preference`] | which site is preferred, with margin and dwell |
//! | [`import`] | profiles in CODECO's form |
//! | [`backtest`] | a forecast against what came |
//! | [`evaluated`] | a PerformanceProfile object and the result of its last evaluation |

#![warn(missing_docs)]

pub mod backtest;
pub mod equation;
pub mod evaluated;
pub mod evaluation;
pub mod import;
pub mod preference;
pub mod profile;

pub use evaluated::{All, Evaluated, Round, SeenProfile, StatusFacts};
pub use evaluation::{Evaluation, Series, score};
pub use preference::Preference;
pub use profile::{BuiltIn, Profile, ProfileSpec};
