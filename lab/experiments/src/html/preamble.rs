//! The start and the end of the page: what ran, whether it is valid, and how to repeat it.

use std::fmt::Write;

use crate::Row;

use super::section::{anchor, title};
use super::text;
use crate::{Mode, Results, RunRecord};

/// Problems that are listed individually.
const LISTED: usize = 12;

/// Title, how it ran, and the validity box.
pub(super) fn head(results: &Results) -> String {
    let report = &results.report;
    let how = match results.mode {
        Mode::Processes => "Real processes",
        Mode::Simulation => "Simulated in virtual time, by the dispatcher that serves",
    };
    let seeds = match report.repeats {
        1 => format!("seed {}", report.seed),
        repeats => format!("seeds {} to {}", report.seed, report.seed.wrapping_add(u64::from(repeats) - 1)),
    };
    format!(
        "<h1>Experiment</h1><p class=\"soft\">{how}; {} queries a run, {}, {seeds}; {}</p>\
         <p>Repeat it with <code>{}</code></p>{}",
        report.queries,
        counted(u64::from(report.repeats), "repeat", "repeats"),
        text(&results.machine),
        text(&results.command),
        validity(results),
    )
}

fn validity(results: &Results) -> String {
    let invalid: Vec<&RunRecord> = results.runs.iter().filter(|run| !run.validity.is_valid()).collect();
    let class = if invalid.is_empty() && results.ended_early.is_none() { "box" } else { "box bad" };
    let mut out = format!("<div class=\"{class}\"><b>Validity.</b> ");
    match results.mode {
        Mode::Simulation => out += "Simulated runs are exact for their seeds; their limits are stated below.",
        Mode::Processes => {
            let lag = results.runs.iter().map(|run| run.validity.lag_p99_ms).fold(0.0, f64::max);
            let failed: u64 = results.runs.iter().map(|run| run.validity.failed).sum();
            let (all, good) = (results.runs.len(), results.runs.len() - invalid.len());
            let _ = write!(
                out,
                "{good} of {all} runs are valid: queries were sent at their times (worst lag p99 \
                 {lag:.2} ms), and all of them. {} without an answer, which count as late as their deadline.",
                counted(failed, "query was left", "queries were left"),
            );
        }
    }
    if let Some(reason) = &results.ended_early {
        let _ = write!(out, "<p><b>Ended early:</b> {}. The finished runs are below.</p>", text(reason));
    }
    let problem = |run: &&RunRecord| {
        let what = text(&run.validity.problems.join("; "));
        let load = run.name.load.map_or_else(|| "unknown load".to_owned(), |load| load.to_string());
        format!(
            "<li>{} at {load}, {}, repeat {}: {what}</li>",
            text(&run.name.scenario),
            text(&run.name.policy),
            run.name.repeat + 1
        )
    };
    let listed: String = invalid.iter().take(LISTED).map(problem).collect();
    if !listed.is_empty() {
        let _ = write!(out, "<ul>{listed}</ul>");
    }
    if invalid.len() > LISTED {
        let _ = write!(out, "<p>and {} more</p>", invalid.len() - LISTED);
    }
    out + "</div>"
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Links to the sections, if there are several.
pub(super) fn contents(groups: &[Vec<&Row>]) -> String {
    if groups.len() < 2 {
        return String::new();
    }
    let link =
        |group: &Vec<&Row>| format!("<li><a href=\"#{}\">{}</a></li>", anchor(group[0]), title(group[0]));
    format!("<ul class=\"contents\">{}</ul>", groups.iter().map(link).collect::<String>())
}

/// The definitions of the terms.
pub(super) fn foot(results: &Results) -> String {
    let left_out = match results.mode {
        Mode::Processes => "",
        Mode::Simulation => {
            "<p>A simulation does not model networks, processors and operating systems, and does not compute predictions: \
             the deployed model's count as right unless a fault made them wrong. Approximate answers were not graded.</p>"
        }
    };
    format!(
        "<h2>How to read this</h2><p>Latency is counted from the time at which a query was scheduled. The gap is p99.9 - p50; \
         beside it stands how many times smaller it is than that of <code>equal</code>, which has the same instances and no \
         redundancy. Small numbers are 95 % intervals from a bootstrap of blocks of consecutive queries, paired between \
         policies; green and red say that the interval lies on one side of 1. Where fewer than ten queries lie beyond a \
         quantile, there is not enough data for it. Policies ran in turns, on the same arrivals and the same faults. A \
         right answer is one that says what the deployed model says.</p>{left_out}\
         <p class=\"note\">Raw data, logs and the configuration of every process are in the folder of this report.</p>"
    )
}
