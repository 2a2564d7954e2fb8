//! Grades: the frontier measured on rows that no candidate was made from or chosen by.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::{Frontier, answers};
use crate::Error;
use crate::measure::{Comparison, Difference, Share, calibration_error, judge};
use crate::rows::Rows;
use crate::workshop::{Progress, Workshop};

/// The frontier's results on other rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grades {
    /// The number of rows.
    pub rows: usize,
    /// The deployed model's accuracy, if there are labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployed: Option<Share>,
    /// The calibration error of the deployed model's own confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployed_calibration_error: Option<f64>,
    /// The candidates on the frontier, the cheapest first.
    pub candidates: Vec<Grade>,
}

/// The results of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Grade {
    /// The candidate's name.
    pub name: String,
    /// The cost of one row.
    pub cost: f64,
    /// How its answers compare with the deployed model's.
    #[serde(flatten)]
    pub compared: Comparison,
    /// How much more often the deployed model is right on the same rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Share>,
    /// The calibration error of its confidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration_error: Option<f64>,
}

/// Rows for grading only.
#[derive(Clone, Copy, Debug)]
pub struct Apart<'a> {
    /// The rows.
    pub rows: &'a Rows,
    /// The class of each row, if known.
    pub labels: Option<&'a [usize]>,
}

/// Grades the candidates on the frontier.
pub fn grade(
    workshop: &Workshop,
    deployed: &Path,
    frontier: &Frontier,
    apart: Apart<'_>,
    progress: &dyn Progress,
) -> Result<Grades, Error> {
    progress.doing("running the deployed model on the test rows");
    let said = answers(&mut workshop.open(deployed)?, apart.rows, progress)?;
    let meanings = &frontier.setting.meanings;
    meanings.check(&said, apart.labels)?;
    let (list, scores) = (meanings.list(), meanings.scores(&said));
    let truth = meanings.truth(scores.clone(), apart.labels);
    let by_labels = apart.labels.map(|labels| meanings.right(&said, labels));
    // A confidence that was fitted to labels does not estimate agreement with the deployed model.
    let is_same_truth = frontier.setting.accuracy.is_some() == apart.labels.is_some();
    let mut candidates = Vec::new();
    for candidate in frontier.candidates.iter().filter(|candidate| frontier.is_on(candidate)) {
        progress.doing(&format!("grading {}", candidate.name));
        let answers = answers(&mut workshop.load_stored(&candidate.model)?, apart.rows, progress)?;
        let own = apart.labels.map(|labels| meanings.right(&answers, labels));
        let same = judge(&said, &answers, &list);
        let calibration = candidate.sureness.filter(|_| is_same_truth).map(|own| own.calibration);
        candidates.push(Grade {
            name: candidate.name.clone(),
            cost: candidate.cost[0],
            compared: Comparison::of((&said, &answers), &list, (&same, own.as_deref())),
            gap: by_labels.as_deref().zip(own.as_deref()).map(|(deployed, own)| Share::gap(deployed, own)),
            calibration_error: calibration
                .and_then(|own| calibration_error(&meanings.scores(&answers), &truth, own)),
        });
    }
    Ok(Grades {
        rows: apart.rows.len(),
        deployed: by_labels.as_deref().map(Share::of),
        deployed_calibration_error: frontier
            .setting
            .sureness
            .filter(|_| truth.is_labelled())
            .and_then(|own| calibration_error(&scores, &truth, own.calibration)),
        candidates,
    })
}

impl fmt::Display for Grades {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = |share: f64| 100.0 * share;
        write!(f, "graded on {} rows that no candidate was made from or chosen by", self.rows)?;
        if let Some(deployed) = self.deployed {
            write!(f, "; the deployed model is right on {}", deployed.percent(2, " %"))?;
        }
        let wide = self.candidates.iter().map(|one| one.name.len()).max().unwrap_or(0).max(9);
        write!(f, "\n\n   {:wide$}  {:>6}  {:19}", "CANDIDATE", "1 ROW", "AGREEMENT, %")?;
        if self.deployed.is_some() {
            write!(f, "  {:11}  {:23}", "ACCURACY, %", "GAP, POINTS")?;
        }
        write!(f, "  CALIBRATION ERROR, %")?;
        for Grade { name, cost, compared, gap, calibration_error } in &self.candidates {
            let Comparison { agreement, difference, accuracy, cosine, neighbours } = compared;
            write!(f, "\n   {name:wide$}  {cost:>6.3}  {:19}", agreement.percent(2, ""))?;
            if let Some((accuracy, gap)) = accuracy.zip(*gap) {
                let [value, low, high] = [gap.value, gap.low, gap.high].map(points);
                let gap = format!("{value:+.2} ({low:+.2} to {high:+.2})");
                write!(f, "  {:<11.2}  {gap:23}", points(accuracy.value))?;
            }
            match calibration_error {
                Some(error) => write!(f, "  {:.1}", points(*error))?,
                None => write!(f, "  -")?,
            }
            if let Some(Difference { mean, largest, left_out }) = difference {
                write!(f, "  differs by {mean:.2e} (at most {largest:.2e})")?;
                if *left_out > 0 {
                    write!(f, " without {left_out} rows that servers withhold")?;
                }
            }
            if let Some(cosine) = cosine {
                write!(f, "  mean cosine {cosine:.4}")?;
            }
            if let Some(kept) = neighbours {
                write!(f, "  keeps {:.1} % of ten nearest", points(*kept))?;
            }
        }
        Ok(())
    }
}
