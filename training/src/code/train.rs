//! Trains learned codes.

use bytes::Bytes;
use parm_encoder::{CodeSpec, Kind};
use parm_parity_models::bundle::Meaning;
use parm_parity_models::onnx::{Model, rewrite};

use super::nets::Sizes;
use super::task::{Learning, cases, rows};
use super::{CodeLoss, CodeRecipe, Encoder};
use crate::data::Samples;
use crate::fit::{self, Epoch, Surroundings};
use crate::groups::Sampling;
use crate::learn::{Marks, Materials, fingerprint, hold, meaning as graph_meaning, taught};
use crate::{Device, Error, Network};

/// Maximum number of queries: the cases of lost predictions multiply.
const MAX_K: usize = 8;

/// A trained code.
#[derive(Clone, Debug)]
pub struct TrainedCode {
    /// The code.
    pub code: CodeSpec,
    /// The encoder's ONNX file.
    pub encoder: Bytes,
    /// The decoder's.
    pub decoder: Bytes,
    /// The marks on held-out groups.
    pub marks: Marks,
    /// The marks on the test rows, if any.
    pub tested: Option<Marks>,
    /// The meaning of the deployed model's output.
    pub meaning: Meaning,
    /// The run's epochs.
    pub history: Vec<Epoch>,
    /// Rows that groups were drawn from.
    pub samples: usize,
    /// Groups in an epoch.
    pub groups: usize,
}

/// Trains encoder and decoder for a deployed model; training does not see the rows in `test`.
pub fn train(
    samples: &Samples,
    test: Option<&Samples>,
    deployed: &Model,
    recipe: &CodeRecipe,
    device: Device,
    around: Surroundings<'_>,
) -> Result<TrainedCode, Error> {
    check(recipe, samples)?;
    let network = Network::new(rewrite::Draft::new(deployed)?.finish()?, device)?;
    network.accepts(&samples.inputs)?;
    let materials = Materials { samples, graph: deployed, teacher: None, outputs: None };
    let set = taught(materials, &network)?;
    let meaning = graph_meaning(deployed);
    hold(&set, true)?;
    let seed = recipe.run.seed;
    let sizes = Sizes { k: recipe.k, r: recipe.r, dims: set.dims().to_vec(), values: set.values(), seed };
    if recipe.encoder == Encoder::Conv && sizes.dims.len() != 3 {
        return Err(Error::NotImages { dims: sizes.dims });
    }
    let encoder = match recipe.encoder {
        Encoder::Mlp => sizes.mlp_encoder()?,
        Encoder::Conv => sizes.conv_encoder()?,
    };
    let networks = vec![Network::new(encoder, device)?, Network::new(sizes.decoder()?, device)?];
    let fingerprint = fingerprint(&["code", &format!("{recipe:?}")], &set, &[deployed]);
    let (set, held_out) = set.split(recipe.held_out, seed);
    if held_out.len() < recipe.k {
        return Err(Error::TooFew { rows: held_out.len(), wanted: recipe.k });
    }
    let groups = ((set.len() / recipe.k) as f64 * f64::from(recipe.passes)).round().max(1.0) as usize;
    let sampling = Sampling { k: recipe.k, groups, blanks: 0.0, seed };
    let samples = set.len();
    let mut learning = Learning {
        networks,
        deployed: network,
        rows: rows(&set, recipe.loss, meaning)?,
        set,
        held_out,
        sampling,
        r: recipe.r,
        loss: recipe.loss,
        cases: cases(recipe.k, recipe.r),
    };
    let history = fit::run(&mut learning, &recipe.run, &fingerprint, around)?;
    let unseen = |samples| taught(Materials { samples, ..materials }, &learning.deployed);
    let tested = test.map(|test| learning.marks(&unseen(test)?)).transpose()?;
    Ok(TrainedCode {
        code: CodeSpec::new(Kind::Learned, recipe.k, recipe.r),
        encoder: learning.networks[0].export()?,
        decoder: learning.networks[1].export()?,
        marks: learning.marks(&learning.held_out)?,
        tested,
        meaning,
        history,
        samples,
        groups,
    })
}

fn check(recipe: &CodeRecipe, samples: &Samples) -> Result<(), Error> {
    let wrong = |message: String| Err(Error::Setting { message });
    match recipe {
        CodeRecipe { k, .. } if !(2..=MAX_K).contains(k) => wrong(format!("k must be from 2 to {MAX_K}")),
        CodeRecipe { k, r, .. } if *r == 0 || r > k => wrong("r must be from 1 to k".into()),
        CodeRecipe { passes, .. } if !(*passes > 0.0 && *passes <= 1000.0) => {
            wrong("passes must be above 0 and at most 1000".into())
        }
        CodeRecipe { loss: CodeLoss::Xent, .. } if samples.labels.is_none() => Err(Error::NoLabels),
        _ => recipe.run.check(),
    }
}
