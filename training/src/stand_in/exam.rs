//! Measures a stand-in on rows that no training saw.

use bytes::Bytes;
use parm_parity_models::bundle::{Meaning, StandInAccuracy};
use parm_parity_models::onnx::{Limits, Model};

use crate::distil::predictions;
use crate::evaluate::{Metric, Truth, score};
use crate::parity::{Materials, copy, hold, taught};
use crate::{Device, Error, Network};

/// The scores of a stand-in and of the deployed model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The score of an answer.
    pub metric: Metric,
    /// The deployed model's score; perfect without labels.
    pub deployed: f64,
    /// The stand-in's score.
    pub stand_in: f64,
    /// Share of the rows on which both agree; `None` if answers are numbers.
    pub agreement: Option<f64>,
}

impl Standing {
    /// The form that a bundle stores; `None` for errors, which are not fractions of 1.
    pub fn accuracy(&self) -> Option<StandInAccuracy> {
        let Self { metric, deployed, stand_in, .. } = *self;
        metric.ascends().then(|| StandInAccuracy { metric: metric.to_string(), deployed, stand_in })
    }
}

/// Runs both models on every row. `metric` is the score of an answer; by default the highest score of a classifier.
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
        let message = "several outputs are judged as numbers: use --metric absolute-error, or none".into();
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
