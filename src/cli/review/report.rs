//! The report of `review`: a documented format (docs/reference/output.md), and text for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use edgeward_decision::keys::Keys;
use edgeward_decision::model::group::UNKNOWN_SIZE;
use edgeward_decision::model::scores::Score;
use edgeward_decision::model::slo::SloFault;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::explain::times;
use edgeward_decision::placement::sentences;
use edgeward_decision::placement::verdict::{Assessment, Verdict};
use edgeward_decision::pod::Pod;
use edgeward_kube::resources::ResourceList;
use json_patch::PatchOperation;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::subject::Subject;
use crate::cli::table;

/// The whole report.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct ReviewList {
    api_version: &'static str,
    kind: &'static str,
    pub(in crate::cli) items: Vec<Item>,
}

impl ReviewList {
    pub(in crate::cli) fn new(items: Vec<Item>) -> Self {
        Self {
            api_version: "edgeward.io/v1alpha1",
            kind: "ReviewList",
            items,
        }
    }
}

/// The report on one pod.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Item {
    pub(super) source: String,
    pub(super) namespace: String,
    pub(in crate::cli) name: String,
    pub(super) class: Option<&'static str>,
    pub(in crate::cli) verdict: &'static str,
    pub(super) site: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) request: BTreeMap<String, i64>,
    pub(super) sites: Vec<SiteItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) profile: Option<ProfileItem>,
    /// The choice of the learned scorer, as text for people.
    #[serde(skip)]
    pub(super) learned: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<GroupItem>,
    pub(super) faults: Vec<SloFault>,
    pub(super) warnings: Vec<String>,
    pub(super) hints: Vec<String>,
    pub(in crate::cli) assumptions: Vec<String>,
    pub(in crate::cli) patch: Vec<PatchOperation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<AnswerItem>,
}

/// The performance profile that gave the sites their scores.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct ProfileItem {
    name: String,
    better: &'static str,
    margin: Value,
    preferred: Option<String>,
    /// The profile as text for people.
    #[serde(skip)]
    pub(in crate::cli) line: String,
}

impl ProfileItem {
    /// Returns the profile that the decision used, if any.
    pub(in crate::cli) fn of(verdict: &Verdict<'_>) -> Option<Self> {
        let (name, profile) = verdict.profile?;
        Some(Self {
            name: name.to_owned(),
            better: profile.better.as_str(),
            margin: json!(profile.margin),
            preferred: profile.preferred.as_deref().map(str::to_owned),
            line: sentences::profile(name, profile, &verdict.sites),
        })
    }
}

/// The group of the pod.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct GroupItem {
    name: String,
    component: String,
    /// Number of its pods at sites.
    placed: u64,
    /// Number of its gated pods.
    gated: u64,
    /// Number of its pods that start together; `None` if each starts alone, or if its PodGroup does not exist.
    size: Option<u32>,
}

impl GroupItem {
    /// The group of this pod, if it has one.
    pub(in crate::cli) fn of(workload: &Workload<'_>, snapshot: &Snapshot) -> Option<Self> {
        let membership = workload.membership()?;
        let (namespace, group) = (&*workload.namespace, &*membership.group);
        let placed = snapshot.sites.iter().map(|site| site.members.count(namespace, group));
        let size = snapshot.size_of(namespace, membership);
        Some(Self {
            name: group.to_owned(),
            component: membership.component.to_string(),
            placed: placed.sum(),
            gated: snapshot.gated_members.count(namespace, group),
            size: size.filter(|size| *size != UNKNOWN_SIZE),
        })
    }

    pub(in crate::cli) fn line(&self) -> String {
        let Self {
            name,
            component,
            placed,
            gated,
            size,
        } = self;
        let component = Some(component).filter(|component| !component.is_empty());
        let component = component
            .map(|component| format!(", component {component}"))
            .unwrap_or_default();
        let size = size.map(|size| format!("; {size} start together")).unwrap_or_default();
        format!("of group {name}{component}: {placed} placed, {gated} gated{size}")
    }
}

/// The assessment of a site for a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct SiteItem {
    pub(in crate::cli) name: String,
    standing: &'static str,
    refusals: Vec<RefusalItem>,
    #[serde(flatten)]
    pub(in crate::cli) times: Map<String, Value>,
    pub(in crate::cli) fitting_nodes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    headroom_nodes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) score: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    learned: Option<Value>,
}

#[derive(Debug, Serialize)]
struct RefusalItem {
    code: &'static str,
    numbers: Map<String, Value>,
}

/// The pod fields that an API server would store, or its refusal.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnswerItem {
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) node_selector: Value,
    pub(super) tolerations: Value,
    pub(super) refusal: Option<String>,
    pub(super) causes: Vec<String>,
}

impl SiteItem {
    /// One item for each site of the verdict.
    pub(in crate::cli) fn all(verdict: &Verdict<'_>) -> Vec<Self> {
        let learned = |site: &Assessment<'_>| verdict.learned.as_ref()?.score(site.site);
        let sites = verdict.sites.iter();
        sites.map(|site| Self::of(site, learned(site))).collect()
    }

    fn of(assessment: &Assessment<'_>, learned: Option<Score>) -> Self {
        let refusals = assessment.refusals.iter().map(|refusal| RefusalItem {
            code: refusal.code.as_str(),
            numbers: refusal.numbers.clone(),
        });
        Self {
            name: assessment.site.name().to_owned(),
            standing: assessment.standing().as_str(),
            refusals: refusals.collect(),
            times: times(assessment),
            fitting_nodes: assessment.fitting.len(),
            headroom_nodes: Some(assessment.headroom).filter(|nodes| *nodes > 0),
            score: assessment.score.map(|score| json!(score)),
            learned: learned.map(|score| json!(score)),
        }
    }
}

