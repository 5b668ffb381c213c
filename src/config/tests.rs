use std::fs;
use std::path::Path;
use std::time::Duration;

use edgeward_decision::config::Explain;
use futures::FutureExt as _;
use tokio::time::timeout;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

fn new() -> (Configuration, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    (Configuration::new("ours".into(), true, Arc::clone(&metrics)), metrics)
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = timeout(TIMEOUT, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[test]
fn invalid_config_version_keeps_last_valid_and_counts_once() {
    let (mut configuration, metrics) = new();
    let current = Arc::clone(&configuration.current);
    assert_eq!(
        current.load().excluded_namespaces,
        ["kube-system", "edgeward-system", "ours"]
    );
    let mut offer = |version, text: &str| configuration.offer(version, || read_document(text));

    assert_eq!(
        offer(1, "{domain: acme.dev, explain: full, excludedNamespaces: [theirs]}"),
        Ok(())
    );
    assert_eq!(current.load().keys.domain, "acme.dev");
    assert_eq!(
        current.load().excluded_namespaces,
        ["kube-system", "edgeward-system", "theirs", "ours"]
    );
    for (version, text, faults) in [
        (2, "{domain: acme.dev, explain: loud, x: 1}", 2),
        (3, "{domain: [", 1),
        (4, "a: 1\n---\nb: 2", 1),
        (5, "explain: short", 1),
    ] {
        let refused = offer(version, text).unwrap_err();
        assert_eq!(refused.0.len(), faults, "{refused}");
        assert_eq!(current.load().explain, Explain::Full);
        assert_eq!(offer(version, text), Ok(()), "said once");
    }
    let page = metrics.encode();
    assert!(
        page.contains("edgeward_config_reloads_total{result=\"refused\"} 4\n"),
        "{page}"
    );
    assert!(page.contains("edgeward_config_faults{path=\"domain\"} 1\n"), "{page}");
    assert!(
        page.contains("edgeward_config_info{version=\"0000000000000001\"} 1\n"),
        "{page}"
    );

    assert_eq!(offer(6, "{domain: acme.dev, explain: off}"), Ok(()));
    assert_eq!(current.load().explain, Explain::Off);
    let page = metrics.encode();
    assert!(!page.contains("edgeward_config_faults{"), "{page}");
    assert!(
        page.contains("edgeward_config_info{version=\"0000000000000006\"} 1\n"),
        "{page}"
    );
    assert!(
        page.contains("edgeward_config_reloads_total{result=\"loaded\"} 2\n"),
        "{page}"
    );
}

#[tokio::test]
async fn config_file_as_document_or_manifest_is_reloaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    fs::write(&path, "explain: full").unwrap();
    let (configuration, metrics) = new();
    let current = Arc::clone(&configuration.current);
    let files = Files::open(path.clone(), configuration).await.unwrap();
    assert_eq!(current.load().explain, Explain::Full);

    let follow = tokio::spawn(files.follow());
    replace(&path, "explain: loud");
    let faulty = || {
        metrics
            .encode()
            .contains("edgeward_config_faults{path=\"explain\"} 1\n")
    };
    eventually("the fault", faulty).await;
    assert_eq!(current.load().explain, Explain::Full);
    replace(
        &path,
        "{kind: ConfigMap, data: {config.yaml: 'explain: off', enableOffload: 'false'}}",
    );
    eventually("the repair", || current.load().explain == Explain::Off).await;
    assert!(!current.load().enable_offload);
    assert_eq!(read(&path).unwrap().explain, Explain::Off);

    fs::remove_file(&path).unwrap();
    let gone = || {
        metrics
            .encode()
            .contains("edgeward_config_reloads_total{result=\"unreadable\"} 1\n")
    };
    eventually("the loss", gone).await;
    assert_eq!(current.load().explain, Explain::Off);
    follow.abort();
}

#[tokio::test]
async fn config_directory_is_read_as_config_map_keys() {
    let directory = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    key("rttThresholdMs", "80\n");
    key("config.yaml", "explain: full\n");
    let (configuration, _) = new();
    let current = Arc::clone(&configuration.current);
    let files = Files::open(directory.path().to_owned(), configuration).await.unwrap();
    assert_eq!(current.load().explain, Explain::Full);
    assert_eq!(
        current.load().rtt_threshold,
        edgeward_kube::units::Micros::from_millis(80)
    );

    let follow = tokio::spawn(files.follow());
    key("enableOffload", "false");
    eventually("the new key", || !current.load().enable_offload).await;
    follow.abort();

    key("moon", "\u{1}");
    key("config.yaml", "explain: [");
    let error = read(directory.path()).unwrap_err().to_string();
    assert!(
        error.contains("\n  moon: is not a key here; there are rttThresholdMs"),
        "{error}"
    );
}

#[tokio::test]
async fn version_subscriber_gets_only_the_newest_config_once() {
    let (mut configuration, _) = new();
    let mut early = Versions::of(&configuration.versions);
    let next = async |versions: &mut Versions| timeout(TIMEOUT, versions.next()).await.expect("told");
    for (version, text) in [(1, "explain: full"), (2, "explain: loud"), (3, "explain: off")] {
        let _ = configuration.offer(version, || read_document(text));
    }
    assert_eq!(next(&mut early).await.explain, Explain::Off);
    assert!(early.next().now_or_never().is_none(), "nothing is told twice");
    assert_eq!(
        next(&mut Versions::of(&configuration.versions)).await.explain,
        Explain::Off
    );
}

#[tokio::test]
async fn invalid_config_file_at_start_lists_every_fault() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    fs::write(&path, "{explain: loud, invalidSlo: long}").unwrap();
    let error = Files::open(path, new().0).await.unwrap_err().to_string();
    for fault in ["config.yaml:\n", "explain: \"loud\"", "invalidSlo: \"long\""] {
        assert!(error.contains(fault), "{error}");
    }
    let missing = Files::open(directory.path().join("nowhere.yaml"), new().0)
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("nowhere.yaml"), "{missing}");
}
