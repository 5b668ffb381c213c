//! Reports: what a neighbouring cluster, or Karmada, says about it. A report can refuse a site, and never makes one possible.

use std::collections::{BTreeMap, BTreeSet};

use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::document::texts::{SecretKey, SecretName, TraitName};
use crate::model::slo::Class;
use crate::model::snapshot::Site;
use crate::model::traits;
use crate::placement::patch::timestamp;
use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment, Quantity};
use edgeward_kube::words;

/// How long a report counts after it arrived.
pub const FRESH: Micros = Micros::from_secs(30);

/// Maximum number of shapes.
pub const MAX_SHAPES: usize = 16;

/// Maximum number of components.
const MAX_COMPONENTS: usize = 256;

/// Maximum number of traits in a list.
const MAX_TRAITS: usize = 64;

/// Room is reported in multiples of this.
const CPU_STEP: i64 = 250;
const MEMORY_STEP: i64 = 256 << 20;

/// Where the report of the cluster behind a site is read, and which of its traits count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportSource {
    /// The kubeconfig of that cluster. Not needed for a Liqo site whose cluster is a peer
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<SecretRef>,
    /// A pod that requires one of these traits runs here only if the report says that all nodes have it. Default: none
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<TraitName>", length(max = 32))]
    pub trust_traits: Vec<String>,
}

/// A key of a Secret of edgeward's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// Name of the Secret. `deploy/reports` lets edgeward read `edgeward-neighbours`
    #[schemars(with = "SecretName")]
    pub name: String,
    /// Key with the kubeconfig
    #[serde(default = "default_key")]
    #[schemars(with = "SecretKey")]
    pub key: String,
}

fn default_key() -> String {
    "kubeconfig".to_owned()
}

words! {
    /// Who reports about a cluster.
    #[derive(Default)]
    pub enum Source {
        /// The cluster itself, node by node.
        #[default]
        Report = "report",
        /// Karmada, all nodes together.
        Karmada = "karmada",
    }
}

/// A report, as the status of a ClusterReport has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(transform = without_defaults)]
pub struct Report {
    /// Counts the reports of the cluster.
    pub generation: i64,
    /// When the report was made, RFC 3339, by the cluster's own clock.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// What is free on the edge nodes that are Ready and not cordoned, rounded down to 250m and 256Mi. Each node counts in one
    /// shape. The largest come first.
    #[schemars(with = "Vec<ReportedShape>", length(max = MAX_SHAPES))]
    pub room: Shapes,
    /// Traits of these nodes.
    pub traits: ReportedTraits,
    /// Components of groups that have pods on the edge nodes. Empty unless `report.components` is on.
    #[schemars(length(max = MAX_COMPONENTS))]
    pub components: Vec<String>,
    /// Score of the edge by the profile `report.energyProfile`.
    pub energy_score: Option<f64>,
    /// Number of gated pods by class.
    pub gated: BTreeMap<String, i64>,
    /// Who made the report.
    #[serde(skip)]
    pub source: Source,
}

/// Removes the defaults, which are for reading alone: the API server would write them.
fn without_defaults(schema: &mut Schema) {
    schema.remove("default");
    transform_subschemas(&mut without_defaults, schema);
}

/// Traits of a cluster's nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReportedTraits {
    /// Traits that every node has.
    #[schemars(length(max = MAX_TRAITS))]
    pub all: Vec<String>,
    /// Traits that some nodes have.
    #[schemars(length(max = MAX_TRAITS))]
    pub some: Vec<String>,
}

/// The part of a report that decisions use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteReport {
    /// When it arrived.
    pub as_of: Moment,
    /// The free room, less what pods took that it does not show.
    pub room: Shapes,
    /// Traits that every node has.
    pub traits: Vec<String>,
    /// Who made the report.
    pub source: Source,
}

/// Free room of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    cpu: i64,
    memory: i64,
    pods: i64,
}

/// A shape as it is written.
#[derive(Serialize, Deserialize, JsonSchema)]
struct ReportedShape {
    /// Free CPU of each node.
    #[serde(serialize_with = "cpu")]
    #[schemars(with = "String")]
    cpu: Quantity,
    /// Free memory of each node.
    #[serde(serialize_with = "memory")]
    #[schemars(with = "String")]
    memory: Quantity,
    /// Free pod slots of each node.
    pods: u32,
    /// Number of nodes.
    nodes: u32,
}

/// The free room of nodes: shapes, each with the number of its nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<ReportedShape>", into = "Vec<ReportedShape>")]
pub struct Shapes(BTreeMap<Shape, u64>);

