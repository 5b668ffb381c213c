//! The only reader of a pod's JSON. It produces a [`Pod`].
//!
//! It reads only the fields that a decision or a patch needs, and borrows their strings from the JSON. All other fields
//! are skipped. They survive, because a patch is built for the raw object and never from these types.

mod affinity;
// Named as in the Kubernetes API.
#[allow(missing_docs)]
pub mod fields;
mod status;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

pub use status::JobRun;

use crate::constraints::{DECLARED, NodeConstraints, NodeSelector, Toleration};
use crate::resources::{Amounts, EGRESS, INGRESS, MAX_BITS, ResourceList, Traffic, is_pod_level};
use crate::ties::{Leftover, Tie, Ties};
use crate::units::{Micros, Quantity};
use fields::{Constraints, Container, Resources, Spec, UnreadPod};

pub use fields::{Condition, Metadata, Pod, StringMap, Text};

/// Maximum total length, in bytes, of the JSON text of nodeSelector, affinity and tolerations in a pod that is kept
/// whole. A pod above it is kept with its request and nodeSelector only.
pub const MAX_CONSTRAINTS: usize = 4096;

/// `spec.schedulerName` of a pod that states none. Every cluster comes with this scheduler.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Maximum length of a uid, in bytes. It is above the length of every real uid.
const LONGEST_UID: usize = 64;

/// The prefix of a [`Pod::job_key`] whose Job belongs to a CronJob.
pub const CRON_JOB: &str = "cronjob/";

/// Maximum length of a CronJob's name, in bytes.
const LONGEST_CRON_JOB: usize = 52;

/// Minutes from 2017 to 2046, counted from 1970.
const MINUTES: RangeInclusive<u32> = 25_000_000..=40_000_000;

/// Maximum length of the hash in the name of a ControllerRevision, in bytes. It is above that of every real hash.
const LONGEST_REVISION: usize = 16;

/// Grace period that the API server gives to a pod without one, in seconds.
const DEFAULT_GRACE_SECONDS: i64 = 30;
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

impl<'a> Pod<'a> {
    /// Reads a pod from its JSON text. Cost: one pass, about a microsecond per kilobyte. Allocates for lists and for
    /// strings with escapes.
    ///
    /// # Errors
    /// The text is not a pod.
    pub fn from_json(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Reads an existing pod like [`Self::from_json`], but skips long constraints. Affinity and tolerations are skipped
    /// if they and the nodeSelector together exceed [`MAX_CONSTRAINTS`] bytes. The nodeSelector is skipped if it alone
    /// exceeds them.
    ///
    /// # Errors
    /// The text is not a pod.
    pub fn without_long_constraints(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<UnreadPod<'a>>(json)?.read(MAX_CONSTRAINTS)
    }

    /// Returns the annotations, if the field exists.
    pub fn annotations(&self) -> Option<&StringMap<'a>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }

    /// The pod's request in `namespace` as amounts, with its anti-affinity and its traffic.
    pub fn amounts(&self, request: &ResourceList<'_>, namespace: &str) -> Amounts {
        Amounts {
            bandwidth: self.traffic(),
            ..self.kept_apart(request.amounts(), namespace)
        }
    }

    /// The traffic that annotations of the pod state for CNI's bandwidth plugin. An invalid amount counts as none.
    fn traffic(&self) -> Traffic {
        let bits = |annotation| {
            let bits = self.annotation(annotation).and_then(|text| Quantity::parse(text).ok());
            bits.map_or(0, |bits| bits.units().clamp(0, MAX_BITS))
        };
        Traffic {
            egress: bits(EGRESS),
            ingress: bits(INGRESS),
        }
    }

    /// Returns the value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations()?.get(key)
    }

    /// `metadata.name`, or `metadata.generateName` if the pod has no name yet. For logs and messages only.
    pub fn name(&self) -> &str {
        let metadata = self.metadata.as_ref();
        let name = metadata.and_then(|metadata| metadata.name.stated());
        name.or_else(|| metadata?.generate_name.stated()).unwrap_or_default()
    }

