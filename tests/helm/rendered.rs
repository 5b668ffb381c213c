//! Objects that the chart renders.

use edgeward_harness::chart::{documented, folder};
use edgeward_harness::prelude::*;

use crate::Tools;

pub(crate) type Objects = BTreeMap<String, Value>;

/// The chart's namespace, unless a test says otherwise.
pub(crate) const NAMESPACE: &str = "edgeward-system";

impl Tools {
    /// Runs `helm template` on `chart` with these values and returns its output.
    pub(crate) fn template_of(&self, chart: &str, namespace: &str, values: &Value) -> Result<String> {
        let file = tempfile::NamedTempFile::new_in(&self.dir)?;
        fs::write(&file, values.to_string())?;
        let file = file.path().display().to_string();
        self.helm
            .run(&["template", "mine", chart, "--namespace", namespace, "--values", &file])
    }

    pub(crate) fn template(&self, values: &Value) -> Result<String> {
        self.template_of(&folder(), NAMESPACE, values)
    }
}

/// The documents of the output. Each must be a different object.
pub(crate) fn objects(text: &str) -> Result<Objects> {
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    documents.iter_mut().for_each(fold);
    let count = documents.len();
    let objects: Objects = documents.into_iter().map(|object| (key(&object), object)).collect();
    ensure!(
        objects.len() == count,
        "{count} documents are {} objects",
        objects.len()
    );
    Ok(objects)
}

/// Removes line breaks from CEL and PromQL, where they mean nothing and kustomize changes them.
fn fold(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(fold),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "expr" || name.to_lowercase().ends_with("expression") => {
                        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                    }
                    field => fold(field),
                }
            }
        }
        _ => {}
    }
}

fn key(object: &Value) -> String {
    let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    format!("{kind} {}/{}", of("namespace"), of("name"))
}

pub(crate) fn least() -> Value {
    json!({"image": {"repository": "registry.example/edgeward"}})
}

fn everything() -> Result<Value> {
    Ok(serde_saphyr::from_str(&fs::read_to_string(format!(
        "{}/ci/everything-values.yaml",
        folder()
    ))?)?)
}

/// A replacement for a value that the chart does not let go alone, and where to put it. Such a value is required or goes with
/// others. `wrong_values_are_refused_by_name` has the words of the refusals.
fn instead(path: &str, given: &Value) -> Option<(String, Value)> {
    match path {
        "certificates.source" => Some(("/certificates".to_owned(), json!({"source": "self-managed"}))),
        "image.repository" | "certificates.files.ca" | "certificates.files.certificate" | "certificates.files.key" => {
            let other = format!("{}-another", given.as_str()?.trim_end());
            Some((format!("/{}", path.replace('.', "/")), json!(other)))
        }
        _ => None,
    }
}

/// Changing any single value, or flipping a switch, changes the rendered objects.
pub(crate) fn every_value_has_an_effect(tools: &Tools) -> Result<()> {
    let (least, everything) = (least(), everything()?);
    let renderings = [tools.template(&least)?, tools.template(&everything)?];
    for value in documented()? {
        let pointer = format!("/{}", value.path.replace('.', "/"));
        let (parent, key) = pointer.rsplit_once('/').context("a pointer")?;
        let (mut values, plain) = match everything.pointer(&pointer) {
            Some(other) => {
                ensure!(
                    *other != value.default,
                    "ci/everything-values.yaml has the default of {}",
                    value.path
                );
                (everything.clone(), &renderings[1])
            }
            None => (least.clone(), &renderings[0]),
        };
        if everything.pointer(&pointer).is_some() {
            let parent = values.pointer_mut(parent).and_then(Value::as_object_mut);
            parent.context("a map")?.remove(key);
        } else {
            let switch = value.default.as_bool();
            let switch = switch.with_context(|| format!("ci/everything-values.yaml has no {}", value.path))?;
            let path = value.path.split('.').rev();
            let switched = path.fold(json!(!switch), |inner, key| json!({key: inner}));
            for (key, value) in switched.as_object().into_iter().flatten() {
                values[key] = value.clone();
            }
        }
        if let Some((pointer, other)) = everything
            .pointer(&pointer)
            .and_then(|given| instead(&value.path, given))
        {
            ensure!(tools.template(&values).is_err(), "nobody misses {}", value.path);
            values = everything.clone();
            *values.pointer_mut(&pointer).context("a value")? = other;
        }
        let rendered = tools.template(&values).with_context(|| value.path.clone())?;
        ensure!(rendered != *plain, "{} has no effect", value.path);
    }
    Ok(())
}

