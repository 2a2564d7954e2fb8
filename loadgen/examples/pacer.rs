//! Measures whether the pacer offers the requested rate and shape of arrivals.
//!
//! `cargo run --release -p parm-loadgen --example pacer -- RATE SECONDS HOGS SHAPE` keeps a schedule for SECONDS while
//! HOGS threads only take processor time. It prints the offered rate, the Kolmogorov-Smirnov test of the gaps between the
//! pacer's calls (for Poisson arrivals, the default), its lag and its processor time. It measures wall time, so it is not
//! a unit test: run it on a quiet machine.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parm_loadgen::pacer::{self, Continue};
use parm_loadgen::shape::Shape;
use parm_loadgen::statistics::bootstrap::quantile_of;
use parm_workload::Pattern;

const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |at| std::env::args().nth(at).and_then(|text| text.parse::<f64>().ok());
    let (rate, seconds) = (argument(1).unwrap_or(1000.0), argument(2).unwrap_or(60.0));
    let hogs = argument(3).unwrap_or(0.0) as usize;
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..hogs {
        let stop = stop.clone();
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                black_box(0);
            }
        });
    }
    let shape: Shape = std::env::args().nth(4).unwrap_or_else(|| "poisson".to_owned()).parse()?;
    let arrivals = shape.at(rate)?;
    let (mut called, mut lags) = (Vec::new(), Vec::new());
    let before = processor_seconds()?;
    let start = Instant::now() + Duration::from_millis(10);
    let schedule = arrivals.schedule(SEED)?.take_while(|at| at.as_secs_f64() < seconds);
    pacer::run(start, schedule, |_, _, lag| {
        called.push(start.elapsed().as_secs_f64());
        lags.push(lag.as_secs_f64() * 1e6);
        Continue::Next
    });
    let own = (processor_seconds()? - before) / seconds;
    stop.store(true, Ordering::Relaxed);

    // The schedule is random, so the pacer is compared with it rather than with the rate.
    let meant: Vec<f64> = arrivals.schedule(SEED)?.take(called.len()).map(|at| at.as_secs_f64()).collect();
    let gaps: Vec<f64> = called.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let last = |times: &[f64]| times.last().copied().unwrap_or(f64::NAN);
    let p_value = match shape {
        Shape::Pattern(Pattern::Poisson) => {
            format!("{:.3}", p_value(&gaps, |gap| 1.0 - (-rate * gap).exp()))
        }
        _ => "-".to_owned(),
    };
    let [p50, p99, p999, max] = [0.5, 0.99, 0.999, 1.0].map(|share| quantile_of(&mut lags, share));
    writeln!(
        std::io::stdout(),
        "{shape} {rate}/s for {seconds} s, {hogs} hogs: {} calls, offered {:+.4} % off the schedule ({:+.3} % off the rate), \
         KS p {p_value}, lag us p50 {p50:.1} p99 {p99:.1} p99.9 {p999:.1} max {max:.0}, {:.1} % of a core",
        called.len(),
        100.0 * (last(&meant) / last(&called) - 1.0),
        100.0 * (called.len() as f64 / seconds / rate - 1.0),
        100.0 * own
    )?;
    Ok(())
}

/// Processor time of the calling thread, from the kernel's own account.
fn processor_seconds() -> std::io::Result<f64> {
    let nanos = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(nanos.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e9)
}

/// The one-sample Kolmogorov-Smirnov test: the probability of a distance at least as large as observed if the samples come
/// from the distribution `cdf`.
fn p_value(samples: &[f64], cdf: impl Fn(f64) -> f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let distances = sorted.iter().enumerate().map(|(i, &x)| {
        let f = cdf(x);
        (f - i as f64 / n).abs().max(((i + 1) as f64 / n - f).abs())
    });
    // The tail of Kolmogorov's limiting distribution, with Stephens' correction.
    let x = distances.fold(0.0, f64::max) * (n.sqrt() + 0.12 + 0.11 / n.sqrt());
    if x < 0.2 {
        return 1.0; // the series converges slowly there, and the value is 1 to twelve digits
    }
    let term = |k: f64| (if k % 2.0 == 1.0 { 2.0 } else { -2.0 }) * (-2.0 * k * k * x * x).exp();
    (1..=100).map(|k| term(f64::from(k))).sum::<f64>().clamp(0.0, 1.0)
}