    /// `metadata.namespace`, if set.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata.as_ref()?.namespace.stated()
    }

    /// What is assumed of a pod that was read outside of a cluster. The API server's admission plugins would fill it in
    /// from other objects.
    pub fn assumptions(&self) -> impl Iterator<Item = &'static str> {
        let spec = &self.spec;
        let requests_all = ["cpu", "memory"].iter().all(|name| spec.requests_everywhere(name));
        let lacks_overhead = spec.names_runtime_class() && spec.overhead.is_none();
        let priority = if spec.priority_class_name.is_empty() {
            "spec.priority is 0; the cluster has no default PriorityClass"
        } else {
            "spec.priority is 0; its PriorityClass is not known here"
        };
        let assumptions = [
            (!requests_all).then_some("no LimitRange fills in the requests that containers leave out"),
            lacks_overhead.then_some("its RuntimeClass adds no overhead"),
            spec.priority.is_none().then_some(priority),
        ];
        assumptions.into_iter().flatten()
    }

    /// `spec.affinity` with all of its fields. Null if there is none; `None` if it cannot be read. Cost: a pass over
    /// it.
    pub fn affinity(&self) -> Option<serde_json::Value> {
        let text = self.spec.affinity.map_or("null", |text| text.get());
        serde_json::from_str(text).ok()
    }

    /// Names of the scheduling gates.
    pub fn gates(&self) -> impl Iterator<Item = &str> {
        self.spec.scheduling_gates.iter().flatten().map(|gate| &*gate.name)
    }

    /// Index of the scheduling gate with this name.
    pub fn gate(&self, name: &str) -> Option<usize> {
        self.gates().position(|gate| gate == name)
    }

    /// `metadata.resourceVersion` of a pod that exists.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.as_ref()?.resource_version.stated()
    }

    /// Iterates over the labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.label_map().into_iter().flat_map(StringMap::iter)
    }

    /// Returns the value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.label_map()?.get(key)
    }

    /// Returns the labels, if the field exists.
    pub fn label_map(&self) -> Option<&StringMap<'a>> {
        self.metadata.as_ref()?.labels.as_ref()
    }

    /// Returns the effective request: the resources that kube-scheduler reserves for the pod.
    ///
    /// Source: `component-helpers/resource.PodRequests` (KEP-753 sidecars, KEP-2837 pod-level resources). Init
    /// containers run one after another, together with the sidecars started before them. The pod needs the larger of
    /// that peak and the sum of all containers and sidecars. Pod-level requests replace the result where they are
    /// stated. Overhead is added on top. Limits are not read, because the API server has copied them to requests.
    pub fn request(&self) -> ResourceList<'a> {
        let of_pod = self.spec.resources.as_ref().and_then(Resources::requests);
        self.spec.total(Container::stated, of_pod.map(Cow::Borrowed))
    }

    /// Applies the API server's defaults to a pod that has not been through it. A missing request becomes the limit.
    /// Missing pod-level requests become the sum of the containers' requests, or the pod-level limit. Resource lists
    /// are rounded up to thousandths. With host networking, a container's ports become host ports. Source:
    /// `pkg/apis/core/v1` `SetObjectDefaults_Pod`.
    pub fn apply_api_defaults(&mut self) {
        self.spec.apply_api_defaults();
    }

    /// `spec.tolerations`.
    pub fn tolerations(&self) -> impl Iterator<Item = &Toleration> {
        self.spec.constraints.tolerations.iter().flatten()
    }

    /// Whether the pod is the mirror of a static pod.
    pub fn is_mirror(&self) -> bool {
        self.annotation(MIRROR_ANNOTATION).is_some()
    }

    /// The kind of the controller.
    pub fn controller_kind(&self) -> Option<&str> {
        Some(&self.controller()?.kind)
    }

    /// Whether a DaemonSet controls the pod.
    pub fn is_of_daemonset(&self) -> bool {
        self.controller_kind() == Some("DaemonSet")
    }

    /// Whether a label marks the pod as created by Liqo on behalf of another cluster. Any user can set that label.
    pub fn is_marked_as_shadow(&self) -> bool {
        self.label("liqo.io/managed-by") == Some("shadowpod")
    }

    /// Whether another component decides where the pod runs.
    pub fn is_of_others(&self) -> bool {
        self.is_mirror() || self.is_of_daemonset() || self.is_marked_as_shadow()
    }

    /// Returns the owner that controls the pod.
    pub fn controller(&self) -> Option<&fields::OwnerReference<'a>> {
        let owners = self.metadata.as_ref()?.owner_references.iter().flatten();
        owners.into_iter().find(|owner| owner.controller == Some(true))
    }

    /// Uid of the controller, followed by its revision if the pod states one. `None` if the uid is longer than every
    /// real uid. Each revision of a StatefulSet counts as a controller of its own, just as each revision of a
    /// Deployment does.
    pub fn controller_uid(&self) -> Option<Cow<'a, str>> {
        let uid = &self.controller()?.uid;
        let revision = self
            .label("controller-revision-hash")
            .and_then(|label| label.rsplit('-').next());
        if !(1..=LONGEST_UID).contains(&uid.len()) {
            return None;
        }
        Some(match revision.filter(|revision| revision.len() <= LONGEST_REVISION) {
            Some(revision) => format!("{}/{revision}", &**uid).into(),
            None => uid.0.clone(),
        })
    }

    /// What the run times of a Job's pod are known by: `cronjob/` and the name of the CronJob, or else the uid of the Job.
    pub fn job_key(&self) -> Option<Cow<'a, str>> {
        let job = self.controller().filter(|controller| controller.kind == "Job")?;
        match job.cron_job() {
            Some(name) => Some(format!("{CRON_JOB}{name}").into()),
            None => self.controller_uid(),
        }
    }
}

