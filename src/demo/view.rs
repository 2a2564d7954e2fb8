//! Formats the policies' results as a table, side by side.

use std::time::Duration;

use super::tally::{Count, Standing};

/// Width of the rows' names, and least and greatest width of a policy's column: four fit a terminal of eighty columns.
const NAME: usize = 18;
const NARROW: usize = 15;
const WIDE: usize = 26;

/// The bars of a chart, from the usual latency to a hundred times as much.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Emphasis of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// None: files, pipes and `NO_COLOR`.
    Plain,
    /// Escape sequences.
    Coloured,
}

/// The content of a picture.
pub struct Scene<'a> {
    pub standings: &'a [Standing],
    /// The condition of each instance in a word.
    pub instances: &'a [&'static str],
    pub elapsed: Duration,
    pub length: Duration,
    /// Median service time in milliseconds.
    pub usual_ms: f64,
    /// Characters in a line.
    pub width: usize,
}

impl Scene<'_> {
    /// Returns the lines of a picture.
    pub fn lines(&self, ink: Ink) -> Vec<String> {
        let mut lines = vec![self.clock(), self.condition(ink), String::new()];
        lines.extend(self.table(ink));
        lines
    }

    /// Returns one line, for outputs that cannot be redrawn.
    pub fn line(&self) -> String {
        let p999 = self.standings.iter().map(|standing| {
            format!("{} {} / {}", standing.policy, number(standing.p99_ms), number(standing.p999_ms))
        });
        let seconds = self.elapsed.as_secs();
        let troubled: Vec<String> = (1..)
            .zip(self.instances)
            .filter(|(_, word)| **word != "ok")
            .map(|(number, word)| format!("{number} {word}"))
            .collect();
        let trouble =
            if troubled.is_empty() { String::new() } else { format!("  [instance {}]", troubled.join(", ")) };
        format!(
            "{}:{:02}  p99 / p99.9 ms: {}{trouble}",
            seconds / 60,
            seconds % 60,
            p999.collect::<Vec<_>>().join("  ")
        )
    }

    fn clock(&self) -> String {
        let shown = |time: Duration| format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60);
        let share = (self.elapsed.as_secs_f64() / self.length.as_secs_f64()).clamp(0.0, 1.0);
        let (most, filled) = (44, (share * 44.0) as usize);
        let bar = "█".repeat(filled) + &"░".repeat(most - filled);
        format!(
            "{:NAME$}{bar}  {} of {}",
            "parm demo",
            shown(self.elapsed.min(self.length)),
            shown(self.length)
        )
    }

    fn condition(&self, ink: Ink) -> String {
        let words = (1..).zip(self.instances).map(|(number, word)| {
            let text = format!("{number} {word:<6}");
            match *word {
                "ok" => text,
                "slow" => ink.paint(&text, "33;1"),
                _ => ink.paint(&text, "31;1"),
            }
        });
        format!("{:NAME$}{}", "instances", words.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    }

    /// Returns the table of the policies.
    pub fn table(&self, ink: Ink) -> Vec<String> {
        let column = self.column();
        let head =
            self.standings.iter().map(|standing| format!("{:>column$}", standing.policy)).collect::<String>();
        let mut lines = vec![ink.paint(&format!("{:NAME$}{head}", ""), "1")];
        let mut row = |name: &str, cell: &dyn Fn(&Standing) -> String| {
            let cells: String =
                self.standings.iter().map(|standing| format!("{:>column$}", cell(standing))).collect();
            lines.push(format!("{name:NAME$}{cells}").trim_end().to_owned());
        };
        row("p50", &|it| milliseconds(it.p50_ms));
        row("p99", &|it| milliseconds(it.p99_ms));
        row("p99.9", &|it| milliseconds(it.p999_ms));
        row("slowest in time", &|it| self.chart(it));
        row("", &|_| String::new());
        row("exact", &|it| share(it, it.exact.queries));
        row("hedged", &|it| share(it, it.hedged.queries));
        row("reconstructed", &|it| share(it, it.reconstructed.queries));
        row("stand-in", &|it| share(it, it.stand_in.queries));
        row("missed", &|it| share(it, it.missed));
        row("work per query", &|it| format!("{:.2}", it.work_per_query()));
        row("", &|_| String::new());
        row("right, own", &|it| accuracy(it.own()));
        row("  reconstructed", &|it| accuracy(it.reconstructed));
        row("  stand-in", &|it| accuracy(it.stand_in));
        row("  of all", &|it| accuracy(it.all()));
        lines
    }

    fn column(&self) -> usize {
        let room = self.width.saturating_sub(NAME + 1) / self.standings.len().max(1);
        room.clamp(NARROW, WIDE)
    }

    /// Returns a chart of the slowest queries over the run, on a logarithmic scale.
    fn chart(&self, standing: &Standing) -> String {
        let width = self.column() - 2;
        let seconds = self.length.as_secs_f64().ceil().max(1.0) as usize;
        let bar = |column: usize| {
            let (from, to) = (
                column * seconds / width,
                ((column + 1) * seconds / width).max(column * seconds / width + 1),
            );
            let slowest = standing.slowest_ms.get(from..to.min(standing.slowest_ms.len()))?;
            let worst = slowest
                .iter()
                .copied()
                .fold(None, |worst: Option<f64>, ms| Some(worst.map_or(ms, |worst| worst.max(ms))))?;
            let height = (worst / self.usual_ms).max(1.0).log(100.0) * BARS.len() as f64;
            Some(BARS[(height as usize).min(BARS.len() - 1)])
        };
        (0..width).map(|column| bar(column).unwrap_or(' ')).collect()
    }
}

