//! Tests of networks, updates and whole trainings.

mod evaluations;
mod networks;
mod placements;
mod trainings;
