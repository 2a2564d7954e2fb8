//! The report of an experiment as one self-contained HTML file: for each scenario and load the table of policies, a chart of
//! their quantiles as inline SVG, and the table of how queries ended.

use std::fmt::Write;

use parm_charts::{Frame, Scale, text};
use parm_loadgen::statistics::Estimate;
use parm_settings::BatchSize;

use crate::experiments::report::number;
use crate::experiments::{Case, Mode, Results, Row, RunRecord};

/// Problems that are listed individually.
const LISTED: usize = 12;

/// Returns the whole page.
pub(crate) fn page(results: &Results) -> String {
    let rows = &results.report.rows;
    let groups: Vec<&[Row]> = rows.chunk_by(|one, next| one.case.faces_the_same(&next.case)).collect();
    let palette = Palette::of(rows);
    let mut body = head(results) + &contents(&groups);
    let mut scenario = "";
    for group in &groups {
        if group[0].case.scenario != scenario {
            scenario = &group[0].case.scenario;
            body += &format!("<h2>Scenario {}</h2>", text(scenario));
        }
        body += &section(group, &palette);
    }
    body += &foot(results);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}</style></head><body>{body}</body></html>\n",
        text(&results.command),
        include_str!("report.css"),
    )
}

fn head(results: &Results) -> String {
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
        let (case, repeat) = (&run.name.case, run.name.repeat + 1);
        format!("<li>{}, {}, repeat {repeat}: {what}</li>", title(case), text(&case.policy))
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
fn contents(groups: &[&[Row]]) -> String {
    if groups.len() < 2 {
        return String::new();
    }
    let link = |group: &&[Row]| {
        let case = &group[0].case;
        format!("<li><a href=\"#{}\">{}</a></li>", anchor(case), title(case))
    };
    format!("<ul class=\"contents\">{}</ul>", groups.iter().map(link).collect::<String>())
}

/// Returns the title of the cells that are compared with this one.
fn title(case: &Case) -> String {
    let batch = match case.batch {
        BatchSize::Auto => String::new(),
        BatchSize::Server => ", batches of the server".to_owned(),
        BatchSize::Fixed(size) => format!(", batches of {size}"),
    };
    let load = case.load.map_or_else(|| case.intensity(), |load| format!("load {load}"));
    let frontends =
        if case.frontends > 1 { format!(", {} frontends", case.frontends) } else { String::new() };
    format!("{} at {load}{batch}{frontends}", text(&case.scenario))
}

fn anchor(case: &Case) -> String {
    let name = format!("{}-{}-{}-{}", case.scenario, case.intensity(), case.batch, case.frontends);
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// The section of one scenario, load and batch size, with the policies that are compared.
fn section(rows: &[Row], palette: &Palette) -> String {
    let case = &rows[0].case;
    let (id, title) = (anchor(case), title(case));
    let rate = match case.closed {
        None => format!("{:.0} queries per second", case.rate),
        Some(_) => "a closed load".to_owned(),
    };
    format!(
        "<h3 id=\"{id}\">{title} <span class=\"soft\">({rate})</span></h3>{}{}{}",
        verdicts(rows, palette),
        spectrum(rows, palette),
        outcomes(rows),
    )
}

/// The table of policies: quantiles of the tail, cost, and comparison with the baseline.
fn verdicts(rows: &[Row], palette: &Palette) -> String {
    let mut out = String::from(
        "<div class=\"wide\"><table><tr><th>policy</th><th>p50, ms</th><th>p99, ms</th><th>p99.9, ms</th><th>gap, ms</th>\
         <th>gap of equal<br>over this gap</th><th>extra jobs</th><th>instances<br>busy</th><th>N</th></tr>",
    );
    for row in rows {
        let verdict = &row.verdict;
        let (class, name) = (palette.class(&row.case.policy), text(&row.case.name()));
        let _ = write!(out, "<tr><td class=\"name {class}\"><i></i><span>{name}</span></td>");
        for of in [verdict.p50_ms, verdict.p99_ms, verdict.p999_ms, verdict.gap_ms] {
            out += &of.map_or("<td class=\"none\">not enough data</td>".into(), |of| estimate(of, ""));
        }
        // A policy is marked better or worse than the baseline only if the interval shows it.
        out += &match row.verdict.gap_ratio {
            None => "<td></td>".into(),
            Some(_) if row.case.policy == "equal" => "<td class=\"soft\">1</td>".into(),
            Some(of) if of.low > 1.0 => estimate(of, "better"),
            Some(of) if of.high < 1.0 => estimate(of, "worse"),
            Some(of) => estimate(of, ""),
        };
        let (extra, busy) = (percent(verdict.extra), percent(verdict.utilisation));
        let _ = write!(out, "<td>{extra}</td><td>{busy}</td><td>{}</td></tr>", verdict.count);
    }
    out + "</table></div>"
}

/// All quantiles of the policies in one chart, in which each further nine has the same width; nothing if no policy has data.
fn spectrum(rows: &[Row], palette: &Palette) -> String {
    let points = || rows.iter().flat_map(|row| &row.spectrum);
    let farthest = points().map(|point| point.one_in).fold(0.0, f64::max);
    if farthest < 10.0 {
        return String::new();
    }
    let least = points().map(|point| point.ms).fold(f64::INFINITY, f64::min);
    let most = points().map(|point| point.ms).fold(0.0, f64::max);
    // The axis begins at the median: the upper half is of interest.
    let frame = Frame::new(
        320.0,
        |pixels| Scale::log((2.0, farthest), pixels),
        |pixels| Scale::fitting((least, most), pixels),
    );
    let curves = rows.iter().map(|row| {
        let points = row.spectrum.iter().filter(|point| point.one_in >= 1.99);
        frame.curve(&palette.class(&row.case.policy), points.map(|point| (point.one_in, point.ms)))
    });
    let marks = [
        (2.0, "p50"),
        (4.0, "p75"),
        (10.0, "p90"),
        (100.0, "p99"),
        (1e3, "p99.9"),
        (1e4, "p99.99"),
        (1e5, "p99.999"),
    ];
    let marks = marks.into_iter().filter(|(one_in, _)| *one_in <= farthest);
    let marks: Vec<(f64, String)> = marks.map(|(one_in, name)| (one_in, name.to_owned())).collect();
    let content = frame.upright("ms") + &frame.level(&marks, "quantile") + &curves.collect::<String>();
    let entry = |row: &Row| {
        let (class, name) = (palette.class(&row.case.policy), text(&row.case.policy));
        format!("<span class=\"{class}\"><i></i>{name}</span>")
    };
    let legend: String = rows.iter().map(entry).collect();
    let svg = frame.svg("latency by quantile", &content);
    format!("<h4>Latency by quantile</h4>{svg}<p class=\"legend\">{legend}</p>")
}

/// The table of outcomes, and of how many answers of each kind were right.
fn outcomes(rows: &[Row]) -> String {
    let mut out = String::from(
        "<h4>How queries ended</h4><div class=\"wide\"><table><tr><th>policy</th><th>exact</th><th>hedged</th>\
         <th>reconstructed</th><th>backup</th><th>stand-in</th><th>default</th><th>failed</th><th>wrong answers</th></tr>",
    );
    for row in rows {
        let (shares, right) = (&row.verdict.shares, &row.verdict.accuracy);
        let _ = write!(out, "<tr><td>{}</td>", text(&row.case.name()));
        for (share, right) in shares.each().into_iter().zip(right.each()) {
            let right = right.filter(|_| share > 0.0);
            let right =
                right.map_or(String::new(), |right| format!("<small>{} right</small>", percent(right)));
            let _ = write!(out, "<td>{}{right}</td>", percent(share));
        }
        let _ = write!(out, "<td>{}</td></tr>", percent(row.verdict.wrong));
    }
    out + "</table></div>"
}

fn foot(results: &Results) -> String {
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

/// The colour of every policy, the same on the whole page.
struct Palette(Vec<String>);

const COLOURS: usize = 10;

impl Palette {
    fn of(rows: &[Row]) -> Self {
        let mut names: Vec<String> = Vec::new();
        for row in rows {
            if !names.contains(&row.case.policy) {
                names.push(row.case.policy.clone());
            }
        }
        Self(names)
    }

    fn class(&self, policy: &str) -> String {
        let place = self.0.iter().position(|name| name == policy).unwrap_or(0);
        format!("c{}", place % COLOURS)
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        value if value < 99.95 => format!("{value:.2} %"),
        value if value < 99.995 => format!("{value:.3} %"),
        _ => "100 %".into(),
    }
}

fn estimate(of: Estimate, class: &str) -> String {
    let (value, low, high) = (number(of.value), number(of.low), number(of.high));
    format!("<td class=\"{class}\"><b>{value}</b><small>{low} to {high}</small></td>")
}

#[cfg(test)]
mod tests {
    use crate::simulator::Quiet;

    use super::*;
    use crate::experiments::{Config, Experiment};

    #[test]
    fn report_shows_every_policy_and_is_self_contained() {
        let text = "policies = [\"equal\", \"hedge\"]\nscenarios = [\"A\", \"hang\"]\nloads = [0.3, 0.6]\n\
                    queries = 20000\nwarm_up = 1000";
        let experiment = Experiment::new(Config::parse(text).unwrap()).unwrap();
        let page = page(&Results {
            mode: Mode::Simulation,
            command: "parm experiment <file> --simulate".into(),
            began: 0,
            machine: "none".into(),
            ended_early: None,
            report: experiment.run(2, &Quiet, None).unwrap(),
            runs: Vec::new(),
        });
        for part in ["<h2>Scenario A</h2>", "A at load 0.3", "hang at load 0.6", "How queries ended"] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(page.contains("parm experiment &lt;file&gt; --simulate"), "text is escaped");
        for foreign in ["http://", "https://", "<script", "<link", "@import", "NaN", "inf "] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("class=\"curve").count(), 2 * 2 * 2, "one curve per policy and chart");
    }
}
