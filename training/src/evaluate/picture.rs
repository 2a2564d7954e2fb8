//! Draws the curves: the score of the most confident reconstructions, and of all answers as losses grow.

use std::fmt::Write;

use parm_charts::{Area, Frame, Scale, class, document, text, tick};

use super::Table;
use super::table::Entry;

/// A panel with its labels.
const PANEL: f64 = 550.0;
const HEIGHT: f64 = 460.0;
/// Width of the legend.
const LEGEND: f64 = 260.0;
/// Distance between two names in the legend.
const LINE: f64 = 24.0;
/// The highest fraction of unavailable predictions in the picture of A_o.
const MOST_UNAVAILABLE: f64 = 0.3;

/// An SVG picture of a table of accuracies. Errors have no common scale and are omitted.
pub fn picture(table: &Table) -> String {
    let entries: Vec<&Entry> = table.entries.iter().filter(|entry| entry.report.metric.ascends()).collect();
    let kept = |entry: &Entry| -> Curve {
        entry.report.confidence.iter().map(|at| (100.0 * at.kept, 100.0 * at.score)).collect()
    };
    let overall = |entry: &Entry| -> Curve {
        let fractions = (0..=30).map(|step| MOST_UNAVAILABLE * f64::from(step) / 30.0);
        fractions.map(|f| (100.0 * f, 100.0 * entry.report.overall_at(f))).collect()
    };
    let surest = Panel {
        heading: "reconstructions alone (A_d), the most confident kept",
        across: "kept, %",
        most: 100.0,
        curves: entries.iter().map(|entry| kept(entry)).collect(),
    };
    let all = Panel {
        heading: "all answers (A_o)",
        across: "predictions unavailable, %",
        most: 100.0 * MOST_UNAVAILABLE,
        curves: entries.iter().map(|entry| overall(entry)).collect(),
    };
    let height = HEIGHT.max(LINE * (entries.len() + 1) as f64);
    let content = surest.draw(0.0) + &all.draw(PANEL) + &legend(&entries);
    document(2.0 * PANEL + LEGEND, height, &content)
}

type Curve = Vec<(f64, f64)>;

/// A line and a name per entry, in the panels' order and colours.
fn legend(entries: &[&Entry]) -> String {
    let mut out = String::new();
    for (at, entry) in entries.iter().enumerate() {
        let (x, y) = (2.0 * PANEL, LINE * (at + 1) as f64);
        let _ = write!(
            out,
            "<path class=\"curve {}\" d=\"M{} {y}h20\"/><text x=\"{}\" y=\"{}\">{}, k={}</text>",
            class(at),
            x + 8.0,
            x + 36.0,
            y + 4.0,
            text(&entry.name),
            entry.report.code.k
        );
    }
    out
}

struct Panel {
    heading: &'static str,
    across: &'static str,
    most: f64,
    curves: Vec<Curve>,
}

impl Panel {
    fn draw(&self, left: f64) -> String {
        let values = self.curves.iter().flatten().map(|point| point.1);
        let least = values.fold(100.0, f64::min);
        let bottom = ((least - 1.0) / 5.0).floor().max(0.0) * 5.0;
        let area = Area { left: left + 60.0, right: left + PANEL - 16.0, top: 40.0, bottom: HEIGHT - 48.0 };
        let frame = Frame::within(
            area,
            |pixels| Scale::linear((0.0, self.most), pixels),
            |pixels| Scale::linear((bottom, 100.0), pixels),
        );
        let marks: Vec<(f64, String)> =
            frame.x.ticks().into_iter().map(|value| (value, tick(value))).collect();
        let axes = frame.heading(self.heading) + &frame.upright("%") + &frame.level(&marks, self.across);
        let curve = |(at, points): (usize, &Curve)| frame.curve(&class(at), points.iter().copied());
        axes + &self.curves.iter().enumerate().map(curve).collect::<String>()
    }
}
