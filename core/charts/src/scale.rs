//! Scales: map values to pixels and find round ticks.

/// Maps values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    log: bool,
    /// The ends of the range; their logarithms on a logarithmic scale.
    values: (f64, f64),
    pixels: (f64, f64),
}

/// The smallest value of a logarithmic scale.
const LEAST: f64 = 1e-6;
/// The largest number of ticks on a linear scale.
const MARKS: f64 = 6.0;

impl Scale {
    /// A linear scale.
    pub fn linear(values: (f64, f64), pixels: (f64, f64)) -> Self {
        Self { log: false, values: widened(values), pixels }
    }

    /// A logarithmic scale. Values must be above 0.
    pub fn log(values: (f64, f64), pixels: (f64, f64)) -> Self {
        let (from, to) = values;
        Self { log: true, values: widened((from.max(LEAST).ln(), to.max(LEAST).ln())), pixels }
    }

    /// A logarithmic scale if the values span more than a small factor, otherwise a linear one from zero.
    pub fn fitting(values: (f64, f64), pixels: (f64, f64)) -> Self {
        let (from, to) = values;
        if to > 8.0 * from.max(LEAST) {
            Self::log((from * 0.9, to * 1.1), pixels)
        } else {
            Self::linear((0.0, to * 1.05), pixels)
        }
    }

    /// The pixel of a value; values beyond the scale map to its end.
    pub fn at(self, value: f64) -> f64 {
        let value = if self.log { value.max(LEAST).ln() } else { value };
        let ((from, to), (first, last)) = (self.values, self.pixels);
        first + ((value - from) / (to - from)).clamp(0.0, 1.0) * (last - first)
    }

    /// Round values on the scale: 1, 2 and 5 times powers of ten, or multiples of such a step.
    pub fn ticks(self) -> Vec<f64> {
        let (from, to) = self.ends();
        // Slack, so that rounding does not lose a tick at the end.
        let slack = (to - from) * 1e-3;
        let within = |value: &f64| *value >= from - slack && *value <= to + slack;
        // Within a factor of three, powers of ten would give at most one tick.
        if self.log && to / from > 3.0 {
            let decades = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
            let steps: &[f64] = if to / from > 300.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
            let within = |value: &f64| *value >= from * 0.999 && *value <= to * 1.001;
            return all.filter(within).collect();
        }
        let rough = (to - from) / MARKS;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(decade * 10.0);
        let first = ((from - slack) / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(within).collect()
    }

    fn ends(self) -> (f64, f64) {
        let (from, to) = self.values;
        if self.log { (from.exp(), to.exp()) } else { (from, to) }
    }
}

fn widened(values: (f64, f64)) -> (f64, f64) {
    let (from, to) = values;
    if to > from { (from, to) } else { (from, from + 1.0) }
}

/// Formats a number for an axis.
pub fn tick(value: f64) -> String {
    match (value * 1e4).round() / 1e4 {
        0.0 => "0".into(),
        value if value.abs() >= 1000.0 && value % 1000.0 == 0.0 => format!("{}k", value / 1000.0),
        value if value.abs() >= 1.0 => format!("{}", (value * 100.0).round() / 100.0),
        value => format!("{value}"),
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

    #[test]
    fn every_scale_has_a_few_ticks() {
        for values in [(5.0, 5.0), (0.0, 1e-9), (90.1, 93.2), (-5.0, 20.0), (-0.05, 0.05)] {
            for scale in [Scale::linear(values, (0.0, 1.0)), Scale::log(values, (0.0, 1.0))] {
                let ticks = scale.ticks();
                assert!((1..=20).contains(&ticks.len()), "{values:?}: {ticks:?}");
            }
        }
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        assert_eq!(
            [0.0, -1e-9, 0.25, 1.5, 90.0, 2000.0, 1234.5].map(tick),
            ["0", "0", "0.25", "1.5", "90", "2k", "1234.5"]
        );
    }
}
