//! How many pods a site has room for at once.

use crate::model::snapshot::{Free, Site};
use crate::model::workload::Workload;
use crate::placement::decide::{MAX_COMPARISONS, comparisons};
use crate::placement::filters::nodes::fitting_nodes;
use crate::placement::room::{Room, Taken, fits_beside};
use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;

/// The most pods and sets that are counted.
const MAX_PODS: u32 = 200_000;

/// A number of pods that are alike.
pub type Pods<'w> = (Workload<'w>, u32);

/// A site, and the pods that are added to it.
#[derive(Debug)]
pub struct Packing<'s, 'w> {
    left: Left<'s>,
    coming: Vec<Kind<'w>>,
    set: Vec<Kind<'w>>,
}

/// The nodes of a site with all that is taken from them. Pods are added one by one.
#[derive(Debug)]
struct Left<'s> {
    nodes: Vec<(&'s Node, Taken<'s>)>,
    /// The measured free capacity of the whole site.
    free: Free,
}

#[derive(Debug)]
struct Kind<'w> {
    request: &'w Amounts,
    pods: u32,
    /// Nodes that these pods may use, by their place. A full one is removed.
    nodes: Vec<usize>,
}

impl<'s, 'w> Packing<'s, 'w> {
    /// The site as a pod finds it now, for `coming` pods and then for sets of other pods. `None` if the pods or
    /// their constraints take too many comparisons with nodes. Cost: a pass over the site's nodes for each kind of pod.
    pub fn new(site: &'s Site, room: &Room<'s, '_>, coming: &'w [Pods<'w>], set: &'w [Pods<'w>]) -> Option<Self> {
        let all = coming.iter().chain(set);
        let passes = site.nodes().count().saturating_mul(coming.len() + set.len());
        let comparisons = all.map(|(workload, _)| comparisons(workload, room.snapshot));
        if passes > MAX_COMPARISONS || comparisons.fold(0, usize::saturating_add) > MAX_COMPARISONS {
            return None;
        }
        let kind = |(workload, pods): &'w Pods<'w>| Kind {
            request: &workload.request,
            pods: *pods.min(&MAX_PODS),
            nodes: usable(workload, site, room),
        };
        Some(Self {
            left: Left {
                nodes: site.nodes().map(|node| (node, room.taken(node))).collect(),
                free: room.free(site),
            },
            coming: coming.iter().map(kind).collect(),
            set: set.iter().map(kind).collect(),
        })
    }

    /// Adds the coming pods until there is no room, and returns how many whole sets fit then, at most 200,000.
    /// Nodes are filled one after the other, so sets of different pods may fit more often. Cost: a comparison for each pod that
    /// fits, and for each node and kind of pod.
    pub fn sets(mut self) -> u32 {
        for kind in &mut self.coming {
            self.left.place(kind);
        }
        let mut sets = 0;
        while sets < MAX_PODS && self.set.iter_mut().all(|kind| self.left.place(kind)) {
            sets += 1;
        }
        sets
    }
}

impl Left<'_> {
    /// Adds the pods of a kind. Returns whether all have a node.
    fn place(&mut self, kind: &mut Kind<'_>) -> bool {
        (0..kind.pods).all(|_| self.place_one(kind))
    }

    fn place_one(&mut self, kind: &mut Kind<'_>) -> bool {
        let request = kind.request;
        let exceeds = |name| self.free.get(name).is_some_and(|free| request.get(name) > free.max(0));
        if exceeds("cpu") || exceeds("memory") {
            return false;
        }
        while let Some(at) = kind.nodes.last() {
            let (node, taken) = &mut self.nodes[*at];
            if fits_beside(request, node, taken) {
                taken.add(request, 1);
                self.free.cpu = self.free.cpu.map(|cpu| cpu - request.cpu);
                self.free.memory = self.free.memory.map(|memory| memory - request.memory);
                return true;
            }
            kind.nodes.pop();
        }
        false
    }
}

/// The nodes of the site on which such a pod fits now, by their place.
fn usable(workload: &Workload<'_>, site: &Site, room: &Room<'_, '_>) -> Vec<usize> {
    let mut fitting = fitting_nodes(workload, site, room).peekable();
    let nodes = site.nodes().enumerate();
    let usable = nodes.filter_map(|(at, node)| fitting.next_if(|next| next.id == node.id).map(|_| at));
    usable.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::keys::Keys;
    use crate::model::snapshot::Snapshot;
    use crate::pod::Pod;
    use crate::testkit;
    use edgeward_kube::units::Millicores;

    /// Four edge nodes with 1.5 CPU free on each. One is tainted, and one is cordoned. A cloud is empty.
    fn snapshot() -> Snapshot {
        let node = |name: &str, more: Value| {
            let mut node = json!({
                "name": name, "labels": {"node.role/edge": "true", "zone": name},
                "allocatable": {"cpu": 4, "memory": "8Gi", "pods": 9}, "used": {"cpu": "2500m", "pods": 1},
            });
            json_patch::merge(&mut node, &more);
            node
        };
        let taint = json!({"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]});
        let cloud = json!({"labels": {"node.role/edge": null, "node.role/cloud": "true"}, "used": null});
        testkit::snapshot(&json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud"}],
            "nodes": [
                node("a", json!({})), node("b", taint), node("c", json!({"unschedulable": true})), node("d", json!({})), node("e", cloud),
            ],
        }))
    }

    fn pods(cpu: &str, pods: u32, spec: &Value) -> Pods<'static> {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        json_patch::merge(&mut pod["spec"], spec);
        let text = pod.to_string();
        let workload = Pod::from_json(&text)
            .unwrap()
            .workload("shop".into(), &Keys::new("example.io"));
        (workload.into_owned(), pods)
    }

