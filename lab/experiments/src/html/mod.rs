//! The report of an experiment as one self-contained HTML file: tables, and charts as inline SVG.
//!
//! `section` combines the content of one scenario and load; `verdicts` is its table, `spectrum`, `timeline` and
//! `outcomes` its charts, and `rates` compares all loads of a scenario. `parm_charts` draws axes and lines.

mod outcomes;
mod preamble;
mod rates;
mod section;
mod spectrum;
mod timeline;
mod verdicts;

use parm_charts::text;
use parm_loadgen::statistics::Estimate;

use crate::Row;

use crate::Results;

/// Returns the whole page.
pub fn page(results: &Results) -> String {
    let palette = Palette::of(&results.report.rows);
    let groups = section::groups(&results.report.rows);
    let mut body = preamble::head(results);
    body += &preamble::contents(&groups);
    let mut scenario = "";
    for group in &groups {
        if group[0].scenario != scenario {
            scenario = &group[0].scenario;
            let rows: Vec<&Row> = results.report.rows.iter().filter(|row| row.scenario == scenario).collect();
            body += &format!("<h2>Scenario {}</h2>", text(scenario));
            body += &rates::chart(&rows, &palette);
        }
        body += &section::section(group, &palette);
    }
    body += &preamble::foot(results);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{}</style></head><body>{body}</body></html>\n",
        text(&results.command),
        include_str!("style.css"),
    )
}

/// The colour of every policy, the same in all charts.
pub(crate) struct Palette(Vec<String>);

/// Number of colours in the style sheet.
const COLOURS: usize = 10;

impl Palette {
    fn of(rows: &[Row]) -> Self {
        let mut names: Vec<String> = Vec::new();
        for row in rows {
            if !names.contains(&row.policy) {
                names.push(row.policy.clone());
            }
        }
        Self(names)
    }

    /// Returns the class of a policy's lines and marks.
    pub(crate) fn class(&self, policy: &str) -> String {
        let place = self.0.iter().position(|name| name == policy).unwrap_or(0);
        format!("c{}", place % COLOURS)
    }

    /// Returns the legend of a chart's policies.
    pub(crate) fn legend(&self, rows: &[&Row]) -> String {
        let mut seen: Vec<&str> = Vec::new();
        for row in rows {
            if !seen.contains(&row.policy.as_str()) {
                seen.push(&row.policy);
            }
        }
        let entry =
            |policy: &&str| format!("<span class=\"{}\"><i></i>{}</span>", self.class(policy), text(policy));
        format!("<p class=\"legend\">{}</p>", seen.iter().map(entry).collect::<String>())
    }
}

/// Formats three digits, the precision of a latency.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats a share in percent.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        value if value < 99.95 => format!("{value:.2} %"),
        value if value < 99.995 => format!("{value:.3} %"),
        _ => "100 %".into(),
    }
}

/// Formats an estimate with the bounds of its interval, or that there is none.
pub(crate) fn estimate(of: Option<Estimate>, unit: &str) -> String {
    match of {
        None => "<td class=\"none\">not enough data</td>".into(),
        Some(Estimate { value, low, high }) => format!(
            "<td><b>{}</b>{unit}<small>{} to {}</small></td>",
            number(value),
            number(low),
            number(high)
        ),
    }
}

#[cfg(test)]
mod tests {
    use parm_simulator::Quiet;

    use crate::{Config, Experiment};

    use super::*;
    use crate::Mode;

    fn results(text: &str) -> Results {
        let experiment = Experiment::new(Config::parse(text).unwrap()).unwrap();
        Results {
            mode: Mode::Simulation,
            command: "parm experiment <file> --simulate".into(),
            began: 0,
            machine: "none".into(),
            ended_early: None,
            report: experiment.run(2, &Quiet).unwrap(),
            runs: Vec::new(),
        }
    }

    #[test]
    fn report_shows_every_policy_and_is_self_contained() {
        let page = page(&results(
            "policies = [\"equal\", \"hedge\"]\nscenarios = [\"A\", \"hang\"]\nloads = [0.3, 0.6]\nqueries = 20000\nwarm_up = 1000",
        ));
        for part in
            ["<h2>Scenario A</h2>", "A at load 0.3", "hang at load 0.6", "p99.9 by rate", "an instance hangs"]
        {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(page.contains("parm experiment &lt;file&gt; --simulate"), "text is escaped");
        for foreign in ["http://", "https://", "<script", "<link", "@import", "NaN", "inf "] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert_eq!(
            page.matches("class=\"curve").count(),
            2 * 2 * 2 + 2 * 2,
            "one curve per policy and chart"
        );
    }

    #[test]
    fn insufficient_data_is_stated_and_not_drawn() {
        let page = page(&results(
            "policies = [\"equal\"]\nscenarios = [\"clean\"]\nloads = [0.3]\nqueries = 200\nwarm_up = 100",
        ));
        assert!(page.contains("not enough data"));
    }
}
