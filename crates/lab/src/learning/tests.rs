//! Networks, updates and whole trainings.

mod networks;
mod trainings;
