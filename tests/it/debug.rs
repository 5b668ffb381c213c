//! What decisions read can be looked at, where that is asked for.

use edgeward_core::config::Config;
use edgeward_core::units::Moment;
use edgeward_core::wire::fleet_file;
use serde_json::Value;

use crate::client::get;
use crate::process::Process;

const PATHS: [&str; 3] = ["/debug/view", "/debug/ledger", "/debug/plan"];

#[tokio::test]
async fn nothing_is_shown_unless_it_is_asked_for() {
    let process = Process::start();
    for path in PATHS {
        assert_eq!(get(process.health, path).await.unwrap().status, 404, "{path}");
    }
    assert_eq!(get(process.health, "/livez").await.unwrap().status, 200);
}

#[tokio::test]
async fn what_is_shown_is_json_and_the_view_a_fleet_file() {
    let process = Process::start_with(&["--debug-endpoints"]);
    for path in PATHS {
        let answered = get(process.health, path).await.unwrap();
        assert_eq!(
            (answered.status, answered.header("content-type")),
            (200, Some("application/json"))
        );
        let shown: Value = serde_json::from_str(&answered.body).unwrap();
        assert!(shown.is_object(), "{path}: {shown}");
    }
    let view = get(process.health, "/debug/view").await.unwrap().body;
    let view = fleet_file::read(&serde_json::from_str(&view).unwrap(), &Config::default(), Moment(0)).unwrap();
    let names: Vec<_> = view.sites.iter().map(|site| site.name()).collect();
    assert_eq!(names, ["edge", "cloud"]);
    // Not where API servers come.
    let admission = process
        .client()
        .connect()
        .await
        .unwrap()
        .post_to("/debug/view", "")
        .await;
    assert_eq!(admission.unwrap().status, 404);
}
