use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::testkit::protobuf::{event, field, numeric, object};
use crate::wire::node;

/// A pod with this spec.
fn pod(spec: &[u8]) -> Vec<u8> {
    object("v1", "Pod", &[field(1, &field(1, b"a")), field(2, spec)].concat())
}

fn read(object: &[u8]) -> Json {
    serde_json::from_str(&to_json(object).unwrap()).unwrap()
}

fn spec(spec: &[u8]) -> Json {
    read(&pod(spec))["spec"].take()
}

#[test]
fn an_event_is_what_became_of_an_object() {
    let pod = pod(&[]);
    let frame = event("ADDED", &pod);
    let event = Event::decode(&frame).unwrap();
    assert_eq!((event.kind, event.object), (&b"ADDED"[..], &*pod));
    assert_eq!(read(event.object), json!({"metadata": {"name": "a"}, "spec": {}}));
}

#[test]
fn what_is_not_read_is_left_out() {
    // A text, numbers of four and of eight bytes, a message; and hostPID.
    let other = [
        &field(15, b"x")[..],
        &[9 << 3 | 5, 1, 2, 3, 4],
        &[8 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8],
    ]
    .concat();
    assert_eq!(
        spec(&[&other[..], &field(14, &field(1, b"y")), &[12 << 3, 1]].concat()),
        json!({"hostPID": true})
    );
}

#[test]
fn lists_and_maps_are_fields_that_follow_each_other() {
    let entry = |key: &[u8], value: &[u8]| field(7, &[field(1, key), field(2, value)].concat());
    let volumes = [field(1, &field(1, b"v")), field(1, &[])].concat();
    let selector = [entry(b"a", b"1"), entry(b"", b"")].concat();
    assert_eq!(
        spec(&[volumes, selector, field(10, b"n")].concat()),
        json!({"volumes": [{"name": "v"}, {}], "nodeSelector": {"a": "1", "": ""}, "nodeName": "n"})
    );
    let last = field(2, &field(6, &[]));
    assert_eq!(spec(&last), json!({"containers": [{"ports": [{}]}]}));
}

#[test]
fn what_go_leaves_out_is_left_out() {
    // nodeName and hostPID; then runtimeClassName, priority and automountServiceAccountToken, which are pointers.
    let empty = [
        field(10, b""),
        numeric(12, 0),
        field(29, b""),
        numeric(25, 0),
        numeric(21, 0),
    ];
    assert_eq!(
        spec(&empty.concat()),
        json!({"runtimeClassName": "", "priority": 0, "automountServiceAccountToken": false})
    );
    assert_eq!(spec(&numeric(25, usize::MAX)), json!({"priority": -1}));
}

#[test]
fn a_node_with_an_empty_address_is_a_node() {
    // A taint and an address with nothing in them, which the API server takes of the latter.
    let name = field(1, &field(1, b"n"));
    let raw = [name, field(2, &field(5, &[])), field(3, &field(5, &[]))].concat();
    let json = to_json(&object("v1", "Node", &raw)).unwrap();
    assert_eq!(&*node::from_json(&json).unwrap().name, "n");
}

#[test]
fn bytes_that_are_no_text_are_replaced() {
    assert_eq!(spec(&field(10, b"a\xff\"\n")), json!({"nodeName": "a\u{fffd}\"\n"}));
}

#[test]
fn a_time_is_to_the_second() {
    let created = |time: &[u8]| read(&object("v1", "Pod", &field(1, &field(8, time))))["metadata"].take();
    let at = |time: Json| json!({ "creationTimestamp": time });
    assert_eq!(created(&[1 << 3, 60, 2 << 3, 1]), at("1970-01-01T00:01:00Z".into()));
    assert_eq!(created(&[1 << 3, 0]), at("1970-01-01T00:00:00Z".into()));
    assert_eq!(created(&[]), at(Json::Null));
    assert_eq!(
        created(&[1 << 3, 255, 255, 255, 255, 255, 255, 255, 127]),
        at("".into())
    );
}

#[test]
fn what_cannot_be_read_says_why() {
    let words = |object: &[u8]| to_json(object).unwrap_err().to_string();
    assert_eq!(
        words(b"{\"kind\": \"Pod\"}"),
        "not an object in Kubernetes' protobuf: it begins with [123, 34, 107, 105]"
    );
    assert_eq!(
        words(&object("apps/v1", "Pod", &[])),
        "Pod of apps/v1 is not read in protobuf"
    );
    assert_eq!(words(&pod(&[10 << 3 | 2, 9])), "not protobuf: a message ends too early");
    assert_eq!(words(&pod(&[10 << 3])), "not protobuf: a message ends too early");
    assert_eq!(words(&pod(&[255; 20])), "not protobuf: a number of too many bytes");
    assert_eq!(words(&pod(&[10 << 3 | 3])), "not protobuf: a field of an unknown type");
    assert_eq!(words(&pod(&[10 << 3, 1])), "nodeName: not as Kubernetes has it");
    assert_eq!(words(&pod(&[1 << 3, 1])), "volumes: not as Kubernetes has it");
}

/// Of two bytes at the least for each element, one is made of two and a comma; and of a character that is escaped, six.
#[test]
fn a_text_is_a_few_times_as_long_at_the_most() {
    let terms = field(18, &field(1, &field(1, &field(1, &[]).repeat(1_000))));
    let escaped = field(10, &[1; 1_000]);
    for (spec, times) in [(terms, 2), (escaped, 6)] {
        let json = to_json(&pod(&spec)).unwrap();
        // And some characters around it.
        assert!(
            json.len() <= times * spec.len() + 100,
            "{} of {}",
            json.len(),
            spec.len()
        );
    }
}

/// Messages in messages, with numbers among them, by the numbers that Kubernetes has.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let text = prop::collection::vec(any::<u8>(), 0..8);
    text.prop_recursive(8, 128, 8, |inner| {
        let number = prop_oneof![3 => 1..4_usize, 1 => 1..46_usize];
        let element = prop_oneof![
            4 => (number.clone(), inner).prop_map(|(number, value)| field(number, &value)),
            1 => (number, any::<usize>()).prop_map(|(number, value)| numeric(number, value)),
        ];
        prop::collection::vec(element, 0..6).prop_map(|elements| elements.concat())
    })
}

proptest! {
    #[test]
    fn bytes_of_any_kind_do_no_harm(bytes in message(), kind in "Pod|Node|PersistentVolume|Status") {
        let _ = Event::decode(&bytes);
        if let Ok(json) = to_json(&object("v1", &kind, &bytes)) {
            prop_assert!(serde_json::from_str::<Json>(&json).is_ok(), "{}", json);
        }
    }

    #[test]
    fn numbers_are_read_as_they_are_written(value: usize) {
        let [(1, Value::Number(read))] = Reader::of(&numeric(1, value)).collect::<Result<Vec<_>, _>>().unwrap()[..] else {
            panic!("one number");
        };
        prop_assert_eq!(read, value as u64);
    }
}
