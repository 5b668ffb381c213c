//! Compares the decision codes with the tables of `docs/reference/codes.md`, and the commands of the guide with the tests that
//! run them.

use std::collections::BTreeSet;
use std::fs;

use edgeward_decision::placement::verdict::{Reason, RefusalCode};
use edgeward_harness::checkout::workspace;
use edgeward_harness::documentation::blocks;

/// The first cells of table rows, where they are code.
fn documented(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn every_reason_and_refusal_is_explained() {
    let page = documented(include_str!("../../docs/reference/codes.md"));
    let codes = Reason::ALL.iter().map(|code| code.as_str());
    let refusals = RefusalCode::ALL.iter().map(|code| code.as_str());
    for code in codes.chain(refusals) {
        assert!(page.contains(code), "docs/reference/codes.md does not explain `{code}`");
    }
    let known: BTreeSet<_> = Reason::ALL.iter().map(|code| code.as_str()).collect();
    for code in page.iter().filter(|code| {
        ["edge_", "cloud_", "held_", "released_", "passthrough_", "denied_"]
            .iter()
            .any(|p| code.starts_with(p))
    }) {
        assert!(
            known.contains(code.as_str()),
            "docs/reference/codes.md explains `{code}`, which does not exist"
        );
    }
}

/// The shell blocks that a test runs. Each line has a page, the test's file, and the first words of blocks.
const RUN_BY_A_TEST: &str = "\
README.md; tests/it/cli.rs; cargo run --release -- demo
clouds.md; tests/e2e/cost_map.rs; edgeward cost-map
clouds.md; tests/e2e/reports.rs; kubectl apply -k edgeward/deploy/report-reader; kubectl -n edgeward-system create secret generic edgeward-neighbours
clouds.md; tests/e2e/install/guide.rs; edgeward fleet; kubectl apply -k edgeward/webhook/strict-sites; kubectl apply -k edgeward/deploy/liqo
groups.md; tests/it/import.rs; edgeward import codeco; edgeward import appgroup
groups.md; tests/it/oam.rs; edgeward review -f app.yaml
decide.md; tests/prometheus/backtest.rs; edgeward profile backtest
install.md; tests/e2e/install.rs; kubectl apply -k mine; cd edgeward/certs/files; kubectl kustomize mine
install.md; tests/e2e/install/quick_start.rs; kubectl label node EDGE-NODE; for SITE; API=; decided()
install.md; tests/e2e/install/guide.rs; kubectl create namespace shop
install.md; tests/e2e/install/chart.rs; kubectl apply -f edgeward/deploy/base/namespace.yaml; helm -n edgeward-system test
install.md; tests/e2e/install/one_node.rs; kubectl -n edgeward-system delete poddisruptionbudget edgeward
install.md; tests/e2e/install/one_node.rs; kubectl -n edgeward-system delete poddisruptionbudget,networkpolicy edgeward
install.md; tests/e2e/confined/narrow.rs; kubectl -n shop create rolebinding
learn.md; crates/lab/tests/reports.rs; cargo run --release -p edgeward-lab -- evaluate --env
learn.md; crates/lab/tests/soak/training.rs; cargo run --release -p edgeward-lab -- train
operate.md; tests/e2e/install/one_node.rs; kubectl delete mutatingwebhookconfiguration
operate.md; tests/e2e/install/guide.rs; edgeward check; edgeward why; edgeward review
operate.md; tests/e2e/install.rs; kubectl apply -k mine; kubectl kustomize mine; present=
operate.md; tests/e2e/install.rs; edgeward release --all --unregister; kubectl delete crd sites.edgeward.io
operate.md; tests/e2e/install/upgrade.rs; helm upgrade; kubectl -n edgeward-system annotate configmap
operate.md; tests/e2e/install/upgrade.rs; helm -n edgeward-system rollback; kubectl delete crd performanceprofiles.edgeward.io
operate.md; tests/e2e/install/chart.rs; helm -n edgeward-system uninstall
operate.md; tests/e2e/gated/release.rs; gate=
operate.md; tests/e2e/certificates/shown.rs; openssl req
simulate.md; crates/lab/tests/reports.rs; cargo run --release -p edgeward-lab -- simulate examples/scenarios
troubleshoot.md; tests/e2e/install/one_node.rs; kubectl delete mutatingwebhookconfiguration; edgeward release -n shop
troubleshoot.md; tests/e2e/install/guide.rs; edgeward check # the installation; edgeward why pod/NAME -n NAMESPACE # names
troubleshoot.md; tests/e2e/install/guide.rs; edgeward why pod/NAME -n NAMESPACE kubectl; kubectl describe pod; kubectl get pods
troubleshoot.md; tests/e2e/install/guide.rs; edgeward check # makes; CA=; edgeward check --config
troubleshoot.md; tests/e2e/install/guide.rs; kubectl delete validatingadmissionpolicybinding
";

#[test]
fn shell_block_is_run_by_a_test_or_says_that_it_is_not() {
    let (root, mut shown) = (workspace(), vec![]);
    let guide = fs::read_dir(root.join("docs/guide")).unwrap();
    let files = guide.map(|entry| entry.unwrap().path()).chain([root.join("README.md")]);
    for page in files.filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(&page).unwrap();
        let name = page.file_name().unwrap().to_str().unwrap();
        for (_, block) in blocks(&text).filter(|(language, _)| *language == "sh") {
            let words: Vec<_> = block.split_whitespace().collect();
            shown.push(format!("{name}; {}", words.join(" ")));
        }
    }
    shown.retain(|block| !block.contains("not run by a test"));
    for line in RUN_BY_A_TEST.lines() {
        let mut cells = line.split("; ");
        let (page, test) = (cells.next().unwrap(), cells.next().unwrap());
        assert!(root.join(test).is_file(), "there is no {test}");
        for words in cells {
            let start = format!("{page}; {words}");
            let found = shown.iter().position(|block| block.starts_with(&start));
            shown.remove(found.unwrap_or_else(|| panic!("no block is {start}")));
        }
    }
    assert!(shown.is_empty(), "neither run by a test nor marked: {shown:#?}");
}
