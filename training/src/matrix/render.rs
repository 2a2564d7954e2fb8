//! Results as tables: one for each data set and base model, a row for each k and recipe.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Matrix, Measure, Outcome, Results};

/// The quantile of the normal distribution for 95 % intervals.
const Z: f64 = 1.96;

/// The introduction above the tables.
const HEAD: &str = "# Accuracy of reconstructions

Every recipe of the matrices in `training/matrix/`. Written by `parm train matrix FILE.. --render docs/results/raw/accuracy.txt`; \
without `--render` the command runs the cells that have no result. Results are in `training/results/outcomes.jsonl`, with dates in its history. \
All rows are codes, which mix the queries of a group; `slots` and `tiles` make a prediction for each query. Stand-ins are not in these tables.

- **A_a**: accuracy of available predictions. **A_d**: accuracy of reconstructions alone, over every group of the test set and every loss of \
one prediction. ± is the standard deviation of the seeds.
- **Gap**: A_a - A_d in points, with its 95 % interval from pairs: the same rows, predicted and reconstructed. Reconstructions from one parity \
err together, so a group counts as one observation. All seeds use the same test rows, so more seeds do not narrow the interval.
- **Agreement**: how often a reconstruction gives the answer of the deployed model; for boxes, the share that both have in common. \
**Calibration error**: mean distance between the confidence and how often the answer is right, on the test set, after calibration on held-out rows.
- **Cost**: time of one run of a parity model as a share of the deployed model's run for one query, one thread, in turns, on the machine that \
trained. A group has r such runs. A learned code has no cost here: the deployed model runs on its coded query, between two more networks.

Rows named `parm-` are ParM's recipe: random weights, mean square error, constant step size. `parm-sum-500` has the paper's 500 epochs. \
`sum-warm` begins with the deployed weights, with a falling step size and an average of the weights. The paper's numbers are of other networks.
";

