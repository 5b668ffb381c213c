//! The only reader of a pod's wire form: JSON in, [`Workload`] out.
//!
//! Reads only the fields a decision or a patch needs, borrowing their strings from the JSON; every other field,
//! known to us or not, is skipped and so survives (a patch is built beside the raw object, never from these types).

mod decided;
pub(crate) mod fields;
mod hints;
mod job_time;
mod pod_affinity;
mod record;
mod refusal;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::excerpt::LONGEST_NAME;
use crate::keys::Keys;
use crate::model::constraints::{DECLARED, NodeConstraints, Requirement, Term, Toleration};
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::{DEFAULT_SCHEDULER, MAX_CONSTRAINTS};
use crate::model::slo::{self, Intent, Management};
use crate::model::ties::{Leftover, Tie, Ties};
use crate::model::volumes::{MAX_CLAIMS, VolumeClaim};
use crate::model::workload::{StatedPlacement, Workload};
use crate::resources::{ResourceList, is_pod_level};
use crate::units::Micros;
use fields::{Constraints, Container, NodeSelectorRequirement, Resources, Spec, UnreadPod, WireToleration};

pub use decided::ObservedDecision;
pub(in crate::wire) use fields::Condition;
pub(crate) use fields::{NodeSelector, NodeSelectorTerm};
pub use fields::{Pod, StringMap, Text};
pub use record::read_record;

/// The places of a pod that a patch adds to, as far as they exist.
#[derive(Debug, Clone, Copy)]
pub struct Parents<'p, 'a> {
    /// Whether there is `metadata`.
    pub metadata: bool,
    /// `metadata.annotations`.
    pub annotations: Option<&'p StringMap<'a>>,
    /// `metadata.labels`.
    pub labels: Option<&'p StringMap<'a>>,
    /// `spec.nodeSelector`.
    pub node_selector: Option<&'p StringMap<'a>>,
    /// Whether there is a list `spec.tolerations`.
    pub tolerations: bool,
    /// Whether there is a list `spec.schedulingGates`.
    pub scheduling_gates: bool,
    /// Whether `spec.runtimeClassName` names one.
    pub runtime_class: bool,
}

/// What a pod outside a cluster leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unresolved {
    /// It names a RuntimeClass, whose overhead is not in the pod.
    pub runtime_class_overhead: bool,
    /// It has no `spec.priority`.
    pub priority: bool,
    /// It names a PriorityClass, whose value is not in the pod.
    pub priority_class: bool,
}

/// Longer than the uid of any object.
const LONGEST_UID: usize = 64;

/// Longer than the hash in the name of a ControllerRevision.
const LONGEST_REVISION: usize = 16;

/// What the API server gives a pod that states none.
const DEFAULT_GRACE_SECONDS: i64 = 30;
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

impl<'a> Pod<'a> {
    /// Reads a pod from its JSON text. Cost: one pass, about a microsecond a kilobyte; allocates for lists and for
    /// strings with escapes.
    ///
    /// # Errors
    /// It is no pod.
    pub fn from_json(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// Reads a pod that exists as [`Self::from_json`] does, but skips affinity and tolerations if they and its nodeSelector have more
    /// than [`MAX_CONSTRAINTS`] bytes together, and the nodeSelector if it alone has.
    ///
    /// # Errors
    /// It is no pod.
    pub fn without_long_constraints(json: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<UnreadPod<'a>>(json)?.read(MAX_CONSTRAINTS)
    }

    /// The pod's annotations, if the field is there.
    pub fn annotations(&self) -> Option<&StringMap<'a>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }

    /// The value of one annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations()?.get(key)
    }

    /// `metadata.name`, or `metadata.generateName` where the name is not given yet; for logs and messages only.
    pub fn name(&self) -> &str {
        let metadata = self.metadata.as_ref();
        let name = metadata.and_then(|metadata| metadata.name.stated());
        name.or_else(|| metadata?.generate_name.stated()).unwrap_or_default()
    }

