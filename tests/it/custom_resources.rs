//! The files in `deploy/crds` equal the program's output.

use crate::program::{edgeward, is_recorded};

#[test]
fn crd_files_match_crds_command_output() {
    let output = edgeward().arg("crds").output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<_> = printed.split("---\n").filter(|text| !text.is_empty()).collect();
    let files = ["sites", "slopolicies", "performanceprofiles", "clusterreports", "peers"];
    assert_eq!(documents.len(), files.len());
    for (document, file) in documents.into_iter().zip(files) {
        let path = format!("deploy/crds/{file}.yaml");
        assert!(
            is_recorded(path.as_ref(), document),
            "{path} lags; EDGEWARD_BLESS=1 writes it again"
        );
    }
}
