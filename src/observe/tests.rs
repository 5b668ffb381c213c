use serde_json::json;

use super::*;
use crate::ledger::Reservation;
use crate::model::owner::Owner;

const TTL: Micros = Micros::from_secs(3);

/// Two nodes, of which another is the edge in turn, and a cloud.
fn sites(edge: &str) -> Arc<Config> {
    let sites = json!([
        {"name": edge, "kind": "edge", "nodeSelector": {"node": edge}},
        {"name": "cloud", "kind": "cloud"},
    ]);
    Arc::new(Config::read(&json!({ "sites": sites })).unwrap())
}

fn node(name: &str) -> Change {
    let labels = [("node", name)];
    Change::Node(Box::new(Node {
        name: name.into(),
        labels: labels.into_iter().collect(),
        ready: true,
        ..Node::default()
    }))
}

#[test]
fn other_sites_are_in_use_when_everything_was_counted_by_them() {
    let ledger = Arc::new(Mutex::new(Ledger::new(TTL)));
    let clock = Clock::start();
    let (mut observer, _changes) = Observer::new(Arc::clone(&ledger), clock, Arc::default());
    let fleet = observer.fleet();
    observer.index = Index::new(&sites("a"));
    let mut tell = |told: Vec<Change>| {
        told.into_iter()
            .for_each(|change| observer.fold(clock.moment(), &change));
        observer.publish();
        let snapshot = fleet.load();
        let nodes: Vec<_> = snapshot.sites[0].nodes().map(|node| node.name.to_string()).collect();
        (
            snapshot.revision,
            snapshot.sites[0].name().to_owned(),
            nodes,
            snapshot.sites[1].link,
        )
    };
    let all = |nodes: [&str; 2]| {
        let began = Kind::ALL.map(Change::ListBegan);
        let ended = Kind::ALL.map(Change::ListEnded);
        began
            .into_iter()
            .chain(nodes.map(node))
            .chain(ended)
            .collect::<Vec<_>>()
    };
    let link = Link {
        state: crate::model::link::LinkState::Healthy,
        rtt: Some(Micros(1)),
        loss: None,
        as_of: clock.moment(),
    };
    tell(vec![Change::Sites(sites("a"))]);
    tell(all(["a", "b"]));
    let told = vec![Change::Link("cloud".into(), Some(link)), Change::FirstRound(sites("a"))];
    let of_a = (3, "a".to_owned(), vec!["a".to_owned()], Some(link));
    assert_eq!(tell(told), of_a);
    let promised = NodeId(1);
    let reservation = Reservation {
        id: DecisionId(1),
        owner: Owner::new("shop", None),
        site: "b".into(),
        node: promised,
        amount: crate::resources::Amounts::default(),
        priority: 0,
        releases: None,
    };
    assert!(ledger.lock().unwrap().reserve(reservation, clock.moment()));
    let charged = |node: u32| ledger.lock().unwrap().charges(NodeId(node), 0).count();
    assert_eq!([charged(0), charged(1)], [0, 1]);

    // One thing after another, and the old picture until the last.
    let mut missing = vec![Change::Sites(sites("b"))];
    missing.extend(all(["b", "a"]));
    missing.push(Change::FirstRound(sites("b")));
    let last = missing.pop().unwrap();
    for (revision, change) in (4..).zip(missing) {
        assert_eq!(tell(vec![change]), (revision, of_a.1.clone(), of_a.2.clone(), of_a.3));
    }
    let (_, name, nodes, known) = tell(vec![last]);
    assert_eq!((&*name, &*nodes, known), ("b", &["b".to_owned()][..], Some(link)));
    // Nodes are numbered anew, and the promise is where it was: on `b`.
    assert_eq!([charged(0), charged(1)], [1, 0]);
}

#[test]
fn a_held_pod_is_no_older_for_having_been_folded_late() {
    let clock = Clock::start();
    let (mut observer, _changes) = Observer::new(Arc::default(), clock, Arc::default());
    let seen = clock.now().at(clock.moment().before(Micros::from_secs(100)));
    let stated = seen.wall - jiff::SignedDuration::from_secs(5);
    let pod = json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "p", "resourceVersion": "1",
                     "annotations": {"scheduling.example.io/timestamp": stated.to_string()}},
        "spec": {"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]},
    });
    let text = pod.to_string();
    let record = crate::pod::Pod::from_json(&text)
        .unwrap()
        .record(&text, &Config::default().keys);
    observer.fold(seen.moment, &Change::Pod(Box::new(record.unwrap().unwrap())));
    let (snapshot, config) = (Snapshot::default(), Config::default());
    let plan = observer
        .waitlist
        .plan(&snapshot, &Ledger::default(), &config, |_| true, clock.now());
    let age = seen.moment.since(plan.oldest.unwrap());
    assert!(age >= Micros::from_secs(4) && age < Micros::from_secs(6), "{age} ms");
}

