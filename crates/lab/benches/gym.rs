//! Measures the steps per second of an environment on one core. Resource-Greedy acts, and every observation and mask is
//! built. Run `cargo bench -p edgeward-lab --bench gym`.

use edgeward_lab::gym::{Agent as _, Baseline, FEATURES, Gym, Mode, Settings};
use rustix::time::{ClockId, clock_gettime};

/// Steps per second of the published environment, in Python on one core with the same policy, by number of clusters.
const PYTHON: [(usize, f64); 2] = [(4, 6000.0), (128, 112.0)];

/// CPU time of this process, in seconds. Other load on the machine does not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    // `cargo test` also runs benchmarks, with few steps, to check that they work.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    for mode in Mode::ALL {
        for (clusters, python) in PYTHON {
            let steps = if is_bench { 40_000_000 / clusters } else { 1000 };
            let settings = Settings {
                clusters,
                mode,
                ..Settings::default()
            };
            let begin = processor_seconds();
            let sum = run(&settings, steps);
            let rate = steps as f64 / (processor_seconds() - begin);
            println!(
                "mode: {mode}, clusters: {clusters}, steps a second: {rate:.0}, times Python's: {:.0}, reward: {:.3}",
                rate / python,
                sum / steps as f64,
            );
        }
    }
}

fn run(settings: &Settings, steps: usize) -> f64 {
    let mut gym = Gym::new(settings, 42);
    gym.reset();
    let mut agent = Baseline::ResourceGreedy.agent(1);
    let mut observation = vec![0.0; gym.actions() * FEATURES];
    let mut mask = vec![false; gym.actions()];
    let mut sum = 0.0;
    for _ in 0..steps {
        gym.observe(&mut observation);
        gym.mask(&mut mask);
        std::hint::black_box((&observation, &mask));
        let step = gym.step(agent.act(&gym));
        sum += step.reward;
        if step.episode.is_some() {
            gym.reset();
        }
    }
    sum
}
