//! `edgeward-lab`: the production engine in virtual time.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
