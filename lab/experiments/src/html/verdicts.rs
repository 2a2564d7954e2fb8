//! The table of policies: quantiles of the tail, cost, and comparison with the baseline.

use std::fmt::Write;

use crate::Row;

use super::{Palette, estimate, number, percent, text};

/// The table.
pub(super) fn table(rows: &[&Row], palette: &Palette) -> String {
    let mut out = String::from(
        "<div class=\"wide\"><table><tr><th>policy</th><th>p50, ms</th><th>p99, ms</th><th>p99.9, ms</th><th>gap, ms</th>\
         <th>gap of equal<br>over this gap</th><th>extra jobs</th><th>instances<br>busy</th><th>N</th></tr>",
    );
    for row in rows {
        let verdict = &row.verdict;
        let (class, name) = (palette.class(&row.policy), text(&row.name()));
        let _ = write!(out, "<tr><td class=\"name {class}\"><i></i><span>{name}</span></td>");
        for of in [verdict.p50_ms, verdict.p99_ms, verdict.p999_ms, verdict.gap_ms] {
            out += &estimate(of, "");
        }
        out += &ratio(row);
        let (extra, busy) = (percent(verdict.extra), percent(verdict.utilisation));
        let _ = write!(out, "<td>{extra}</td><td>{busy}</td><td>{}</td></tr>", verdict.count);
    }
    out + "</table></div>"
}

/// A policy is marked better or worse than the baseline only if the interval shows it.
fn ratio(row: &Row) -> String {
    match row.verdict.gap_ratio {
        None => "<td></td>".into(),
        Some(_) if row.policy == "equal" => "<td class=\"soft\">1</td>".into(),
        Some(of) => {
            let class = if of.low > 1.0 {
                "better"
            } else if of.high < 1.0 {
                "worse"
            } else {
                ""
            };
            let (value, low, high) = (number(of.value), number(of.low), number(of.high));
            format!("<td class=\"{class}\"><b>{value}</b><small>{low} to {high}</small></td>")
        }
    }
}
