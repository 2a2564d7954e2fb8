//! The trade-off as a picture: p99.9 against accuracy, and p99.9 against extra executions, everything that was tried.
//!
//! An SVG of our own: two panels of dots need no library, and the file is readable wherever it is opened.

use std::fmt::Write;

use crate::Report;
use crate::report::Point;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 400.0;
const PANEL: f64 = 390.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 340.0;

/// Policies in the order of their colours: readable on white and on black, and apart for the colour-blind.
const COLOURS: [(&str, &str); 6] = [
    ("equal", "#8a8f98"),
    ("hedge", "#e69f00"),
    ("replicate", "#cc79a7"),
    ("parm", "#0090d0"),
    ("parm+", "#009e73"),
    ("approximate-backup", "#d55e00"),
];

impl Report {
    /// The trade-off as an SVG.
    pub fn to_svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<style>svg{{background:#fff;color:#222}}@media(prefers-color-scheme:dark){{svg{{\
             background:#16181d;color:#ddd}}}}text{{fill:currentColor}}.axis{{stroke:currentColor;stroke-opacity:.25}}\
             </style>\n"
        );
        let panels = [
            Panel {
                left: 60.0,
                name: "accuracy of all answers, %",
                of: |point| 100.0 * point.score.accuracy,
            },
            Panel { left: 540.0, name: "extra executions, %", of: |point| 100.0 * point.score.extra },
        ];
        self.legend(&mut svg);
        panels.iter().for_each(|panel| panel.draw(self, &mut svg));
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let shown =
            COLOURS.iter().filter(|(policy, _)| self.tried.iter().any(|point| point.policy == *policy));
        let mut x = 60.0;
        for (policy, colour) in shown {
            circle(svg, (x, 20.0), 5.0, colour, 0.9);
            let _ = writeln!(svg, "<text x=\"{:.0}\" y=\"24\">{policy}</text>", x + 10.0);
            x += 34.0 + 7.0 * policy.len() as f64;
        }
        let _ = writeln!(svg, "<text x=\"{x:.0}\" y=\"24\">ring: chosen</text>");
    }
}

struct Panel {
    left: f64,
    name: &'static str,
    of: fn(&Point) -> f64,
}

impl Panel {
    fn draw(&self, report: &Report, svg: &mut String) {
        let x = Axis::logarithmic(report.tried.iter().map(|point| point.score.p999_ms));
        let y = Axis::linear(report.tried.iter().map(self.of));
        let place = |point: &Point| {
            let across = self.left + PANEL * x.share(point.score.p999_ms);
            (across, BOTTOM - (BOTTOM - TOP) * y.share((self.of)(point)))
        };
        let _ = writeln!(svg, "<text x=\"{:.0}\" y=\"{:.0}\">{}</text>", self.left, TOP - 14.0, self.name);
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">p99.9, ms</text>",
            self.left + PANEL,
            BOTTOM + 36.0
        );
        for tick in x.ticks() {
            let at = self.left + PANEL * x.share(tick);
            line(svg, (at, TOP), (at, BOTTOM));
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                BOTTOM + 18.0,
                number(tick)
            );
        }
        for tick in y.ticks() {
            let at = BOTTOM - (BOTTOM - TOP) * y.share(tick);
            line(svg, (self.left, at), (self.left + PANEL, at));
            let _ = writeln!(
                svg,
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                self.left - 6.0,
                at + 4.0,
                number(tick)
            );
        }
        for point in &report.tried {
            circle(svg, place(point), 4.0, colour(&point.policy), 0.55);
            // A title is what a browser shows where the pointer rests.
            let title = format!("{} {}: p99.9 {:.1} ms", point.policy, point.label, point.score.p999_ms);
            let end = svg.trim_end().len() - "/>".len();
            svg.truncate(end);
            let _ = writeln!(svg, "><title>{title}</title></circle>");
        }
        let chosen = report.winner().and_then(|winner| {
            report.tried.iter().find(|point| point.policy == winner.policy && point.label == winner.label)
        });
        if let Some((across, up)) = chosen.map(place) {
            let _ = writeln!(
                svg,
                "<circle cx=\"{across:.1}\" cy=\"{up:.1}\" r=\"9\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\"/>"
            );
        }
    }
}

/// From values to a share of an axis, 0 to 1.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values);
        let margin = ((high - low) * 0.06).max(0.05);
        Self { low: low - margin, high: high + margin, logarithmic: false }
    }

    fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values.map(|value| value.max(1e-3)));
        Self { low: low / 1.08, high: high * 1.08, logarithmic: true }
    }

    fn share(&self, value: f64) -> f64 {
        let of = |value: f64| if self.logarithmic { value.max(1e-3).ln() } else { value };
        (of(value) - of(self.low)) / (of(self.high) - of(self.low))
    }

    /// Round numbers on the axis: 1, 2 and 5 times powers of ten, or even steps of such.
    fn ticks(&self) -> Vec<f64> {
        let round = |exponent: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(exponent));
        if self.logarithmic && self.high / self.low > 3.0 {
            let all = (-3..7).flat_map(round);
            return all.filter(|tick| (self.low..=self.high).contains(tick)).collect();
        }
        let range = self.high - self.low;
        let step = (-4..7).flat_map(round).find(|step| range / step <= 6.0).unwrap_or(range);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|tick| *tick <= self.high).take(12).collect()
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let all = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if all.0.is_finite() && all.1.is_finite() { all } else { (0.0, 1.0) }
}

fn colour(policy: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| *name == policy).map_or("#8a8f98", |(_, colour)| colour)
}

fn circle(svg: &mut String, (x, y): (f64, f64), radius: f64, colour: &str, opacity: f64) {
    let _ = writeln!(
        svg,
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\" fill-opacity=\"{opacity}\"/>"
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn number(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    if rounded == 0.0 { "0".into() } else { format!("{rounded}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        assert_eq!(Axis::linear([0.0, 100.0].into_iter()).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(Axis::logarithmic([20.0, 300.0].into_iter()).ticks(), [20.0, 50.0, 100.0, 200.0]);
        for values in [[5.0, 5.0], [0.0, 1e-9], [90.1, 93.2]] {
            let axis = Axis::linear(values.into_iter());
            let ticks = axis.ticks();
            assert!((1..=8).contains(&ticks.len()), "{values:?}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=1.0).contains(&axis.share(*tick))));
        }
    }
}
