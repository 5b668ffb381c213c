//! Performance profiles: what operators prefer among the sites that would do, from its text and from numbers to scores.
//!
//! Pure and synchronous as the core is: no I/O, no clock; time and data are arguments. A crate of its own, for the language of
//! its equations takes a library that decisions do without.
//!
//! | module | what it is |
//! |---|---|
//! | [`profile`] | the text of a profile, every fault named |
//! | [`equation`] | its equation, in CEL |
//! | [`evaluation`] | metrics to scores |
//! | [`preference`] | which site is preferred, with margin and dwell |
//! | [`import`] | CODECO's form of a profile |
//! | [`evaluated`] | a profile that is an object of a cluster, and what its last round gave |

pub mod equation;
pub mod evaluated;
pub mod evaluation;
pub mod import;
pub mod preference;
pub mod profile;

pub use evaluated::{All, Evaluated, Known, Round, SeenProfile};
pub use evaluation::{Evaluation, Series, score};
pub use preference::Preference;
pub use profile::{BuiltIn, Profile};
