//! The gated pods of one namespace have a bounded cost for those of other namespaces.

use super::*;
use edgeward_kube::units::Bytes;

/// Edge nodes of four cores each. Everything is free except the only GPU.
fn empty_edge(nodes: usize) -> Snapshot {
    let node = |i: usize| {
        let gpu = u8::from(i == 0);
        json!({"name": format!("e{i}"), "labels": {"node.role/edge": "true"},
               "allocatable": {"cpu": "4", "memory": "64Gi", "pods": 110, "example.com/gpu": gpu.to_string()},
               "used": {"example.com/gpu": gpu.to_string()}})
    };
    testkit::snapshot(&json!({
        "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "wan": {"reachable": false}}],
        "nodes": (0..nodes).map(node).collect::<Vec<_>>(),
    }))
}

/// A pod of the highest priority with many tolerations. It may only run at a site that does not exist.
fn hostile() -> GatedPod {
    let mut document = gated("hostile", 0, 10, 0).document();
    document["metadata"]["namespace"] = json!("evil");
    document["metadata"]["annotations"]["slo.example.io/sites"] = json!("atlantis");
    document["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_site_away");
    let toleration = |i: usize| json!({"key": format!("k{i}"), "operator": "Exists"});
    document["spec"]["tolerations"] = (0..36).map(toleration).collect();
    GatedPod::clone(&read(&document))
}

/// Copies of the hostile pod, each of another size.
fn hostile_pods(count: usize) -> impl Iterator<Item = Arc<GatedPod>> {
    let pod = hostile();
    (0..count).map(move |i| {
        let mut pod = pod.clone();
        pod.uid = format!("hostile-{i:05}").into();
        pod.workload.as_mut().unwrap().request.memory = Bytes(1 + i as i64);
        Arc::new(pod)
    })
}

/// A pod of class latency that waits for the GPU.
fn of_gpu(name: &str, seconds: i64) -> Arc<GatedPod> {
    let mut document = gated(name, 100, 0, seconds).document();
    document["metadata"]["annotations"]["slo.example.io/class"] = json!("latency");
    document["spec"]["containers"][0]["resources"]["requests"]["example.com/gpu"] = json!("1");
    read(&document)
}

fn plan_at(waitlist: &mut Waitlist, snapshot: &Snapshot, at: Moment) -> Plan {
    waitlist.plan(snapshot, &Ledger::default(), &Config::default(), |_| true, NOW.at(at))
}

/// Whether a small pod of the lowest priority that arrives in the other namespace is placed at once.
fn is_placed_at_once(waitlist: &Waitlist, snapshot: &Snapshot) -> bool {
    let text = gated("arriving", 100, 0, 0).document().to_string();
    let (pod, config) = (Pod::from_json(&text).unwrap(), Config::default());
    let workload = Workload {
        gates: vec![],
        ..pod.workload("shop".into(), &config.keys)
    };
    let (ledger, claims) = (Ledger::default(), waitlist.claims());
    let queue_key = workload.queue_key(&config.priority_caps, None);
    let room = Room::beside(snapshot, &ledger, &claims, queue_key, "shop");
    decide(&workload, &room, &config, NOW).site().is_some()
}

#[test]
fn pods_without_a_site_delay_no_other_pods() {
    const LIMIT: Micros = Micros::from_secs(30);
    const SECOND: Micros = Micros::from_secs(1);
    for (nodes, seconds) in [(200, 4), (1_000, 3)] {
        let snapshot = empty_edge(nodes);
        let end = NOW.moment.after(Micros::from_secs(seconds));
        let mut waitlist = Waitlist::default();
        let mut hostile = hostile_pods(6_000 + 100);
        hostile.by_ref().take(6_000).for_each(|pod| waitlist.apply(pod, NOW));
        for i in 0..4 {
            waitlist.apply(of_gpu(&format!("gpu-{i}"), 29 - i), NOW);
        }
        waitlist.apply(read(&gated("fits", 100, 0, 1).document()), NOW);
        let mut released = BTreeMap::new();
        let mut at = NOW.moment;
        while at < end {
            if waitlist.wants_plan(at) {
                for step in plan_at(&mut waitlist, &snapshot, at).entries {
                    assert_eq!(step.action, PlanAction::Release);
                    released.entry(step.pod.name.to_string()).or_insert((step.since, at));
                }
            }
            assert!(is_placed_at_once(&waitlist, &snapshot), "{nodes} nodes, {at:?}");
            at = at.after(Micros::from_millis(100));
            hostile
                .next()
                .into_iter()
                .for_each(|pod| waitlist.apply(pod, NOW.at(at)));
        }
        assert_eq!(released.remove("fits").unwrap().1, NOW.moment);
        assert!(released.len() + 1 >= seconds as usize, "{released:?}");
        for (name, (since, at)) in released {
            let late = at.since(since.after(LIMIT));
            assert!(at >= since.after(LIMIT) && late <= SECOND, "{name}: {late:?}");
        }
    }
}

