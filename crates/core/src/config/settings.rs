//! What can be set, declared once for whoever writes a configuration: `docs/configuration.md` and the JSON schema for
//! editors are made of it.
//!
//! What is accepted is decided where a setting is read, with every fault; a test holds that against these declarations, from
//! both sides of each bound.

use super::Config;
use crate::config::site_definition::{LOSS_THRESHOLD, RTT_THRESHOLD};

/// A setting, or a field of one.
#[derive(Debug)]
pub struct Setting {
    /// Its key in the document.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// What holds without it.
    pub default: Assumed,
    /// What it does, in Markdown; links are relative to `docs`.
    pub meaning: &'static str,
}

/// What holds where nothing is set.
#[derive(Debug)]
pub enum Assumed {
    /// This value, as YAML.
    Value(&'static str),
    /// Something that is no value, in words.
    Words(&'static str),
    /// Nothing: it has to be set.
    Required,
}

/// What a value may be. Bounds belong to it.
#[derive(Debug)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number, from one to the other.
    Integer(i64, i64),
    /// A number of at most three decimals; the bounds in thousandths.
    Number(i64, i64),
    /// A percentage of at most one decimal, from so many thousandths to 100.
    Percent(i64),
    /// A duration as Go prints it, from one to the other.
    Duration(&'static str, &'static str),
    /// One of these.
    Word(&'static [&'static str]),
    /// A string.
    Text {
        /// What it is, in words.
        what: &'static str,
        /// Regular expression that it matches, as JSON schemas have it; what it matches need not be accepted.
        pattern: &'static str,
    },
    /// A list of such.
    List(&'static Kind),
    /// A map to such, by keys that are called so.
    Map(&'static str, &'static Kind),
    /// A map to such, by workload class.
    PerClass(&'static Kind),
    /// These fields and no others.
    Object(&'static [Setting]),
    /// One or the other.
    Either(&'static Kind, &'static Kind),
    /// The definitions of sites.
    Sites,
}

use super::settings::Assumed::{Required, Value, Words};
use super::settings::Kind::{
    Boolean, Duration, Either, Integer, List, Map, Number, Object, PerClass, Percent, Sites, Text, Word,
};

const NONE: Assumed = Words("none");
const CLASS: Kind = Word(&["latency", "throughput", "batch"]);
const NAMESPACE: Kind = Text {
    what: "name of a namespace",
    pattern: "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
};
const PATH: Kind = Text {
    what: "path",
    pattern: "^.+$",
};
const HELD: Kind = Duration("1s", "1h");
const TERMINATING: Kind = Duration("0s", "10m");
const QUERY: Kind = Object(&[
    Setting {
        name: "query",
        kind: Text {
            what: "PromQL, at most 4096 bytes",
            // Helm's regular expressions count no further than 1000.
            pattern: "^[\\s\\S]+$",
        },
        default: Required,
        meaning: "What to ask. It cannot be checked before it is asked",
    },
    Setting {
        name: "period",
        kind: Duration("1s", "1h"),
        default: Value("15s"),
        meaning: "Time between two askings, up to a tenth more or less",
    },
    Setting {
        name: "timeout",
        kind: Duration("10ms", "1m"),
        default: Value("5s"),
        meaning: "How long to wait for an answer",
    },
    Setting {
        name: "staleness",
        kind: Duration("1s", "24h"),
        default: Value("60s"),
        meaning: "Age beyond which a value no longer counts; longer than 1.1 · `period` + `timeout`",
    },
]);

/// Every setting, in the order of [`Config::SETTINGS`].
pub const SETTINGS: [Setting; Config::SETTINGS.len()] = [
    Setting {
        name: "domain",
        kind: Text {
            what: "DNS domain, at most 200 characters",
            pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        },
        default: Value("example.io"),
        meaning: "The domain of all annotation and label keys: `slo.<domain>/…`, `scheduling.<domain>/…`",
    },
    Setting {
        name: "excludedNamespaces",
        kind: List(&NAMESPACE),
        default: NONE,
        meaning: "Namespaces whose pods pass through, besides `kube-system`, `edgeward-system` and the value of \
                  `serve --namespace`",
    },
    Setting {
        name: "sites",
        kind: Sites,
        default: Words("`edge` and `cloud`"),
        meaning: "The [sites](#sites) of the live view",
    },
    Setting {
        name: "probing",
        kind: Object(&[
            Setting {
                name: "probes",
                kind: Integer(1, 100),
                default: Value("5"),
                meaning: "How many probes each endpoint gets in a period",
            },
            Setting {
                name: "period",
                kind: Duration("1s", "1h"),
                default: Value("10s"),
                meaning: "Over which they are spread",
            },
            Setting {
                name: "timeout",
                kind: Duration("1ms", "1m"),
                default: Value("2s"),
                meaning: "After which a probe is lost",
            },
        ]),
        default: Value("{probes: 5, period: 10s, timeout: 2s}"),
        meaning: "How the [WAN](wan.md) towards cloud sites is probed",
    },
    Setting {
        name: "enableOffload",
        kind: Boolean,
        default: Value("true"),
        meaning: "Whether any pod may be sent to a cloud",
    },
    Setting {
        name: "invalidSlo",
        kind: Word(&["warn", "deny"]),
        default: Value("warn"),
        meaning: "`warn`: a pod with an invalid SLO goes to the edge, with warnings. `deny`: it is refused",
    },
    Setting {
        name: "onNoCapacity",
        kind: Word(&["hold", "edge"]),
        default: Value("hold"),
        meaning: "What becomes of a pod that no site has room for. `hold`: it is [held](decision.md#7-held-pods) until one \
                  has. `edge`: it goes to the edge and is Pending there. With `serve --fleet` nothing is ever held, for \
                  nobody could release it, and this and the next four settings have no effect",
    },
    Setting {
        name: "holdClasses",
        kind: List(&CLASS),
        default: Value("[latency, throughput, batch]"),
        meaning: "Classes whose pods may be held, for want of room or for terminating pods; `[]` for none",
    },
    Setting {
        name: "holdLimits",
        kind: PerClass(&HELD),
        default: Value("{latency: 30s, throughput: 120s, batch: 300s}"),
        meaning: "How long a pod of a class is [held at most](decision.md#limits); a class that is not named keeps its \
                  default",
    },
    Setting {
        name: "waitForTerminating",
        kind: Either(&TERMINATING, &PerClass(&TERMINATING)),
        default: Value("{latency: 5s, throughput: 30s, batch: 30s}"),
        meaning: "How long a pod waits for the room of pods that are \
                  [terminating](decision.md#waiting-for-terminating-pods) at the edge. One duration is for every class; `0s` \
                  or `0`: not at all. It counts even where it is longer than the class's limit",
    },
    Setting {
        name: "foreignGates",
        kind: Word(&["wait", "passThrough"]),
        default: Value("wait"),
        meaning: "What becomes of a pod that arrives with scheduling gates of others. `wait`: it gets ours too, and is \
                  decided when ours is the [last](decision.md#gates-of-others). `passThrough`: it passes through",
    },
    Setting {
        name: "maxPriority",
        kind: Map("namespace", &Integer(0, 10)),
        default: NONE,
        meaning: "The highest SLO priority that counts in a namespace; a pod that states a higher one gets a warning",
    },
    Setting {
        name: "cloudPodDeletionCost",
        kind: Integer(i32::MIN as i64, i32::MAX as i64),
        default: Value("-100"),
        meaning: "Value of `controller.kubernetes.io/pod-deletion-cost` that a cloud placement adds where the pod states \
                  none: a ReplicaSet deletes the lowest first. `0`: none is added",
    },
    Setting {
        name: "explain",
        kind: Word(&["off", "short", "full"]),
        default: Value("short"),
        meaning: "How much of a decision is written on the pod; `short` is at most 256 bytes",
    },
    Setting {
        name: "rttThresholdMs",
        kind: Number(*RTT_THRESHOLD.start(), *RTT_THRESHOLD.end()),
        default: Value("100"),
        meaning: "RTT from which on a cloud site is degraded",
    },
    Setting {
        name: "lossThresholdPct",
        kind: Percent(LOSS_THRESHOLD.0 as i64 * 100),
        default: Value("2"),
        meaning: "Packet loss from which on a cloud site is degraded",
    },
    Setting {
        name: "telemetryCacheTTL",
        kind: Duration("1ms", "24h"),
        default: Value("60s"),
        meaning: "Age beyond which a measurement is stale",
    },
    Setting {
        name: "reservationTTL",
        kind: Duration("0s", "24h"),
        default: Value("3s"),
        meaning: "How long room stays [reserved](decision.md#reservations) for a pod that does not appear. `0s` switches \
                  reservations off. Without effect while the fleet comes from a file",
    },
    Setting {
        name: "replicas",
        kind: Integer(1, 100),
        default: Words("counted"),
        meaning: "How many replicas decide. Each charges what it promised so many times until the pod is seen, for the others \
                  may promise the same room. Without it, the ready endpoints of our own Service (`--service`, `--namespace`) \
                  are counted",
    },
    Setting {
        name: "models",
        kind: PerClass(&Object(&[
            Setting {
                name: "alpha",
                kind: Number(0, 1_000_000),
                default: Words("that of the class"),
                meaning: "Milliseconds for each millicore that the pod asks for",
            },
            Setting {
                name: "beta",
                kind: Number(0, 86_400_000_000),
                default: Words("that of the class"),
                meaning: "Milliseconds besides",
            },
        ])),
        default: Value(
            "{latency: {alpha: 0.5, beta: 20}, throughput: {alpha: 1, beta: 50}, batch: {alpha: 2, beta: 100}}",
        ),
        meaning: "[Processing time](decision.md#5-how-long-it-would-take) in ms: `alpha` · millicores + `beta`. A class or \
                  number that is not named keeps its default",
    },
    Setting {
        name: "queueModel",
        kind: Word(&["waiting", "pending"]),
        default: Value("waiting"),
        meaning: "Which pods stand in a queue: those that wait for room and stand ahead, or all of the class in phase Pending",
    },
    Setting {
        name: "minObservations",
        kind: Integer(1, 1_000_000),
        default: Value("5"),
        meaning: "Finished pods of a class or controller from which on their \
                  [mean time](decision.md#5-how-long-it-would-take) replaces the model",
    },
    Setting {
        name: "prometheus",
        kind: Object(&[
            Setting {
                name: "url",
                kind: Text {
                    what: "`http://` or `https://` address",
                    pattern: "^https?://[^@?#\\\\\\s]+$",
                },
                default: Required,
                meaning: "The server, with the path of its API if it is not at the root",
            },
            Setting {
                name: "required",
                kind: Boolean,
                default: Value("false"),
                meaning: "Whether arrivals go to the edge when an input is stale. It speaks of every query below but \
                          `processingSeconds`",
            },
            Setting {
                name: "tokenFile",
                kind: PATH,
                default: NONE,
                meaning: "File with a bearer token; read again when it changes. Needs `https`",
            },
            Setting {
                name: "caFile",
                kind: PATH,
                default: Words("the system's CAs"),
                meaning: "PEM file with the CAs to trust instead; read again when it changes. Needs `https`",
            },
            Setting {
                name: "queries",
                kind: Object(&[
                    Setting {
                        name: "edgeFreeCpuCores",
                        kind: QUERY,
                        default: NONE,
                        meaning: "CPU that is free at the edge",
                    },
                    Setting {
                        name: "edgeFreeMemoryBytes",
                        kind: QUERY,
                        default: NONE,
                        meaning: "Memory that is free at the edge",
                    },
                    Setting {
                        name: "processingSeconds",
                        kind: QUERY,
                        default: NONE,
                        meaning: "Mean processing time, by site and class",
                    },
                    Setting {
                        name: "wanRttSeconds",
                        kind: QUERY,
                        default: NONE,
                        meaning: "RTT, by site",
                    },
                    Setting {
                        name: "wanLossRatio",
                        kind: QUERY,
                        default: NONE,
                        meaning: "Loss, by site",
                    },
                ]),
                default: Required,
                meaning: "What it is asked; at least one",
            },
        ]),
        default: NONE,
        meaning: "A Prometheus server that is [asked for more](prometheus.md)",
    },
    Setting {
        name: "placedEdgeEvents",
        kind: Boolean,
        default: Value("false"),
        meaning: "Whether each pod that is kept at the edge gets an [Event](operations.md#events) `PlacedEdge` too",
    },
    Setting {
        name: "backstop",
        kind: Object(&[Setting {
            name: "recreate",
            kind: Boolean,
            default: Value("false"),
            meaning: "Whether pods of ReplicaSets and StatefulSets that kube-scheduler finds no node for, and that another \
                      site would take, are [deleted](operations.md#the-backstop) so that they are created anew",
        }]),
        default: Value("{recreate: false}"),
        meaning: "What is done about pods that slipped past the decision",
    },
    Setting {
        name: "loopGuard",
        kind: Object(&[
            Setting {
                name: "failuresPerMinute",
                kind: Integer(1, 1_000),
                default: Value("10"),
                meaning: "How many of its pods may be created in a minute in the place of failed ones",
            },
            Setting {
                name: "pause",
                kind: Duration("0s", "24h"),
                default: Value("5m"),
                meaning: "For how long its pods are left as they are when there were more. `0s`: not at all",
            },
        ]),
        default: Value("{failuresPerMinute: 10, pause: 5m}"),
        meaning: "When and for how long the pods of a controller are [left as they are](operations.md#the-loop-guard) because \
                  they fail over and over",
    },
];
