#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| edgeward_fuzz::protobuf::check(data));
