//! Makes candidates of every family from a few rows.

use std::cell::Cell;

use bytes::Bytes;
use parm_parity_models::bundle::{Meaning, Signature, misfit, misplaced};
use parm_parity_models::onnx::rewrite::Draft;
use parm_parity_models::onnx::{Limits, Model};
use parm_protocol::Tensor;

use super::{Refused, answers};
use crate::Error;
use crate::exact::{quicken, rewrite};
use crate::graph::{Links, Survey};
use crate::int8::Steps;
use crate::layers::{Shortcuts, repeats};
use crate::measure::mean_distance;
use crate::prune::{Depth, Pruning};
use crate::rows::Rows;
use crate::workshop::{Progress, Stored, Workshop};

/// Tolerance for a rewritten graph: sums in another order are rounded differently.
const ROUNDING: f64 = 1e-4;
/// Shares of the channels inside of blocks that candidates keep, in percent.
const KEPT: [u32; 3] = [75, 50, 25];
/// The same if streams are cut too: a layer that reads from a stream inside of a block is cut at both ends.
const KEPT_OF_ALL: [u32; 4] = [94, 88, 75, 50];

/// Maximum size of all candidates' files, which are stored until the end.
const MOST_BYTES: u64 = 2 << 30;

/// A candidate. It is loaded whenever it runs, since an engine keeps the memory of a model's largest run.
pub(super) struct Made {
    pub(super) name: String,
    /// How it was made, in a few words.
    pub(super) how: String,
    pub(super) model: Stored,
    /// The graph in 32 bits to teach, if there is a school; only of candidates with fewer channels or layers, and of
    /// supplied models.
    pub(super) float: Option<Draft>,
    /// Distance of its outputs on calibration rows from the deployed model's, relative to their size, by their
    /// meaning.
    pub(super) distance: f64,
    /// The same for the plain numbers.
    pub(super) apart: f64,
}

/// The candidates that are made, and those that could not be made, with the reason.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) made: Vec<Made>,
    pub(super) refused: Vec<Refused>,
}

impl Candidates {
    pub(super) fn refuse(&mut self, name: &str, reason: impl Into<String>) {
        self.refused.push(Refused { name: name.into(), reason: reason.into() });
    }

    /// The result of a family; an error that is specific to the family becomes a refusal with that reason.
    pub(super) fn unless_refused<T>(
        &mut self,
        name: &str,
        result: Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match result {
            Ok(found) => return Ok(Some(found)),
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => self.refuse(name, error.to_string()),
        }
        Ok(None)
    }
}

/// The inputs of the search for candidates.
pub(super) struct Bench<'a> {
    pub(super) workshop: &'a Workshop,
    pub(super) deployed: Draft,
    /// Calibration rows, with the deployed model's answers and their meaning.
    pub(super) rows: Rows,
    pub(super) said: Vec<Tensor>,
    pub(super) meanings: Vec<Meaning>,
    /// Rows for refitting weights: the calibration rows, and more if there are more.
    pub(super) fitted: Rows,
    pub(super) brought: &'a [(String, Bytes)],
    pub(super) teaches: bool,
    pub(super) progress: &'a dyn Progress,
    /// Whether 8-bit copies of smaller graphs are worth making.
    pub(super) is_light_faster: Cell<bool>,
    /// The best steps of 8-bit weights on this processor.
    pub(super) steps: Cell<Steps>,
}

impl<'a> Bench<'a> {
    /// A bench for calibration rows with the deployed model's answers.
    pub(super) fn new(
        (workshop, progress): (&'a Workshop, &'a dyn Progress),
        deployed: Draft,
        (rows, said): (Rows, Vec<Tensor>),
        meanings: Vec<Meaning>,
    ) -> Self {
        Self {
            workshop,
            deployed,
            fitted: rows.clone(),
            rows,
            said,
            meanings,
            brought: &[],
            teaches: false,
            progress,
            is_light_faster: Cell::new(false),
            steps: Cell::default(),
        }
    }

    /// Makes all candidates. They are added one by one, so that a search that is stopped keeps them.
    pub(super) fn candidates(&self, all: &mut Candidates) -> Result<(), Error> {
        self.progress.doing("rewriting");
        let base = self.rewritten(all)?;
        self.eight_bits(&base, all)?;
        self.pruned(&base, all)?;
        self.shortened(&base, all)?;
        self.brought(all)
    }

    /// Models that the user supplied, if their inputs and outputs are the deployed model's.
    fn brought(&self, all: &mut Candidates) -> Result<(), Error> {
        let deployed = Signature::from(&self.deployed.clone().finish()?.inspect());
        for (name, file) in self.brought {
            let model = Model::from_bytes(file.clone(), &Limits::default())?;
            let own = Signature::from(&model.inspect());
            if let Some(problem) = misfit(&deployed, &own, name) {
                all.refuse(name, problem);
            } else if let Some(side) = misplaced(&deployed, &own) {
                let reason = format!(
                    "its {side} are in another order than the deployed model's: export it with the same order"
                );
                all.refuse(name, reason);
            } else {
                self.smaller((name, "brought".into(), &Draft::new(&model)?), all)?;
            }
        }
        Ok(())
    }

