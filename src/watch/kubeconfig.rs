//! Finds the API server and the proxy to it as kubectl does. kube differs in two ways: a missing file of `KUBECONFIG`
//! is an error there, and it compares `NO_PROXY` with the proxy.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{Kubeconfig, KubeconfigError};

/// Reads an environment variable.
type Environment<'e> = &'e dyn Fn(&str) -> Option<OsString>;

/// Returns the client configuration for a context of the kubeconfig, and the name of the context. Without `context`,
/// this is the current context, or else the cluster of our own pod.
///
/// # Errors
/// There is no such configuration, or it cannot be used.
pub(crate) fn client_config(context: Option<&str>) -> anyhow::Result<(Config, Option<String>)> {
    let environment = |name: &str| std::env::var_os(name);
    let found = read(&environment).and_then(|kubeconfig| of_context(kubeconfig, context));
    let (mut config, context) = match (found, context) {
        (Ok((config, context)), _) => (config, Some(context)),
        (Err(error), Some(context)) => return Err(error.context(format!("context {context:?} of the kubeconfig"))),
        (Err(error), None) => {
            let in_pod = Config::incluster().map_err(|pod| anyhow!("kubeconfig: {error:#}; service account: {pod}"));
            let no_cluster = "neither a kubeconfig nor a pod's service account leads to a cluster";
            (in_pod.context(no_cluster)?, None)
        }
    };
    if config.proxy_url.is_none() {
        config.proxy_url = proxy_of(&environment, &config.cluster_url)?;
    }
    Ok((config, context))
}

/// Merges the existing files of `KUBECONFIG`, or reads the file in the home directory. The first file with a value
/// takes precedence.
fn read(environment: Environment<'_>) -> anyhow::Result<Kubeconfig> {
    let listed = environment("KUBECONFIG").filter(|listed| !listed.is_empty());
    let home = || Some(PathBuf::from(environment("HOME")?).join(".kube/config").into());
    let files = listed.or_else(home).unwrap_or_default();
    let mut merged = Kubeconfig::default();
    for file in std::env::split_paths(&files).filter(|file| !file.as_os_str().is_empty()) {
        let mut next = match Kubeconfig::read_from(&file) {
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == ErrorKind::NotFound => continue,
            read => read.with_context(|| file.display().to_string())?,
        };
        next.current_context = next.current_context.filter(|name| !name.is_empty());
        merged = merged.merge(next)?;
    }
    Ok(merged)
}

/// The client configuration for a context, and its name. It has a proxy only if the cluster states one.
fn of_context(mut kubeconfig: Kubeconfig, name: Option<&str>) -> anyhow::Result<(Config, String)> {
    let name = name.map(str::to_owned).or(kubeconfig.current_context);
    let name = name.context("no current context is set")?;
    kubeconfig.current_context = Some(name.clone());
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|it| it.name == name).and_then(|it| it.context.as_ref());
    let mut clusters = kubeconfig.clusters.iter_mut();
    let cluster = context.and_then(|context| clusters.find(|it| it.name == context.cluster));
    let proxy = cluster.and_then(|it| it.cluster.as_mut()?.proxy_url.take());
    let proxy = proxy.filter(|proxy| !proxy.is_empty()).map(|proxy| proxy.parse());

    let mut config = Config::try_from(kubeconfig)?;
    config.proxy_url = proxy.transpose().context("proxy-url of the cluster")?;
    if config.default_namespace.is_empty() {
        config.default_namespace = "default".to_owned();
    }
    // kube would send the newline at the end of a token file.
    let auth = &mut config.auth_info;
    let token = auth
        .token_file
        .as_ref()
        .and_then(|file| std::fs::read_to_string(file).ok());
    if let Some(token) = token.filter(|token| token.trim() != token) {
        auth.token.get_or_insert_with(|| token.trim().into());
    }
    Ok((config, name))
}

