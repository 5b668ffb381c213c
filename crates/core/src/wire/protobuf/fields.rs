//! The fields of Kubernetes' messages that are read.
//!
//! Source: `generated.proto` of `k8s.io/api/core/v1`, `k8s.io/api/storage/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1`. A number is never
//! given to another field.

/// A field of a message.
pub(super) struct Field {
    /// By which protobuf has it.
    pub(super) number: u32,
    /// By which JSON has it.
    pub(super) name: &'static str,
    /// How it is written.
    pub(super) form: Form,
    /// Whether it is a pointer in Go: then zero, false and the empty text are not the same as its absence.
    pub(super) is_pointer: bool,
}

/// How the value of a field is written.
pub(super) enum Form {
    Text,
    Flag,
    Number,
    /// A message of a text, which is written as this text.
    Quantity,
    /// A message of seconds since the Unix epoch.
    Time,
    /// A message of which only whether it is there is read.
    Presence,
    Object(&'static [Field]),
    /// A message whose fields are those of the object that it is in.
    Inline(&'static [Field]),
    List(&'static Form),
    /// By texts.
    Map(&'static Form),
}

impl Form {
    /// Whether it is there in JSON although it is empty.
    pub(super) fn is_message(&self) -> bool {
        matches!(self, Form::Time | Form::Presence | Form::Object(_))
    }

    /// Before the elements of a list, or the entries of a map.
    pub(super) fn beginning(&self) -> u8 {
        if matches!(self, Form::Map(_)) { b'{' } else { b'[' }
    }

    /// After these.
    pub(super) fn end(&self) -> u8 {
        if matches!(self, Form::Map(_)) { b'}' } else { b']' }
    }
}

const fn field(number: u32, name: &'static str, form: Form) -> Field {
    Field {
        number,
        name,
        form,
        is_pointer: false,
    }
}

const fn pointer(number: u32, name: &'static str, form: Form) -> Field {
    Field {
        is_pointer: true,
        ..field(number, name, form)
    }
}

const fn text(number: u32, name: &'static str) -> Field {
    field(number, name, Form::Text)
}

const fn object(number: u32, name: &'static str, fields: &'static [Field]) -> Field {
    field(number, name, Form::Object(fields))
}

const fn list(number: u32, name: &'static str, of: &'static Form) -> Field {
    field(number, name, Form::List(of))
}

const fn texts(number: u32, name: &'static str) -> Field {
    field(number, name, Form::Map(&Form::Text))
}

const fn quantities(number: u32, name: &'static str) -> Field {
    field(number, name, Form::Map(&Form::Quantity))
}

/// The fields of this kind, if it is read.
pub(super) fn of(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    let fields = match (api_version, kind) {
        ("v1", "Pod") => POD,
        ("v1", "Node") => NODE,
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "PersistentVolumeClaim") => PERSISTENT_VOLUME_CLAIM,
        ("v1", "PersistentVolume") => PERSISTENT_VOLUME,
        ("storage.k8s.io/v1", "StorageClass") => STORAGE_CLASS,
        ("v1", "Status") => STATUS,
        _ => return None,
    };
    Some(fields)
}

const STATUS: &[Field] = &[
    text(2, "status"),
    text(3, "message"),
    text(4, "reason"),
    field(6, "code", Form::Number),
];

const OBJECT_META: &[Field] = &[
    text(1, "name"),
    text(2, "generateName"),
    text(3, "namespace"),
    text(5, "uid"),
    text(6, "resourceVersion"),
    field(8, "creationTimestamp", Form::Time),
    pointer(9, "deletionTimestamp", Form::Time),
    texts(11, "labels"),
    texts(12, "annotations"),
    list(13, "ownerReferences", &Form::Object(OWNER_REFERENCE)),
];

const OWNER_REFERENCE: &[Field] = &[text(1, "kind"), text(4, "uid"), pointer(6, "controller", Form::Flag)];

const POD: &[Field] = &[
    object(1, "metadata", OBJECT_META),
    object(2, "spec", POD_SPEC),
    object(3, "status", POD_STATUS),
];

const POD_SPEC: &[Field] = &[
    list(1, "volumes", &Form::Object(VOLUME)),
    list(2, "containers", &Form::Object(CONTAINER)),
    pointer(4, "terminationGracePeriodSeconds", Form::Number),
    texts(7, "nodeSelector"),
    text(10, "nodeName"),
    field(11, "hostNetwork", Form::Flag),
    field(12, "hostPID", Form::Flag),
    field(13, "hostIPC", Form::Flag),
    object(18, "affinity", AFFINITY),
    text(19, "schedulerName"),
    list(20, "initContainers", &Form::Object(CONTAINER)),
    pointer(21, "automountServiceAccountToken", Form::Flag),
    list(22, "tolerations", &Form::Object(TOLERATION)),
    text(24, "priorityClassName"),
    pointer(25, "priority", Form::Number),
    pointer(29, "runtimeClassName", Form::Text),
    pointer(31, "preemptionPolicy", Form::Text),
    quantities(32, "overhead"),
    list(38, "schedulingGates", &Form::Object(&[text(1, "name")])),
    list(39, "resourceClaims", &Form::Presence),
    object(40, "resources", RESOURCE_REQUIREMENTS),
];

const VOLUME: &[Field] = &[text(1, "name"), field(2, "", Form::Inline(VOLUME_SOURCE))];

const VOLUME_SOURCE: &[Field] = &[
    field(1, "hostPath", Form::Presence),
    object(10, "persistentVolumeClaim", &[text(1, "claimName")]),
    object(26, "projected", &[list(1, "sources", &Form::Object(VOLUME_PROJECTION))]),
    object(
        29,
        "ephemeral",
        &[object(1, "volumeClaimTemplate", VOLUME_CLAIM_TEMPLATE)],
    ),
];

const VOLUME_PROJECTION: &[Field] = &[field(4, "serviceAccountToken", Form::Presence)];

const VOLUME_CLAIM_TEMPLATE: &[Field] = &[object(2, "spec", PERSISTENT_VOLUME_CLAIM_SPEC)];

const CONTAINER: &[Field] = &[
    text(1, "name"),
    list(6, "ports", &Form::Object(CONTAINER_PORT)),
    object(8, "resources", RESOURCE_REQUIREMENTS),
    pointer(24, "restartPolicy", Form::Text),
];

const CONTAINER_PORT: &[Field] = &[
    field(2, "hostPort", Form::Number),
    field(3, "containerPort", Form::Number),
];

const RESOURCE_REQUIREMENTS: &[Field] = &[quantities(1, "limits"), quantities(2, "requests")];

const AFFINITY: &[Field] = &[
    object(
        1,
        "nodeAffinity",
        &[object(
            1,
            "requiredDuringSchedulingIgnoredDuringExecution",
            NODE_SELECTOR,
        )],
    ),
    field(2, "podAffinity", Form::Presence),
    field(3, "podAntiAffinity", Form::Presence),
];

const NODE_SELECTOR: &[Field] = &[list(1, "nodeSelectorTerms", &Form::Object(NODE_SELECTOR_TERM))];

const NODE_SELECTOR_TERM: &[Field] = &[
    list(1, "matchExpressions", &Form::Object(NODE_SELECTOR_REQUIREMENT)),
    list(2, "matchFields", &Form::Object(NODE_SELECTOR_REQUIREMENT)),
];

const NODE_SELECTOR_REQUIREMENT: &[Field] = &[text(1, "key"), text(2, "operator"), list(3, "values", &Form::Text)];

const TOLERATION: &[Field] = &[
    text(1, "key"),
    text(2, "operator"),
    text(3, "value"),
    text(4, "effect"),
    pointer(5, "tolerationSeconds", Form::Number),
];

const POD_STATUS: &[Field] = &[
    text(1, "phase"),
    list(2, "conditions", &Form::Object(CONDITION)),
    list(8, "containerStatuses", &Form::Object(CONTAINER_STATUS)),
    list(10, "initContainerStatuses", &Form::Object(CONTAINER_STATUS)),
    text(11, "nominatedNodeName"),
    quantities(19, "allocatedResources"),
    object(20, "resources", RESOURCE_REQUIREMENTS),
];

/// PodCondition and NodeCondition.
const CONDITION: &[Field] = &[
    text(1, "type"),
    text(2, "status"),
    text(5, "reason"),
    text(6, "message"),
];

const CONTAINER_STATUS: &[Field] = &[
    text(1, "name"),
    object(2, "state", &[object(3, "terminated", CONTAINER_STATE_TERMINATED)]),
    quantities(10, "allocatedResources"),
    object(11, "resources", RESOURCE_REQUIREMENTS),
];

const CONTAINER_STATE_TERMINATED: &[Field] = &[field(5, "startedAt", Form::Time), field(6, "finishedAt", Form::Time)];

const NODE: &[Field] = &[
    object(1, "metadata", OBJECT_META),
    object(2, "spec", NODE_SPEC),
    object(3, "status", NODE_STATUS),
];

const NODE_SPEC: &[Field] = &[
    field(4, "unschedulable", Form::Flag),
    list(5, "taints", &Form::Object(TAINT)),
];

const TAINT: &[Field] = &[text(1, "key"), text(2, "value"), text(3, "effect")];

const NODE_STATUS: &[Field] = &[
    quantities(2, "allocatable"),
    list(4, "conditions", &Form::Object(CONDITION)),
    list(5, "addresses", &Form::Object(&[text(1, "type"), text(2, "address")])),
];

const NAMESPACE: &[Field] = &[object(1, "metadata", OBJECT_META)];

const PERSISTENT_VOLUME_CLAIM: &[Field] = &[
    object(1, "metadata", OBJECT_META),
    object(2, "spec", PERSISTENT_VOLUME_CLAIM_SPEC),
    object(3, "status", &[text(1, "phase")]),
];

const PERSISTENT_VOLUME_CLAIM_SPEC: &[Field] = &[text(3, "volumeName"), pointer(5, "storageClassName", Form::Text)];

const PERSISTENT_VOLUME: &[Field] = &[
    object(1, "metadata", OBJECT_META),
    object(
        2,
        "spec",
        &[object(9, "nodeAffinity", &[object(1, "required", NODE_SELECTOR)])],
    ),
];

const STORAGE_CLASS: &[Field] = &[
    object(1, "metadata", OBJECT_META),
    text(2, "provisioner"),
    pointer(7, "volumeBindingMode", Form::Text),
];
