//! `edgeward-link EDGE CLOUD [SEED]` joins two network namespaces until stdin ends. See the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match edgeward_link::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("edgeward-link: {error:#}");
            ExitCode::FAILURE
        }
    }
}
