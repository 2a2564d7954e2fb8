//! Results as tables: one for each data set and base model, a row for each recipe, a column for each k.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::{Matrix, Measure, Outcome, Results, paper, target};

/// The quantile of the normal distribution for 95 % intervals.
const Z: f64 = 1.96;

/// What stands above the tables.
const HEAD: &str = "# Accuracy of reconstructions

Written by `parm train matrix FILE.. --render docs/results/accuracy.md`; the files are in `training/matrix/`, and the same command \
without `--render` fills what is missing. A_a is how good predictions are that are available, A_d how good reconstructions are alone: every \
group of the test set, every loss of one prediction, against the truth. Above each table stands what is measured. The rows named `parm-` are ParM's recipe (random weights, \
mean square error, constant step size) at the budget stated, not at the paper's 500 epochs; the paper's own numbers, of other networks, \
stand below. All rows are of codes, which mix the queries of a group; `slots` and `tiles` make a prediction for each of them ([how](../training.md)). \
Models that answer queries one by one are [stand-ins](codes-and-stand-ins.md), and not in these tables. The targets were set for the paper's networks and budget, and \
these are smaller networks with shorter trainings: ParM's recipe with 500 epochs, or begun with the deployed weights, gains about a quarter of its gap. \
Behind a gap stands the half of its 95 % interval that the test rows' number alone makes, as if predictions and reconstructions were of other rows (of the same rows it \
is narrower, but pairs were not kept); seeds and recipes are beside it. A target is met where the interval's upper end is, missed where its lower end is not, and else open. The best \
row of a table was found on the test set, which flatters it. What was tried where they are missed, and how good the parity \
models in the box are, stands in [shipped.md](shipped.md).
";

/// The page in Markdown. Only results made with today's settings of `matrices` are shown; cells without one are
/// marked.
pub fn render(matrices: &[Matrix], results: &Results) -> String {
    let mut tables: BTreeMap<(String, String), Section> = BTreeMap::new();
    for matrix in matrices {
        for cell in matrix.cells() {
            let table = tables.entry((cell.data.clone(), cell.base.clone())).or_default();
            let data = &matrix.data[&cell.data];
            (table.note, table.measure) = (data.note.clone(), data.measure);
            let row = table.rows.entry((cell.recipe.clone(), cell.r)).or_default();
            table.ks.insert(cell.k);
            let figures = row.entry(cell.k).or_default();
            figures.wanted += 1;
            figures.found.extend(results.get(&cell.key(matrix)).cloned());
        }
    }
    let mut text = HEAD.to_owned();
    for ((data, base), table) in &tables {
        table.write(&mut text, data, base);
    }
    text
}

#[derive(Default)]
struct Section {
    note: String,
    measure: Measure,
    ks: BTreeSet<usize>,
    rows: BTreeMap<(String, usize), BTreeMap<usize, Figures>>,
}

/// The seeds of one place in a table.
#[derive(Default)]
struct Figures {
    wanted: usize,
    found: Vec<Outcome>,
}

impl Section {
    fn write(&self, text: &mut String, data: &str, base: &str) {
        let line = &mut |line: String| _ = writeln!(text, "{line}");
        line(format!("\n## {data}, {base}\n"));
        let all = || self.rows.values().flat_map(BTreeMap::values).flat_map(|figures| &figures.found);
        match all().next() {
            Some(one) => line(format!(
                "Measured: {}. A_a (predictions) {}; {} as every answer: {:.2}. Each cell: A_d, reconstructions over \
                 every single loss, and in brackets A_a - A_d of the same seeds in points; below, seeds / epochs / groups \
                 an epoch.",
                self.measure.noun(),
                spread(&distinct(all().map(|one| (one.cell.seed, one.available)))),
                self.measure.constant(),
                100.0 * one.constant
            )),
            None => line("Not yet run.".into()),
        }
        if !self.note.is_empty() {
            line(format!("\n{}", self.note));
        }
        line(String::new());
        let heads: Vec<String> = self.ks.iter().map(|k| format!(" k={k} |")).collect();
        line(format!("| recipe |{}", heads.concat()));
        line(format!("|---|{}", "---|".repeat(self.ks.len())));
        for ((recipe, r), row) in &self.rows {
            let name = if *r > 1 { format!("{recipe}, r={r}") } else { recipe.clone() };
            let cells = self.ks.iter().map(|k| format!(" {} |", row.get(k).map_or("".into(), Figures::show)));
            line(format!("| {name} |{}", cells.collect::<String>()));
        }
        if let Some(paper) = paper::of(data) {
            let of = |k: &usize| paper.degraded.iter().find(|(known, _)| known == k);
            let cells = self.ks.iter().map(|k| match of(k) {
                Some((_, degraded)) => format!(" {degraded:.2} ({:.2}) |", paper.available - degraded),
                None => " |".into(),
            });
            let name = format!("paper: sum, {}, A_a {:.2}", paper.network, paper.available);
            line(format!("| {name} |{}", cells.collect::<String>()));
        }
        self.write_targets(text, data);
    }