impl fields::OwnerReference<'_> {
    /// The name of the CronJob that created this Job. The name of such a Job ends with the minute for which it was scheduled,
    /// counted from 1970: eight digits. Dates such as 20261129 are no such minute.
    fn cron_job(&self) -> Option<&str> {
        let (name, minute) = self.name.rsplit_once('-')?;
        let is_minute = minute.len() == 8 && minute.parse::<u32>().is_ok_and(|minute| MINUTES.contains(&minute));
        let is_job = self.api_version == "batch/v1" && self.kind == "Job";
        (is_job && is_minute && (1..=LONGEST_CRON_JOB).contains(&name.len())).then_some(name)
    }
}

/// Seconds of Kubernetes as a duration. Negative ones are zero.
pub fn seconds(seconds: i64) -> Micros {
    Micros::from_secs(seconds.max(0).unsigned_abs())
}

impl<'a> Spec<'a> {
    /// Whether kube-scheduler may evict pods of lower priority for this pod.
    pub fn may_preempt(&self) -> bool {
        self.preemption_policy != "Never"
    }

    /// How long the pod may take to terminate.
    pub fn grace(&self) -> Micros {
        seconds(self.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS))
    }

    /// Iterates over containers, then init containers.
    pub(crate) fn all_containers(&self) -> impl Iterator<Item = &Container<'a>> {
        self.containers.iter().chain(&self.init_containers).flatten()
    }

    /// Whether every container requests this resource.
    pub fn requests_everywhere(&self, name: &str) -> bool {
        let requests = |container: &Container<'a>| container.requests().is_some_and(|list| list.0.contains_key(name));
        self.all_containers().all(requests)
    }

    /// Total of the pod, from the amounts of each container and the pod-level amounts.
    pub(crate) fn total<'s>(
        &'s self,
        of_container: impl Fn(&'s Container<'a>) -> Option<Cow<'s, ResourceList<'a>>>,
        of_pod: Option<Cow<'s, ResourceList<'a>>>,
    ) -> ResourceList<'a>
    where
        'a: 's,
    {
        let mut total = self.aggregate(of_container);
        for (name, quantity) in of_pod.iter().flat_map(|list| &list.0) {
            if is_pod_level(name) {
                total.0.insert(name.clone(), *quantity);
            }
        }
        if let Some(overhead) = &self.overhead {
            total.add(overhead);
        }
        total
    }

    /// Source: `AggregateContainerRequests`; upstream's `AggregateContainerLimits` is the same sum over limits.
    fn aggregate<'s>(
        &'s self,
        list: impl Fn(&'s Container<'a>) -> Option<Cow<'s, ResourceList<'a>>>,
    ) -> ResourceList<'a>
    where
        'a: 's,
    {
        let mut running = ResourceList::default();
        for container in self.containers.iter().flatten() {
            list(container).iter().for_each(|list| running.add(list));
        }
        let mut sidecars = ResourceList::default();
        let mut peak = ResourceList::default();
        for container in self.init_containers.iter().flatten() {
            let Some(list) = list(container) else { continue };
            if container.is_sidecar() {
                running.add(&list);
                sidecars.add(&list);
                continue;
            }
            // While an init container runs, so do the sidecars before it. A resource that it does not request cannot
            // peak there, because `running` contains all sidecars.
            for (name, quantity) in &list.0 {
                let before = sidecars.0.get(name).copied().unwrap_or_default();
                peak.raise(name.clone(), before + *quantity);
            }
        }
        for (name, quantity) in peak.0 {
            running.raise(name, quantity);
        }
        running
    }

    fn apply_api_defaults(&mut self) {
        for container in self.containers.iter_mut().chain(&mut self.init_containers).flatten() {
            if let Some(resources) = &mut container.resources
                && let Some(limits) = &resources.limits
            {
                let requests = resources.requests.get_or_insert_default();
                requests.fill_from(limits.0.iter());
            }
            if self.host_network == Some(true) {
                for port in container.ports.iter_mut().flatten() {
                    port.host_port = port.host_port.filter(|&port| port != 0).or(port.container_port);
                }
            }
        }
        self.default_pod_level_requests();
        self.round_to_millis();
    }

    fn round_to_millis(&mut self) {
        let containers = self.containers.iter_mut().chain(&mut self.init_containers).flatten();
        let resources = containers.flat_map(|container| &mut container.resources);
        resources
            .chain(&mut self.resources)
            .for_each(Resources::round_to_millis);
        self.overhead.iter_mut().for_each(ResourceList::round_to_millis);
    }

    /// Source: `defaultHugePagePodLimits`, then `defaultPodRequests`.
    fn default_pod_level_requests(&mut self) {
        let requests = self.aggregate(Container::stated);
        let limits = self.aggregate(|container| Some(Cow::Borrowed(container.resources.as_ref()?.limits.as_ref()?)));
        let Some(resources) = &mut self.resources else { return };
        let stated = |list: &Option<ResourceList<'a>>| list.as_ref().is_some_and(|list| !list.0.is_empty());
        if !stated(&resources.limits) && !stated(&resources.requests) {
            return;
        }
        let requested = resources.requests.as_ref();
        let hugepages = limits.0.iter().filter(|(name, _)| {
            let is_requested = requested.is_some_and(|requests| requests.0.contains_key(*name));
            name.starts_with("hugepages-") && !is_requested
        });
        resources.limits.get_or_insert_default().fill_from(hugepages);
        let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.0.is_empty()) else {
            return;
        };
        let from_containers = requests
            .0
            .iter()
            .filter(|(name, _)| matches!(&***name, "cpu" | "memory"));
        let from_limits = limits.0.iter().filter(|(name, _)| is_pod_level(name));
        let pod_requests = resources.requests.get_or_insert_default();
        pod_requests.fill_from(from_containers);
        pod_requests.fill_from(from_limits);
    }

    /// Returns nodeSelector, required node affinity and needed node features.
    pub fn constraints(&self) -> NodeConstraints {
        let Constraints {
            node_selector,
            affinity,
            ..
        } = &self.constraints;
        let required = (|| affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref())();
        let stated = node_selector.iter().flat_map(StringMap::iter);
        let stated = stated.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let features = self.needed_features();
        let features = features.map(|feature| (format!("{DECLARED}{feature}"), String::new()));
        NodeConstraints {
            selector: stated.chain(features).collect(),
            volumes: vec![],
            affinity: required.map(NodeSelector::terms),
        }
    }

    /// Features that a node must declare to run the pod. Source: `component-helpers/nodedeclaredfeatures/features`.
    fn needed_features(&self) -> impl Iterator<Item = &'static str> {
        let containers = self.all_containers();
        let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
        let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
        let has_own_users = self.host_network == Some(true) && self.host_users == Some(false);
        let restarts_all = restarts_all.then_some("RestartAllContainersOnContainerExits");
        let has_own_users = has_own_users.then_some("UserNamespacesHostNetworkSupport");
        restarts_all.into_iter().chain(has_own_users)
    }

    /// Whether the pod names a RuntimeClass.
    pub fn names_runtime_class(&self) -> bool {
        !self.runtime_class_name.is_empty()
    }

    /// Iterates over the volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &fields::Volume<'a>> {
        self.volumes.iter().flatten()
    }

    /// Returns the fields that do not survive offloading to another cluster.
    pub fn left_behind(&self) -> BTreeSet<Leftover> {
        let affinity = self.constraints.affinity.as_ref();
        // The API server adds a volume with this name to every pod.
        let is_own_token =
            |volume: &fields::Volume<'a>| !volume.name.starts_with("kube-api-access-") && volume.has_token();
        let has = |leftover: &Leftover| match leftover {
            Leftover::PodAffinity => affinity.is_some_and(|affinity| affinity.pod_affinity.is_some()),
            Leftover::PodAntiAffinity => affinity.is_some_and(|affinity| affinity.pod_anti_affinity.is_some()),
            Leftover::SchedulerName => self
                .scheduler_name
                .stated()
                .is_some_and(|name| name != DEFAULT_SCHEDULER),
            Leftover::ServiceAccountToken => {
                self.automount_service_account_token == Some(true) || self.volumes().any(is_own_token)
            }
        };
        Leftover::ALL.into_iter().filter(has).collect()
    }

    /// Returns the fields that tie the pod to its node or cluster.
    pub fn ties(&self) -> Ties {
        let is_claim =
            |volume: &fields::Volume<'a>| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some();
        let mut ports = self
            .all_containers()
            .flat_map(|container| container.ports.iter().flatten());
        let has_host_port = ports.any(|port| port.host_port.is_some_and(|port| port > 0));
        let has = |tie: &Tie| match tie {
            Tie::PersistentVolumeClaim => self.volumes().any(is_claim),
            Tie::HostPath => self.volumes().any(|volume| volume.host_path.is_some()),
            Tie::HostNetwork => self.host_network == Some(true),
            Tie::HostPid => self.host_pid == Some(true),
            Tie::HostIpc => self.host_ipc == Some(true),
            Tie::HostPort => has_host_port,
            Tie::ResourceClaims => self.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
        };
        Tie::ALL.into_iter().filter(has).collect()
    }
}

#[cfg(test)]
mod tests;
