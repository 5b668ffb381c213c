//! The ConfigMap: the flat keys of the first design, every value a string, and `config.yaml` for everything else.
//!
//! `docs/reference/settings.md` tells it to operators.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config::Config;
use crate::document;
use crate::document::{Fault, Faults};
use crate::model::endpoint::{BadEndpoint, Endpoint};
use crate::model::site::{SiteDefinition, SiteKind};

/// The key whose value is a document of its own, with every setting.
pub const STRUCTURED: &str = "config.yaml";

/// The site that `cloudEndpoint` belongs to.
const CLOUD: &str = "cloud";

/// Every key.
const KEYS: [&str; 7] = [
    "rttThresholdMs",
    "lossThresholdPct",
    "pollingIntervalMs",
    "telemetryCacheTTL",
    "cloudEndpoint",
    "enableOffload",
    STRUCTURED,
];

/// A configuration, and what its operator should know of it.
type ReadConfig = Result<(Config, Vec<String>), Faults>;

/// Reads a ConfigMap's manifest by its `data`; otherwise as [`read`].
///
/// # Errors
/// As [`read`].
pub fn read_manifest(manifest: &Value, yaml: impl FnOnce(&str) -> Result<Value, String>) -> ReadConfig {
    const FIELDS: [&str; 5] = ["apiVersion", "kind", "metadata", "immutable", "data"];
    let fields = manifest.as_object().into_iter().flat_map(|manifest| manifest.keys());
    if let Some(field) = fields.into_iter().find(|field| !FIELDS.contains(&&***field)) {
        let message = format_args!("is not a field that is read here; there are {}", FIELDS.join(", "));
        return Err(Fault::new(field, message).into());
    }
    let data: Option<BTreeMap<String, String>> = document::parse(&manifest["data"], "data")?;
    read(&data.unwrap_or_default(), yaml)
}

/// Reads the `data` of a ConfigMap; `yaml` parses the text under [`STRUCTURED`], and its error says what is wrong with
/// it. An absent setting keeps its default.
///
/// # Errors
/// An unknown key or text that is no document, else every fault.
pub fn read(data: &BTreeMap<String, String>, yaml: impl FnOnce(&str) -> Result<Value, String>) -> ReadConfig {
    if let Some(key) = data.keys().find(|key| !KEYS.contains(&&***key)) {
        let message = format_args!("is not a key here; there are {}", KEYS.join(", "));
        return Err(Fault::new(key, message).into());
    }
    let mut settings = match data.get(STRUCTURED).map(|text| yaml(text)) {
        None | Some(Ok(Value::Null)) => Map::new(),
        Some(Ok(Value::Object(settings))) => settings,
        Some(Ok(_)) => return Err(Fault::new(STRUCTURED, "is not a map of settings").into()),
        Some(Err(error)) => return Err(Fault::new(STRUCTURED, error).into()),
    };
    let (mut faults, mut notices, mut flat) = (vec![], vec![], vec![]);
    for (key, text) in data {
        let value = match &**key {
            "rttThresholdMs" => number(text, "ms"),
            "lossThresholdPct" => number(text, "%"),
            "telemetryCacheTTL" => text.trim().into(),
            "enableOffload" => boolean(text),
            "pollingIntervalMs" => {
                notices.push(format!("{key}: has no effect: a webhook does not poll"));
                continue;
            }
            _ => continue,
        };
        flat.push(&**key);
        if settings.insert(key.clone(), value).is_some() {
            let message = format_args!("is also set as {STRUCTURED}.{key}; keep one of them");
            faults.push(Fault::new(key, message));
        }
    }
    let mut config = Config::read(&settings.into());
    if let Err(Faults(found)) = &mut config {
        for fault in found.iter_mut().filter(|fault| !flat.contains(&&*fault.path)) {
            fault.path = format!("{STRUCTURED}.{}", fault.path);
        }
        faults.append(found);
    }
    if let Some(text) = data.get("cloudEndpoint") {
        let added = cloud_endpoint(text.trim(), &mut notices)
            .and_then(|probe| config.as_mut().map_or(Ok(()), |config| add_probe(config, probe)));
        faults.extend(added.err().map(|message| Fault::new("cloudEndpoint", message)));
    }
    match config {
        Ok(config) if faults.is_empty() => Ok((config, notices)),
        _ => Err(Faults(faults)),
    }
}

/// The number that the text is, perhaps with its unit. Other text stays text, which the setting's reader refuses.
fn number(text: &str, unit: &str) -> Value {
    let text = text.trim();
    let number = text.strip_suffix(unit).unwrap_or(text).trim_end();
    serde_json::from_str(number).map_or_else(|_| text.into(), Value::Number)
}

