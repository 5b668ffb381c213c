//! CODECO's CodecoApps, and the Applications of its QoS scheduler. One describes a pod for each service, and the channels from it
//! to other services.

use edgeward_decision::document::without_nulls;
use edgeward_decision::model::group::Within;
use edgeward_decision::model::slo::MAX_MILLIS;
use edgeward_kube::units::Micros;
use edgeward_profiles::import::object_name;
use serde_json::{Value, json};

use super::field::{Field, dns_label};
use super::part::{Part, Parts};
use crate::cli::findings::Findings;

const NANOS_PER_MS: i128 = 1_000_000;

/// The longest delay that is plausible, and the longest interval between frames that the QoS scheduler allows.
const LONGEST_DELAY: i128 = 1_000 * NANOS_PER_MS;
const LONGEST_INTERVAL: i128 = 10 * NANOS_PER_MS;

/// Fields of a Deployment that a sample of CODECO has in a pod. They are left out.
const OF_DEPLOYMENTS: [&str; 3] = ["replicas", "selector", "template"];

/// The label of each Deployment's pods, by which it selects them.
const LABEL: &str = "app.kubernetes.io/component";

/// The label that makes an Application a member of an ApplicationGroup.
const GROUP_LABEL: &str = "application-group";

/// The names of a kind's fields.
struct Form {
    services: &'static str,
    name: &'static str,
    channels: &'static str,
    other: &'static str,
    other_app: &'static str,
    bandwidth: &'static str,
    /// Where the figures of a channel are. Empty: in the channel itself.
    settings: &'static str,
    /// All fields of the spec, of a service, of a channel, and of its figures, separated by spaces.
    known: [&'static str; 4],
}

const CODECO_APP: Form = Form {
    services: "codecoapp-msspec",
    name: "serviceName",
    channels: "serviceChannels",
    other: "otherService",
    other_app: "appName",
    bandwidth: "minBandwidth",
    settings: "advancedChannelSettings",
    known: [
        "appName qosClass codecoapp-msspec performanceProfile securityClass complianceClass appEnergyLimit appFailureTolerance",
        "serviceName podspec serviceChannels nwbandwidth nwlatency",
        "channelName otherService serviceClass advancedChannelSettings",
        "minBandwidth maxDelay frameSize sendInterval",
    ],
};

const APPLICATION: Form = Form {
    services: "workloads",
    name: "basename",
    channels: "channels",
    other: "otherWorkload",
    other_app: "applicationName",
    bandwidth: "bandwidth",
    settings: "",
    known: [
        "workloads",
        "basename template channels costs nodeRecommendations",
        "",
        "basename otherWorkload serviceClass bandwidth maxDelay framesize sendInterval",
    ],
};

/// An application of a file.
struct App<'v> {
    form: &'static Form,
    document: Field<'v>,
    name: String,
    group: String,
}

/// Adds the services of CodecoApps and Applications. Returns how many of these are there.
pub(super) fn convert(documents: &[Value], parts: &mut Parts, findings: &mut Findings) -> usize {
    let mut apps = vec![];
    let mut read = 0;
    for document in documents {
        let field = Field::document(document);
        let form = match (document["apiVersion"].as_str(), document["kind"].as_str()) {
            (Some("codeco.he-codeco.eu/v1alpha1"), Some("CodecoApp")) => &CODECO_APP,
            (Some("qos-scheduler.siemens.com/v1alpha1"), Some("Application")) => &APPLICATION,
            (Some("qos-scheduler.siemens.com/v1alpha1"), Some("ApplicationGroup")) => {
                if document["spec"]["minMember"]
                    .as_i64()
                    .is_some_and(|members| members > 1)
                {
                    field.get("spec").report_unmatched("minMember", findings);
                }
                continue;
            }
            _ => {
                field.get("kind").lost("is not read", findings);
                continue;
            }
        };
        read += 1;
        if let Some(app) = app(form, field, findings) {
            let services = add_services(&app, parts, findings);
            apps.push((app, services));
        }
    }
    for (app, services) in &apps {
        for (service, part) in services {
            connect(app, service, *part, parts, findings);
        }
    }
    read
}

