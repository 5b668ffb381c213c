//! Certificates in files: a mounted Secret that changes, for better and for worse.

pub(crate) mod self_managed;

use std::fs;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward::observe::installation::{Chain, shown};
use serde_json::{Value, json};

use crate::creations::Creations;
use crate::fleet_command::command;
use crate::install::Installation;
use crate::mount::Mount;
use crate::patience::{BOUND, eventually};
use crate::pki::{Authority, Pair};
use crate::relay::Relay;
use crate::rights::NAMESPACE;
use crate::scene::Scene;

/// What the API server asks for.
const NAME: &str = "edgeward.edgeward-system.svc";

const SECRET: &str = "edgeward-tls";

/// A good pair is taken over. An expired and a mismatched one are not: edgeward serves on with the one before, says so, and
/// `edgeward check` names what is wrong with the Secret, and mends it. Every pod is decided meanwhile.
pub(crate) fn bad_pairs_are_refused(scene: &Scene<'_>) -> Result<()> {
    let _revoked = scene.revoke()?;
    let authority = Authority::new()?;
    let pair = |pair: &Pair| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": SECRET, "namespace": NAMESPACE},
            "data": {
                "tls.crt": STANDARD.encode(&pair.certificate), "tls.key": STANDARD.encode(&pair.key),
                "ca.crt": STANDARD.encode(&authority.certificate),
            },
        })
    };
    let mut objects = vec![];
    for folder in ["/deploy/base", "/webhook/base"] {
        let folder = format!("{}{folder}", env!("CARGO_MANIFEST_DIR"));
        objects.extend(scene.kubectl.render(&folder)?);
    }
    let entries = objects
        .iter_mut()
        .filter_map(|object| object["webhooks"].as_array_mut());
    for entry in entries.flatten() {
        entry["clientConfig"]["caBundle"] = json!(STANDARD.encode(&authority.certificate));
    }
    objects.push(pair(&authority.server(&[NAME])?));
    let installation = Installation::apply_objects(scene, objects)?;
    let _mount = Mount::open(scene, NAMESPACE, SECRET, &scene.dir.join("tls"))?;
    let edgeward = scene.edgeward_of_arguments(installation.arguments()?)?;
    let relay = Relay::start(scene.runtime, edgeward.admission())?;
    installation.lead_to(relay.address.port())?;
    let creations = Creations::begin(scene, &relay)?;
    finds(scene, "ok", "in Secret edgeward-system/edgeward-tls is for")?;

    let served = || -> Result<Chain> {
        let address = edgeward.admission().to_string();
        let chain = scene.runtime.block_on(shown(&address, NAME));
        chain.map_err(|words| anyhow::anyhow!("{words}"))
    };
    let put = |secret: &Value| scene.kubectl_in(NAMESPACE).apply(secret).map(drop);
    let reloads = |result: &str| edgeward.count("edgeward_tls_reloads_total", &[("result", result)]);
    let first = served()?;
    let ((), tally) = creations.during(|| {
        put(&pair(&authority.server(&[NAME])?))?;
        eventually("the new certificate is served", BOUND, || {
            ensure!(served()? != first, "the old one is");
            Ok(())
        })
    })?;
    println!("files: a good pair: {tally}");
    tally.is_perfect()?;

    let good = served()?;
    let mismatched = Pair {
        key: authority.server(&[NAME])?.key,
        ..authority.server(&[NAME])?
    };
    let bad = [
        (
            authority.expired_server(&[NAME])?,
            "the certificate expired at 2001-01-01",
        ),
        (mismatched, "the private key does not belong to the first certificate"),
    ];
    let mut fix = String::new();
    for (index, (bad, words)) in bad.iter().enumerate() {
        let ((), tally) = creations.during(|| {
            put(&pair(bad))?;
            eventually("the bad pair is refused", BOUND, || {
                let refused = reloads("refused")?;
                ensure!(refused == index as u64 + 1, "{refused}");
                Ok(())
            })?;
            let said = edgeward.said("new certificate refused, the old certificate stays");
            let error = said
                .last()
                .and_then(|said| said["error"].as_str())
                .context("it is not said")?;
            ensure!(error.contains(words), "{error}");
            ensure!(served()? == good, "another certificate is served");
            fix = finds(scene, "FAULT", words)?;
            Ok(())
        })?;
        println!("files: {words}: {tally}");
        tally.is_perfect()?;
    }

    // As the check says.
    let last = authority.server(&[NAME])?.write(&scene.dir, "tls")?;
    ensure!(fs::exists(&last.0)?);
    let ((), tally) = creations.during(|| {
        scene.shell(&fix)?;
        eventually("the pair that mends it is served", BOUND, || {
            ensure!(served()? != good, "the old one is");
            Ok(())
        })
    })?;
    println!("files: mended: {tally}");
    tally.is_perfect()?;
    finds(scene, "ok", "in Secret edgeward-system/edgeward-tls is for")?;

    // Without the Secret, no other replica starts.
    let args = ["delete", "secret", SECRET];
    scene.kubectl_in(NAMESPACE).run(&args, "")?;
    finds(scene, "FAULT", "Secret edgeward-system/edgeward-tls does not exist").map(drop)
}

/// Waits until `edgeward check` has a line of this level about the certificate with these words, and returns its fix.
pub(crate) fn finds(scene: &Scene<'_>, level: &str, words: &str) -> Result<String> {
    eventually(&format!("{level}: {words}"), BOUND, || {
        let said = command(&scene.kubeconfig(), &["check"])?;
        let mut lines = said.stdout.lines();
        let found =
            lines.find(|line| line.starts_with(level) && line.contains(" certificate ") && line.contains(words));
        ensure!(found.is_some(), "{}{}", said.stdout, said.stderr);
        let fix = lines.next().and_then(|line| line.trim_start().strip_prefix("fix: "));
        Ok(fix.unwrap_or_default().to_owned())
    })
}