/// Converts quantities to integers: CPU to millicores, everything else to bytes or units, rounded up.
pub(super) fn integers(request: &ResourceList<'_>) -> BTreeMap<String, i64> {
    let integers = request.0.iter().map(|(name, quantity)| match &**name {
        "cpu" => ("cpu".to_owned(), quantity.millis()),
        name => (name.to_owned(), quantity.units()),
    });
    integers.collect()
}

impl ReviewList {
    /// Formats the report for people.
    pub(in crate::cli) fn table(&self) -> String {
        let mut text = table("POD,CLASS,VERDICT,SITE,REASON,ETA", self.items.iter().map(Item::row));
        for item in &self.items {
            let _ = write!(text, "\n{}\n", item.title());
            for line in item.lines() {
                let _ = writeln!(text, "  {}", harmless(&line));
            }
        }
        text
    }
}

/// Replaces control characters, so that a manifest from elsewhere cannot control the terminal.
pub(in crate::cli) fn harmless(text: &str) -> String {
    text.replace(char::is_control, "�")
}

impl Item {
    /// Describes a pod before it is decided.
    pub(super) fn of(subject: &Subject, pod: &Pod<'_>, workload: &Workload<'_>, keys: &Keys) -> Self {
        let intent = workload.intent.as_ref().filter(|intent| intent.class_known);
        Self {
            source: subject.source.clone(),
            namespace: workload.namespace.to_string(),
            name: pod.name().to_owned(),
            class: intent.map(|intent| intent.slo.class.as_str()),
            request: integers(&pod.request()),
            hints: [subject.hints.clone(), pod.hints(workload, keys)].concat(),
            ..Self::default()
        }
    }

    fn title(&self) -> String {
        let name = if self.name.is_empty() { "(no name)" } else { &self.name };
        harmless(&format!("{}/{name}", self.namespace))
    }

    fn row(&self) -> [String; 6] {
        let mut sites = self.sites.iter();
        let site = sites.find(|site| Some(&site.name) == self.site.as_ref());
        let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
        [
            self.title(),
            or_dash(self.class),
            self.verdict.to_owned(),
            or_dash(self.site.as_deref()),
            or_dash(self.reason.as_deref()),
            or_dash(site.map(SiteItem::eta).as_deref()),
        ]
    }

    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.sites.iter().map(SiteItem::line).collect();
        lines.extend(self.profile.iter().map(|profile| profile.line.clone()));
        lines.extend(self.learned.clone());
        lines.extend(self.group.iter().map(GroupItem::line));
        lines.extend(self.answer.iter().flat_map(AnswerItem::lines));
        let faults = self.faults.iter().filter(|_| self.warnings.is_empty());
        lines.extend(faults.map(|fault| format!("fault: {fault}")));
        for (kind, texts) in [
            ("warning", &self.warnings),
            ("hint", &self.hints),
            ("assumed", &self.assumptions),
        ] {
            lines.extend(texts.iter().map(|text| format!("{kind}: {text}")));
        }
        lines
    }
}

impl AnswerItem {
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.refusal.iter().map(|message| format!("refused: {message}")));
        let fields = [
            ("nodeSelector", &self.node_selector),
            ("tolerations", &self.tolerations),
        ];
        let stated = fields.into_iter().filter(|(_, value)| !value.is_null());
        lines.extend(stated.map(|(name, value)| format!("{name}: {value}")));
        lines.extend(self.annotations.iter().map(|(key, value)| format!("{key}: {value}")));
        lines.extend(self.causes.iter().map(|cause| format!("not decided: {cause}")));
        lines
    }
}

impl SiteItem {
    /// Returns the codes of the refusals.
    pub(in crate::cli) fn codes(&self) -> Vec<&'static str> {
        self.refusals.iter().map(|refusal| refusal.code).collect()
    }

    fn eta(&self) -> String {
        match &self.times["etaMs"] {
            Value::Null => "unknown".into(),
            ms => format!("{ms} ms"),
        }
    }

    /// Formats the site for people.
    pub(in crate::cli) fn line(&self) -> String {
        let part = |name: &str| match &self.times[name] {
            Value::Null => "?".to_owned(),
            ms => ms.to_string(),
        };
        let [queue, processing, wan] = ["queueMs", "procMs", "wanMs"].map(part);
        let p95 = |name: &str| {
            self.times
                .get(name)
                .map_or_else(String::new, |ms| format!(" (p95 {ms})"))
        };
        let [of_processing, of_wan] = ["procP95Ms", "wanP95Ms"].map(p95);
        let sum = format!("queue {queue} + processing {processing}{of_processing} + WAN {wan}{of_wan}");
        let nodes = sentences::fits(self.fitting_nodes as u64);
        let nodes = match self.headroom_nodes {
            None => nodes,
            Some(count) => format!("{nodes}, {count} of them by headroom"),
        };
        let refusals = self.refusals.iter();
        let refusals = refusals.map(|refusal| sentences::refusal(refusal.code, &refusal.numbers));
        let refusals = refusals.collect::<Vec<_>>().join("; ");
        let judged = match &*refusals {
            "" => self.standing.to_owned(),
            refusals => format!("{}: {refusals}", self.standing),
        };
        format!("{}: ETA {} ({sum}), {nodes}, {judged}", self.name, self.eta())
    }
}
