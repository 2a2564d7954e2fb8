//! The report as text.

use std::fmt;

use super::{ChatReport, FailureCount, Times};
use crate::report::{Quantile, text};

impl fmt::Display for ChatReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setting = &self.setting;
        let speed = setting.speed.map_or_else(String::new, |speed| format!(" at speed {speed}"));
        writeln!(
            f,
            "{} with model {} at {}: {} arrivals{speed}, seed {}",
            setting.api, setting.model, setting.url, setting.arrivals, setting.seed
        )?;
        writeln!(f, "requests    {} sent of {} offered, {} dropped", self.sent, self.offered, self.dropped)?;
        if self.repeated > 0 {
            let repeated = self.repeated;
            writeln!(f, "repeated    {repeated} sent twice: a kept connection ended without an answer")?;
        }
        writeln!(
            f,
            "length      {:.1} s after {} s of warm-up, {:.2} requests/s offered; last answer at {:.1} s",
            self.seconds, setting.warm_up_seconds, self.offered_per_second, self.busy_seconds
        )?;
        writeln!(f, "answers     {} whole, {:.2} requests/s", self.answered, self.answered_per_second)?;
        writeln!(
            f,
            "tokens      {} of prompts, {:.1}/s; {} of answers, {:.1}/s",
            self.prompt_tokens,
            self.prompt_tokens_per_second,
            self.output_tokens,
            self.output_tokens_per_second
        )?;
        for FailureCount { kind, requests } in &self.failures {
            writeln!(f, "  {kind:<20}{requests:>9} failed")?;
        }
        for (name, times, has_intervals) in [
            ("time to first token (TTFT)", &self.ttft, true),
            ("time per output token after the first (TPOT)", &self.tpot, true),
            ("time between tokens (ITL), without intervals", &self.itl, false),
            ("end-to-end latency", &self.latency, true),
        ] {
            if times.count > 0 {
                writeln!(f, "\n{name}")?;
                of(f, times, has_intervals)?;
            }
        }
        writeln!(f)?;
        text::required(f, &self.requirements)?;
        if let Some(failure) = &self.first_failure {
            writeln!(f, "failed      the first: {failure}")?;
        }
        text::verdict(f, &self.validity)
    }
}

fn of(f: &mut fmt::Formatter<'_>, times: &Times, has_intervals: bool) -> fmt::Result {
    for quantile in &times.quantiles {
        match quantile {
            Quantile { share, ms: Some(ms), .. } if !has_intervals => {
                writeln!(f, "{:<12}{ms:.3} ms", format!("p{}", (share * 1e6).round() / 1e4))?;
            }
            quantile => text::latency(f, quantile)?,
        }
    }
    let (Some(mean), Some(max)) = (times.mean_ms, times.max_ms) else { return Ok(()) };
    writeln!(f, "mean        {mean:.3} ms, longest {max:.3} ms")
}
