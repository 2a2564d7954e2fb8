//! The curves as a picture: what the surest reconstructions are worth, and all answers as losses grow.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::table::Entry;
use super::{Error, Table};

/// Of the two panels together.
const SIZE: (u32, u32) = (1100, 460);
/// Of the legend beside them.
const LEGEND: u32 = 260;
/// Between two names in it.
const LINE: u32 = 24;
const FONT: (&str, u32) = ("sans-serif", 15);
/// A_o is drawn up to this fraction of unavailable predictions.
const MOST_UNAVAILABLE: f64 = 0.3;

/// An SVG picture of a table of accuracies. Errors have no common scale and are left out.
pub fn picture(table: &Table) -> Result<String, Error> {
    let entries: Vec<&Entry> = table.entries.iter().filter(|entry| entry.report.metric.ascends()).collect();
    let mut svg = String::new();
    draw(&entries, &mut svg).map_err(|message| Error::Picture { message })?;
    Ok(svg)
}

fn draw(entries: &[&Entry], svg: &mut String) -> Result<(), String> {
    let height = SIZE.1.max(LINE * (entries.len() as u32 + 1));
    let area = SVGBackend::with_string(svg, (SIZE.0 + LEGEND, height)).into_drawing_area();
    area.fill(&WHITE).map_err(|error| error.to_string())?;
    let (panels, names) = area.split_horizontally(SIZE.0);
    let (left, right) = panels.split_vertically(SIZE.1).0.split_horizontally(SIZE.0 / 2);
    let kept = |entry: &Entry| -> Vec<(f64, f64)> {
        entry.report.confidence.iter().map(|at| (100.0 * at.kept, 100.0 * at.score)).collect()
    };
    let overall = |entry: &Entry| -> Vec<(f64, f64)> {
        let fractions = (0..=30).map(|step| MOST_UNAVAILABLE * f64::from(step) / 30.0);
        fractions.map(|f| (100.0 * f, 100.0 * entry.report.overall_at(f))).collect()
    };
    let surest = Panel {
        title: "reconstructions alone (A_d), the surest kept",
        across: "kept, %",
        most: 100.0,
        lines: lines(entries, kept),
    };
    let all = Panel {
        title: "all answers (A_o)",
        across: "predictions unavailable, %",
        most: 100.0 * MOST_UNAVAILABLE,
        lines: lines(entries, overall),
    };
    let drawn = surest.draw(&left).and_then(|()| all.draw(&right)).and_then(|()| legend(entries, &names));
    drawn.map_err(|error| error.to_string())?;
    area.present().map_err(|error| error.to_string())
}

type Line = Vec<(f64, f64)>;

fn lines(entries: &[&Entry], points: impl Fn(&Entry) -> Line) -> Vec<Line> {
    entries.iter().map(|entry| points(entry)).collect()
}

/// A line and a name for each entry, in the panels' order and colours.
fn legend<B: DrawingBackend>(
    entries: &[&Entry],
    area: &DrawingArea<B, Shift>,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    for (at, entry) in entries.iter().enumerate() {
        let y = (LINE * (at as u32 + 1)) as i32;
        area.draw(&PathElement::new([(8, y), (28, y)], colour(at).stroke_width(2)))?;
        let name = format!("{}, k={}", entry.name, entry.report.code.k);
        area.draw(&Text::new(name, (36, y - 7), FONT))?;
    }
    Ok(())
}

fn colour(at: usize) -> RGBAColor {
    Palette99::pick(at).to_rgba()
}

struct Panel {
    title: &'static str,
    across: &'static str,
    most: f64,
    lines: Vec<Line>,
}

impl Panel {
    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let values = self.lines.iter().flatten().map(|point| point.1);
        let least = values.fold(100.0, f64::min);
        let bottom = ((least - 1.0) / 5.0).floor().max(0.0) * 5.0;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, FONT)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..self.most, bottom..100.0)?;
        chart.configure_mesh().max_light_lines(1).x_desc(self.across).y_desc("%").label_style(FONT).draw()?;
        for (at, points) in self.lines.iter().enumerate() {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour(at).stroke_width(2)))?;
        }
        Ok(())
    }
}
