//! Request bodies that need as much memory as possible when they are parsed.

pub mod pressure;

use std::fmt::Write as _;
use std::sync::LazyLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Review,
    Request,
    Pod,
    Metadata,
    Spec,
}

/// A part that a body repeats. The field's text has an element in the place of `~`.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    name: &'static str,
    place: Place,
    field: &'static str,
    text: &'static str,
    element: &'static str,
    separator: &'static str,
}

pub static PARTS: LazyLock<Vec<Part>> = LazyLock::new(|| {
    let rows = include_str!("hostile_bodies/parts.txt").lines();
    rows.filter_map(part).collect()
});

/// Parses a row of the table; `None` for a comment.
fn part(row: &'static str) -> Option<Part> {
    let [kind, name, place, field, text, element] = row.split(" | ").collect::<Vec<_>>().try_into().ok()?;
    let place = match place {
        "Review" => Place::Review,
        "Request" => Place::Request,
        "Pod" => Place::Pod,
        "Metadata" => Place::Metadata,
        _ => Place::Spec,
    };
    Some(Part {
        name,
        place,
        field,
        text,
        element: if element == "DEL" { "\u{7f}" } else { element },
        separator: if kind == "many" { "," } else { "" },
    })
}

impl Part {
    fn written(&self, bytes: usize) -> String {
        let first = self.element.replace('@', "0") + self.separator;
        let elements = match self.element.split_once('@') {
            None => first.repeat(bytes / first.len()),
            // All names must differ.
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

/// A review body with these parts. Each part has the given number of bytes of elements.
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
    Mixture(u64),
}

impl Hostile {
    pub fn name(self) -> String {
        match self {
            Self::Of(part) => part.name.to_owned(),
            Self::Mixture(seed) => format!("mixture {seed}"),
        }
    }

    /// The body, limited to this number of bytes.
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

fn mixture(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    // A SplitMix64 generator.
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
            // Part sizes range from thousands to millions of bytes.
            parts.push((part, 1 << random(20)));
        }
    }
    let sum: usize = parts.iter().map(|(_, share)| share).sum();
    for (_, share) in &mut parts {
        *share = bytes * *share / sum;
    }
    body(&parts)
}
