//! Finds the API server and the proxy to it as kubectl does. kube differs in two ways: a missing file of `KUBECONFIG`
//! is an error there, and it compares `NO_PROXY` with the proxy.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{ExecAuthCluster, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

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
    set_proxy(&mut config, &environment)?;
    Ok((config, context))
}

/// Returns the client configuration for the current context of this kubeconfig, which comes from a Secret. It may name no
/// program: it would run with the rights of this process, and might never end.
///
/// # Errors
/// There is no such configuration, or it cannot be used. The text has no secret of the file.
pub(crate) fn of_file(file: &Path) -> anyhow::Result<Config> {
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| match error {
        KubeconfigError::Parse(error) => {
            let line = error.location().map_or(0, |at| at.line());
            anyhow!("line {line} is not that of a kubeconfig")
        }
        error => error.into(),
    })?;
    without_program(kubeconfig)
}

/// Returns the client configuration for the current context of this kubeconfig, which comes from a Secret. It may name neither
/// a program nor a file: a file of this process would be sent to the server that the Secret names.
///
/// # Errors
/// There is no such configuration, or it cannot be used. The text has no secret of the kubeconfig.
pub(crate) fn of_secret(kubeconfig: &[u8]) -> anyhow::Result<Config> {
    let read = std::str::from_utf8(kubeconfig).ok().map(Kubeconfig::from_yaml);
    let Some(Ok(kubeconfig)) = read else {
        bail!("it is not a kubeconfig");
    };
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    let files = users.flat_map(|user| [&user.client_certificate, &user.client_key, &user.token_file]);
    let names_file = files
        .chain(clusters.map(|cluster| &cluster.certificate_authority))
        .any(Option::is_some);
    if names_file {
        bail!("the kubeconfig names a file; use the fields with the suffix -data, and a token");
    }
    without_program(kubeconfig)
}

fn without_program(kubeconfig: Kubeconfig) -> anyhow::Result<Config> {
    let (mut config, context) = of_context(kubeconfig, None)?;
    let user = &config.auth_info;
    if user.exec.is_some() || user.auth_provider.is_some() {
        bail!("the user of context {context:?} runs a program; use a token or a client certificate");
    }
    set_proxy(&mut config, &|name| std::env::var_os(name))?;
    Ok(config)
}

