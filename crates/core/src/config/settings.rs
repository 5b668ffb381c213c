//! What can be set, each declared once: its place, its name, what its value may be, what holds without it and what it
//! does. The readers, `docs/reference/settings.md` and the JSON schema for editors are made of it.

use crate::config::declaration::{Assumed, Kind, Setting, settings};
use crate::config::gating::OnNoCapacity;
use crate::config::probing::Probing;
use crate::config::prometheus::{Input, Prometheus, is_address, is_promql};
use crate::config::{Config, Explain, InvalidSlo, LinearModel, LiqoSettings, SitePolicy};
use crate::config::{is_domain, is_namespace};
use crate::model::constraints::is_subdomain;
use crate::model::priority_caps::OTHERS;

use Assumed::{Required, Value, Words};
use Kind::{Boolean, Duration, Either, Integer, List, Map, Number, Object, PerClass, Percent, Sites, Text, Word};

const NONE: Assumed = Words("none");
const NAMESPACE: Kind = Text {
    what: "name of a namespace (lower-case letters, digits and `-`, at most 63)",
    pattern: "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
    is: is_namespace,
};
const DOMAIN: Kind = Text {
    what: "DNS domain, at most 200 characters",
    pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    is: is_domain,
};
const RUNTIME_CLASS: Kind = Text {
    what: "name of a RuntimeClass (lower-case letters, digits, `-` and `.`)",
    pattern: "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
    is: is_subdomain,
};
const PATH: Kind = Text {
    what: "path",
    pattern: "^.+$",
    is: |path| !path.is_empty(),
};
const URL: Kind = Text {
    what: "`http://` or `https://` address without user, query and fragment",
    pattern: "^https?://[^@?#\\\\\\s]+$",
    is: is_address,
};
const PROMQL: Kind = Text {
    what: "PromQL, at most 4096 bytes",
    // Helm's regular expressions count no further than 1000.
    pattern: "^[\\s\\S]+$",
    is: is_promql,
};
const CAPS: Kind = Map(
    "namespace",
    |name| is_namespace(name) || name == OTHERS,
    &Integer(0, 10),
);
const TERMINATING: Kind = Duration("0s", "10m");

