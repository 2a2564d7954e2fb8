//! Draws a run: loss and score over the epochs.

use std::path::Path;

use parm_charts::{Area, Frame, Scale, class, document, tick};

use super::Epoch;
use crate::{Error, file};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 360.0;
/// Margins of a panel: room for its heading, ticks and titles.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 44.0;

/// Values by epoch.
type Line = Vec<(f64, f64)>;

/// Draws the history of a run as SVG.
pub fn draw(path: &Path, history: &[Epoch]) -> Result<(), Error> {
    let loss = history.iter().map(|epoch| (epoch.epoch as f64, epoch.loss)).collect();
    let score = history.iter().filter_map(|epoch| Some((epoch.epoch as f64, epoch.score?))).collect();
    let panels = panel(0.0, "loss", &loss) + &panel(WIDTH / 2.0, "score on held-out data", &score);
    file::write(path, document(WIDTH, HEIGHT, &panels).as_bytes())
}

fn panel(left: f64, heading: &str, line: &Line) -> String {
    let points = || line.iter().copied().filter(|point| point.1.is_finite());
    let last = points().next_back().map_or(1.0, |point| point.0).max(2.0);
    let values = points().map(|point| point.1);
    let (low, high) = values
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    // Scores may begin after the first epoch, or be missing.
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let area =
        Area { left: left + LEFT, right: left + WIDTH / 2.0 - RIGHT, top: TOP, bottom: HEIGHT - BOTTOM };
    let frame = Frame::within(
        area,
        |pixels| Scale::linear((1.0, last), pixels),
        |pixels| Scale::linear((low, high), pixels),
    );
    let marks: Vec<(f64, String)> = frame.x.ticks().into_iter().map(|value| (value, tick(value))).collect();
    let curve = frame.curve(&class(3), points());
    frame.heading(heading) + &frame.upright("") + &frame.level(&marks, "epoch") + &curve
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_without_scores_is_drawn() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.svg");
        let epoch = Epoch {
            epoch: 1,
            loss: 0.76,
            score: None,
            held_out_loss: None,
            rate: 1e-3,
            groups: 10,
            seconds: 0.1,
        };
        draw(&path, &[epoch]).expect("a picture");
        let picture = std::fs::read_to_string(&path).expect("the picture");
        assert!(picture.contains("score on held-out data") && !picture.contains("NaN"), "{picture}");
    }
}