fn app<'v>(form: &'static Form, document: Field<'v>, findings: &mut Findings) -> Option<App<'v>> {
    let (metadata, spec) = (document.get("metadata"), document.get("spec"));
    let named = match spec.get("appName") {
        field if field.value.is_null() => metadata.get("name"),
        field => field,
    };
    let name = named.required(findings)?;
    let label = metadata.get("labels").get(GROUP_LABEL);
    let group = match label.text(findings) {
        Some(group) => label.label(&group, findings)?,
        None => named.label(&name, findings)?,
    };
    spec.report_unknown(form.known[0], findings);
    spec.report_unmatched(
        "securityClass complianceClass appEnergyLimit appFailureTolerance",
        findings,
    );
    Some(App {
        form,
        document,
        name,
        group,
    })
}

/// Adds the services of an application. Returns each with its index.
fn add_services<'v>(app: &App<'v>, parts: &mut Parts, findings: &mut Findings) -> Vec<(Field<'v>, usize)> {
    let spec = app.document.get("spec");
    let class = class(&spec, findings).map(str::to_owned);
    let profile = spec.get("performanceProfile").text(findings);
    let profile = profile.map(|profile| object_name(&profile));
    let mut services = vec![];
    for service in spec.get(app.form.services).items(findings) {
        let Some(mut part) = part(app, &service, findings) else {
            continue;
        };
        for (name, value) in [("class", &class), ("profile", &profile)] {
            part.own.extend(value.clone().map(|value| (name, value)));
        }
        services.extend(parts.add(part, findings).map(|part| (service, part)));
    }
    services
}

/// CODECO's classes have no figures, so each class of edgeward is a guess.
fn class(spec: &Field<'_>, findings: &mut Findings) -> Option<&'static str> {
    let stated = spec.get("qosClass");
    let class = match stated.text(findings).as_deref() {
        Some("Gold") => "latency",
        Some("Silver") => "throughput",
        Some("BestEffort") => "batch",
        Some(_) => {
            stated.lost("is not Gold, Silver or BestEffort", findings);
            return None;
        }
        None => {
            let place = &spec.place;
            let fault = format!("{place}: without a class, edgeward leaves the pods alone: --fix writes class batch");
            return findings.fixable(&fault).then_some("batch");
        }
    };
    let fault = format!("does not say what the pods need: --fix writes class {class}");
    stated.fixable(&fault, findings).then_some(class)
}

/// The Deployment of a service.
fn part(app: &App<'_>, field: &Field<'_>, findings: &mut Findings) -> Option<Part> {
    field.report_unknown(app.form.known[1], findings);
    field.report_unmatched("costs nodeRecommendations nwbandwidth nwlatency", findings);
    let name = field.get(app.form.name);
    let text = name.required(findings)?;
    let component = name.label(&format!("{}-{text}", app.name), findings)?;
    let (pod, mut metadata) = match app.form.name {
        "serviceName" => (field.get("podspec"), json!({})),
        _ => {
            let template = field.get("template");
            template.report_unknown("metadata spec", findings);
            let metadata = template.get("metadata");
            metadata.report_unknown("labels annotations", findings);
            metadata.get("labels").report_unmatched(LABEL, findings);
            let [labels, annotations] = ["labels", "annotations"].map(|key| metadata.get(key).object(findings));
            (
                template.get("spec"),
                json!({"labels": labels, "annotations": annotations}),
            )
        }
    };
    let spec = pod_spec(&pod, findings)?;
    metadata["labels"][LABEL] = json!(component);
    let namespace = app.document.get("metadata").get("namespace").text(findings);
    let mut part = Part::new(field, namespace.clone(), app.group.clone(), component.clone());
    part.manifest = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": without_nulls(json!({"name": component, "namespace": namespace})),
        "spec": {
            "selector": {"matchLabels": {LABEL: component}},
            "template": {"metadata": metadata, "spec": spec},
        },
    });
    Some(part)
}

