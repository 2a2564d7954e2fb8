//! Measures the simulator: queries per second of wall time on one core, with the paper's 18 instances.
//!
//! `cargo run --release -p parm-experiments --example throughput [QUERIES]`

use std::io::Write;
use std::num::NonZeroU64;
use std::time::Instant;

use parm_experiments::{Config, Experiment};
use parm_simulator::Quiet;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queries = std::env::args().nth(1).map_or(Ok(2_000_000), |count| count.parse())?;
    let mut out = std::io::stdout();
    for policy in parm_experiments::POLICIES.iter().map(|(name, _)| *name) {
        for scenario in ["clean", "AB"] {
            let config = Config {
                queries: NonZeroU64::new(queries).ok_or("at least one query")?,
                loads: vec![0.5],
                policies: vec![policy.to_owned()],
                scenarios: vec![scenario.to_owned()],
                ..Config::default()
            };
            let experiment = Experiment::new(config)?;
            let started = Instant::now();
            experiment.run(1, &Quiet)?;
            let rate = queries as f64 / started.elapsed().as_secs_f64() / 1e6;
            writeln!(out, "{policy:<16} {scenario:<6} {rate:.2} million queries per second")?;
        }
    }
    Ok(())
}
