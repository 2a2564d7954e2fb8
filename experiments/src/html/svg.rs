//! Axes and scales: the little that the pictures of a report need.

use std::fmt::Write;

/// A scale from values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    log: bool,
    values: (f64, f64),
    pixels: (f64, f64),
}

/// A picture with two axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) x: Scale,
    pub(super) y: Scale,
}

/// Where the plot lies within the picture.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// The width of every picture; the page scales it.
pub(super) const WIDTH: f64 = 960.0;

impl Scale {
    /// Even steps.
    pub(super) fn linear(values: (f64, f64), pixels: (f64, f64)) -> Self {
        Self { log: false, values: widened(values), pixels }
    }

    /// Even factors. Values must be above 0.
    pub(super) fn log((from, to): (f64, f64), pixels: (f64, f64)) -> Self {
        Self { log: true, values: widened((from.max(1e-6).ln(), to.max(1e-6).ln())), pixels }
    }

    /// Factors where the values span more than a few, or else steps from zero.
    pub(super) fn fitting((from, to): (f64, f64), pixels: (f64, f64)) -> Self {
        if to > 8.0 * from.max(1e-6) {
            Self::log((from * 0.9, to * 1.1), pixels)
        } else {
            Self::linear((0.0, to * 1.05), pixels)
        }
    }

    /// The pixel of a value; values beyond the scale lie at its end.
    pub(super) fn at(self, value: f64) -> f64 {
        let value = if self.log { value.max(1e-6).ln() } else { value };
        let ((from, to), (first, last)) = (self.values, self.pixels);
        first + ((value - from) / (to - from)).clamp(0.0, 1.0) * (last - first)
    }

    /// Round values that lie on the scale.
    pub(super) fn ticks(self) -> Vec<f64> {
        let (from, to) = if self.log { (self.values.0.exp(), self.values.1.exp()) } else { self.values };
        let within = |value: &f64| *value >= from * 0.999 && *value <= to * 1.001;
        if self.log {
            let decades = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
            let steps: &[f64] = if to / from > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
            return all.filter(within).collect();
        }
        let rough = (to - from) / 6.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(decade * 10.0);
        let first = (from / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(within).collect()
    }
}

fn widened((from, to): (f64, f64)) -> (f64, f64) {
    if to > from { (from, to) } else { (from, from + 1.0) }
}

impl Frame {
    /// A picture of this height; the scales are made for the space that is left between the axes' labels.
    pub(super) fn new(
        height: f64,
        x: impl FnOnce((f64, f64)) -> Scale,
        y: impl FnOnce((f64, f64)) -> Scale,
    ) -> Self {
        let (x, y) = (x((LEFT, WIDTH - RIGHT)), y((height - BOTTOM, TOP)));
        Self { width: WIDTH, height, x, y }
    }

    /// The picture's element around its content.
    pub(super) fn svg(&self, label: &str, content: &str) -> String {
        let Self { width, height, .. } = self;
        let label = super::text(label);
        format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">{content}</svg>")
    }

    /// The horizontal lines and numbers of the upright axis, with its unit.
    pub(super) fn upright(&self, unit: &str) -> String {
        let mut out = String::new();
        let (left, right) = (LEFT, self.width - RIGHT);
        for value in self.y.ticks() {
            let y = self.y.at(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            let (x, y) = (left - 7.0, y + 4.0);
            let _ = write!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", tick(value));
        }
        let middle = (TOP + self.height - BOTTOM) / 2.0;
        let _ = write!(
            out,
            "<text transform=\"translate(13 {middle}) rotate(-90)\" text-anchor=\"middle\">{unit}</text>"
        );
        out
    }

    /// The level axis with these marks and a title.
    pub(super) fn level(&self, marks: &[(f64, String)], title: &str) -> String {
        let mut out = String::new();
        let (bottom, right) = (self.height - BOTTOM, self.width - RIGHT);
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
        );
        for (value, label) in marks {
            let x = self.x.at(*value);
            let _ = write!(
                out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>",
                bottom + 4.0
            );
            let y = bottom + 17.0;
            let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>");
        }
        let (x, y) = ((LEFT + right) / 2.0, self.height - 6.0);
        let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{title}</text>");
        out
    }

    /// A line through points.
    pub(super) fn curve(&self, class: &str, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x.at(x), self.y.at(y));
        }
        format!("<path class=\"curve {class}\" d=\"{path}\"/>")
    }
}

/// A number on an axis.
pub(super) fn tick(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        1000.0.. if value % 1000.0 == 0.0 => format!("{}k", value / 1000.0),
        1.0.. => format!("{}", (value * 100.0).round() / 100.0),
        _ => format!("{}", (value * 1e4).round() / 1e4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_map_their_ends_and_ticks_are_round() {
        let linear = Scale::linear((0.0, 50.0), (100.0, 0.0));
        assert_eq!((linear.at(0.0), linear.at(50.0), linear.at(90.0)), (100.0, 0.0, 0.0));
        assert_eq!(linear.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        let log = Scale::log((1.0, 100.0), (0.0, 200.0));
        assert!((log.at(10.0) - 100.0).abs() < 1e-9);
        let ticks: Vec<String> = log.ticks().into_iter().map(tick).collect();
        assert_eq!(ticks, ["1", "2", "5", "10", "20", "50", "100"]);
        assert!(Scale::linear((3.0, 3.0), (0.0, 1.0)).at(3.0).is_finite(), "a single value has a scale too");
    }
}