/// The page in Markdown. Only results with the current settings of `matrices` are shown; cells without one are
/// marked.
pub fn render(matrices: &[Matrix], results: &Results) -> String {
    let mut tables: BTreeMap<(String, String), Section> = BTreeMap::new();
    for matrix in matrices {
        for cell in matrix.cells() {
            let table = tables.entry((cell.data.clone(), cell.base.clone())).or_default();
            let data = &matrix.data[&cell.data];
            (table.note, table.measure) = (data.note.clone(), data.measure);
            let row = Row { k: cell.k, recipe: cell.recipe.clone(), r: cell.r };
            let figures = table.rows.entry(row).or_default();
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
    rows: BTreeMap<Row, Figures>,
}

/// The common part of a row's seeds.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    k: usize,
    recipe: String,
    r: usize,
}

/// The seeds of a row.
#[derive(Default)]
struct Figures {
    wanted: usize,
    found: Vec<Outcome>,
}

impl Section {
    fn write(&self, text: &mut String, data: &str, base: &str) {
        let line = &mut |line: String| _ = writeln!(text, "{line}");
        line(format!("\n## {data}, {base}\n"));
        let all = || self.rows.values().flat_map(|figures| &figures.found);
        match all().next() {
            Some(one) => line(format!(
                "Measured: {}. A_a (predictions) {}; {} as every answer: {:.2}.",
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
        line("| k | recipe | A_d | gap | agreement, % | calibration error, % | cost: tract | ONNX Runtime | seeds / epochs / groups |".into());
        line("|---|---|---|---|---|---|---|---|---|".into());
        let paper = Paper::on(data);
        let mut rows = self.rows.iter().peekable();
        while let Some((row, figures)) = rows.next() {
            let name = if row.r > 1 { format!("{}, r={}", row.recipe, row.r) } else { row.recipe.clone() };
            line(format!("| {} | {name} | {} |", row.k, figures.show()));
            let is_last = rows.peek().is_none_or(|(next, _)| next.k != row.k);
            if let Some(line_of_paper) =
                paper.as_ref().filter(|_| is_last).and_then(|paper| quoted(paper, row.k))
            {
                line(line_of_paper);
            }
        }
    }
}

impl Measure {
    /// Its name in tables.
    fn noun(self) -> &'static str {
        match self {
            Measure::Accuracy => "accuracy in percent",
            Measure::Iou => "mean intersection over union with the true box in percent",
            Measure::Agreement => {
                "agreement with the deployed model's own answers in percent, because the rows have no labels"
            }
        }
    }

    /// The name of the constant answer.
    fn constant(self) -> &'static str {
        match self {
            Measure::Accuracy => "the most frequent class",
            Measure::Iou => "the mean box",
            Measure::Agreement => "the most frequent answer",
        }
    }
}

/// The results of the SOSP 2019 paper on parity models for a data set: percent, sum code, one parity.
struct Paper {
    available: f64,
    /// A_d by k.
    degraded: &'static [(usize, f64)],
    /// Network, and the data if they differ.
    network: &'static str,
}

impl Paper {
    fn on(data: &str) -> Option<Self> {
        let (network, available, degraded): (_, _, &[(usize, f64)]) = match data {
            "mnist" => ("ResNet-18", 99.20, &[(2, 99.21), (3, 98.27), (4, 96.38)]),
            "fashion-mnist" => ("ResNet-18", 92.90, &[(2, 91.11), (3, 87.85), (4, 84.20)]),
            "cifar-10" => ("ResNet-18", 93.50, &[(2, 87.4), (3, 73.85), (4, 52.91)]),
            "cifar-100" => ("ResNet-152", 92.50, &[(2, 86.10), (3, 69.92), (4, 43.93)]),
            "spoken-digits" => ("VGG-11 on 30 spoken words", 94.54, &[(2, 91.48), (3, 83.91), (4, 75.59)]),
            "blood-cells" => ("boxes of birds (CUB-200)", 95.0, &[(2, 67.0)]),
            _ => return None,
        };
        Some(Self { available, degraded, network })
    }
}

/// The paper's result as a row.
fn quoted(paper: &Paper, k: usize) -> Option<String> {
    let (_, degraded) = paper.degraded.iter().find(|(known, _)| *known == k)?;
    let (network, available) = (paper.network, paper.available);
    let gap = available - degraded;
    Some(format!("| {k} | paper: sum, {network}, A_a {available:.2} | {degraded:.2} | {gap:.2} | | | | | |"))
}

fn interval(gap: f64, half: Option<f64>) -> String {
    half.map_or(format!("{gap:.2}"), |half| format!("{gap:.2} ± {half:.2}"))
}

impl Figures {
    /// The mean of A_a - A_d in points, and half of its interval if pairs are known.
    fn gap(&self) -> (f64, Option<f64>) {
        let half = self.mean(|one| one.gap_error).map(|error| 100.0 * Z * error);
        (100.0 * self.mean(|one| Some(one.available - one.degraded)).unwrap_or_default(), half)
    }

    /// The mean over the seeds; `None` if one of them has no value.
    fn mean(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Option<f64> {
        let values: Vec<f64> = self.found.iter().map(of).collect::<Option<_>>()?;
        (!values.is_empty()).then(|| mean(&values))
    }

    fn show(&self) -> String {
        let Some(one) = self.found.first() else { return "not yet run | | | | | |".into() };
        let degraded: Vec<f64> = self.found.iter().map(|one| one.degraded).collect();
        let (gap, half) = self.gap();
        let percent =
            |share: Option<f64>| share.map_or(String::new(), |share| format!("{:.1}", 100.0 * share));
        let cost = |engine: &str| {
            let share = self.mean(|one| one.costs.get(engine).copied());
            share.map_or(String::new(), |share| format!("{share:.2}"))
        };
        let missing = if self.found.len() < self.wanted { " (more to come)" } else { "" };
        format!(
            "{} | {} | {} | {} | {} | {} | {} / {} / {}{missing}",
            spread(&degraded),
            interval(gap, half),
            percent(self.mean(|one| one.agreement)),
            percent(self.mean(|one| one.calibration_error)),
            cost("tract"),
            cost("ort"),
            self.found.len(),
            one.epochs,
            one.groups
        )
    }
}

/// One value per seed.
fn distinct(values: impl Iterator<Item = (u64, f64)>) -> Vec<f64> {
    values.collect::<BTreeMap<_, _>>().into_values().collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean and, for several seeds, standard deviation, in percent.
fn spread(values: &[f64]) -> String {
    let mean = mean(values);
    if values.len() < 2 {
        return format!("{:.2}", 100.0 * mean);
    }
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64;
    format!("{:.2} ± {:.2}", 100.0 * mean, 100.0 * square.sqrt())
}
