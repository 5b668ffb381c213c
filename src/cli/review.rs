//! `edgeward review`: the decision on a file, offline.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::{Map, Value};

use super::documents;
use crate::admit::review::{Request, shorten};
use crate::clock::Clock;
use crate::config::Config;
use crate::decide::decide;
use crate::decide::explain::times;
use crate::decide::verdict::{Assessment, Refusal};
use crate::fleet::{Snapshot, file};
use crate::patch::{Add, Stamp, patch};
use crate::pod::Pod;
use crate::resources::ResourceList;
use crate::room::Room;
use crate::units::{Moment, Now};
use crate::workload::Workload;
use crate::workload::slo::SloFault;
use crate::yaml;

/// Tell what edgeward would do with pods, and why, against a fleet in a file.
///
/// Reads Pods, Lists of Pods and AdmissionReviews. A Pod is defaulted as the API server would do it (requests from
/// limits); what only a cluster knows is listed under `assumptions`.
#[derive(Debug, Args)]
pub(super) struct Review {
    /// File with pods, YAML or JSON, any number of documents; `-` is standard input. May be repeated.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    filename: Vec<PathBuf>,

    /// Fleet file: sites, nodes, queues and WAN (docs/fleet-file.md).
    #[arg(long, value_name = "FILE")]
    fleet: PathBuf,

    /// Configuration (docs/configuration.md): a file, or a directory with the keys of a ConfigMap; defaults without.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// Namespace of pods that name none.
    #[arg(short, long, default_value = "default")]
    namespace: String,

    /// `json` and `yaml` are an interface (docs/review-output.md); `patch` prints the JSONPatch of each pod, one per
    /// line.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// One ReviewList.
    Json,
    /// One ReviewList.
    Yaml,
    /// Only the patches.
    Patch,
}

impl Review {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let config = documents::config(self.config.as_deref())?;
        let clock = Clock::start();
        let now = Now {
            moment: Moment(0),
            wall: clock.wall(),
        };
        let source = self.fleet.display().to_string();
        let document = yaml::parse_one(&documents::text(&self.fleet)?, &source)?;
        let snapshot = file::read(&document, &config, now.moment).map_err(|faults| yaml::faulty(&source, &faults))?;
        let reviewer = Offline {
            config: &config,
            snapshot: &snapshot,
            namespace: &self.namespace,
            now,
        };

        let mut items = Vec::new();
        for path in &self.filename {
            let source = if path.as_os_str() == "-" {
                "stdin".into()
            } else {
                path.display().to_string()
            };
            let documents = yaml::parse_all(&documents::text(path)?, &source)?;
            if documents.is_empty() {
                bail!("{source}: holds no document");
            }
            for (i, document) in documents.iter().enumerate() {
                reviewer.document(document, &format!("{source}#{}", i + 1), &mut items)?;
            }
        }
        let list = ReviewList {
            api_version: "edgeward.io/v1alpha1",
            kind: "ReviewList",
            items,
        };
        super::print(&self.output.render(&list)?)
    }
}

