//! When a pod is held behind our gate, and for how long.

use std::collections::BTreeMap;

use super::{duration, is_namespace, set};
use crate::document::Field;
use crate::model::slo::{Class, PerClass};
use crate::units::Micros;

/// When a pod is held behind our gate, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// What becomes of a pod that no site has room for.
    pub on_no_capacity: OnNoCapacity,
    /// Whether pods of a class may be held at all, but for the gates of others.
    pub classes: PerClass<bool>,
    /// How long a pod of a class is held at most.
    pub limits: PerClass<Micros>,
    /// How long a pod waits at most for the room of pods that are terminating; zero: not at all.
    pub wait_for_terminating: PerClass<Micros>,
    /// What becomes of a pod that arrives with the gates of others.
    pub foreign_gates: ForeignGates,
}

/// What becomes of a pod that no site has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNoCapacity {
    /// It is held until some site has room.
    Hold,
    /// It goes to the edge and is Pending there.
    Edge,
}

/// What becomes of a pod that arrives with the gates of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignGates {
    /// It gets ours too, and is decided when ours is the last.
    Wait,
    /// It passes through.
    PassThrough,
}

impl Default for Holding {
    fn default() -> Self {
        Self {
            on_no_capacity: OnNoCapacity::Hold,
            classes: PerClass([true; 3]),
            limits: PerClass([30, 120, 300].map(Micros::from_secs)),
            wait_for_terminating: PerClass([5, 30, 30].map(Micros::from_secs)),
            foreign_gates: ForeignGates::Wait,
        }
    }
}

impl Holding {
    /// Nothing is ever held: for a process that could not release a pod.
    pub fn never() -> Self {
        Self {
            on_no_capacity: OnNoCapacity::Edge,
            wait_for_terminating: PerClass::default(),
            foreign_gates: ForeignGates::PassThrough,
            ..Self::default()
        }
    }
}

/// Reads the settings of these names: `onNoCapacity`, `holdClasses`, `holdLimits`, `waitForTerminating`, `foreignGates`.
pub(super) fn read([on_no_capacity, classes, limits, wait_for_terminating, foreign_gates]: [Field<'_>; 5]) -> Holding {
    let mut holding = Holding::default();
    set(
        &mut holding.on_no_capacity,
        on_no_capacity.word(&[("hold", OnNoCapacity::Hold), ("edge", OnNoCapacity::Edge)]),
    );
    if let Some(names) = classes.list() {
        holding.classes = PerClass::default();
        for class in names.iter().filter_map(class) {
            holding.classes[class] = true;
        }
    }
    per_class(&limits, ["1s", "1h"], &mut holding.limits);
    if wait_for_terminating.is_object() {
        per_class(&wait_for_terminating, TERMINATING, &mut holding.wait_for_terminating);
    } else if let Some(wait) = duration(&wait_for_terminating, TERMINATING) {
        holding.wait_for_terminating = PerClass([wait; 3]);
    }
    set(
        &mut holding.foreign_gates,
        foreign_gates.word(&[("wait", ForeignGates::Wait), ("passThrough", ForeignGates::PassThrough)]),
    );
    holding
}

const TERMINATING: [&str; 2] = ["0s", "10m"];

/// Reads the highest SLO priority that a pod of a namespace may claim, by namespace.
pub(super) fn read_caps(field: &Field<'_>) -> BTreeMap<Box<str>, u8> {
    let entries = field.entries().into_iter().flatten();
    let cap = |(name, cap): (&str, Field<'_>)| {
        is_namespace(name, &cap).then_some(())?;
        Some((name.into(), cap.integer(0..=10)? as u8))
    };
    entries.filter_map(cap).collect()
}

fn class(field: &Field<'_>) -> Option<Class> {
    field.word(&Class::ALL.map(|class| (class.as_str(), class)))
}

/// Overwrites what is stated for single classes.
fn per_class(field: &Field<'_>, range: [&str; 2], values: &mut PerClass<Micros>) {
    let Some(classes) = field.object(Class::ALL.map(Class::as_str)) else {
        return;
    };
    for (class, value) in Class::ALL.into_iter().zip(&classes) {
        set(&mut values[class], duration(value, range));
    }
}
