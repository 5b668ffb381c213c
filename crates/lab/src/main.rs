//! `edgeward-lab`: simulates edgeward and trains placement policies.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