impl Output {
    fn render(self, list: &ReviewList) -> anyhow::Result<String> {
        Ok(match self {
            Output::Json => serde_json::to_string_pretty(list)? + "\n",
            Output::Yaml => serde_saphyr::to_string(list)?,
            Output::Table => list.table(),
            Output::Patch => {
                let patches = list.items.iter().map(|item| serde_json::to_string(&item.patch));
                patches.collect::<Result<Vec<_>, _>>()?.join("\n") + "\n"
            }
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewList {
    api_version: &'static str,
    kind: &'static str,
    items: Vec<Item>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    source: String,
    namespace: String,
    name: String,
    class: Option<&'static str>,
    verdict: &'static str,
    site: Option<String>,
    reason: &'static str,
    request: BTreeMap<String, i64>,
    sites: Vec<SiteItem>,
    faults: Vec<SloFault>,
    warnings: Vec<String>,
    assumptions: Vec<String>,
    patch: Vec<Add>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SiteItem {
    name: String,
    feasible: bool,
    refusals: Vec<RefusalItem>,
    #[serde(flatten)]
    times: Map<String, Value>,
    fitting_nodes: usize,
}

#[derive(Serialize)]
struct RefusalItem {
    code: &'static str,
    numbers: Map<String, Value>,
}

impl From<&Assessment<'_>> for SiteItem {
    fn from(assessment: &Assessment<'_>) -> Self {
        Self {
            name: assessment.site.name().to_owned(),
            feasible: assessment.is_feasible(),
            refusals: assessment.refusals.iter().map(RefusalItem::from).collect(),
            times: times(assessment),
            fitting_nodes: assessment.fitting.len(),
        }
    }
}

impl From<&Refusal> for RefusalItem {
    fn from(refusal: &Refusal) -> Self {
        Self {
            code: refusal.code.as_str(),
            numbers: refusal.numbers.clone(),
        }
    }
}

/// Reviews documents against one snapshot.
struct Offline<'c> {
    config: &'c Config,
    snapshot: &'c Snapshot,
    namespace: &'c str,
    now: Now,
}

impl Offline<'_> {
    fn document(&self, document: &Value, source: &str, items: &mut Vec<Item>) -> anyhow::Result<()> {
        match document["kind"].as_str() {
            Some("Pod") => items.push(self.pod(document, source)?),
            Some("List" | "PodList") => {
                let list = document["items"]
                    .as_array()
                    .with_context(|| format!("{source}: items is not a list"))?;
                for (i, entry) in list.iter().enumerate() {
                    let source = format!("{source}.items[{i}]");
                    match entry["kind"].as_str() {
                        // The items of a PodList do not repeat their kind.
                        None if document["kind"] == "PodList" => items.push(self.pod(entry, &source)?),
                        _ => self.document(entry, &source, items)?,
                    }
                }
            }
            Some("AdmissionReview") => items.push(self.admission_review(document, source)?),
            Some(kind) => bail!(
                "{source}: kind {kind} cannot be reviewed; Pods, Lists of Pods and AdmissionReviews can (of a workload, \
                 review the pods it makes)"
            ),
            None => bail!("{source}: has no kind; expected a Pod, a List of Pods or an AdmissionReview"),
        }
        Ok(())
    }

    /// A pod as its author wrote it.
    fn pod(&self, document: &Value, source: &str) -> anyhow::Result<Item> {
        let text = document.to_string();
        let mut pod = parse(&text, source)?;
        pod.apply_api_defaults();
        let namespace = pod.namespace().unwrap_or(self.namespace).to_owned();
        let workload = pod.workload(namespace.into(), &self.config.keys);
        let assumptions = self.assumptions(&pod, &workload);
        Ok(self.item(&pod, &workload, source, assumptions))
    }

    /// A pod as an API server sent it: nothing is left to assume.
    fn admission_review(&self, document: &Value, source: &str) -> anyhow::Result<Item> {
        let text = document.to_string();
        let request = Request::read(text.as_bytes()).with_context(|| source.to_owned())?;
        let object = request.object.filter(|_| request.is_pod_create());
        let object = object.with_context(|| format!("{source}: the request is not the creation of a pod"))?;
        let pod = parse(object.get(), source)?;
        let namespace = request
            .namespace
            .map_or(Cow::Borrowed(self.namespace), |namespace| namespace.0);
        let workload = pod.workload(namespace, &self.config.keys);
        Ok(self.item(&pod, &workload, source, vec![]))
    }

    fn item(&self, pod: &Pod<'_>, workload: &Workload<'_>, source: &str, assumptions: Vec<String>) -> Item {
        let verdict = decide(workload, &Room::of(self.snapshot), self.config, self.now);
        let stamp = Stamp {
            at: self.now.wall,
            id: uuid::Uuid::new_v4().to_string(),
        };
        Item {
            source: source.to_owned(),
            namespace: workload.namespace.clone().into_owned(),
            name: pod.name().to_owned(),
            class: workload
                .intent
                .as_ref()
                .filter(|intent| intent.class_known)
                .map(|intent| intent.slo.class.as_str()),
            verdict: verdict.action.as_str(),
            site: verdict.site().map(|site| site.name().to_owned()),
            reason: verdict.reason.as_str(),
            request: integers(&pod.request()),
            sites: verdict.sites.iter().map(SiteItem::from).collect(),
            patch: patch(pod, &verdict, self.config, &stamp),
            warnings: verdict.warnings.iter().map(|warning| shorten(warning)).collect(),
            faults: verdict.faults,
            assumptions,
        }
    }

    /// What only the cluster knows, and what was taken for granted instead.
    fn assumptions(&self, pod: &Pod<'_>, workload: &Workload<'_>) -> Vec<String> {
        let unresolved = pod.unresolved();
        let managed = &self.config.keys.managed;
        let priority = if unresolved.priority_class {
            "spec.priority is 0; its PriorityClass is not known here"
        } else {
            "spec.priority is 0; the cluster has no default PriorityClass"
        };
        let assumptions = [
            (
                true,
                format!("namespace {} is labelled {managed}=true", workload.namespace),
            ),
            (
                pod.lacks_requests(),
                "no LimitRange fills in the requests that containers leave out".to_owned(),
            ),
            (
                unresolved.runtime_class_overhead,
                "its RuntimeClass adds no overhead".to_owned(),
            ),
            (unresolved.priority, priority.to_owned()),
        ];
        assumptions
            .into_iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, text)| text)
            .collect()
    }
}