    /// `metadata.namespace`, where it is set.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata.as_ref()?.namespace.stated()
    }

    /// What the API server's admission plugins would still fill in: fields the pod refers to by name only.
    pub fn unresolved(&self) -> Unresolved {
        Unresolved {
            runtime_class_overhead: self.spec.names_runtime_class() && self.spec.overhead.is_none(),
            priority: self.spec.priority.is_none(),
            priority_class: !self.spec.priority_class_name.is_empty() && self.spec.priority.is_none(),
        }
    }

    /// Whether a container leaves out a request for CPU or memory, which a LimitRange could fill in.
    pub fn lacks_requests(&self) -> bool {
        !["cpu", "memory"].iter().all(|name| self.spec.requests_everywhere(name))
    }

    /// Whether the pod has `metadata`, `metadata.annotations` and `metadata.labels`, `spec.nodeSelector`, `spec.tolerations`, `spec.schedulingGates`,
    /// `spec.runtimeClassName`: a patch must create the parents that are missing.
    pub fn parents(&self) -> Parents<'_, 'a> {
        Parents {
            metadata: self.metadata.is_some(),
            annotations: self.annotations(),
            labels: self.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref()),
            node_selector: self.spec.constraints.node_selector.as_ref(),
            tolerations: self.spec.tolerations.is_some(),
            scheduling_gates: self.spec.scheduling_gates.is_some(),
            runtime_class: self.spec.names_runtime_class(),
        }
    }

    /// `spec.affinity` with every field that it has; null where there is none, `None` where it cannot be read. Cost: a pass over it.
    pub fn affinity(&self) -> Option<serde_json::Value> {
        let text = self.spec.affinity.map_or("null", |text| text.get());
        serde_json::from_str(text).ok()
    }

    /// The names of its scheduling gates.
    pub fn gates(&self) -> impl Iterator<Item = &str> {
        self.spec.scheduling_gates.iter().flatten().map(|gate| &*gate.name)
    }

    /// Where among its scheduling gates the one of this name is.
    pub fn gate(&self, name: &str) -> Option<usize> {
        self.gates().position(|gate| gate == name)
    }

    /// `metadata.resourceVersion`, of a pod that exists.
    pub fn resource_version(&self) -> Option<&str> {
        self.metadata.as_ref()?.resource_version.stated()
    }

    /// Its labels.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parents().labels.into_iter().flat_map(StringMap::iter)
    }

    /// A label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.parents().labels?.get(key)
    }

    /// The effective request: what kube-scheduler reserves for the pod.
    ///
    /// Source: `component-helpers/resource.PodRequests` (KEP-753 sidecars, KEP-2837 pod-level resources). Init
    /// containers run one after another beside the sidecars started before them; the pod needs the larger of that
    /// peak and of all containers with all sidecars. Pod-level requests replace that where they are stated;
    /// overhead comes on top. Limits are not read: the API server has copied them to requests.
    pub fn request(&self) -> ResourceList<'a> {
        self.spec.request()
    }

    /// The API server's defaults, for a pod that has not been through it: a request defaulting to the limit,
    /// pod-level requests defaulting to what the containers ask for or to the pod-level limit, then resource lists
    /// rounded up to thousandths; on the host's network, a container's ports are ports of the host. Source:
    /// `pkg/apis/core/v1` `SetObjectDefaults_Pod`.
    pub fn apply_api_defaults(&mut self) {
        self.spec.apply_api_defaults();
    }

    /// Gives the pod annotations, as far as it has none of these keys; but the sites and traits of a policy are those of the policy,
    /// whatever the pod has. They count for its workload, and a placement writes them: from then on they are the pod's own.
    pub fn inherit(&mut self, annotations: impl Iterator<Item = (String, String)>, keys: &Keys) {
        let is_missing = |(key, value): &(String, String)| match self.annotation(key) {
            Some(own) => keys.is_of_policy(key) && own != value,
            None => true,
        };
        self.inherited = annotations.filter(is_missing).collect();
    }

    /// What it was given by [`Self::inherit`] and does not carry itself. It goes before what it carries.
    pub fn inherited(&self) -> &[(String, String)] {
        &self.inherited
    }

    /// The workload this pod is, in `namespace`; no shadow, which its creator tells.
    pub fn workload(&self, namespace: Cow<'a, str>, keys: &Keys) -> Workload<'a> {
        let (management, intent) = self.slo(keys);
        Workload {
            request: self.kept_apart(self.request().amounts(), &namespace),
            near: self.pod_affinity(&namespace),
            labels: self.labels_text().into(),
            namespace,
            constraints: self.spec.constraints(),
            tolerations: self.tolerations().collect(),
            ties: self.spec.ties(),
            volume_claims: self.volume_claims(),
            left_behind: self.spec.left_behind(),
            active_deadline: self.spec.active_deadline_seconds.map(seconds),
            runtime_class: self.spec.names_runtime_class(),
            priority: self.spec.priority.unwrap_or(0),
            may_preempt: self.spec.may_preempt(),
            management,
            intent,
            bound: !self.spec.node_name.is_empty(),
            mirror: self.is_mirror(),
            controller: self.controller_uid(),
            daemonset: self.is_of_daemonset(),
            shadow: false,
            gates: self
                .spec
                .scheduling_gates
                .iter()
                .flatten()
                .map(|gate| gate.name.0.clone())
                .collect(),
            gated_for: None,
            placement: self.stated_placement(keys),
        }
    }

    /// Its claims for volumes; none if it has more than [`MAX_CLAIMS`], or one of a name that no object has.
    fn volume_claims(&self) -> Vec<VolumeClaim<'a>> {
        let metadata = self.metadata.as_ref();
        let own_name = metadata.and_then(|metadata| metadata.name.stated());
        let claim = |volume: &fields::Volume<'a>| {
            let named = volume.persistent_volume_claim.as_ref().map(|claim| VolumeClaim {
                name: Some(claim.claim_name.0.clone()),
                ..VolumeClaim::default()
            });
            named.or_else(|| {
                Some(VolumeClaim {
                    class: volume.ephemeral.as_ref()?.class(),
                    name: own_name.map(|pod| format!("{pod}-{}", &*volume.name).into()),
                    is_ephemeral: true,
                    ..VolumeClaim::default()
                })
            })
        };
        let claims = self.spec.volumes().filter_map(claim);
        let claims: Vec<_> = claims.take(MAX_CLAIMS + 1).collect();
        let is_name = |name: &Option<Cow<'_, str>>| name.as_ref().is_none_or(|name| name.len() <= LONGEST_NAME);
        let are_named = claims.iter().all(|claim| is_name(&claim.name) && is_name(&claim.class));
        if claims.len() <= MAX_CLAIMS && are_named {
            claims
        } else {
            vec![]
        }
    }

    /// What it says of being managed, and its SLO, by what it has and what it inherited.
    fn slo(&self, keys: &Keys) -> (Management, Option<Intent>) {
        let inherited = self.inherited.iter().map(|(key, value)| (&**key, &**value));
        let own = self.annotations().into_iter().flat_map(StringMap::iter);
        slo::parse(own.chain(inherited), self.label(&keys.managed), keys)
    }

    /// `spec.tolerations`.
    pub fn tolerations(&self) -> impl Iterator<Item = Toleration<'a>> {
        let tolerations = self.spec.constraints.tolerations.iter().flatten();
        tolerations.map(WireToleration::toleration)
    }

    fn is_mirror(&self) -> bool {
        self.annotation(MIRROR_ANNOTATION).is_some()
    }

    fn is_of_daemonset(&self) -> bool {
        self.controller().is_some_and(|owner| owner.kind == "DaemonSet")
    }

    /// Whether its label says that Liqo created it on behalf of another cluster. Anybody may write that label.
    pub fn claims_to_be_shadow(&self) -> bool {
        self.label("liqo.io/managed-by") == Some("shadowpod")
    }

    /// Whether it is for others to say where it runs.
    fn is_of_others(&self) -> bool {
        self.is_mirror() || self.is_of_daemonset() || self.claims_to_be_shadow()
    }

    fn controller(&self) -> Option<&fields::OwnerReference<'a>> {
        let owners = self.metadata.as_ref()?.owner_references.iter().flatten();
        owners.into_iter().find(|owner| owner.controller == Some(true))
    }

    /// The uid of its controller, unless it is longer than any: each is a UUID. Of a StatefulSet, each revision is a controller of its own,
    /// as it is of a Deployment.
    fn controller_uid(&self) -> Option<Cow<'a, str>> {
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

    fn stated_placement(&self, keys: &Keys) -> Option<StatedPlacement<'a>> {
        let annotations = self.annotations()?;
        let id = annotations.get(&keys.decision_id).filter(|id| !id.is_empty())?;
        let name = |key| annotations.cow(key).filter(|name| name.len() <= LONGEST_NAME);
        Some(StatedPlacement {
            decision: name(&keys.decision)?,
            site: name(&keys.site)?,
            id: DecisionId::parse(id),
            at: annotations.get(&keys.timestamp)?.parse().ok()?,
        })
    }
}

