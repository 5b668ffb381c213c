//! The part of a pod that edgeward keeps is bounded.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use edgeward_cluster::pod_record::PodRecord;
use edgeward_cluster::pod_record::read_record;
use edgeward_decision::keys::Keys;
use edgeward_fuzz::Pod;
use edgeward_kube::resources::ResourceNames;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let keys = Keys::new("example.io");
    let read = |json: &str| read_record(json, &keys, &ResourceNames::default(), true);
    if let Ok(Ok(Some(record))) = str::from_utf8(data).map(read) {
        assert_bounded(&record);
    }
    if let Ok(pod) = Pod::arbitrary(&mut Unstructured::new(data)) {
        let record = read(&pod.json().to_string()).unwrap();
        assert_bounded(&record.expect("it has a uid and a namespace"));
    }
});

fn assert_bounded(record: &PodRecord) {
    let kept = format!("{record:?}").len();
    assert!(kept < 64 * 1024, "{kept} bytes are kept");
}
