//! The report as text.

use std::fmt;

use super::{Quantile, Report, Share, Threshold, Times};
use crate::failures::FailureReason;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting, sent, offered, dropped, validity, .. } = self;
        let how = match (&setting.arrivals, setting.streams) {
            (Some(arrivals), _) => format!("{arrivals} arrivals, seed {}", setting.seed),
            (None, Some(streams)) => format!("{streams} at a time"),
            (None, None) => String::new(),
        };
        writeln!(f, "{} of model {} at {}: {how}", setting.scenario, setting.model, setting.url)?;
        writeln!(f, "requests    {sent} sent of {offered} offered, {dropped} dropped")?;
        writeln!(
            f,
            "length      {:.1} s after {} s of warm-up, {:.1} requests/s offered",
            self.seconds, setting.warm_up_seconds, self.offered_per_second
        )?;
        writeln!(
            f,
            "answers     {:.1} requests/s, {:.1} rows/s",
            self.answered_per_second, self.rows_per_second
        )?;
        for share in &self.outcomes {
            outcome(f, share)?;
        }
        if let Some(accuracy) = self.accuracy {
            writeln!(f, "accuracy    {:.2} % of all labelled rows", accuracy * 100.0)?;
        }
        writeln!(f)?;
        if self.chats.is_some() {
            writeln!(f, "time to first token (TTFT)")?;
        }
        for quantile in &self.latency {
            latency(f, quantile, true)?;
        }
        writeln!(f, "mean        {:.3} ms, longest {:.3} ms", self.mean_ms, self.max_ms)?;
        if let Some(chats) = &self.chats {
            write!(f, "\n{chats}")?;
        }
        for Threshold { requirement, finding, needed } in &self.requirements {
            write!(f, "require     {requirement}: {finding}")?;
            match needed {
                Some(needed) => writeln!(f, " ({needed} requests may be enough)")?,
                None => writeln!(f)?,
            }
        }
        // Requests that failed for the same reason may have other messages.
        for FailureReason { reason, requests, first } in &self.failures {
            writeln!(f, "failed      {requests} {reason}, the first: {first}")?;
        }
        write!(
            f,
            "{}lag p99 {:.3} ms (limit {:.3}), {:.2} % sent, {:.2} % failed",
            if validity.valid { "valid       " } else { "INVALID     " },
            validity.lag_p99_ms,
            validity.lag_limit_ms,
            validity.achieved * 100.0,
            validity.failed * 100.0
        )?;
        validity.faults.iter().try_for_each(|fault| write!(f, "\n            {fault}"))
    }
}

fn outcome(f: &mut fmt::Formatter<'_>, share: &Share) -> fmt::Result {
    let Share { outcome, requests, p50_ms, accuracy, graded, .. } = share;
    write!(f, "  {outcome:<14}{requests:>9}  {:>6.2} %   p50 {p50_ms:.3} ms", share.share * 100.0)?;
    match accuracy {
        Some(accuracy) => writeln!(f, "   {:.2} % right of {graded} rows", accuracy * 100.0),
        None => writeln!(f),
    }
}

fn latency(f: &mut fmt::Formatter<'_>, quantile: &Quantile, has_intervals: bool) -> fmt::Result {
    let name = format!("p{}", (quantile.share * 1e6).round() / 1e4);
    match (quantile.ms, quantile.interval_ms) {
        (None, _) => writeln!(f, "{name:<12}not enough data"),
        (Some(ms), _) if !has_intervals => writeln!(f, "{name:<12}{ms:.3} ms"),
        (Some(ms), None) => writeln!(f, "{name:<12}{ms:.3} ms (not enough data for an interval)"),
        (Some(ms), Some((low, high))) => writeln!(f, "{name:<12}{ms:.3} ms ({low:.3} to {high:.3})"),
    }
}

pub(crate) fn times(f: &mut fmt::Formatter<'_>, times: &Times, has_intervals: bool) -> fmt::Result {
    times.quantiles.iter().try_for_each(|quantile| latency(f, quantile, has_intervals))?;
    let (Some(mean), Some(max)) = (times.mean_ms, times.max_ms) else { return Ok(()) };
    writeln!(f, "mean        {mean:.3} ms, longest {max:.3} ms")
}
