//! Most inputs are JSON, and are changed as documents; now and then, and where they are none, as bytes.

libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let document = serde_json::from_slice(&data[..size])
        .ok()
        .filter(|_| !seed.is_multiple_of(8));
    let mutated = document.map(|document| edgeward_fuzz::mutation::mutated(&document, seed).to_string());
    match mutated.filter(|mutated| mutated.len() <= max_size) {
        Some(mutated) => {
            data[..mutated.len()].copy_from_slice(mutated.as_bytes());
            mutated.len()
        }
        None => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
    }
});
