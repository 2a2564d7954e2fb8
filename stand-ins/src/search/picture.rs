//! The frontier as a picture: agreement over cost.

use std::fmt::Write;

use parm_charts::{Area, Frame, Scale, class, document, text, tick};

use super::Frontier;
use crate::measure::Share;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;

impl Frontier {
    /// Draws the picture as an SVG document.
    pub fn to_svg(&self) -> String {
        let shares = self.candidates.iter().map(|candidate| 100.0 * candidate.compared.agreement.low);
        let least = shares.fold(99.0f64, f64::min);
        let area = Area { left: 64.0, right: WIDTH - 24.0, top: 44.0, bottom: HEIGHT - 48.0 };
        let frame = Frame::within(
            area,
            |pixels| Scale::linear((0.0, 1.0), pixels),
            |pixels| Scale::linear((least - 0.5, 100.2), pixels),
        );
        let marks: Vec<(f64, String)> = frame.x.ticks().into_iter().map(|mark| (mark, tick(mark))).collect();
        let mut out =
            frame.heading("agreement with the deployed model, %, with 95 % intervals") + &frame.upright("");
        out += &frame.level(&marks, "time of one row, as a share of the deployed model's");
        let limit = frame.x.at(self.limit.clamp(0.0, 1.0));
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{limit:.1}\" x2=\"{limit:.1}\" y1=\"{}\" y2=\"{}\"/>",
            area.top, area.bottom
        );
        for (at, candidate) in self.candidates.iter().enumerate() {
            let cost = candidate.cost[0];
            let Share { value, low, high } = candidate.compared.agreement;
            let [value, low, high] = [value, low, high].map(|share| 100.0 * share);
            let class = class(if self.chosen.as_ref() == Some(&candidate.name) { 4 } else { at % 3 });
            out += &frame.curve(&class, [(cost, low), (cost, high)].into_iter());
            out += &frame.dot(&class, (cost, value), &candidate.how);
            let (x, y) = (frame.x.at(cost) + 8.0, frame.y.at(value) + 4.0);
            let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", text(&candidate.name));
        }
        document(WIDTH, HEIGHT, &out)
    }
}