#[test]
fn pod_without_a_site_is_decided_once_until_sites_change() {
    let snapshot = empty_edge(1);
    let mut waitlist = Waitlist::default();
    hostile_pods(3).for_each(|pod| waitlist.apply(pod, NOW));
    let decisions = |waitlist: &mut Waitlist| plan_at(waitlist, &snapshot, NOW.moment).decisions;
    assert_eq!(decisions(&mut waitlist), 3);
    waitlist.reconsider();
    waitlist.apply(hostile_pods(1).next().unwrap(), NOW);
    assert_eq!(decisions(&mut waitlist), 0, "no word about its status is news");
    let mut other = GatedPod::clone(&hostile_pods(1).next().unwrap());
    other.workload.as_mut().unwrap().request.memory = Bytes(77);
    waitlist.apply(Arc::new(other), NOW);
    assert_eq!(decisions(&mut waitlist), 1);
    waitlist.reconsider_sites();
    assert_eq!(decisions(&mut waitlist), 3);
    waitlist.reset();
    assert_eq!(decisions(&mut waitlist), 3);
}

#[test]
fn pod_without_a_site_loses_the_gate_at_its_limit() {
    let mut document = gated("nowhere", 100, 5, 299).document();
    document["metadata"]["annotations"]["slo.example.io/offloadAllowed"] = json!("false");
    document["spec"]["nodeSelector"] = json!({"disk": "tape"});
    let mut waitlist = Waitlist::default();
    waitlist.apply(read(&document), NOW);
    let mut plan = |seconds| {
        let at = NOW.moment.after(Micros::from_secs(seconds));
        steps(&plan_at(&mut waitlist, &empty_edge(1), at))
    };
    assert_eq!((plan(0), plan(0)), (vec![], vec![]));
    let lost = PlanAction::RemoveGate(Reason::NoSiteMatches);
    assert_eq!(plan(1), [("nowhere".to_owned(), lost)]);
}

#[test]
fn pod_with_volume_claims_is_decided_each_time() {
    let mut document = gated("claims", 100, 5, 1).document();
    document["spec"]["nodeSelector"] = json!({"disk": "tape"});
    document["spec"]["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]);
    let mut waitlist = Waitlist::default();
    waitlist.apply(read(&document), NOW);
    let mut decisions = || plan_at(&mut waitlist, &empty_edge(1), NOW.moment).decisions;
    assert_eq!((decisions(), decisions()), (1, 1));
}

/// A pod of another namespace.
fn of(namespace: &str, pod: &Gated) -> Arc<GatedPod> {
    let mut document = pod.document();
    document["metadata"]["namespace"] = json!(namespace);
    read(&document)
}

#[test]
fn namespace_without_budget_holds_up_its_own_pods_alone() {
    // Each purse allows one decision.
    let snapshot = testkit::snapshot(&fleet(&[0]));
    let mut waitlist = Waitlist {
        budget: Some(0),
        ..Waitlist::default()
    };
    for name in ["first", "second", "third"] {
        waitlist.apply(of("evil", &gated(name, 100, 9, 3)), NOW);
    }
    waitlist.apply(of("shop", &gated("neighbour", 100, 5, 2)), NOW);
    let mut released = || {
        let plan = plan_at(&mut waitlist, &snapshot, NOW.moment);
        let claims = claims(&waitlist).into_keys().collect::<Vec<_>>();
        let names = steps(&plan).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(
            claims,
            names
                .iter()
                .cloned()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
        );
        (names, waitlist.unfinished.len())
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(released(), (names(&["first", "neighbour"]), 1));
    assert_eq!(released(), (names(&["first", "second", "neighbour"]), 1));
    assert_eq!(released(), (names(&["first", "second", "third", "neighbour"]), 0));
}

#[test]
fn pods_past_their_limit_have_a_budget_of_their_own() {
    let snapshot = testkit::snapshot(&fleet(&[1_000]));
    let mut waitlist = Waitlist {
        budget: Some(0),
        ..Waitlist::default()
    };
    for i in 0..3 {
        waitlist.apply(read(&gated(&format!("p{i}"), 100 + i, 9, 3).document()), NOW);
    }
    waitlist.apply(read(&gated("overdue", 100, 5, 300).document()), NOW);
    let plan = plan_at(&mut waitlist, &snapshot, NOW.moment);
    assert_eq!(steps(&plan), [("overdue".to_owned(), PlanAction::Release)]);
}

#[test]
fn unused_budget_of_a_namespace_goes_to_the_others() {
    let snapshot = testkit::snapshot(&fleet(&[1_000]));
    // A decision takes one comparison.
    let mut waitlist = Waitlist {
        budget: Some(5),
        ..Waitlist::default()
    };
    for i in 0..9 {
        waitlist.apply(of("large", &gated(&format!("l{i}"), 100 + i, 9, 3)), NOW);
    }
    waitlist.apply(of("small", &gated("s", 100, 5, 2)), NOW);
    assert_eq!(plan_at(&mut waitlist, &snapshot, NOW.moment).decisions, 4 + 1);
}