    /// Fewer channels inside of blocks, and of streams.
    fn pruned(&self, base: &Draft, all: &mut Candidates) -> Result<(), Error> {
        self.progress.doing("choosing channels");
        let pruning = Pruning::of(self.workshop, base, &self.fitted, self.progress);
        let Some(pruning) = all.unless_refused("pruned", pruning)? else { return Ok(()) };
        let depths = [("pruned", Depth::Inside, &KEPT[..]), ("narrowed", Depth::Streams, &KEPT_OF_ALL)];
        let depths: Vec<_> = depths.into_iter().filter(|(_, depth, _)| pruning.reaches(*depth)).collect();
        if depths.is_empty() {
            all.refuse("pruned", pruning.refusal());
        }
        for (name, depth, shares) in depths {
            let shares = shares.iter().map(|&percent| (percent, f64::from(percent) / 100.0));
            for (percent, share) in shares.filter(|(_, share)| pruning.narrows(*share, depth)) {
                let (draft, how) = pruning.cut(share, depth)?;
                self.smaller((&format!("{name}-{percent}"), how, &draft), all)?;
            }
        }
        Ok(())
    }

    /// Fewer layers, if the graph repeats.
    fn shortened(&self, base: &Draft, all: &mut Candidates) -> Result<(), Error> {
        self.progress.doing("looking for layers that repeat");
        let survey = Survey::of(self.workshop, base, &self.rows)?;
        let Some(repeats) = repeats(base, &Links::of(base), &survey) else { return Ok(()) };
        let shortcuts = Shortcuts::of(self.workshop, base, &self.fitted, (repeats, &survey, self.progress));
        let Some(Some(shortcuts)) = all.unless_refused("layers", shortcuts)? else { return Ok(()) };
        for (name, how, draft) in shortcuts.cut(base)? {
            self.smaller((&name, how, &draft), all)?;
        }
        Ok(())
    }

    /// A smaller graph in 32 bits and in 8.
    pub(super) fn smaller(
        &self,
        (name, how, draft): (&str, String, &Draft),
        all: &mut Candidates,
    ) -> Result<(), Error> {
        self.progress.doing(&format!("cutting: {name}"));
        if all.made.iter().map(|made| made.model.bytes()).sum::<u64>() > MOST_BYTES {
            all.refuse(name, "the candidates before it have more than 2 GiB together");
            return Ok(());
        }
        let float = self.teaches.then(|| draft.clone());
        let draft = &quicken(self.workshop, draft, &self.rows)?;
        let smaller = self.load(name, how.clone(), draft);
        let Some(smaller) = all.unless_refused(name, smaller)? else { return Ok(()) };
        all.made.push(Made { float, ..smaller });
        if self.is_light_faster.get() { self.lighter((name, &how, draft), all) } else { Ok(()) }
    }

    /// The graph with exact rewrites, which is a candidate too, if any applies and the outputs stay equal; otherwise as it
    /// is deployed.
    fn rewritten(&self, all: &mut Candidates) -> Result<Draft, Error> {
        let mut apart = 0.0;
        // Functions that fall before they reach a maximum must stay before it.
        for postpones in [true, false] {
            let draft = rewrite(self.workshop, &self.deployed, &self.rows, postpones)?;
            let quick = quicken(self.workshop, &draft, &self.rows)?;
            if quick.nodes == self.deployed.nodes {
                return Ok(self.deployed.clone());
            }
            let how = format!("{} nodes of {}", quick.nodes.len(), self.deployed.nodes.len());
            let Some(exact) = all.unless_refused("exact", self.load("exact", how, &quick))? else {
                return Ok(self.deployed.clone());
            };
            if exact.apart <= ROUNDING {
                all.made.push(exact);
                return Ok(draft);
            }
            apart = exact.apart;
        }
        let reason = format!("its outputs differ from the deployed model's by {apart:.1e} of their size");
        all.refuse("exact", reason);
        Ok(self.deployed.clone())
    }

    pub(super) fn load(&self, name: &str, how: String, draft: &Draft) -> Result<Made, Error> {
        let model = self.workshop.store(name, draft.clone().finish()?.bytes())?;
        let mut runner = self.workshop.load_stored(&model)?;
        let answers = answers(&mut runner, &self.rows, self.progress)?;
        let distance = mean_distance(&self.said, &answers, &self.meanings);
        let apart = mean_distance(&self.said, &answers, &[]);
        Ok(Made { name: name.into(), how, model, float: None, distance, apart })
    }
}