fn parse<'t>(text: &'t str, source: &str) -> anyhow::Result<Pod<'t>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| anyhow::anyhow!("{source}: {}: {}", error.path(), message(error.inner())))
}

/// The message without the position, which would be one in a text that nobody has seen.
fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ")
        .map_or(text.clone(), |(message, _)| message.to_owned())
}

/// Every resource name to an integer: CPU in millicores, everything else in bytes or units, rounded up.
fn integers(request: &ResourceList<'_>) -> BTreeMap<String, i64> {
    let integer = |name: &str, quantity: crate::units::Quantity| match name {
        "cpu" => quantity.millis(),
        _ => quantity.units(),
    };
    request
        .iter()
        .map(|(name, quantity)| (name.clone().into_owned(), integer(name, quantity)))
        .collect()
}

impl ReviewList {
    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["POD", "CLASS", "VERDICT", "SITE", "REASON", "ETA"]);
        for item in &self.items {
            let eta = item
                .sites
                .iter()
                .find(|site| Some(&site.name) == item.site.as_ref())
                .map(SiteItem::eta);
            table.add_row([
                item.title(),
                item.class.unwrap_or("-").to_owned(),
                item.verdict.to_owned(),
                item.site.clone().unwrap_or_else(|| "-".into()),
                item.reason.to_owned(),
                eta.unwrap_or_else(|| "-".into()),
            ]);
        }
        let mut text = trimmed(&table);
        for item in &self.items {
            let _ = write!(text, "\n{}\n", item.title());
            for site in &item.sites {
                let _ = writeln!(text, "  {}", site.line());
            }
            let faults = item.faults.iter().filter(|_| item.warnings.is_empty());
            for fault in faults {
                let _ = writeln!(text, "  fault: {fault}");
            }
            let warnings = item.warnings.iter().map(|warning| ("warning", warning));
            let assumptions = item.assumptions.iter().map(|assumption| ("assumed", assumption));
            for (kind, line) in warnings.chain(assumptions) {
                let _ = writeln!(text, "  {kind}: {line}");
            }
        }
        text
    }
}

/// A table without the blanks at the end of its lines.
pub(super) fn trimmed(table: &Table) -> String {
    table.trim_fmt() + "\n"
}

impl Item {
    fn title(&self) -> String {
        let name = if self.name.is_empty() { "(no name)" } else { &self.name };
        // Somebody else's manifest must not be able to draw on the terminal.
        format!("{}/{name}", self.namespace).replace(char::is_control, "�")
    }
}

impl SiteItem {
    fn eta(&self) -> String {
        match &self.times["etaMs"] {
            Value::Null => "unknown".into(),
            ms => format!("{ms} ms"),
        }
    }

    fn line(&self) -> String {
        let part = |name: &str| match &self.times[name] {
            Value::Null => "?".to_owned(),
            ms => ms.to_string(),
        };
        let sum = format!(
            "queue {} + processing {} + WAN {}",
            part("queueMs"),
            part("procMs"),
            part("wanMs")
        );
        let nodes = match self.fitting_nodes {
            1 => "fits 1 node".to_owned(),
            count => format!("fits {count} nodes"),
        };
        let refusals = self.refusals.iter().map(|refusal| {
            let numbers = refusal.numbers.iter();
            let numbers = numbers
                .map(|(name, number)| format!("{name} {number}"))
                .collect::<Vec<_>>()
                .join(", ");
            if numbers.is_empty() {
                refusal.code.to_owned()
            } else {
                format!("{} ({numbers})", refusal.code)
            }
        });
        let refusals = refusals.collect::<Vec<_>>().join("; ");
        let judged = if self.feasible {
            "feasible".to_owned()
        } else {
            format!("refused: {refusals}")
        };
        format!("{}: ETA {} ({sum}), {nodes}, {judged}", self.name, self.eta())
    }
}