settings! { Config:
    "domain", DOMAIN, Value("example.io"),
        "The domain of all annotation and label keys: `slo.<domain>/…`, `scheduling.<domain>/…`";
    "excludedNamespaces", List(&NAMESPACE), NONE,
        "Namespaces whose pods pass through, besides `kube-system`, `edgeward-system` and the value of `serve \
         --namespace`";
    "sites", Sites, Words("`edge` and `cloud`"),
        "The [sites](#sites) of the live view";
    "liqo", Object(&LiqoSettings::SETTINGS), Value("{enabled: auto}"),
        "What is made of [Liqo's objects](../guide/clouds.md#liqo)";
    "sitePolicy", Word(&SitePolicy::WORDS), Value("lowest-eta"),
        "Which cloud is taken of [several](../guide/decide.md#rank) that meet the time. `lowest-eta`: that of the \
         lowest ETA; `lowest-cost`: that of the lowest `costPerHour`, those without last; `spread`: that with the fewest \
         pods of the same controller; `ordered`: that with the lowest `order`. Of equals that of the lowest ETA, then the first by name";
    "probing", Object(&Probing::SETTINGS), Value("{probes: 5, period: 10s, timeout: 2s}"),
        "How the [WAN](../guide/clouds.md#wan) towards cloud sites is probed";
    "enableOffload", Boolean, Value("true"),
        "Whether any pod may be sent to a cloud";
    "invalidSlo", Word(&InvalidSlo::WORDS), Value("warn"),
        "`warn`: a pod with an invalid SLO goes to the edge, with warnings. `deny`: it is refused";
    "onNoCapacity", Word(&OnNoCapacity::WORDS), Value("hold"),
        "What becomes of a pod that no site has room for. `hold`: it is [gated](../guide/decide.md#gated-pods) until one \
         has. `edge`: it goes to the edge and is Pending there. With `serve --fleet` only pods that state their \
         sites are gated, for nothing releases a pod there, and this and the next two settings have no effect";
    "holdLimits", PerClass(&Duration("0s", "1h")),
        Value(r#"{"latency": "30s", "throughput": "120s", "batch": "300s"}"#),
        "How long a pod of a class is [gated at most](../guide/decide.md#gated-pods); `0s`: not at all. A class that \
         is not named keeps its default";
    "waitForTerminating", Either(&TERMINATING, &PerClass(&TERMINATING)),
        Value(r#"{"latency": "5s", "throughput": "30s", "batch": "30s"}"#),
        "How long a pod waits for the room of pods that are [terminating](../guide/decide.md#the-table) \
         at the edge. One duration is for every class; `0s` or `0`: not at all. Only pods that may be gated wait";
    "headroomBelow", Integer(i32::MIN as i64, i32::MAX as i64), Value("0"),
        "Pods of a lower `spec.priority` than this that state no class are placeholders: what they take is \
         [headroom](../guide/decide.md#headroom) for others. The lowest number: none are";
    "maxPriority", CAPS, NONE,
        "The highest SLO priority that counts in a namespace, with the key `\"*\"` in all that are not listed; a pod that \
         states a higher one gets a warning";
    "explain", Word(&Explain::WORDS), Value("short"),
        "How much of a decision is written on the pod; `short` is at most 256 bytes";
    "rttThresholdMs", Number(1, 60_000_000), Value("100"),
        "RTT from which on a cloud site is degraded";
    "lossThresholdPct", Percent(100), Value("2"),
        "Packet loss from which on a cloud site is degraded";
    "telemetryCacheTTL", Duration("45s", "24h"), Value("60s"),
        "Age beyond which a measurement is stale. The view of a quiet cluster gets 30 s old, and a link is measured \
         only by probes: the period of `probing`, and the time from one probe to the next, may be no longer than this";
    "reservationTTL", Duration("0s", "24h"), Value("3s"),
        "How long room stays [reserved](../guide/decide.md) for a pod that does not appear. `0s` switches \
         reservations off. Without effect while the fleet comes from a file";
    "models", PerClass(&Object(&LinearModel::SETTINGS)),
        Value(r#"{"latency": {"alpha": 0.5, "beta": 20}, "throughput": {"alpha": 1, "beta": 50}, "batch": {"alpha": 2, "beta": 100}}"#),
        "[Processing time](../guide/decide.md#time) in ms: `alpha` · millicores + `beta`. A class or \
         number that is not named keeps its default";
    "prometheus", Object(&Prometheus::SETTINGS), NONE,
        "A Prometheus server that is [asked for more](../guide/clouds.md#prometheus)";
}

settings! { LiqoSettings:
    "enabled", Either(&Boolean, &Word(&["auto"])), Value("auto"),
        "Whether remote clusters become sites, and namespaces go where Liqo offloads them. `auto`: where its definitions are \
         installed and may be read. `true`: also where they are not, and then no pod goes to a virtual node";
    "runtimeClassName", RUNTIME_CLASS, NONE,
        "A RuntimeClass that pods which name none get at discovered sites; Liqo's own is `liqo`";
}

settings! { Probing:
    "probes", Integer(1, 100), Value("5"),
        "How many probes each endpoint gets in a period";
    "period", Duration("1s", "1h"), Value("10s"),
        "Over which they are spread";
    "timeout", Duration("1ms", "1m"), Value("2s"),
        "After which a probe is lost";
}

settings! { LinearModel:
    "alpha", Number(0, 1_000_000), Words("that of the class"),
        "Milliseconds for each millicore that the pod asks for";
    "beta", Number(0, 86_400_000_000), Words("that of the class"),
        "Milliseconds besides";
}

settings! { Prometheus:
    "url", URL, Required,
        "The server, with the path of its API if it is not at the root";
    "required", Boolean, Value("false"),
        "Whether arrivals go to the edge when an input is stale. It speaks of every query below but \
         `processingSeconds`";
    "tokenFile", PATH, NONE,
        "File with a bearer token; read again when it changes. Needs `https`";
    "caFile", PATH, Words("the system's CAs"),
        "PEM file with the CAs to trust instead; read again when it changes. Needs `https`";
    "period", Duration("1s", "1h"), Value("15s"),
        "Interval of the queries, with ±10 % jitter";
    "timeout", Duration("10ms", "1m"), Value("5s"),
        "How long to wait for an answer";
    "staleness", Duration("1s", "24h"), Value("60s"),
        "A value that is older does not count; longer than 1.1 · `period` + `timeout`";
    "queries", Object(&Input::SETTINGS), Words("none"),
        "What it is asked, beside the metrics of [performance profiles](crds.md)";
}

settings! { Input:
    Input::EdgeFreeCpu.as_str(), PROMQL, NONE, "CPU that is free at the edge";
    Input::EdgeFreeMemory.as_str(), PROMQL, NONE, "Memory that is free at the edge";
    Input::Processing.as_str(), PROMQL, NONE, "Mean processing time, by site and class";
    Input::WanRtt.as_str(), PROMQL, NONE, "RTT, by site";
    Input::WanLoss.as_str(), PROMQL, NONE, "Loss, by site";
}
