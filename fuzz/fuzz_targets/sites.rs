#![no_main]
mod mutator;

libfuzzer_sys::fuzz_target!(|data: &[u8]| edgeward_fuzz::sites::check(data));