    fn sets(snapshot: &Snapshot, coming: &[Pods<'_>], set: &[Pods<'_>]) -> u32 {
        let room = Room::of(snapshot);
        Packing::new(&snapshot.sites[0], &room, coming, set).unwrap().sets()
    }

    #[test]
    fn pods_are_counted_node_by_node_at_the_edge() {
        let snapshot = snapshot();
        let count = |cpu: &str, spec: Value| sets(&snapshot, &[], &[pods(cpu, 1, &spec)]);
        assert_eq!(count("1", json!({})), 2, "the sum of free CPU would hold three");
        assert_eq!(count("500m", json!({})), 6);
        assert_eq!(count("1600m", json!({})), 0);
        assert_eq!(count("0", json!({})), 16, "pod slots");
        let tolerant = json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]});
        assert_eq!(count("1", tolerant), 3);
        assert_eq!(count("500m", json!({"nodeSelector": {"zone": "d"}})), 3);
        let term = json!({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["a", "b"]}]});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
        assert_eq!(count("1", json!({"affinity": {"nodeAffinity": required}})), 1);
    }

    #[test]
    fn sets_fit_whole_beside_coming_pods() {
        let snapshot = snapshot();
        let [small, large] = [("250m", 2), ("1", 1)].map(|(cpu, count)| pods(cpu, count, &json!({})));
        assert_eq!(sets(&snapshot, &[], &[large.clone(), small.clone()]), 2);
        assert_eq!(sets(&snapshot, &[pods("750m", 1, &json!({}))], &[large, small]), 1);
        assert_eq!(
            sets(&snapshot, &[pods("2", 5, &json!({}))], &[pods("1", 1, &json!({}))]),
            2,
            "too large to come"
        );
        assert_eq!(sets(&snapshot, &[], &[pods("1", 0, &json!({}))]), MAX_PODS);
    }

    #[test]
    fn measured_free_capacity_bounds_the_count() {
        let mut snapshot = snapshot();
        snapshot.sites[0].free.cpu = Some(Millicores(1_200));
        assert_eq!(sets(&snapshot, &[], &[pods("500m", 1, &json!({}))]), 2);
    }
}