/// The proxy to a server, also in a pod. `NO_PROXY` lists names, addresses and networks, without ports.
///
/// # Errors
/// The proxy variable does not hold an address.
fn proxy_of(environment: Environment<'_>, server: &Uri) -> anyhow::Result<Option<Uri>> {
    let text = |name: &str| {
        let value = |name: &str| environment(name)?.into_string().ok().filter(|value| !value.is_empty());
        value(name).or_else(|| value(&name.to_lowercase()))
    };
    let variable = format!("{}_PROXY", server.scheme_str().unwrap_or_default().to_uppercase());
    let Some(proxy) = text(&variable) else { return Ok(None) };
    let scheme = if proxy.contains("://") { "" } else { "http://" };
    // The value is not shown, because it may contain a password.
    let proxy: Uri = format!("{scheme}{proxy}")
        .parse()
        .with_context(|| format!("{variable} is no address"))?;

    let excluded = text("NO_PROXY").unwrap_or_default();
    let excludes_all = excluded.split(',').any(|item| item.trim() == "*");
    // The matcher has no `*.name`. Like kubectl, edgeward sends nothing for this machine through a proxy.
    let excluded = format!("localhost,127.0.0.0/8,::1,{}", excluded.replace("*.", "."));
    let matcher = Matcher::builder().all("http://proxy").no(excluded).build();
    let is_proxied = !excludes_all && matcher.intercept(server).is_some();
    Ok(is_proxied.then_some(proxy))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn no_proxy_list_is_matched_against_api_server() {
        let proxied = "http://proxy.test:3128/";
        for (server, no_proxy, is_direct) in [
            ("https://api.test:6443", "", false),
            ("https://api.test:6443", "proxy.test", false),
            ("https://api.test:6443", "elsewhere.test, Api.Test,", true),
            ("https://api.test:6443", ".test", true),
            ("https://api.test:6443", "*.test", true),
            ("https://api.test:6443", "pi.test", false),
            ("https://10.96.0.1:6443", "x, *", true),
            ("https://10.96.0.1:6443", "10.96.0.0/12", true),
            ("https://10.96.0.1:6443", "10.96.0.2/32,0.1", false),
            ("https://[fd00::1]:6443", "fd00::/8", true),
            ("https://localhost:6443", "", true),
            ("https://127.0.0.2:6443", "", true),
            ("https://[::1]:6443", "", true),
        ] {
            let environment = |name: &str| match name {
                "HTTPS_PROXY" => Some("proxy.test:3128".into()),
                "NO_PROXY" => Some(no_proxy.into()),
                _ => None,
            };
            let found = proxy_of(&environment, &server.parse().unwrap()).unwrap();
            let found = found.map(|proxy| proxy.to_string());
            let expected = (!is_direct).then_some(proxied);
            assert_eq!(found.as_deref(), expected, "{server} {no_proxy:?}");
        }
    }

    #[test]
    fn proxy_variable_is_chosen_by_scheme_upper_case_first() {
        let all = [
            ("HTTPS_PROXY", "https://me:pw@b.test"),
            ("https_proxy", "a.test"),
            ("HTTP_PROXY", ""),
            ("http_proxy", "socks5://c.test"),
        ];
        let set = BTreeMap::from(all);
        let environment = |name: &str| set.get(name).map(OsString::from);
        for (server, proxy) in [
            ("https://api.test", "https://me:pw@b.test/"),
            ("http://api.test", "socks5://c.test/"),
        ] {
            let found = proxy_of(&environment, &server.parse().unwrap()).unwrap();
            assert_eq!(found.unwrap().to_string(), proxy, "{server}");
        }
        let wrong = |_: &str| Some("http://me:p w@proxy.test".into());
        let error = proxy_of(&wrong, &"https://api.test".parse().unwrap()).unwrap_err();
        assert_eq!(format!("{error:#}"), "HTTPS_PROXY is no address: invalid uri character");
    }

    fn file(current: &str, cluster: &Value, user: &Value) -> Value {
        json!({
            "current-context": current,
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": current, "context": {"cluster": "c", "user": "u", "namespace": ""}}],
        })
    }

    #[test]
    fn files_are_merged_and_missing_ones_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let first = json!({"server": "https://first.test", "proxy-url": "http://proxy.test:3128"});
        let first = file("", &first, &json!({"tokenFile": "token"}));
        let second = json!({"server": "https://second.test"});
        let second = file("second", &second, &json!({"token": "other"}));
        for (name, text) in [
            ("1", first.to_string()),
            ("2", second.to_string()),
            ("token", "t\n".into()),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let files = std::env::join_paths(["".into(), at("missing"), at("1"), at("2")]).unwrap();
        let (config, context) = of_context(read(&|_| Some(files.clone())).unwrap(), None).unwrap();
        assert_eq!((config.cluster_url.host(), &*context), (Some("first.test"), "second"));
        assert_eq!(config.default_namespace, "default");
        assert_eq!(config.proxy_url.unwrap(), "http://proxy.test:3128/");
        assert!(config.auth_info.token.is_some(), "its file ends in a newline");

        std::fs::create_dir(at(".kube")).unwrap();
        std::fs::copy(at("2"), at(".kube/config")).unwrap();
        let home = |name: &str| (name == "HOME").then(|| folder.path().into());
        let (config, _) = of_context(read(&home).unwrap(), None).unwrap();
        assert_eq!(config.cluster_url.host(), Some("second.test"));
        let missing = read(&|_| Some(at("missing").into())).unwrap();
        let error = of_context(missing, None).unwrap_err().to_string();
        assert_eq!(error, "no current context is set");
        std::fs::write(at("1"), "[").unwrap();
        let error = read(&|_| Some(at("1").into())).unwrap_err().to_string();
        assert_eq!(error, at("1").display().to_string());
    }
}
