//! A picture of a run: loss and score over the epochs.

use std::path::Path;

use plotters::prelude::*;

use super::Epoch;
use crate::{Error, file};

const SIZE: (u32, u32) = (800, 360);

/// Draws the history of a run as SVG.
pub fn draw(path: &Path, history: &[Epoch]) -> Result<(), Error> {
    let loss = history.iter().map(|epoch| (epoch.epoch as f64, epoch.loss)).collect();
    let score = history.iter().filter_map(|epoch| Some((epoch.epoch as f64, epoch.score?))).collect();
    let mut picture = String::new();
    panels(&mut picture, [("loss", loss), ("score on held-out data", score)])
        .map_err(|message| Error::Write { path: path.into(), message })?;
    file::write(path, picture.as_bytes())
}

type Line = Vec<(f64, f64)>;

fn panels(picture: &mut String, lines: [(&str, Line); 2]) -> Result<(), String> {
    let root = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    for (area, (title, line)) in root.split_evenly((1, 2)).iter().zip(lines) {
        panel(area, title, line).map_err(|error| error.to_string())?;
    }
    root.present().map_err(|error| error.to_string())
}

fn panel<'a>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    title: &str,
    line: Line,
) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
    let last = line.last().map_or(1.0, |point| point.0).max(2.0);
    let (low, high) = bounds(&line);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(56)
        .build_cartesian_2d(1.0..last, low..high)?;
    chart.configure_mesh().x_desc("epoch").max_light_lines(1).draw()?;
    chart.draw_series(LineSeries::new(line, &BLUE))?;
    Ok(())
}

/// What the upright axis spans. Never infinite: plotters would look for its marks for ever. So a line without a point,
/// as that of scores is before the first is measured, is asked for before anything is compared.
fn bounds(line: &Line) -> (f64, f64) {
    let values = || line.iter().map(|point| point.1).filter(|value| value.is_finite());
    let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
        return (0.0, 1.0);
    };
    if low < high { (low, high) } else { (low.min(0.0), high.max(0.0) + 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores may come later than the first epoch, or never.
    #[test]
    fn a_history_without_scores_is_drawn() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.svg");
        let epoch = Epoch { epoch: 1, loss: 0.76, score: None, rate: 1e-3, groups: 10, seconds: 0.1 };
        draw(&path, &[epoch]).expect("a picture");
        assert!(std::fs::read_to_string(&path).expect("the picture").contains("score on held-out data"));
    }
}