#[test]
fn each_decision_is_told_once_and_only_where_it_is_new() {
    let (mut observer, _changes) = Observer::new(Arc::default(), Clock::start(), Arc::default());
    let told = Arc::<Mutex<Vec<(Box<str>, Option<String>)>>>::default();
    observer.when_decided({
        let told = Arc::clone(&told);
        move |sighting| {
            let site = sighting.site.map(|(name, _)| name);
            told.lock().unwrap().push((sighting.uid, site));
        }
    });
    let keys = Config::default().keys;
    let now = observer.clock.wall();
    let ago = |seconds| now - jiff::SignedDuration::from_secs(seconds);
    let pod = |uid: &str, decided: jiff::Timestamp, id: u32, selector: &str| {
        let pod = serde_json::json!({
            "metadata": {"name": uid, "namespace": "shop", "uid": uid, "creationTimestamp": ago(1), "annotations": {
                "scheduling.example.io/decision-id": format!("00000000-0000-4000-8000-{id:012}"),
                "scheduling.example.io/reason": "cloud_best_effort",
                "scheduling.example.io/site": "cloud",
                "scheduling.example.io/timestamp": decided,
            }},
            "spec": {"nodeSelector": {selector: "true"}},
        });
        let text = pod.to_string();
        let record = crate::pod::Pod::from_json(&text).unwrap().record(&text, &keys).unwrap();
        Change::Pod(Box::new(record.unwrap()))
    };
    let mut tells = |changes: Vec<Change>| {
        changes.into_iter().for_each(|change| observer.fold(Moment(0), &change));
        std::mem::take(&mut *told.lock().unwrap())
    };
    let is = |uid: &str, site: Option<&str>| vec![(Box::from(uid), site.map(str::to_owned))];
    let cloud = "node.role/cloud";

    // There before us, but decided lately; another leader may have ended before it told.
    assert_eq!(
        tells(vec![Change::ListBegan(Kind::Pods), pod("a", ago(2), 1, cloud)]),
        is("a", Some("cloud"))
    );
    let old = ago(3_600);
    assert_eq!(tells(vec![pod("b", old, 2, cloud), Change::ListEnded(Kind::Pods)]), []);
    assert_eq!(tells(vec![pod("a", ago(2), 1, cloud), pod("b", old, 2, cloud)]), []);
    assert_eq!(tells(vec![pod("a", ago(0), 3, cloud)]), is("a", Some("cloud")));
    // A copy of a manifest that was decided an hour ago.
    assert_eq!(tells(vec![pod("c", old, 4, cloud)]), []);
    // The site is what the spec says.
    assert_eq!(
        tells(vec![pod("d", ago(1), 5, "node.role/edge")]),
        is("d", Some("edge"))
    );
    assert_eq!(tells(vec![pod("e", ago(1), 6, "none")]), is("e", None));
}

#[test]
fn a_loop_is_published_and_told_once_and_only_of_pods_seen_as_they_are_created() {
    let (mut observer, _changes) = Observer::new(Arc::default(), Clock::start(), Arc::default());
    let told = Arc::<Mutex<Vec<Loop>>>::default();
    observer.when_looping({
        let told = Arc::clone(&told);
        move |closed| told.lock().unwrap().push(closed)
    });
    let keys = Config::default().keys;
    let pod = |i: usize| {
        let pod = serde_json::json!({
            "metadata": {
                "name": i.to_string(), "namespace": "shop", "uid": i.to_string(),
                "annotations": {"scheduling.example.io/decision-id": "00000000-0000-4000-8000-000000000001"},
                "ownerReferences": [{"kind": "Robot", "name": "r2", "uid": "r2", "controller": true}],
            },
            "spec": {},
        });
        let text = pod.to_string();
        let record = crate::pod::Pod::from_json(&text).unwrap().record(&text, &keys).unwrap();
        Change::Pod(Box::new(record.unwrap()))
    };
    let mut paused_after = |changes: Vec<Change>| {
        let now = observer.clock.moment();
        changes.into_iter().for_each(|change| observer.fold(now, &change));
        observer.publish();
        observer.fleet.load().paused.get("shop", "r2").is_some()
    };
    let comes_and_goes = |i: usize| [pod(i), Change::PodGone(i.to_string().into())];
    assert!(!paused_after(vec![Change::ListBegan(Kind::Pods)]));
    assert!(!paused_after((0..50).flat_map(comes_and_goes).collect()));
    assert!(!paused_after(vec![Change::ListEnded(Kind::Pods)]));
    assert!(!paused_after((100..111).flat_map(comes_and_goes).collect()));
    assert!(paused_after(comes_and_goes(111).into()));
    assert!(paused_after((200..220).flat_map(comes_and_goes).collect()));
    let told = told.lock().unwrap();
    let names: Vec<_> = told.iter().map(|closed| (&*closed.controller, &*closed.pod)).collect();
    assert_eq!(names, [("Robot r2", "111")]);
}

