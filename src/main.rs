//! The `edgeward` command.

fn main() -> std::process::ExitCode {
    edgeward::main()
}
