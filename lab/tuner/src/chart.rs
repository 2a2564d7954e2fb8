//! The trade-off as a chart: p99.9 against accuracy and against extra executions, for every candidate.

use std::fmt::Write;

use parm_charts::{Area, Frame, Scale, class, document, text, tick};

use crate::Report;
use crate::report::Point;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 400.0;
const PANEL: f64 = 390.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 340.0;

/// Policies in the order of their colours.
const POLICIES: [&str; 7] =
    ["equal", "hedge", "replicate", "parm", "parm+", "approximate-backup", "stand-in"];

impl Report {
    /// Returns the trade-off as an SVG.
    pub fn to_svg(&self) -> String {
        let panels = [
            Panel {
                left: 60.0,
                name: "accuracy of all answers, %",
                of: |point| 100.0 * point.score.accuracy,
            },
            Panel { left: 540.0, name: "extra executions, %", of: |point| 100.0 * point.score.extra },
        ];
        let drawn: String = panels.iter().map(|panel| panel.draw(self)).collect();
        document(WIDTH, HEIGHT, &(self.legend() + &drawn))
    }

    fn legend(&self) -> String {
        let mut out = String::new();
        let mut x = 60.0;
        let shown = POLICIES.iter().filter(|policy| self.tried.iter().any(|point| point.policy == **policy));
        for policy in shown {
            let _ = write!(
                out,
                "<circle class=\"dot {}\" cx=\"{x:.1}\" cy=\"20\" r=\"5\"/><text x=\"{:.0}\" y=\"24\">{}</text>",
                colour(policy),
                x + 10.0,
                text(policy)
            );
            x += 34.0 + 7.0 * policy.len() as f64;
        }
        let _ = write!(out, "<text x=\"{x:.0}\" y=\"24\">ring: chosen</text>");
        out
    }
}

struct Panel {
    left: f64,
    name: &'static str,
    of: fn(&Point) -> f64,
}

impl Panel {
    fn draw(&self, report: &Report) -> String {
        let latencies = bounds(report.tried.iter().map(|point| point.score.p999_ms.max(1e-3)));
        let values = bounds(report.tried.iter().map(self.of));
        let margin = ((values.1 - values.0) * 0.06).max(0.05);
        let area = Area { left: self.left, right: self.left + PANEL, top: TOP, bottom: BOTTOM };
        let frame = Frame::within(
            area,
            |pixels| Scale::log((latencies.0 / 1.08, latencies.1 * 1.08), pixels),
            |pixels| Scale::linear((values.0 - margin, values.1 + margin), pixels),
        );
        let marks: Vec<(f64, String)> =
            frame.x.ticks().into_iter().map(|value| (value, tick(value))).collect();
        let mut out = frame.heading(self.name) + &frame.upright("") + &frame.level(&marks, "p99.9, ms");
        let place = |point: &Point| (point.score.p999_ms, (self.of)(point));
        for point in &report.tried {
            let title = format!("{} {}: p99.9 {:.1} ms", point.policy, point.label, point.score.p999_ms);
            out += &frame.dot(&colour(&point.policy), place(point), &title);
        }
        let chosen = report.winner().and_then(|winner| {
            report.tried.iter().find(|point| point.policy == winner.policy && point.label == winner.label)
        });
        if let Some((across, up)) = chosen.map(place) {
            let (x, y) = (frame.x.at(across), frame.y.at(up));
            let _ = write!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/>"
            );
        }
        out
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

fn colour(policy: &str) -> String {
    class(POLICIES.iter().position(|name| *name == policy).unwrap_or(0))
}
