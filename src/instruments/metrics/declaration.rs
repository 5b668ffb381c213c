//! How metrics are declared: each once, with all that operators see of it.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

use edgeward_core::words;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{TypedMetric, info::Info};
use prometheus_client::registry::{Metric as Encode, Registry};

words! {
    /// How a metric counts, by the word of its `# TYPE` line and of the documentation.
    pub enum Kind {
        /// Only ever rises; zero at start.
        Counter = "counter",
        /// The value as of now.
        Gauge = "gauge",
        /// Observations in buckets, with their sum and count.
        Histogram = "histogram",
        /// Constant 1; its labels are the message.
        Info = "info",
    }
}

/// One metric as operators see it.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// Full name, unit and `_total` included.
    pub name: &'static str,
    /// How it counts.
    pub kind: Kind,
    /// Its label names, in order.
    pub labels: &'static [&'static str],
    /// One sentence without the final full stop, which the exposition adds.
    pub help: &'static str,
}

impl Description {
    /// The encoder appends the suffix that the type demands.
    pub(super) fn registered_name(&self) -> &'static str {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        self.name.strip_suffix(suffix).unwrap_or(self.name)
    }

    pub(super) fn register<M: Encode + Clone>(&self, registry: &mut Registry, metric: M) -> M {
        registry.register(self.registered_name(), self.help, metric.clone());
        metric
    }
}

/// What the field of a group may be.
pub(super) trait Metric: Sized {
    const KIND: Kind;

    fn register(of: &'static Description, registry: &mut Registry) -> Self;
}

/// Declares a group of metrics as a struct: a line for each with type, name, labels and help. `LIST` describes them; `new`
/// registers all, without labels at zero.
macro_rules! metrics {
    ($(#[$meta:meta])* $vis:vis struct $group:ident {
        $($metric:ident: $type:ty = $name:literal [$($label:literal),*] $help:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug)]
        $vis struct $group {
            $($metric: $type,)*
        }

        impl $group {
            pub(super) const LIST: [$crate::instruments::metrics::Description; [$($name),*].len()] =
                [$($crate::instruments::metrics::Description {
                    name: $name,
                    kind: <$type as $crate::instruments::metrics::declaration::Metric>::KIND,
                    labels: &[$($label),*],
                    help: $help,
                }),*];

            pub(super) fn new(registry: &mut prometheus_client::registry::Registry) -> Self {
                let [$($metric),*] = &Self::LIST;
                Self {
                    $($metric: <$type as $crate::instruments::metrics::declaration::Metric>::register($metric, registry),)*
                }
            }
        }
    };
}

pub(super) use metrics;

/// A gauge that need not be a whole number.
pub(super) type Decimal = Gauge<f64, AtomicU64>;

impl Metric for Counter {
    const KIND: Kind = Kind::Counter;

    fn register(of: &'static Description, registry: &mut Registry) -> Self {
        of.register(registry, Self::default())
    }
}

impl Metric for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn register(of: &'static Description, registry: &mut Registry) -> Self {
        of.register(registry, Self::default())
    }
}

impl Metric for Decimal {
    const KIND: Kind = Kind::Gauge;

    fn register(of: &'static Description, registry: &mut Registry) -> Self {
        of.register(registry, Self::default())
    }
}

/// The version that is running.
#[derive(Debug)]
pub(super) struct Version;

impl Metric for Version {
    const KIND: Kind = Kind::Info;

    fn register(of: &'static Description, registry: &mut Registry) -> Self {
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register(of.registered_name(), of.help, version);
        Self
    }
}

/// The values of labels, with their names.
type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// A metric that is told apart by so many labels.
#[derive(Debug)]
pub(super) struct Series<M, const N: usize> {
    names: &'static [&'static str],
    family: Family<Labels<N>, M>,
}

/// Counters by labels.
pub(super) type Counters<const N: usize> = Series<Counter, N>;

/// Gauges by labels.
pub(super) type Gauges<const N: usize> = Series<Gauge, N>;

/// Gauges by labels that need not be whole numbers.
pub(super) type Decimals<const N: usize> = Series<Decimal, N>;

impl<M, const N: usize> Metric for Series<M, N>
where
    M: Metric + Encode + TypedMetric + Default + Clone,
{
    const KIND: Kind = M::KIND;

    fn register(of: &'static Description, registry: &mut Registry) -> Self {
        Self {
            names: of.labels,
            family: of.register(registry, Family::default()),
        }
    }
}

impl<M: Default + Clone, const N: usize> Series<M, N> {
    /// The one whose labels have these values, in the order of the declaration. It is shown from now on.
    pub(super) fn of(&self, values: [Cow<'static, str>; N]) -> M {
        self.family.get_or_create_owned(&self.labels(values))
    }

    /// No more of it is shown.
    pub(super) fn remove(&self, values: [Cow<'static, str>; N]) {
        self.family.remove(&self.labels(values));
    }

    /// None is shown any more.
    pub(super) fn clear(&self) {
        self.family.clear();
    }

    fn labels(&self, values: [Cow<'static, str>; N]) -> Labels<N> {
        let mut names = self.names.iter();
        values.map(|value| (names.next().copied().unwrap_or_default(), value))
    }
}