#[test]
fn what_was_decided_in_a_namespace_is_forgotten_when_it_opts_out() {
    let keys = Config::default().keys;
    let pod = |name: &str, second: u32, annotations: serde_json::Value| {
        let pod = serde_json::json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "annotations": annotations,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {"nodeName": "n"},
        });
        let text = pod.to_string();
        let record = crate::pod::Pod::from_json(&text).unwrap().record(&text, &keys).unwrap();
        Change::Pod(Box::new(record.unwrap()))
    };
    let bound_after = |between: &[Change]| {
        let (mut observer, _changes) = Observer::new(Arc::default(), Clock::start(), Arc::default());
        let surveys = observer.surveys();
        let decided = serde_json::json!({"scheduling.example.io/decision-id": "00000000-0000-4000-8000-000000000001"});
        let mut changes = vec![
            Change::Namespace("shop".into(), true),
            pod("decided", 0, decided),
            pod("missed", 10, serde_json::json!({"slo.example.io/class": "batch"})),
        ];
        changes.extend_from_slice(between);
        changes.extend(Kind::ALL.map(Change::ListEnded));
        let now = observer.clock.moment();
        changes.into_iter().for_each(|change| observer.fold(now, &change));
        observer.publish();
        surveys.borrow().bound
    };
    let namespace = |is_managed| Change::Namespace("shop".into(), is_managed);
    assert_eq!(bound_after(&[namespace(true)]), 1);
    assert_eq!(bound_after(&[namespace(false), namespace(true)]), 0);
}

#[test]
fn nobody_is_blamed_for_pods_that_were_not_seen() {
    let ledger = Arc::new(Mutex::new(Ledger::new(TTL)));
    let clock = Clock::start();
    let (mut observer, _changes) = Observer::new(Arc::clone(&ledger), clock, Arc::default());
    let mut now = clock.now();
    let mut ids = 0;
    // Whether an owner is suspended when three reservations, made after this was told, come to nothing.
    let mut is_blamed_after = |told: Vec<Change>| {
        now.moment = now.moment.after(Micros(1));
        told.into_iter().for_each(|change| observer.fold(now.moment, &change));
        let mut ledger = ledger.lock().unwrap();
        for _ in 0..3 {
            ids += 1;
            let reservation = Reservation {
                id: DecisionId(ids),
                // Another one each time.
                owner: Owner::new("shop", Some(&ids.div_ceil(3).to_string())),
                site: "edge".into(),
                node: NodeId(0),
                amount: crate::resources::Amounts::default(),
                priority: 0,
                releases: None,
            };
            assert!(ledger.reserve(reservation, now.moment));
        }
        let before = ledger.suspended();
        now.moment = now.moment.after(TTL);
        assert_eq!(ledger.expire(now), 3);
        ledger.suspended() > before
    };
    assert!(is_blamed_after(vec![
        Change::ListBegan(Kind::Pods),
        Change::ListEnded(Kind::Pods)
    ]));
    assert!(is_blamed_after(vec![Change::Lost(Kind::Nodes)]));
    assert!(!is_blamed_after(vec![
        Change::Lost(Kind::Pods),
        Change::Heard(Kind::Nodes)
    ]));
    assert!(is_blamed_after(vec![Change::Heard(Kind::Pods)]));
    assert!(!is_blamed_after(vec![
        Change::ListBegan(Kind::Pods),
        Change::Heard(Kind::Pods)
    ]));
    assert!(is_blamed_after(vec![Change::ListEnded(Kind::Pods)]));
}