/// The room of several nodes together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    /// CPU.
    pub cpu: Millicores,
    /// Memory.
    pub memory: Bytes,
    /// Pod slots.
    pub pods: i64,
}

impl Shape {
    fn of(node: &Node) -> Self {
        let (all, used) = (&node.allocatable, &node.charges.used);
        let free = |all: i64, used: i64, step| all.saturating_sub(used).max(0) / step * step;
        Self {
            cpu: free(all.cpu.0, used.cpu.0, CPU_STEP),
            memory: free(all.memory.0, used.memory.0, MEMORY_STEP),
            pods: free(node.slots, node.charges.pods, 1),
        }
    }

    fn fits(self, request: &Amounts) -> bool {
        self.pods > 0 && self.cpu >= request.cpu.0 && self.memory >= request.memory.0
    }

    /// The smaller value of each resource.
    fn common(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.min(other.cpu),
            memory: self.memory.min(other.memory),
            pods: self.pods.min(other.pods),
        }
    }

    fn has_all_of(self, other: Self) -> bool {
        self.common(other) == other
    }

    /// How many steps of room this has more than `other`, which fits into it.
    fn more_than(self, other: Self) -> u64 {
        let steps = [
            (self.cpu - other.cpu) / CPU_STEP,
            (self.memory - other.memory) / MEMORY_STEP,
            self.pods - other.pods,
        ];
        steps.into_iter().map(i64::unsigned_abs).fold(0, u64::saturating_add)
    }
}

impl Shapes {
    /// The free room of these nodes, in at most [`MAX_SHAPES`] shapes. Among more, the two neighbours by CPU and memory
    /// that lose least become one, again and again. The most CPU and the most memory stay if possible. Cost: a pass over the
    /// different shapes for each one too many.
    pub fn of<'n>(nodes: impl Iterator<Item = &'n Node>) -> Self {
        let mut shapes = BTreeMap::<Shape, u64>::new();
        for shape in nodes.map(Shape::of).filter(|shape| shape.pods > 0) {
            *shapes.entry(shape).or_default() += 1;
        }
        while shapes.len() > MAX_SHAPES {
            let neighbours = shapes.iter().zip(shapes.iter().skip(1));
            let cpu = shapes.keys().map(|shape| shape.cpu).max();
            let memory = shapes.keys().map(|shape| shape.memory).max();
            let loss = |((one, nodes), (other, others)): &((&Shape, &u64), (&Shape, &u64))| {
                let common = one.common(**other);
                let is_most = |shape: &Shape| Some(shape.cpu) == cpu || Some(shape.memory) == memory;
                let loses_most = (is_most(one) || is_most(other)) && !is_most(&common);
                let of_one = one.more_than(common).saturating_mul(**nodes);
                let of_other = other.more_than(common).saturating_mul(**others);
                (loses_most, of_one.saturating_add(of_other))
            };
            let Some(((&one, _), (&other, _))) = neighbours.min_by_key(loss) else {
                break;
            };
            let nodes = shapes.remove(&one).unwrap_or(0) + shapes.remove(&other).unwrap_or(0);
            *shapes.entry(one.common(other)).or_default() += nodes;
        }
        Self(shapes)
    }

    /// The largest shape on one line, such as `3 × 4 CPU, 8Gi`, or `none`.
    pub fn summary(&self) -> String {
        self.0.last_key_value().map_or("none".to_owned(), |(shape, nodes)| {
            format!("{nodes} × {} CPU, {}", Millicores(shape.cpu), Bytes(shape.memory))
        })
    }

    /// The room of all nodes together.
    pub fn total(&self) -> Total {
        let sum = |amount: fn(&Shape) -> i64| {
            let amounts = self.0.iter().map(|(shape, nodes)| (amount(shape), *nodes));
            amounts.fold(0, |sum: i64, (amount, nodes)| {
                sum.saturating_add(amount.saturating_mul(nodes as i64))
            })
        };
        Total {
            cpu: Millicores(sum(|shape| shape.cpu)),
            memory: Bytes(sum(|shape| shape.memory)),
            pods: sum(|shape| shape.pods),
        }
    }

    /// Whether a node has room for a pod with this request. Resources other than CPU and memory do not count.
    pub fn fits(&self, request: &Amounts) -> bool {
        self.0.keys().any(|shape| shape.fits(request))
    }

    /// Takes the room of this many pods, each from the largest shape that fits it: kube-scheduler prefers nodes with much free
    /// room. A pod that fits none takes nothing. Cost: a pass over the shapes for each pod.
    pub fn take(&mut self, request: &Amounts, pods: u32) {
        for _ in 0..pods {
            let Some(shape) = self.0.keys().rev().find(|shape| shape.fits(request)).copied() else {
                return;
            };
            let rest = Shape {
                cpu: shape.cpu - request.cpu.0,
                memory: shape.memory - request.memory.0,
                pods: shape.pods - 1,
            };
            match self.0.get_mut(&shape) {
                Some(nodes) if *nodes > 1 => *nodes -= 1,
                _ => drop(self.0.remove(&shape)),
            }
            *self.0.entry(rest).or_default() += 1;
        }
    }

    /// Whether more nodes than in `other` have some amount of room.
    pub fn has_more_than(&self, other: &Self) -> bool {
        let nodes = |room: &Self, least: Shape| -> u64 {
            let large = room.0.iter().filter(|(shape, _)| shape.has_all_of(least));
            large.map(|(_, nodes)| *nodes).fold(0, u64::saturating_add)
        };
        self.0.keys().any(|shape| nodes(self, *shape) > nodes(other, *shape))
    }

    /// The most that a node has of this resource; `pods` means pod slots. `None` for any other resource.
    pub fn largest(&self, name: &str) -> Option<i64> {
        let amount = |shape: &Shape| match name {
            "cpu" => Some(shape.cpu),
            "memory" => Some(shape.memory),
            "pods" => Some(shape.pods),
            _ => None,
        };
        self.0.keys().chain([&Shape::default()]).filter_map(amount).max()
    }
}

