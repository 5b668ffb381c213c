//! `edgeward import`.

use edgeward_harness::prelude::*;

e2e! { "import::api_server_accepts_what_is_printed", Nodes, api_server_accepts_what_is_printed }
/// The API server accepts the Deployments made from CODECO's files, with unknown fields as errors.
fn api_server_accepts_what_is_printed(fixture: &Fixture<'_>) -> Result<()> {
    for case in ["codeco-app", "codeco-sample"] {
        let input = workspace().join("tests/golden/import").join(case).join("input.yaml");
        let said = fixture.command(&["import", "codeco", &input.display().to_string(), "--fix"])?;
        let mut manifests: Vec<Value> = serde_saphyr::from_multiple(&said.stdout)?;
        ensure!(!manifests.is_empty(), "{said:?}");
        for manifest in &mut manifests {
            manifest["metadata"]["namespace"] = json!(fixture.namespace);
            let apply = ["apply", "--dry-run=server", "--validate=strict", "-f", "-"];
            fixture.kubectl.run(&apply, &manifest.to_string())?;
        }
    }
    Ok(())
}