/// The truth value that the text is; other text stays text.
fn boolean(text: &str) -> Value {
    let text = text.trim();
    let boolean = text.to_ascii_lowercase().parse();
    boolean.map_or_else(|_| text.into(), Value::Bool)
}

/// A WAN endpoint, which may be written without a scheme here: `host:port` is probed by TCP, a bare host by ICMP.
fn cloud_endpoint(text: &str, notices: &mut Vec<String>) -> Result<Endpoint, String> {
    let has_scheme = text.contains("://");
    let probed = match text.parse::<Ipv6Addr>() {
        _ if has_scheme => text.to_owned(),
        Ok(address) => format!("icmp://[{address}]"),
        Err(_) if text.rsplit(']').next().is_some_and(|end| end.contains(':')) => format!("tcp://{text}"),
        Err(_) => format!("icmp://{text}"),
    };
    let value = text.to_owned();
    let endpoint = Endpoint::parse(&probed).map_err(|_| BadEndpoint(value).to_string())?;
    if !has_scheme {
        notices.push(format!("cloudEndpoint: names no scheme and is probed as {endpoint}"));
    }
    Ok(endpoint)
}

fn add_probe(config: &mut Config, probe: Endpoint) -> Result<(), String> {
    let is_cloud = |site: &SiteDefinition| site.name == CLOUD && site.kind == SiteKind::Cloud;
    let mut sites = config.sites.iter_mut();
    match sites.find(|site| is_cloud(site)).map(Arc::make_mut) {
        Some(site) if site.probes.is_empty() => {
            site.probes.push(probe);
            Ok(())
        }
        Some(_) => Err(format!(
            "is the probe of the site {CLOUD:?}, whose probes are also set in {STRUCTURED}.sites; keep one of them"
        )),
        None => Err(format!(
            "is the probe of the site {CLOUD:?}, and {STRUCTURED}.sites has no such cloud site"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The values are JSON, which is valid YAML.
    fn read_map(data: &[(&str, &str)]) -> Result<(Config, Vec<String>), Vec<String>> {
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        let yaml = |text: &str| serde_json::from_str(text).map_err(|error| error.to_string());
        match read(&data.collect(), yaml) {
            Ok(read) => Ok(read),
            Err(faults) => Err(faults.0.iter().map(ToString::to_string).collect()),
        }
    }

    fn probes(config: &Config) -> Vec<String> {
        let sites = config.sites.iter();
        sites
            .flat_map(|site| site.probes.iter().map(|probe| format!("{}={probe}", site.name)))
            .collect()
    }

    #[test]
    fn equivalent_notations_of_a_value_are_read_alike() {
        for (key, texts) in [
            ("rttThresholdMs", &["80", "80.0", "80ms", "80 ms", " 80\n"][..]),
            ("lossThresholdPct", &["1.5", "1.50", "1.5%", "1.5 %"]),
            ("telemetryCacheTTL", &["90s", "1m30s", "90000ms", "1m30s\n"]),
            ("enableOffload", &["false", "False", "FALSE"]),
        ] {
            let read = |text: &str| read_map(&[(key, text)]).unwrap().0;
            let expected = read(texts[0]);
            assert_ne!(expected, Config::default(), "{key}");
            for text in texts {
                assert_eq!(read(text), expected, "{key}: {text:?}");
            }
        }
    }

    #[test]
    fn cloud_endpoint_becomes_the_probe_of_the_cloud() {
        for (text, probed, is_said) in [
            (
                "https://cloud.example.com:6443",
                "https://cloud.example.com:6443",
                false,
            ),
            ("icmp://cloud", "icmp://cloud", false),
            ("cloud.example.com", "icmp://cloud.example.com", true),
            ("cloud.example.com:6443", "tcp://cloud.example.com:6443", true),
            ("192.0.2.1", "icmp://192.0.2.1", true),
            ("2001:db8::1", "icmp://[2001:db8::1]", true),
            ("[2001:db8::1]", "icmp://[2001:db8::1]", true),
            ("[2001:db8::1]:6443", "tcp://[2001:db8::1]:6443", true),
        ] {
            let (config, notices) = read_map(&[("cloudEndpoint", text)]).unwrap();
            assert_eq!(probes(&config), [format!("cloud={probed}")], "{text}");
            let expected = format!("cloudEndpoint: names no scheme and is probed as {probed}");
            assert_eq!(notices, is_said.then_some(expected).into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn config_map_manifest_is_read_from_its_data() {
        let read = |manifest: Value| read_manifest(&manifest, |_| Ok(Value::Null));
        let (config, notices) = read(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "edgeward", "labels": {}},
            "data": {"enableOffload": "false", "config.yaml": "null"},
        }))
        .unwrap();
        assert!(!config.enable_offload && notices.is_empty());
    }
}
