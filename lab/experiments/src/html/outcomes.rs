//! Charts of outcomes, and of how many answers of each kind were right.

use std::fmt::Write;

use parm_charts::{Frame, Scale, tick};

use crate::{Row, Verdict};

use super::{percent, text};

/// Outcomes other than the deployed model's own answer in time, with their classes.
const KINDS: [&str; 6] = ["hedged", "reconstructed", "stand-in", "backup", "default", "failed"];

/// The chart of all outcomes but `exact`, and the table of all outcomes.
pub(super) fn chart(rows: &[&Row]) -> String {
    format!("<h4>How queries ended</h4>{}{}", bars(rows), table(rows))
}

fn shares(verdict: &Verdict) -> [f64; 6] {
    let of = &verdict.shares;
    [of.hedged, of.reconstructed, of.stand_in, of.backup, of.default, of.rejected]
}

/// Bars of the outcomes other than `exact`, which would be too small as parts of all queries.
fn bars(rows: &[&Row]) -> String {
    let most = rows.iter().map(|row| shares(&row.verdict).iter().sum::<f64>()).fold(0.0, f64::max);
    if most == 0.0 {
        return "<p class=\"note\">Every query was answered by the deployed model itself.</p>".into();
    }
    let height = 52.0 + 22.0 * rows.len() as f64;
    let frame = Frame::new(
        height,
        |(first, last)| Scale::linear((0.0, 100.0 * most), (first + 110.0, last)),
        |pixels| Scale::linear((0.0, rows.len() as f64), (pixels.1, pixels.0)),
    );
    let marks: Vec<(f64, String)> = frame.x.ticks().into_iter().map(|value| (value, tick(value))).collect();
    let mut content = frame.level(&marks, "% of the queries that were not answered by their first job");
    for (index, row) in rows.iter().enumerate() {
        let y = frame.y.at(index as f64) + 3.0;
        let (x, middle) = (frame.x.at(0.0) - 8.0, y + 12.0);
        let name = text(&row.name());
        let _ = write!(
            content,
            "<text class=\"strong\" x=\"{x:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>"
        );
        let mut from = 0.0;
        for (kind, share) in KINDS.iter().zip(shares(&row.verdict)).filter(|(_, share)| *share > 0.0) {
            let (left, right) = (frame.x.at(from * 100.0), frame.x.at((from + share) * 100.0));
            let width = (right - left).max(0.5);
            let _ = write!(
                content,
                "<rect class=\"part {kind}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"15\"><title>{kind} {}</title></rect>",
                percent(share)
            );
            from += share;
        }
    }
    let seen =
        KINDS.iter().enumerate().filter(|(i, _)| rows.iter().any(|row| shares(&row.verdict)[*i] > 0.0));
    let legend: String =
        seen.map(|(_, kind)| format!("<span class=\"{kind}\"><i></i>{kind}</span>")).collect();
    format!("{}<p class=\"legend\">{legend}</p>", frame.svg("how queries ended", &content))
}

fn table(rows: &[&Row]) -> String {
    let mut out = String::from(
        "<div class=\"wide\"><table><tr><th>policy</th><th>exact</th><th>hedged</th><th>reconstructed</th><th>stand-in</th>\
         <th>backup</th><th>default</th><th>failed</th><th>wrong answers</th></tr>",
    );
    for row in rows {
        let (shares, right) = (&row.verdict.shares, &row.verdict.accuracy);
        let cell = |share: f64, right: Option<f64>| match right {
            Some(right) if share > 0.0 => {
                format!("<td>{}<small>{} right</small></td>", percent(share), percent(right))
            }
            _ => format!("<td>{}</td>", percent(share)),
        };
        let _ = write!(out, "<tr><td>{}</td>", text(&row.name()));
        out += &cell(shares.exact, right.exact);
        out += &cell(shares.hedged, right.hedged);
        out += &cell(shares.reconstructed, right.reconstructed);
        out += &cell(shares.stand_in, right.stand_in);
        out += &cell(shares.backup, right.backup);
        out += &cell(shares.default, right.default);
        out += &cell(shares.rejected, None);
        let _ = write!(out, "<td>{}</td></tr>", percent(row.verdict.wrong));
    }
    out + "</table></div>"
}
