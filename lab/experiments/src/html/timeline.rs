//! The first repeat over time: the slowest query of every stretch, policy by policy, and the faults.

use std::fmt::Write;

use parm_charts::{Scale, WIDTH, tick};

use crate::{Band, Kind, Row, Timeline};

use super::{Palette, text};

const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 14.0;
/// Height of a policy's strip, of the gap between two, and of an instance's row of faults.
const STRIP: f64 = 64.0;
const BETWEEN: f64 = 22.0;
const ROW: f64 = 5.0;
/// With more bands than this the strips are not shaded: they would be covered.
const SHADED: usize = 24;

/// The picture.
pub(super) fn chart(rows: &[&Row], palette: &Palette) -> String {
    let Some(longest) = rows.iter().max_by(|a, b| a.timeline.to_s.total_cmp(&b.timeline.to_s)) else {
        return String::new();
    };
    let timeline = &longest.timeline;
    let x = Scale::linear((timeline.from_s, timeline.to_s), (LEFT, RIGHT));
    let slowest = || rows.iter().flat_map(|row| &row.timeline.slowest_ms).copied().filter(|ms| *ms > 0.0);
    let (least, most) = (slowest().fold(f64::INFINITY, f64::min), slowest().fold(0.0, f64::max));
    if most == 0.0 {
        return String::new();
    }
    let faults = rows.iter().map(|row| &row.timeline.faults).max_by_key(|faults| faults.len());
    let faults = faults.map_or(&[][..], Vec::as_slice);
    let bottom = rows.len() as f64 * (STRIP + BETWEEN);
    let mut out = if faults.len() <= SHADED { shades(faults, x, bottom) } else { String::new() };
    for (index, row) in rows.iter().enumerate() {
        let top = index as f64 * (STRIP + BETWEEN) + BETWEEN;
        let y = Scale::fitting((least, most), (top + STRIP, top));
        out += &strip(row, palette, x, y);
    }
    let (bands, height) = bands(faults, x, bottom + 8.0);
    out += &bands;
    let axis = bottom + 8.0 + height;
    out += &seconds(timeline, x, axis);
    let svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"latency over time\">{out}</svg>",
        axis + 38.0
    );
    let crowded = if faults.is_empty() && !rows[0].timeline.faults.is_empty() { "" } else { &legend(faults) };
    format!("<h4>Slowest queries over time, first repeat</h4>{svg}{crowded}")
}

fn strip(row: &Row, palette: &Palette, x: Scale, y: Scale) -> String {
    let Timeline { from_s, to_s, slowest_ms, .. } = &row.timeline;
    let floor = y.at(0.0);
    let mut out = String::new();
    for value in y.ticks().into_iter().rev().step_by(2).take(3) {
        let at = y.at(value);
        let _ =
            write!(out, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
        let _ = write!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 7.0,
            at + 4.0,
            tick(value)
        );
    }
    let mut path = String::new();
    for (index, ms) in slowest_ms.iter().enumerate().filter(|(_, ms)| **ms > 0.0) {
        let middle = (index as f64 + 0.5) / slowest_ms.len() as f64;
        let at = x.at(from_s + middle * (to_s - from_s));
        let _ = write!(path, "M{at:.1} {floor:.1}V{:.1}", y.at(*ms));
    }
    let (class, name) = (palette.class(&row.policy), text(&row.name()));
    let _ = write!(out, "<path class=\"spikes {class}\" d=\"{path}\"/>");
    let _ = write!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>"
    );
    let _ = write!(
        out,
        "<text class=\"strong\" x=\"{}\" y=\"{:.1}\">{name}, ms</text>",
        LEFT,
        y.at(f64::INFINITY) - 6.0
    );
    out
}

fn shades(faults: &[Band], x: Scale, bottom: f64) -> String {
    let shade = |band: &Band| {
        let (from, to) = (x.at(band.from_s), x.at(band.to_s));
        let (class, width) = (class(band.kind), to - from);
        format!(
            "<rect class=\"shade {class}\" x=\"{from:.1}\" y=\"0\" width=\"{width:.1}\" height=\"{bottom}\"/>"
        )
    };
    faults.iter().map(shade).collect()
}

/// A row for every instance with a fault. Returns their height, too.
fn bands(faults: &[Band], x: Scale, top: f64) -> (String, f64) {
    let Some(last) = faults.iter().map(|band| band.instance).max() else { return (String::new(), 0.0) };
    let height = f64::from(last + 1) * ROW;
    let mut out = String::new();
    for band in faults {
        let (from, to) = (x.at(band.from_s), x.at(band.to_s));
        let (class, y, width) =
            (class(band.kind), top + f64::from(band.instance) * ROW, (to - from).max(0.5));
        let _ = write!(
            out,
            "<rect class=\"band {class}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{}\"><title>instance {} {} \
             from {:.2} s to {:.2} s</title></rect>",
            ROW - 1.0,
            band.instance,
            name(band.kind),
            band.from_s,
            band.to_s
        );
    }
    let (at, y) = (LEFT - 7.0, top + height / 2.0 + 4.0);
    let _ = write!(out, "<text x=\"{at}\" y=\"{y:.1}\" text-anchor=\"end\">faults</text>");
    (out, height)
}

fn seconds(timeline: &Timeline, x: Scale, top: f64) -> String {
    let mut out = String::new();
    for value in x.ticks() {
        let (at, y) = (x.at(value), top + 16.0);
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{top}\" y2=\"{}\"/>",
            top + 4.0
        );
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", tick(value));
    }
    let (middle, y) = ((LEFT + RIGHT) / 2.0, top + 33.0);
    let from = timeline.from_s;
    let _ = write!(out, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{top}\" y2=\"{top}\"/>");
    let _ = write!(
        out,
        "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">seconds (counted from {from:.1} s on: before that is warm-up)</text>"
    );
    out
}

fn legend(faults: &[Band]) -> String {
    let kinds = [Kind::Slow, Kind::Hangs, Kind::CutOff, Kind::Down, Kind::Wrong];
    let seen = kinds.into_iter().filter(|kind| faults.iter().any(|band| band.kind == *kind));
    let entry = |kind| format!("<span class=\"{}\"><i></i>an instance {}</span>", class(kind), name(kind));
    let entries: String = seen.map(entry).collect();
    if entries.is_empty() { String::new() } else { format!("<p class=\"legend\">{entries}</p>") }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Slow => "slow",
        Kind::Hangs => "hangs",
        Kind::CutOff => "cut_off",
        Kind::Down => "down",
        Kind::Wrong => "wrong",
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Slow => "is slow",
        Kind::Hangs => "hangs",
        Kind::CutOff => "is cut off",
        Kind::Down => "is gone",
        Kind::Wrong => "answers wrongly",
    }
}