fn seconds(seconds: i64) -> Micros {
    Micros::from_secs(seconds.max(0).unsigned_abs())
}

impl<'a> Spec<'a> {
    /// Whether kube-scheduler may evict pods of lower priority for it.
    fn may_preempt(&self) -> bool {
        self.preemption_policy != "Never"
    }

    /// How long it may take to terminate.
    fn grace(&self) -> Micros {
        seconds(self.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE_SECONDS))
    }

    fn all_containers(&self) -> impl Iterator<Item = &Container<'a>> {
        self.containers.iter().chain(&self.init_containers).flatten()
    }

    /// Whether every container requests this resource.
    fn requests_everywhere(&self, name: &str) -> bool {
        let requests = |container: &Container<'a>| container.requests().is_some_and(|list| list.get(name).is_some());
        self.all_containers().all(requests)
    }

    fn request(&self) -> ResourceList<'a> {
        let of_pod = self.resources.as_ref().and_then(Resources::requests);
        self.total(Container::stated, of_pod.map(Cow::Borrowed))
    }

    /// What the pod takes in all, from what each container takes and what is stated for the pod as a whole.
    fn total<'s>(
        &'s self,
        of_container: impl Fn(&'s Container<'a>) -> Option<Cow<'s, ResourceList<'a>>>,
        of_pod: Option<Cow<'s, ResourceList<'a>>>,
    ) -> ResourceList<'a>
    where
        'a: 's,
    {
        let mut total = self.aggregate(of_container);
        for (name, quantity) in of_pod.iter().flat_map(|list| list.iter()) {
            if is_pod_level(name) {
                total.set(name.clone(), quantity);
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
            // While it runs, so do the sidecars before it. What it does not ask for itself cannot be a peak: all
            // sidecars together are in `running`.
            for (name, quantity) in list.iter() {
                peak.raise(name.clone(), sidecars.get(name).unwrap_or_default() + quantity);
            }
        }
        for (name, quantity) in peak.iter() {
            running.raise(name.clone(), quantity);
        }
        running
    }

    fn apply_api_defaults(&mut self) {
        for container in self.containers.iter_mut().chain(&mut self.init_containers).flatten() {
            if let Some(resources) = &mut container.resources
                && let Some(limits) = &resources.limits
            {
                let requests = resources.requests.get_or_insert_default();
                requests.fill_from(limits.iter());
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
        let stated = |list: &Option<ResourceList<'a>>| list.as_ref().is_some_and(|list| !list.is_empty());
        if !stated(&resources.limits) && !stated(&resources.requests) {
            return;
        }
        let hugepages = limits.iter().filter(|(name, _)| {
            let requested = resources
                .requests
                .as_ref()
                .is_some_and(|requests| requests.get(name).is_some());
            name.starts_with("hugepages-") && !requested
        });
        resources.limits.get_or_insert_default().fill_from(hugepages);
        let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) else {
            return;
        };
        let from_containers = requests.iter().filter(|(name, _)| matches!(&***name, "cpu" | "memory"));
        let from_limits = limits.iter().filter(|(name, _)| is_pod_level(name));
        let pod_requests = resources.requests.get_or_insert_default();
        pod_requests.fill_from(from_containers);
        pod_requests.fill_from(from_limits);
    }

    fn constraints(&self) -> NodeConstraints<'a> {
        let Constraints {
            node_selector,
            affinity,
            ..
        } = &self.constraints;
        let required = (|| affinity.as_ref()?.node_affinity.as_ref()?.required.as_ref())();
        let features = self
            .needed_features()
            .map(|feature| (format!("{DECLARED}{feature}").into(), "".into()));
        NodeConstraints {
            selector: node_selector.iter().flat_map(StringMap::cows).chain(features).collect(),
            volumes: vec![],
            affinity: required.map(|selector| selector.terms().collect()),
        }
    }

    /// The features that a node must declare to be given the pod. Source: `component-helpers/nodedeclaredfeatures/features`.
    fn needed_features(&self) -> impl Iterator<Item = &'static str> {
        let containers = self.all_containers();
        let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
        let restarts_all = rules.any(|rule| rule.action == "RestartAllContainers");
        let has_own_users = self.host_network == Some(true) && self.host_users == Some(false);
        let restarts_all = restarts_all.then_some("RestartAllContainersOnContainerExits");
        let has_own_users = has_own_users.then_some("UserNamespacesHostNetworkSupport");
        restarts_all.into_iter().chain(has_own_users)
    }

    fn names_runtime_class(&self) -> bool {
        !self.runtime_class_name.is_empty()
    }

    fn volumes(&self) -> impl Iterator<Item = &fields::Volume<'a>> {
        self.volumes.iter().flatten()
    }

    fn left_behind(&self) -> BTreeSet<Leftover> {
        let affinity = self.constraints.affinity.as_ref();
        // The API server adds the default volume to every pod.
        let is_own_token = |volume: &fields::Volume<'a>| {
            let projected = volume.projected.as_ref();
            !volume.name.starts_with("kube-api-access-") && projected.is_some_and(fields::ProjectedSource::has_token)
        };
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

    fn ties(&self) -> Ties {
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

impl<'a> NodeSelector<'a> {
    /// Its terms, one of which must match.
    pub(crate) fn terms(&self) -> impl Iterator<Item = Term<'a>> {
        self.node_selector_terms.iter().flatten().map(NodeSelectorTerm::term)
    }
}

impl<'a> NodeSelectorTerm<'a> {
    pub(crate) fn term(&self) -> Term<'a> {
        let requirements = |list: &Option<Vec<NodeSelectorRequirement<'a>>>, build: RequirementBuilder<'a>| {
            let requirements = list.iter().flatten();
            requirements.map(|requirement| requirement.build(build)).collect()
        };
        Term {
            expressions: requirements(&self.match_expressions, Requirement::on_label),
            fields: requirements(&self.match_fields, Requirement::on_field),
        }
    }
}

type RequirementBuilder<'a> = fn(Cow<'a, str>, Cow<'a, str>, Vec<Cow<'a, str>>) -> Requirement<'a>;

impl<'a> NodeSelectorRequirement<'a> {
    fn build(&self, build: RequirementBuilder<'a>) -> Requirement<'a> {
        let values = self.values.iter().flatten().map(|value| value.0.clone()).collect();
        build(self.key.0.clone(), self.operator.0.clone(), values)
    }
}

#[cfg(test)]
mod tests;