/// One shape for all nodes, because nothing is known of each.
impl From<Total> for Shapes {
    fn from(Total { cpu, memory, pods }: Total) -> Self {
        let (cpu, memory) = (cpu.0.max(0), memory.0.max(0));
        Self(
            [(
                Shape {
                    cpu,
                    memory,
                    pods: pods.max(0),
                },
                1,
            )]
            .into(),
        )
    }
}

/// Reads at most [`MAX_SHAPES`]. A shape without a node counts for nothing.
impl From<Vec<ReportedShape>> for Shapes {
    fn from(written: Vec<ReportedShape>) -> Self {
        let mut shapes = BTreeMap::new();
        for written in written.into_iter().take(MAX_SHAPES).filter(|shape| shape.nodes > 0) {
            let shape = Shape {
                cpu: written.cpu.millis().max(0),
                memory: written.memory.units().max(0),
                pods: written.pods.into(),
            };
            *shapes.entry(shape).or_default() += u64::from(written.nodes);
        }
        Self(shapes)
    }
}

impl From<Shapes> for Vec<ReportedShape> {
    fn from(shapes: Shapes) -> Self {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let written = |(shape, nodes): (Shape, u64)| ReportedShape {
            cpu: Quantity::of_millis(shape.cpu),
            memory: Quantity::of_units(shape.memory),
            pods: small(shape.pods.max(0) as u64),
            nodes: small(nodes),
        };
        // The largest first, which `kubectl get` shows.
        shapes.0.into_iter().rev().map(written).collect()
    }
}

impl Report {
    /// The report of the edge, without the numbers that the snapshot does not have. Cost: a pass over its nodes and
    /// groups.
    pub fn of(edge: &Site, with_components: bool) -> Self {
        let members = edge.members.iter().filter(|_| with_components);
        let components = members.map(|(_, member, _)| &*member.component);
        let components: BTreeSet<_> = components.filter(|name| !name.is_empty()).collect();
        let components = components.into_iter().take(MAX_COMPONENTS).map(str::to_owned);
        Self {
            room: Shapes::of(edge.usable_nodes()),
            traits: ReportedTraits::of(edge),
            components: components.collect(),
            ..Self::default()
        }
    }

    /// The report without unknown classes and what is beyond the limits on its lists. `None` if its time is not one.
    pub fn within_limits(mut self) -> Option<Self> {
        self.time = timestamp(self.time.parse().ok()?);
        self.components.truncate(MAX_COMPONENTS);
        self.traits.all.truncate(MAX_TRAITS);
        self.traits.some.truncate(MAX_TRAITS);
        let is_known = |name: &str| Class::ALL.iter().any(|class| class.as_str() == name);
        self.gated.retain(|class, _| is_known(class));
        Some(self)
    }
}

impl ReportedTraits {
    fn of(edge: &Site) -> Self {
        let (mut counts, mut nodes) = (BTreeMap::<&str, usize>::new(), 0);
        for node in edge.usable_nodes() {
            nodes += 1;
            let own = traits::of_node(node).chain(edge.definition.traits_now());
            let own: BTreeSet<_> = own.collect();
            own.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
        }
        let names = |is_wanted: fn(usize, usize) -> bool| {
            let wanted = counts.iter().filter(|(_, count)| is_wanted(**count, nodes));
            wanted.take(MAX_TRAITS).map(|(name, _)| (*name).to_owned()).collect()
        };
        Self {
            all: names(|count, nodes| count == nodes),
            some: names(|count, nodes| count < nodes),
        }
    }
}

