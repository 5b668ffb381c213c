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
    /// How long a pod of a class is held at most; zero: not at all, except for the gates of others.
    pub limits: PerClass<Micros>,
    /// How long a pod waits at most for the room of pods that are terminating; zero: not at all.
    pub wait_for_terminating: PerClass<Micros>,
    /// Whether this process can release a pod, so that it may gate one.
    pub can_release: bool,
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

read_words!(OnNoCapacity);

impl Default for Holding {
    fn default() -> Self {
        Self {
            on_no_capacity: OnNoCapacity::Hold,
            limits: PerClass([30, 120, 300].map(Micros::from_secs)),
            wait_for_terminating: PerClass([5, 30, 30].map(Micros::from_secs)),
            can_release: true,
        }
    }
}

impl Holding {
    /// Nothing is ever held: for a process that could not release a pod.
    pub fn never() -> Self {
        Self {
            on_no_capacity: OnNoCapacity::Edge,
            wait_for_terminating: PerClass::default(),
            can_release: false,
            ..Self::default()
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