/// `helm lint` passes the chart as chart repositories run it, with each values file in ci/.
pub(crate) fn helm_lint_accepts_all_values_files(tools: &Tools) -> Result<()> {
    let mut files = 0;
    for entry in fs::read_dir(format!("{}/ci", folder()))? {
        let file = entry?.path().display().to_string();
        let said = tools.helm.run(&["lint", "--strict", &folder(), "--values", &file])?;
        let faults: Vec<_> = said
            .lines()
            .filter(|line| line.starts_with('[') && !line.contains("icon is recommended"))
            .collect();
        ensure!(faults.is_empty(), "{file}: {said}");
        files += 1;
    }
    ensure!(files == 4, "{files}");
    Ok(())
}

/// A packed chart has the files that the links of the checkout point to, and no stray ones.
pub(crate) fn packed_chart_renders_like_checkout(tools: &Tools) -> Result<()> {
    let into = tools.dir.path().join("packed");
    fs::create_dir(&into)?;
    let into = into.display().to_string();
    tools.helm.run(&["package", &folder(), "--destination", &into])?;
    let chart = format!("{into}/edgeward-{}.tgz", env!("CARGO_PKG_VERSION"));
    ensure!(tools.template_of(&chart, NAMESPACE, &everything()?)? == tools.template(&everything()?)?);
    Ok(())
}

/// The uninstall hook and the test hook each run the program as a Job. The Job has rights of its own, which are removed with
/// it. Its pod does not count as a replica.
pub(crate) fn hook_jobs_are_deleted_with_their_rights(tools: &Tools) -> Result<()> {
    let rendered = objects(&tools.template(&everything()?)?)?;
    let selector = &rendered["Service edgeward-system/edgeward"]["spec"]["selector"];
    for (name, hook, command, rights) in [
        ("edgeward-uninstall", "pre-delete", "release", &["ClusterRole"][..]),
        ("edgeward-test", "test", "check", &["ClusterRole", "Role"]),
    ] {
        let of = |kind: &str| {
            let mut objects = rendered.values();
            let object = objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
            object.with_context(|| format!("no {kind} {name}"))
        };
        let mut kinds = vec!["ServiceAccount".to_owned()];
        for role in rights {
            let binding = format!("{role}Binding");
            let subjects = json!([{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]);
            ensure!(of(&binding)?["subjects"] == subjects);
            ensure!(of(&binding)?["roleRef"]["name"] == name && of(&binding)?["roleRef"]["kind"] == *role);
            kinds.extend([(*role).to_owned(), binding]);
        }
        kinds.push("Job".to_owned());
        let ours = rendered
            .values()
            .filter(|object| object["metadata"]["name"] == name)
            .count();
        ensure!(ours == kinds.len(), "{ours}");
        for (weight, kind) in kinds.iter().enumerate() {
            let annotations = &of(kind)?["metadata"]["annotations"];
            let expected = json!({
                "helm.sh/hook": hook,
                "helm.sh/hook-weight": weight.to_string(),
                "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
            });
            ensure!(*annotations == expected, "{annotations}");
        }
        let template = &of("Job")?["spec"]["template"];
        ensure!(template["spec"]["serviceAccountName"] == name, "{template}");
        ensure!(template["spec"]["containers"][0]["args"][0] == command, "{template}");
        ensure!(template["metadata"]["labels"]["app.kubernetes.io/name"] != selector["app.kubernetes.io/name"]);
        // The hook's pod may run on the same nodes as the Deployment's pods, and gets no extra settings.
        let deployed = &rendered["Deployment edgeward-system/edgeward"]["spec"]["template"];
        ensure!(template["metadata"]["annotations"] == deployed["metadata"]["annotations"]);
        ensure!(template["metadata"]["labels"]["team"] == "platform");
        let deployed = &deployed["spec"];
        for field in [
            "nodeSelector",
            "tolerations",
            "affinity",
            "securityContext",
            "imagePullSecrets",
        ] {
            ensure!(
                !deployed[field].is_null() && template["spec"][field] == deployed[field],
                "{field}"
            );
        }
        ensure!(template["spec"]["containers"][0]["image"] == deployed["containers"][0]["image"]);
    }
    Ok(())
}
