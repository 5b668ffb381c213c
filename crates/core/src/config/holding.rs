//! When a pod is held behind our gate, and for how long.

use crate::config::declaration::{Kind, Read, read_words};
use crate::config::{is_namespace, no_namespace};
use crate::document::Field;
use crate::model::priority_caps::{OTHERS, PriorityCaps};
use crate::model::slo::{Class, PerClass};
use crate::units::Micros;
use crate::words;

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

words! {
    /// What becomes of a pod that no site has room for.
    pub enum OnNoCapacity {
        /// It is held until some site has room.
        Hold = "hold",
        /// It goes to the edge and is Pending there.
        Edge = "edge",
    }
}

words! {
    /// What becomes of a pod that arrives with the gates of others.
    pub enum ForeignGates {
        /// It gets ours too, and is decided when ours is the last.
        Wait = "wait",
        /// It passes through.
        PassThrough = "passThrough",
    }
}

read_words!(OnNoCapacity, ForeignGates);

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

/// The classes that are named, and no others.
impl Read for PerClass<bool> {
    fn read(&mut self, field: &Field<'_>, _: &Kind) {
        let Some(names) = field.list() else { return };
        *self = Self::default();
        for class in names.iter().filter_map(|name| name.word(&Class::BY_WORD)) {
            self[class] = true;
        }
    }
}

/// One value is for every class; a class that is not named keeps what it has.
impl Read for PerClass<Micros> {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        match kind {
            Kind::Either(_, map) if field.is_object() => self.read(field, map),
            Kind::PerClass(to) => {
                let fields = field.object(Class::WORDS).into_iter().flatten();
                for (own, field) in self.0.iter_mut().zip(fields) {
                    own.read(&field, to);
                }
            }
            Kind::Either(one, _) if field.is_present() => {
                self.0[0].read(field, one);
                self.0 = [self.0[0]; 3];
            }
            _ => {}
        }
    }
}

impl Read for PriorityCaps {
    fn read(&mut self, field: &Field<'_>, kind: &Kind) {
        let Kind::Map(_, to) = kind else { return };
        for (name, field) in field.entries().into_iter().flatten() {
            if !is_namespace(name) && name != OTHERS {
                field.fault(format!(
                    "{}, nor {OTHERS:?}, which is all that are not listed",
                    no_namespace(name)
                ));
            }
            self.extend(to.integer(&field).map(|cap| (name, cap)));
        }
    }
}
