//! Tests of networks, updates and whole trainings.

mod evaluations;
mod networks;
mod trainings;