fn cpu<S: Serializer>(cpu: &Quantity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Millicores(cpu.millis()))
}

fn memory<S: Serializer>(memory: &Quantity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Bytes(memory.units()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::testkit;

    fn shapes(nodes: &[(&str, &str, u32)]) -> String {
        let node = |(at, (cpu, memory, pods)): (usize, &(&str, &str, u32))| {
            json!({
                "name": format!("n{at:03}"), "labels": {"node.role/edge": "true"},
                "allocatable": {"cpu": cpu, "memory": memory, "pods": pods},
            })
        };
        let nodes: Vec<_> = nodes.iter().enumerate().map(node).collect();
        let fleet = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": nodes});
        let snapshot = testkit::snapshot(&fleet);
        serde_json::to_string(&Shapes::of(snapshot.sites[0].usable_nodes())).unwrap()
    }

    #[test]
    fn room_is_rounded_down_and_counted_by_shape() {
        assert_eq!(
            shapes(&[
                ("3999m", "1023Mi", 7),
                ("3750m", "768Mi", 7),
                ("100m", "64Gi", 7),
                ("4", "1Gi", 0)
            ]),
            r#"[{"cpu":"3750m","memory":"768Mi","pods":7,"nodes":2},{"cpu":"0","memory":"64Gi","pods":7,"nodes":1}]"#
        );
    }

    #[test]
    fn nearest_shapes_are_merged_beyond_sixteen() {
        let cpus: Vec<_> = (0..15).map(|cores| (cores * 4).to_string()).collect();
        let mut nodes: Vec<_> = cpus.iter().map(|cpu| (&**cpu, "8Gi", 9)).collect();
        nodes.extend([("60250m", "7Gi", 9), ("4250m", "8Gi", 9)]);
        let merged = shapes(&nodes);
        assert_eq!(merged.matches("cpu").count(), MAX_SHAPES, "{merged}");
        let (most, two) = (
            r#"[{"cpu":"60250m","memory":"7Gi","pods":9,"nodes":1}"#,
            r#"{"cpu":"4","memory":"8Gi","pods":9,"nodes":2}"#,
        );
        assert!(merged.starts_with(most) && merged.contains(two), "{merged}");
    }

    #[test]
    fn pods_take_the_largest_shape_that_fits() {
        let mut room: Shapes = serde_json::from_value(json!([
            {"cpu": "1", "memory": "4Gi", "pods": 9, "nodes": 1}, {"cpu": "8", "memory": "8Gi", "pods": 1, "nodes": 2},
        ]))
        .unwrap();
        let request = |millicores| Amounts {
            cpu: Millicores(millicores),
            ..Amounts::default()
        };
        let before = room.clone();
        room.take(&request(750), 1);
        assert!(room.fits(&request(8_000)) && before.has_more_than(&room) && !room.has_more_than(&before));
        room.take(&request(750), 2);
        assert!(
            room.fits(&request(250)) && !room.fits(&request(251)),
            "the pod slots of the others are gone"
        );
        room.take(&request(300), 1);
        assert!(room.fits(&request(250)), "a pod that fits nowhere takes nothing");
    }

    #[test]
    fn report_has_traits_and_components_of_the_edge() {
        let node = |name: &str, labels: serde_json::Value| {
            let mut labels = labels;
            labels["node.role/edge"] = json!("true");
            json!({"name": name, "labels": labels, "allocatable": {"cpu": 1, "memory": "1Gi", "pods": 9}})
        };
        let secure = "traits.edgeward.io/Secure";
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge", "traits": ["Green"], "groupPods": [
                {"namespace": "shop", "group": "app", "component": "db"}, {"namespace": "other", "group": "app", "component": "db"},
                {"namespace": "shop", "group": "app"},
            ]}],
            "nodes": [node("a", json!({secure: "true"})), node("b", json!({secure: "false"}))],
        });
        let mut edge = testkit::snapshot(&fleet).sites[0].clone();
        let report = Report::of(&edge, true);
        assert_eq!(
            (report.traits.all, report.traits.some),
            (vec!["Green".to_owned()], vec!["Secure".to_owned()])
        );
        assert_eq!(report.components, ["db"]);
        assert!(Report::of(&edge, false).components.is_empty());
        Arc::make_mut(&mut edge.nodes).truncate(1);
        assert_eq!(Report::of(&edge, false).traits.all, ["Green", "Secure"]);
    }
}
