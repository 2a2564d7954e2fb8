//! A picture with two axes.

use std::fmt::Write;

use crate::{Scale, text, tick};

/// The area of a picture that holds its lines, in pixels from the upper left corner; axis labels stand around it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // the names say it
pub struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

/// A picture with two axes.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The area of the lines.
    pub area: Area,
    /// The horizontal axis.
    pub x: Scale,
    /// The vertical axis.
    pub y: Scale,
}

/// The margins around the area of a picture of page width.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// The width of a picture; the page scales it.
pub const WIDTH: f64 = 960.0;

impl Frame {
    /// A picture of page width and this height; the scales cover the area between the axis labels.
    pub fn new(
        height: f64,
        x: impl FnOnce((f64, f64)) -> Scale,
        y: impl FnOnce((f64, f64)) -> Scale,
    ) -> Self {
        Self::within(Area { left: LEFT, right: WIDTH - RIGHT, top: TOP, bottom: height - BOTTOM }, x, y)
    }

    /// A panel of a larger picture: labels stand around its area.
    pub fn within(
        area: Area,
        x: impl FnOnce((f64, f64)) -> Scale,
        y: impl FnOnce((f64, f64)) -> Scale,
    ) -> Self {
        Self { area, x: x((area.left, area.right)), y: y((area.bottom, area.top)) }
    }

    /// The SVG element of a picture of page width, around its content.
    pub fn svg(&self, label: &str, content: &str) -> String {
        let (height, label) = (self.area.bottom + BOTTOM, text(label));
        format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">{content}</svg>")
    }

    /// A heading above the area.
    pub fn heading(&self, heading: &str) -> String {
        let (x, y) = (self.area.left, self.area.top - 14.0);
        format!("<text x=\"{x:.0}\" y=\"{y:.0}\">{}</text>", text(heading))
    }

    /// The horizontal grid lines and numbers of the vertical axis, with its unit.
    pub fn upright(&self, unit: &str) -> String {
        let mut out = String::new();
        let Area { left, right, top, bottom } = self.area;
        for value in self.y.ticks() {
            let y = self.y.at(value);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            let (x, y) = (left - 7.0, y + 4.0);
            let _ = write!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", tick(value));
        }
        if !unit.is_empty() {
            let (far, middle) = (left - 45.0, (top + bottom) / 2.0);
            let _ = write!(
                out,
                "<text transform=\"translate({far} {middle}) rotate(-90)\" text-anchor=\"middle\">{unit}</text>"
            );
        }
        out
    }

    /// The horizontal axis with these marks and a title.
    pub fn level(&self, marks: &[(f64, String)], title: &str) -> String {
        let mut out = String::new();
        let Area { left, right, bottom, .. } = self.area;
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>"
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
        let (x, y) = ((left + right) / 2.0, bottom + 34.0);
        let _ = write!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{title}</text>");
        out
    }

    /// A line through points.
    pub fn curve(&self, class: &str, points: impl Iterator<Item = (f64, f64)>) -> String {
        let mut path = String::new();
        for (x, y) in points {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x.at(x), self.y.at(y));
        }
        format!("<path class=\"curve {class}\" d=\"{path}\"/>")
    }

    /// A dot, with a tooltip.
    pub fn dot(&self, class: &str, at: (f64, f64), title: &str) -> String {
        let (x, y) = (self.x.at(at.0), self.y.at(at.1));
        let title = text(title);
        format!(
            "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill-opacity=\".55\"><title>{title}</title></circle>"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_dots_lie_within_the_area() {
        let area = Area { left: 100.0, right: 200.0, top: 10.0, bottom: 60.0 };
        let frame = Frame::within(
            area,
            |pixels| Scale::linear((0.0, 10.0), pixels),
            |pixels| Scale::linear((0.0, 1.0), pixels),
        );
        assert!(
            frame.curve("c1", [(0.0, 0.0), (5.0, 1.0)].into_iter()).contains("d=\"M100.0 60.0L150.0 10.0\"")
        );
        assert!(frame.dot("c1", (10.0, 0.5), "a < b").contains("cx=\"200.0\" cy=\"35.0\""));
        assert!(frame.dot("c1", (10.0, 0.5), "a < b").contains("<title>a &lt; b</title>"));
    }
}
