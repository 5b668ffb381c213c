//! Bodies of which as much as possible is made when they are read.

pub mod pressure;

use std::fmt::Write as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Review,
    Request,
    Pod,
    Metadata,
    Spec,
}

/// What a body has very much of: a field whose text repeats an element in the place of `~`.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    name: &'static str,
    place: Place,
    field: &'static str,
    text: &'static str,
    element: &'static str,
    separator: &'static str,
}

/// A list or a map of many elements; `@` in one stands for its number.
const fn many(
    name: &'static str,
    place: Place,
    field: &'static str,
    text: &'static str,
    element: &'static str,
) -> Part {
    Part {
        name,
        place,
        field,
        text,
        element,
        separator: ",",
    }
}

const fn long(
    name: &'static str,
    place: Place,
    field: &'static str,
    text: &'static str,
    character: &'static str,
) -> Part {
    Part {
        separator: "",
        ..many(name, place, field, text, character)
    }
}

const AFFINITY: &str = r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":[~]}]}]}}}"#;
const REQUIREMENTS: &str = r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[~]}]}}}"#;
const TERMS: &str = r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[~]}}}"#;
const ANNOTATIONS: &str = r#"{"slo.example.io/class":"latency",~}"#;

pub const PARTS: &[Part] = &[
    many("affinity values", Place::Spec, "affinity", AFFINITY, r#""""#),
    many(
        "affinity values of escapes",
        Place::Spec,
        "affinity",
        AFFINITY,
        r#""\n""#,
    ),
    many("affinity requirements", Place::Spec, "affinity", REQUIREMENTS, "{}"),
    many(
        "requirements of one value",
        Place::Spec,
        "affinity",
        REQUIREMENTS,
        r#"{"values":[""]}"#,
    ),
    many("affinity terms", Place::Spec, "affinity", TERMS, "{}"),
    many("containers", Place::Spec, "containers", "[~]", "{}"),
    many(
        "containers with resources and ports",
        Place::Spec,
        "containers",
        "[~]",
        r#"{"resources":{"requests":{},"limits":{}},"ports":[{}]}"#,
    ),
    many("ports", Place::Spec, "containers", r#"[{"ports":[~]}]"#, "{}"),
    many("env", Place::Spec, "containers", r#"[{"env":[~]}]"#, r#"{"name":"a"}"#),
    many(
        "requests",
        Place::Spec,
        "containers",
        r#"[{"resources":{"requests":{~}}}]"#,
        r#""e.io/@":1"#,
    ),
    many(
        "init containers",
        Place::Spec,
        "initContainers",
        "[~]",
        r#"{"restartPolicy":"Always"}"#,
    ),
    many(
        "requests of init containers",
        Place::Spec,
        "initContainers",
        "[~]",
        r#"{"resources":{"requests":{"e.io/@":1}}}"#,
    ),
    many("overhead", Place::Spec, "overhead", "{~}", r#""e.io/@":1"#),
    many("tolerations", Place::Spec, "tolerations", "[~]", "{}"),
    many(
        "tolerations of escapes",
        Place::Spec,
        "tolerations",
        "[~]",
        r#"{"key":"\n","value":"\n"}"#,
    ),
    many("gates", Place::Spec, "schedulingGates", "[~]", "{}"),
    many("volumes", Place::Spec, "volumes", "[~]", "{}"),
    many("resource claims", Place::Spec, "resourceClaims", "[~]", "0"),
    many("nodeSelector", Place::Spec, "nodeSelector", "{~}", r#""":"""#),
    many(
        "nodeSelector of escapes",
        Place::Spec,
        "nodeSelector",
        "{~}",
        r#""@\n":"\n""#,
    ),
    many("owner references", Place::Metadata, "ownerReferences", "[~]", "{}"),
    many("labels", Place::Metadata, "labels", "{~}", r#""":"""#),
    many(
        "annotations of escapes",
        Place::Metadata,
        "annotations",
        ANNOTATIONS,
        r#""\n":"\n""#,
    ),
    many(
        "unknown SLO annotations",
        Place::Metadata,
        "annotations",
        ANNOTATIONS,
        r#""slo.example.io/@":"""#,
    ),
    many(
        "conditions of a status",
        Place::Pod,
        "status",
        r#"{"conditions":[~]}"#,
        "{}",
    ),
    long(
        "nodeSelector value of escapes",
        Place::Spec,
        "nodeSelector",
        r#"{"a":"~"}"#,
        r"\n",
    ),
    long(
        "nodeSelector value after one",
        Place::Spec,
        "nodeSelector",
        r#"{"a":"\n~"}"#,
        "b",
    ),
    long(
        "schedulerName of escapes",
        Place::Spec,
        "schedulerName",
        r#""~""#,
        r"\n",
    ),
    long("priority of text", Place::Spec, "priority", r#""~""#, "\u{7f}"),
    long("quantity of text", Place::Spec, "overhead", r#"{"cpu":"~"}"#, "\u{7f}"),
    long("deep nesting in the pod", Place::Spec, "unknown", "~0", "["),
    long("field name in the pod", Place::Spec, "~", "0", r"\n"),
    long("name", Place::Metadata, "name", r#""~""#, "n"),
    long(
        "controller uid",
        Place::Metadata,
        "ownerReferences",
        r#"[{"controller":true,"kind":"ReplicaSet","uid":"~"}]"#,
        "u",
    ),
    long(
        "class",
        Place::Metadata,
        "annotations",
        r#"{"slo.example.io/class":"~"}"#,
        "\u{7f}",
    ),
    long(
        "SLO annotation of escapes",
        Place::Metadata,
        "annotations",
        r#"{"slo.example.io/class":"latency","slo.example.io/~":""}"#,
        r"\n",
    ),
    long(
        "stated placement",
        Place::Metadata,
        "annotations",
        r#"{"scheduling.example.io/decision":"\n~","scheduling.example.io/site":"edge","scheduling.example.io/decision-id":"i","scheduling.example.io/timestamp":"2026-01-01T00:00:00Z"}"#,
        "e",
    ),
    long("uid of escapes", Place::Request, "uid", r#""~""#, r"\n"),
    long("namespace", Place::Request, "namespace", r#""~""#, "n"),
    long("dryRun of text", Place::Request, "dryRun", r#""~""#, "\u{7f}"),
    long("deep nesting beside the pod", Place::Request, "unknown", "~0", "["),
    long("field name beside the pod", Place::Request, "~", "0", r"\n"),
    long("apiVersion", Place::Review, "apiVersion", r#""~""#, "\u{7f}"),
    long("field name beside the request", Place::Review, "~", "0", r"\n"),
];

impl Part {
    fn written(&self, bytes: usize) -> String {
        let first = self.element.replace('@', "0") + self.separator;
        let elements = match self.element.split_once('@') {
            None => first.repeat(bytes / first.len()),
            // No two names are the same.
            Some((before, after)) => {
                let mut elements = String::new();
                for i in 0.. {
                    let _ = write!(elements, "{before}{i}{after}{}", self.separator);
                    if elements.len() >= bytes {
                        break;
                    }
                }
                elements
            }
        };
        let elements = elements.strip_suffix(self.separator).unwrap_or(&elements);
        format!("\"{}\":{}", self.field, self.text).replacen('~', elements, 1)
    }
}

/// The body of a review that has these parts, each with so many bytes of its elements.
fn body(parts: &[(Part, usize)]) -> Vec<u8> {
    let fields = |place: Place, ordinary: &[(&str, &str)]| {
        let parts = || parts.iter().filter(move |(part, _)| part.place == place);
        let ordinary = ordinary
            .iter()
            .filter(|(field, _)| parts().all(|(part, _)| part.field != *field));
        let mut fields: Vec<String> = ordinary.map(|(field, text)| format!("\"{field}\":{text}")).collect();
        fields.extend(parts().map(|(part, bytes)| part.written(*bytes)));
        format!("{{{}}}", fields.join(","))
    };
    let annotations = r#"{"slo.example.io/class":"latency"}"#;
    let metadata = fields(Place::Metadata, &[("annotations", annotations)]);
    let spec = fields(Place::Spec, &[("containers", "[{}]")]);
    let pod = fields(Place::Pod, &[("metadata", &metadata), ("spec", &spec)]);
    let request = fields(
        Place::Request,
        &[
            ("uid", r#""u""#),
            ("resource", r#"{"group":"","resource":"pods"}"#),
            ("operation", r#""CREATE""#),
            ("namespace", r#""shop""#),
            ("object", &pod),
        ],
    );
    let review = fields(
        Place::Review,
        &[
            ("apiVersion", r#""admission.k8s.io/v1""#),
            ("kind", r#""AdmissionReview""#),
            ("request", &request),
        ],
    );
    review.into_bytes()
}

#[derive(Debug, Clone, Copy)]
pub enum Hostile {
    Of(Part),
    /// Some of the parts, in proportions that follow from a seed.
    Mixture(u64),
}

impl Hostile {
    pub fn name(self) -> String {
        match self {
            Self::Of(part) => part.name.to_owned(),
            Self::Mixture(seed) => format!("mixture {seed}"),
        }
    }

    /// The body, of at most so many bytes.
    pub fn body(self, bytes: usize) -> Vec<u8> {
        match self {
            Self::Of(part) => body(&[(part, bytes - 1_024)]),
            Self::Mixture(seed) => mixture(seed, bytes - 4_096),
        }
    }
}

pub fn ordinary() -> Vec<u8> {
    body(&[])
}

/// A body of parts that have so many bytes together.
fn mixture(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    // SplitMix64.
    let mut random = |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    };
    let mut parts: Vec<(Part, usize)> = Vec::new();
    for _ in 0..=random(6) {
        let part = PARTS[random(PARTS.len())];
        let is_there = parts
            .iter()
            .any(|(other, _)| (other.place, other.field) == (part.place, part.field));
        if !is_there && part.place != Place::Review && part.place != Place::Request {
            // Some of thousands, some of millions of bytes.
            parts.push((part, 1 << random(20)));
        }
    }
    let sum: usize = parts.iter().map(|(_, share)| share).sum();
    for (_, share) in &mut parts {
        *share = bytes * *share / sum;
    }
    body(&parts)
}
