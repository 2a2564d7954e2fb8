//! Coverage of the intervals of p99.9, on synthetic latencies whose quantiles are known.
//!
//! `cargo run --release -p parm-loadgen --example coverage -- RUNS LONGEST` prints the table of docs/results/raw/load.txt: for every series
//! and length, the share of runs with enough data for an interval, and of these intervals the share that holds the truth.

use std::io::Write;

use parm_loadgen::statistics::bootstrap::Bootstrap;
use parm_loadgen::statistics::series::Series;

const SHARE: f64 = 0.999;

fn main() -> std::io::Result<()> {
    let argument = |at| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (runs, longest) = (argument(1).unwrap_or(200), argument(2).unwrap_or(1_000_000) as usize);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{runs} runs, nominal coverage 95 %, seeds 0 to {}\n", runs - 1)?;
    writeln!(
        out,
        "| series | samples | enough data | coverage | mean width / truth |\n|---|---|---|---|---|"
    )?;
    for series in [
        Series::Independent,
        Series::Episodes(4.0, 0.02),
        Series::Episodes(40.0, 0.02),
        Series::Lognormal(0.9),
        Series::Lognormal(0.99),
        Series::Queue(0.5),
        Series::Queue(0.7),
        Series::Queue(0.85),
    ] {
        for samples in [20_000, 60_000, 200_000, 1_000_000].into_iter().filter(|samples| *samples <= longest)
        {
            let (mut given, mut covered, mut width) = (0u32, 0u32, 0.0);
            let truth = series.quantile(SHARE);
            for seed in 0..runs {
                let latencies = series.draw(samples, seed);
                let Some(interval) =
                    Bootstrap::for_quantile(&latencies, SHARE, seed).quantile(&latencies, SHARE)
                else {
                    continue;
                };
                given += 1;
                covered += u32::from(interval.low <= truth && truth <= interval.high);
                width += (interval.high - interval.low) / truth;
            }
            let percent = |part: u32, whole: u32| match whole {
                0 => "-".to_owned(),
                whole => format!("{:.1} %", 100.0 * f64::from(part) / f64::from(whole)),
            };
            let enough = percent(given, runs as u32);
            let width = if given == 0 { "-".to_owned() } else { format!("{:.3}", width / f64::from(given)) };
            writeln!(out, "| {series:?} | {samples} | {enough} | {} | {width} |", percent(covered, given))?;
            out.flush()?;
        }
    }
    Ok(())
}
