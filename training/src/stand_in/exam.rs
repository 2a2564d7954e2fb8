//! How good a stand-in is on rows that no training saw.

use bytes::Bytes;
use parm_parity_models::bundle::{Meaning, StandInAccuracy};
use parm_parity_models::onnx::{Limits, Model};

use crate::distil::predictions;
use crate::evaluate::{Metric, Truth, score};
use crate::parity::{Materials, copy, hold, taught};
use crate::{Device, Error, Network};

/// What a stand-in is worth beside the deployed model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// How answers are judged.
    pub metric: Metric,
    /// The deployed model's score; perfect where there are no labels.
    pub deployed: f64,
    /// The stand-in's.
    pub stand_in: f64,
    /// Share of the rows of which both say the same; none where answers are numbers.
    pub agreement: Option<f64>,
}

impl Standing {
    /// As a bundle stores it; `None` for errors, which are no fraction of 1.
    pub fn accuracy(&self) -> Option<StandInAccuracy> {
        let Self { metric, deployed, stand_in, .. } = *self;
        metric.ascends().then(|| StandInAccuracy { metric: metric.to_string(), deployed, stand_in })
    }
}

/// Asks both models about every row. `metric`: how answers are judged; of a classifier by the highest score unless
/// something else is said.
pub fn examine(
    materials: Materials<'_>,
    (stand_in, meaning): (&Bytes, Meaning),
    metric: Option<Metric>,
    device: Device,
) -> Result<Standing, Error> {
    let deployed = Network::new(copy(materials.graph)?, device)?.taking(materials.samples)?.saying_all()?;
    let set = taught(materials, materials.teacher.unwrap_or(&deployed))?;
    let are_several = deployed.widths(materials.samples)?.len() > 1;
    if are_several && metric.is_some_and(|metric| metric != Metric::AbsoluteError) {
        let message =
            "several outputs are judged by their numbers: give --metric absolute-error, or none".into();
        return Err(Error::Setting { message });
    }
    let classes = meaning.has_classes() && !are_several;
    hold(&set, classes)?;
    let model = Model::from_bytes(stand_in.clone(), &Limits::default())?;
    let network = Network::new(model, device)?.taking(materials.samples)?.saying_all()?;
    let answers = predictions(&network, &set.inputs)?;
    let metric = metric.unwrap_or(if classes { Metric::TOP_1 } else { Metric::AbsoluteError });
    let truth = match (&set.labels, &materials.samples.values) {
        (Some(labels), _) if classes => Truth::Classes(labels.clone()),
        (_, Some(values)) if !classes => Truth::Values(values.clone()),
        _ => Truth::deployed(&set.outputs, metric),
    };
    let said = Truth::deployed(&set.outputs, Metric::TOP_1);
    Ok(Standing {
        metric,
        deployed: score(metric, &set.outputs, &truth)?,
        stand_in: score(metric, &answers, &truth)?,
        agreement: classes.then(|| score(Metric::TOP_1, &answers, &said)).transpose()?,
    })
}
