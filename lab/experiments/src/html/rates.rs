//! A chart of each policy's tail over the load.

use std::fmt::Write;

use parm_charts::{Frame, Scale, tick};

use crate::Row;

use super::{Palette, text};

/// The chart; nothing if there is only one load.
pub(super) fn chart(rows: &[&Row], palette: &Palette) -> String {
    let rates = || rows.iter().map(|row| row.rate);
    let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    let known = || rows.iter().filter_map(|row| row.verdict.p999_ms);
    let (low, high) = (
        known().map(|of| of.low).fold(f64::INFINITY, f64::min),
        known().map(|of| of.high).fold(0.0, f64::max),
    );
    if least >= most || high == 0.0 {
        return String::new();
    }
    let margin = (most - least) * 0.04;
    let frame = Frame::new(
        300.0,
        |pixels| Scale::linear((least - margin, most + margin), pixels),
        |pixels| Scale::fitting((low, high), pixels),
    );
    let mut content = frame.upright("p99.9, ms");
    let mark = |row: &&Row| {
        let rate = tick(row.rate.round());
        let share = row.load.map_or(String::new(), |load| format!(" ({load})"));
        (row.rate, rate + &share)
    };
    let mut marks: Vec<(f64, String)> = rows.iter().map(mark).collect();
    marks.dedup_by(|a, b| a.0 == b.0);
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));
    marks.dedup_by(|a, b| a.0 == b.0);
    let share = if rows[0].load.is_some() { " (share of the deployed instances' capacity)" } else { "" };
    content += &frame.level(&marks, &format!("queries per second{share}"));
    for line in lines(rows) {
        let class = palette.class(&line[0].policy);
        let points = line.iter().filter_map(|row| Some((row.rate, row.verdict.p999_ms?)));
        content += &frame.curve(&class, points.clone().map(|(rate, of)| (rate, of.value)));
        for (rate, of) in points {
            let (x, low, high) = (frame.x.at(rate), frame.y.at(of.low), frame.y.at(of.high));
            let (y, name) = (frame.y.at(of.value), text(&line[0].name()));
            let _ = write!(
                content,
                "<g class=\"{class}\"><line class=\"whisker\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>\
                 <circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{name}: {:.1} ms</title></circle></g>",
                of.value
            );
        }
    }
    format!("<h4>p99.9 by rate</h4>{}{}", frame.svg("p99.9 by rate", &content), palette.legend(rows))
}

/// The rows of each policy and batch, by rate.
fn lines<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    let mut lines: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match lines.iter_mut().find(|line| line[0].policy == row.policy && line[0].batch == row.batch) {
            Some(line) => line.push(row),
            None => lines.push(vec![row]),
        }
    }
    lines.iter_mut().for_each(|line| line.sort_by(|a, b| a.rate.total_cmp(&b.rate)));
    lines
}