/// Checks the pod of a service.
fn pod_spec(pod: &Field<'_>, findings: &mut Findings) -> Option<Value> {
    pod.report_unmatched(&OF_DEPLOYMENTS.join(" "), findings);
    let policy = pod.get("restartPolicy");
    if policy.text(findings).is_some_and(|policy| policy != "Always") {
        policy.lost("is not what a Deployment needs, Always", findings);
    }
    let is_pod = pod.value["containers"].as_array().is_some_and(|list| !list.is_empty());
    if !is_pod {
        pod.get("containers").lost("is not a list of containers", findings);
    }
    let mut spec = pod.value.as_object()?.clone();
    spec.retain(|key, _| !OF_DEPLOYMENTS.contains(&&**key));
    is_pod.then(|| spec.into())
}

/// Reads the channels of a service.
fn connect(app: &App<'_>, service: &Field<'_>, from: usize, parts: &mut Parts, findings: &mut Findings) {
    let [_, _, of_channel, of_settings] = app.form.known;
    for channel in service.get(app.form.channels).items(findings) {
        let settings = match app.form.settings {
            "" => channel.clone(),
            name => {
                channel.report_unknown(of_channel, findings);
                channel.get(name)
            }
        };
        settings.report_unknown(of_settings, findings);
        let Some(to) = target(app, from, &channel, parts, findings) else {
            continue;
        };
        if let Some(bits) = bandwidth(app.form, &settings, findings) {
            parts.add_traffic(from, to, bits);
        }
        let is_optional = is_best_effort(&channel.get("serviceClass"), findings);
        if let Some(rtt) = rtt(&settings.get("maxDelay"), parts.component(to), findings) {
            parts.limit(from, to, is_optional, Within::Rtt(rtt));
        }
    }
}

/// The service at the other end of a channel.
fn target(app: &App<'_>, from: usize, channel: &Field<'_>, parts: &Parts, findings: &mut Findings) -> Option<usize> {
    let other = channel.get(app.form.other);
    let known = format!("{} {} port", app.form.name, app.form.other_app);
    other.report_unknown(&known, findings);
    let name = other.get(app.form.name);
    let text = name.required(findings)?;
    let other_app = other.get(app.form.other_app).text(findings);
    let other_app = other_app.as_ref().unwrap_or(&app.name);
    parts.find(from, &dns_label(&format!("{other_app}-{text}")), &name, findings)
}

/// The bandwidth of a channel.
fn bandwidth(form: &Form, settings: &Field<'_>, findings: &mut Findings) -> Option<u64> {
    let interval = settings.get("sendInterval");
    let nanos = interval.nanos("seconds", findings);
    if nanos.is_some_and(|nanos| nanos > LONGEST_INTERVAL) {
        interval.lost("is in seconds, and above the longest, 10e-3", findings);
    }
    let bandwidth = settings.get(form.bandwidth);
    if bandwidth.value.is_null() {
        settings.report_unmatched("frameSize framesize", findings);
    }
    bandwidth.bandwidth(findings)
}

fn is_best_effort(class: &Field<'_>, findings: &mut Findings) -> bool {
    match class.text(findings).as_deref() {
        Some("BESTEFFORT") => true,
        None | Some("ASSURED") => false,
        Some(_) => {
            class.lost("is not ASSURED or BESTEFFORT", findings);
            false
        }
    }
}

/// The RTT that keeps a delay in one direction. An RTT of the delay does so for certain, and twice the delay does if both
/// directions take equally long, which is a guess.
fn rtt(delay: &Field<'_>, component: &str, findings: &mut Findings) -> Option<Micros> {
    let nanos = delay.nanos("seconds, such as 10e-3", findings)?;
    if nanos >= LONGEST_DELAY {
        delay.lost("is in seconds, and more than a network takes", findings);
    }
    let (one, both) = (nanos / NANOS_PER_MS, 2 * nanos / NANOS_PER_MS);
    let fault = format!(
        "is a delay in one direction: near {component}={one}ms is safe but stricter, and --fix writes {both}ms, as if both \
         took equally long"
    );
    let ms = if delay.fixable(&fault, findings) { both } else { one };
    let ms = u64::try_from(ms).unwrap_or(u64::MAX);
    if !(1..=MAX_MILLIS).contains(&ms) {
        delay.lost("is not from 1 ms to a year, as near is", findings);
        return None;
    }
    Some(Micros::from_millis(ms))
}