impl Ink {
    fn paint(self, text: &str, code: &str) -> String {
        match self {
            Ink::Plain => text.to_owned(),
            Ink::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

fn number(ms: Option<f64>) -> String {
    ms.map_or("-".into(), |ms| format!("{ms:.1}"))
}

fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or("-".into(), |ms| format!("{ms:.1} ms"))
}

fn share(standing: &Standing, queries: u64) -> String {
    if queries == 0 { "-".into() } else { format!("{:.2} %", 100.0 * standing.share(queries)) }
}

fn accuracy(count: Count) -> String {
    count.accuracy().map_or("-".into(), |share| format!("{:.1} %", 100.0 * share))
}

#[cfg(test)]
mod tests {
    use parm_loadgen::outcome::Outcome;

    use super::*;
    use crate::demo::script::INSTANCES;
    use crate::demo::tally::Tally;

    #[test]
    fn four_policies_fit_80_columns_and_stragglers_are_visible() {
        let mut tally = Tally::new();
        for index in 0..20_000u64 {
            let slow = (10_000..10_100).contains(&index);
            let since = Duration::from_millis(index * 3);
            let latency = Duration::from_millis(if slow { 999 } else { 10 });
            tally.record(since, latency, Outcome::Exact, true);
        }
        let standing = tally.standing("stand-in", 30_000, 30_000.0);
        let standings = [standing.clone(), standing.clone(), standing.clone(), standing];
        let scene = Scene {
            standings: &standings,
            instances: &["HUNG"; INSTANCES as usize],
            elapsed: Duration::from_secs(3600),
            length: Duration::from_secs(60),
            usual_ms: 10.0,
            width: 80,
        };
        let lines = scene.lines(Ink::Plain);
        assert!(lines.iter().all(|line| line.chars().count() <= 79 && !line.contains('\x1b')), "{lines:#?}");
        let chart = lines.iter().find(|line| line.starts_with("slowest")).unwrap();
        let high: Vec<char> = chart.chars().filter(|bar| BARS[1..].contains(bar)).collect();
        assert_eq!(high, ['█'; 4], "one bar for each policy: {chart}");
        assert!(lines.iter().any(|line| line.starts_with("work") && line.ends_with("1.50")), "{lines:#?}");
        assert!(scene.line().contains("1 HUNG"), "{}", scene.line());
    }
}
