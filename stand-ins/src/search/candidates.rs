//! Candidates of every family, made from a few rows.

use bytes::Bytes;
use parm_parity_models::onnx::rewrite::Draft;
use parm_protocol::Tensor;

use super::{Refused, answers};
use crate::Error;
use crate::exact::{Maxima, rewrite};
use crate::int8::{Ranges, Scope, gather, quantise};
use crate::measure::mean_distance;
use crate::rows::Rows;
use crate::workshop::{Progress, Runner, Workshop};

/// A rewritten graph may be this far from the deployed one: sums in another order are rounded differently.
const ROUNDING: f64 = 1e-4;
/// Shares of the values that ranges leave out. The first is what mostly serves; the others are tried where there is time.
const LEFT_OUT: [f64; 5] = [1e-4, 1e-3, 3e-4, 1e-5, 0.0];

/// A candidate, loaded.
pub(super) struct Made {
    pub(super) name: String,
    /// How it was made, in a few words.
    pub(super) how: String,
    pub(super) model: Bytes,
    pub(super) runner: Runner,
}

/// What candidates are made with.
pub(super) struct Bench<'a> {
    pub(super) workshop: &'a Workshop,
    pub(super) deployed: Draft,
    /// Calibration rows, and what the deployed model says of them.
    pub(super) rows: Rows,
    pub(super) said: Vec<Tensor>,
    pub(super) progress: &'a dyn Progress,
}

impl Bench<'_> {
    /// All candidates, and what could not be made and why.
    pub(super) fn candidates(&self) -> Result<(Vec<Made>, Vec<Refused>), Error> {
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        self.progress.doing("rewriting");
        let exact = self.rewritten(Maxima::Proven, &mut refused)?;
        let base = match self.rewritten(Maxima::Seen, &mut Vec::new())? {
            Some((base, _)) => base,
            None => exact.as_ref().map_or_else(|| self.deployed.clone(), |(draft, _)| draft.clone()),
        };
        made.extend(exact.map(|(_, made)| made));
        self.eight_bits(&base, &mut made, &mut refused)?;
        Ok((made, refused))
    }

    /// The graph with exact rewrites, if there are any and they hold.
    fn rewritten(&self, maxima: Maxima, refused: &mut Vec<Refused>) -> Result<Option<(Draft, Made)>, Error> {
        let name = "exact".to_owned();
        let draft = rewrite(self.workshop, &self.deployed, &self.rows, maxima)?;
        if draft.nodes == self.deployed.nodes {
            return Ok(None);
        }
        let how = format!("{} nodes of {}", draft.nodes.len(), self.deployed.nodes.len());
        let (made, distance) = match self.load(&name, how, &draft) {
            Ok(loaded) => loaded,
            Err(Error::Stopped) => return Err(Error::Stopped),
            Err(error) => {
                refused.push(Refused { name, reason: error.to_string() });
                return Ok(None);
            }
        };
        if distance > ROUNDING {
            let reason =
                format!("its answers are {distance:.1e} of their size away from the deployed model's");
            refused.push(Refused { name, reason });
            return Ok(None);
        }
        Ok(Some((draft, made)))
    }

    fn eight_bits(
        &self,
        base: &Draft,
        made: &mut Vec<Made>,
        refused: &mut Vec<Refused>,
    ) -> Result<(), Error> {
        self.progress.doing("gathering ranges of values");
        let ranges = match gather(self.workshop, base, &self.rows) {
            Ok(ranges) => ranges,
            Err(error) => {
                refused.push(Refused { name: "int8".into(), reason: error.to_string() });
                return Ok(());
            }
        };
        let mut seen = Vec::new();
        for (name, scope) in [
            ("int8", Scope::All),
            ("int8-convolutions", Scope::Convolutions),
            ("int8-products", Scope::Products),
        ] {
            let Some(draft) = quantise(base, &ranges, scope, LEFT_OUT[0])? else { continue };
            // Of a graph without products, all of it are the convolutions.
            if seen.contains(&draft.nodes.len()) {
                continue;
            }
            seen.push(draft.nodes.len());
            self.progress.doing(&format!("quantising: {name}"));
            match self.best_range(name, base, &ranges, scope) {
                Ok(best) => made.extend(best),
                Err(Error::Stopped) => return Err(Error::Stopped),
                Err(error) => refused.push(Refused { name: name.into(), reason: error.to_string() }),
            }
        }
        if seen.is_empty() {
            let reason = "no convolution or product with constant weights whose values are known".into();
            refused.push(Refused { name: "int8".into(), reason });
        }
        Ok(())
    }

    /// The copy whose answers on calibration rows are nearest to the deployed model's.
    fn best_range(
        &self,
        name: &str,
        base: &Draft,
        ranges: &Ranges,
        scope: Scope,
    ) -> Result<Option<Made>, Error> {
        let mut best: Option<(Made, f64)> = None;
        for left_out in LEFT_OUT {
            let Some(draft) = quantise(base, ranges, scope, left_out)? else { continue };
            let how = format!("ranges leave out {} % of the values", (left_out * 1e5).round() / 1e3);
            let (made, distance) = self.load(name, how, &draft)?;
            if best.as_ref().is_none_or(|(_, least)| distance < *least) {
                best = Some((made, distance));
            }
        }
        Ok(best.map(|(made, _)| made))
    }

    /// Loads a graph, and says how far it is from the deployed model on calibration rows.
    fn load(&self, name: &str, how: String, draft: &Draft) -> Result<(Made, f64), Error> {
        let model = draft.clone().finish()?.bytes().clone();
        let mut runner = self.workshop.load(name, &model)?;
        let distance = mean_distance(&self.said, &answers(&mut runner, &self.rows, self.progress)?);
        Ok((Made { name: name.into(), how, model, runner }, distance))
    }
}