    fn write_targets(&self, text: &mut String, data: &str) {
        let verdict = |most: f64, gap: Option<(f64, f64)>| match gap {
            Some((gap, half)) => {
                let word = match () {
                    () if gap + half <= most => "met",
                    () if gap - half > most => "missed",
                    () => "open",
                };
                format!(" {most}: {word}, {gap:.2} ± {half:.2} |")
            }
            None => format!(" {most} |"),
        };
        let targets = target::of(data);
        if !targets.is_empty() {
            let of = |k: &usize| targets.iter().find(|(known, _)| known == k);
            let cells = self.ks.iter().map(|k| {
                of(k).map_or(" |".into(), |(_, most)| verdict(*most, self.smallest_gap(*k, |_| true)))
            });
            _ = writeln!(text, "| target for A_a - A_d, and the best row |{}", cells.collect::<String>());
        }
        let is_learned = |recipe: &str| recipe.starts_with("learned");
        if let (Some(paper), true) = (target::learned(data), self.rows.keys().any(|(of, _)| is_learned(of))) {
            let cells = self.ks.iter().map(|k| match k {
                2 => verdict(paper + target::MORE, self.smallest_gap(2, is_learned)),
                _ => " |".into(),
            });
            let name = format!("target for the learned code (paper, ResNet-18: {paper:.1})");
            _ = writeln!(text, "| {name} |{}", cells.collect::<String>());
        }
    }

    /// The mean gap of the best recipe, in points, and half of its interval. Codes of several parities survive more, and are not
    /// compared.
    fn smallest_gap(&self, k: usize, is_meant: impl Fn(&str) -> bool) -> Option<(f64, f64)> {
        let rows = self.rows.iter().filter(|((recipe, r), _)| *r == 1 && is_meant(recipe));
        let gaps = rows.filter_map(|(_, row)| row.get(&k)?.gap());
        gaps.map(|(gap, half)| (100.0 * gap, 100.0 * half)).min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

impl Figures {
    /// The mean of A_a - A_d, and half of its 95 % interval. All seeds are tested on the same rows, so more of them make it no
    /// narrower.
    fn gap(&self) -> Option<(f64, f64)> {
        let one = self.found.first()?;
        let of = |value: fn(&Outcome) -> f64| mean(&self.found.iter().map(value).collect::<Vec<_>>());
        let (available, degraded) = (of(|one| one.available), of(|one| one.degraded));
        let variance = |share: f64| (share * (1.0 - share)).max(0.0) / one.reconstructions.max(1) as f64;
        Some((available - degraded, Z * (variance(available) + variance(degraded)).sqrt()))
    }

    fn show(&self) -> String {
        let Some(one) = self.found.first() else { return "not yet run".into() };
        let degraded: Vec<f64> = self.found.iter().map(|one| one.degraded).collect();
        let (gap, half) = self.gap().unwrap_or_default();
        let missing = if self.found.len() < self.wanted { " (more to come)" } else { "" };
        let seeds = self.found.len();
        format!(
            "{} ({:.2} ± {:.2})<br>{seeds} / {} / {}{missing}",
            spread(&degraded),
            100.0 * gap,
            100.0 * half,
            one.epochs,
            one.groups
        )
    }
}

/// One value for each seed.
fn distinct(values: impl Iterator<Item = (u64, f64)>) -> Vec<f64> {
    values.collect::<BTreeMap<_, _>>().into_values().collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean and, of several seeds, standard deviation, in percent.
fn spread(values: &[f64]) -> String {
    let mean = mean(values);
    if values.len() < 2 {
        return format!("{:.2}", 100.0 * mean);
    }
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
    format!("{:.2} ± {:.2}", 100.0 * mean, 100.0 * square.sqrt())
}
