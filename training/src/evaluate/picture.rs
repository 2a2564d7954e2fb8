//! The curves as a picture: what the surest reconstructions are worth, and all answers as losses grow.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::table::Entry;
use super::{Error, Table};

const SIZE: (u32, u32) = (1100, 460);
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
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| error.to_string())?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
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
    surest.draw(&left).and_then(|()| all.draw(&right)).map_err(|error| error.to_string())?;
    area.present().map_err(|error| error.to_string())
}

type Line = (String, Vec<(f64, f64)>);

fn lines(entries: &[&Entry], points: impl Fn(&Entry) -> Vec<(f64, f64)>) -> Vec<Line> {
    entries.iter().map(|entry| (entry.name.clone(), points(entry))).collect()
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
        let values = self.lines.iter().flat_map(|(_, points)| points.iter().map(|point| point.1));
        let least = values.fold(100.0, f64::min);
        let bottom = ((least - 1.0) / 5.0).floor().max(0.0) * 5.0;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, FONT)
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(44)
            .build_cartesian_2d(0.0..self.most, bottom..100.0)?;
        chart.configure_mesh().x_desc(self.across).y_desc("%").label_style(FONT).draw()?;
        for (at, (name, points)) in self.lines.iter().enumerate() {
            let color = Palette99::pick(at).to_rgba();
            let legend = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2));
            let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
            chart.draw_series(line)?.label(name.clone()).legend(legend);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.4))
            .label_font(FONT)
            .draw()?;
        Ok(())
    }
}
