//! All quantiles of the policies in one chart: each further nine has the same width.

use parm_charts::{Frame, Scale};

use crate::Row;

use super::Palette;

/// The chart; nothing if no policy has data.
pub(super) fn chart(rows: &[&Row], palette: &Palette) -> String {
    let points = || rows.iter().flat_map(|row| &row.spectrum.0);
    let farthest = points().map(|point| point.one_in).fold(0.0, f64::max);
    if farthest < 10.0 {
        return String::new();
    }
    let least = points().map(|point| point.ms).fold(f64::INFINITY, f64::min);
    let most = points().map(|point| point.ms).fold(0.0, f64::max);
    // The axis begins at the median: the upper half is of interest.
    let frame = Frame::new(
        320.0,
        |pixels| Scale::log((2.0, farthest), pixels),
        |pixels| Scale::fitting((least, most), pixels),
    );
    let curves = rows.iter().map(|row| {
        let points = row.spectrum.0.iter().filter(|point| point.one_in >= 1.99);
        frame.curve(&palette.class(&row.policy), points.map(|point| (point.one_in, point.ms)))
    });
    let content =
        frame.upright("ms") + &frame.level(&marks(farthest), "quantile") + &curves.collect::<String>();
    format!(
        "<h4>Latency by quantile</h4>{}{}",
        frame.svg("latency by quantile", &content),
        palette.legend(rows)
    )
}

/// 50 %, 90 %, 99 %, ... as far as there is data.
fn marks(farthest: f64) -> Vec<(f64, String)> {
    let quantiles = [
        (2.0, "p50"),
        (4.0, "p75"),
        (10.0, "p90"),
        (100.0, "p99"),
        (1e3, "p99.9"),
        (1e4, "p99.99"),
        (1e5, "p99.999"),
    ];
    let known = quantiles.into_iter().filter(|(one_in, _)| *one_in <= farthest);
    known.map(|(one_in, name)| (one_in, name.to_owned())).collect()
}