fn set_proxy(config: &mut Config, environment: Environment<'_>) -> anyhow::Result<()> {
    if config.proxy_url.is_none() {
        config.proxy_url = proxy_of(environment, &config.cluster_url)?;
    }
    Ok(())
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

/// The client configuration for a context, and its name. kube's own conversion fails if `NO_PROXY` ends in a comma.
fn of_context(kubeconfig: Kubeconfig, name: Option<&str>) -> anyhow::Result<(Config, String)> {
    let name = name.map(str::to_owned).or(kubeconfig.current_context);
    let name = name.context("no current context is set")?;
    let mut contexts = kubeconfig.contexts.into_iter();
    let context = contexts.find(|it| it.name == name).and_then(|it| it.context);
    let context = context.with_context(|| format!("there is no context {name:?}"))?;
    let mut clusters = kubeconfig.clusters.into_iter();
    let cluster = clusters.find(|it| it.name == context.cluster).and_then(|it| it.cluster);
    let missing = |field: &str, value: &str| format!("context {name:?}: {field} {value:?} does not exist");
    let cluster = cluster.with_context(|| missing("cluster", &context.cluster))?;
    let user = match context.user.filter(|name| !name.is_empty()) {
        Some(user) => {
            let mut users = kubeconfig.auth_infos.into_iter();
            let found = users.find(|it| it.name == user);
            found.with_context(|| missing("user", &user))?.auth_info
        }
        None => None,
    };
    let read = ExecAuthCluster::try_from(&cluster)?;

    let server = cluster.server.unwrap_or_default();
    let mut config = Config::new(server.trim().parse().with_context(|| format!("server {server:?}"))?);
    if let Some(namespace) = context.namespace.filter(|namespace| !namespace.is_empty()) {
        config.default_namespace = namespace;
    }
    if let Some(pem) = &read.certificate_authority_data {
        let roots = CertificateDer::pem_slice_iter(pem).map(|der| Ok(der?.to_vec()));
        config.root_cert = Some(roots.collect::<anyhow::Result<_>>().context("certificate authority")?);
    }
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
    config.tls_server_name = cluster.tls_server_name;
    let proxy = cluster.proxy_url.filter(|proxy| !proxy.is_empty());
    let proxy = proxy.map(|proxy| proxy.parse()).transpose();
    config.proxy_url = proxy.with_context(|| format!("proxy-url of cluster {:?}", context.cluster))?;
    config.auth_info = user.unwrap_or_default();
    // kube would send the newline at the end of a token file. The token of such a file is not read again.
    if config.auth_info.token.is_none()
        && let Some(file) = &config.auth_info.token_file
        && let Ok(token) = std::fs::read_to_string(file)
        && token != token.trim()
    {
        config.auth_info.token = Some(token.trim().to_owned().into());
    }
    if let Some(exec) = config.auth_info.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(read);
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
    fn kubeconfig_of_a_secret_names_no_file_and_no_program() {
        let cluster = json!({"server": "https://near.test"});
        let read = |cluster: &Value, user: Value| of_secret(file("c", cluster, &user).to_string().as_bytes());
        let config = read(&cluster, json!({"token": "t"})).unwrap();
        assert_eq!(config.cluster_url.host(), Some("near.test"));
        for user in [
            json!({"tokenFile": "/token"}),
            json!({"client-key": "/key"}),
            json!({"client-certificate": "/c"}),
        ] {
            let error = read(&cluster, user).unwrap_err().to_string();
            assert!(error.starts_with("the kubeconfig names a file"), "{error}");
        }
        let with_ca = json!({"server": "https://near.test", "certificate-authority": "/ca"});
        assert!(read(&with_ca, json!({"token": "t"})).is_err());
        let error = read(&cluster, json!({"exec": {"command": "login"}}))
            .unwrap_err()
            .to_string();
        assert!(error.contains("runs a program"), "{error}");
        let error = of_secret(b"token: s3cret: [").unwrap_err().to_string();
        assert_eq!(error, "it is not a kubeconfig");
    }

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
            ("https://api.test:6443", ":6443,,a b", false),
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
        let cluster = json!({"server": "https://api.test", "proxy-url": "http://p w.test"});
        let error = of_context(parsed(&file("c", &cluster, &json!({}))), None).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            r#"proxy-url of cluster "c": invalid uri character"#
        );
    }

    #[test]
    fn missing_cluster_or_user_of_a_context_is_named() {
        let whole = file("x", &json!({"server": "https://api.test"}), &json!({}));
        for (name, value) in [("cluster", "c"), ("user", "u")] {
            let mut parts = whole.clone();
            parts[format!("{name}s")] = json!([]);
            let error = of_context(parsed(&parts), None).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("context \"x\": {name} {value:?} does not exist")
            );
        }
        let mut nobodys = whole;
        nobodys["contexts"][0]["context"]["user"] = json!("");
        of_context(parsed(&nobodys), None).unwrap();
    }

    fn parsed(kubeconfig: &Value) -> Kubeconfig {
        serde_json::from_value(kubeconfig.clone()).unwrap()
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
        let first = file(
            "",
            &json!({"server": " https://first.test "}),
            &json!({"tokenFile": "token"}),
        );
        let second = file(
            "second",
            &json!({"server": "https://second.test"}),
            &json!({"token": "other"}),
        );
        for (name, text) in [("1", first.to_string()), ("2", second.to_string())] {
            std::fs::write(at(name), text).unwrap();
        }
        std::fs::write(at("token"), "first\n").unwrap();
        let files = std::env::join_paths(["".into(), at("missing"), at("1"), at("2")]).unwrap();
        let (config, context) = of_context(read(&|_| Some(files.clone())).unwrap(), None).unwrap();
        assert_eq!((config.cluster_url.host(), &*context), (Some("first.test"), "second"));
        assert_eq!(config.default_namespace, "default");
        let beside = at("token").display().to_string();
        assert_eq!(config.auth_info.token_file, Some(beside));
        assert!(config.auth_info.token.is_some(), "its newline is not sent");

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

    #[test]
    fn settings_of_a_cluster_reach_the_client() {
        let rcgen::CertifiedKey { cert, .. } = rcgen::generate_simple_self_signed(["api.test".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.crt"), cert.pem()).unwrap();
        let cluster = json!({
            "server": "https://api.test", "certificate-authority": "ca.crt", "tls-server-name": "inner",
            "insecure-skip-tls-verify": true, "proxy-url": "http://proxy.test:3128",
        });
        let user = json!({"token": "t", "exec": {"command": "login", "provideClusterInfo": true}});
        let path = folder.path().join("config");
        std::fs::write(&path, file("c", &cluster, &user).to_string()).unwrap();
        let (config, _) = of_context(read(&|_| Some(path.clone().into())).unwrap(), Some("c")).unwrap();
        assert_eq!(config.root_cert, Some(vec![cert.der().to_vec()]));
        assert_eq!(config.tls_server_name.as_deref(), Some("inner"));
        assert!(config.accept_invalid_certs && config.auth_info.exec.unwrap().cluster.is_some());
        assert_eq!(config.proxy_url.unwrap(), "http://proxy.test:3128/");
        let error = of_context(read(&|_| Some(path.clone().into())).unwrap(), Some("x")).unwrap_err();
        assert_eq!(error.to_string(), r#"there is no context "x""#);
        let error = of_file(&path).unwrap_err();
        let refused = "the user of context \"c\" runs a program; use a token or a client certificate";
        assert_eq!(error.to_string(), refused);
        std::fs::write(&path, "users:\n- name: u\n  user: my-secret\n").unwrap();
        let error = format!("{:#}", of_file(&path).unwrap_err());
        assert_eq!(error, "line 3 is not that of a kubeconfig");
    }
}
