//! Decodes a missing prediction from the outputs of its group.
//!
//! Each floating point output that the client requested is decoded on its own. A client that also wants another type of
//! output gets no reconstruction, because a partial answer is useless. The result is checked, so a NaN from a parity
//! model never reaches a client.

use std::borrow::Cow;
use std::sync::Arc;

use parm_dispatcher::{GroupKey, QueryKey};
use parm_encoder::{Received, Set, Workspace};
use parm_parity_models::bundle::ClassScores;
use parm_protocol::{DataType, NamedTensor, Tensor, TensorMetadata};
use smallvec::SmallVec;

use super::codes::Coder;
use crate::error::Error;
use crate::serve::call::{Output, QueryRow};
use crate::serve::outputs::{Outputs, is_wanted};
use crate::serve::pool::Pool;

/// A prediction to decode.
pub(crate) struct Decoding {
    pub(crate) group: GroupKey,
    pub(crate) query: QueryKey,
    pub(crate) row: QueryRow,
    pub(crate) pool: Arc<Pool>,
    pub(crate) coder: Arc<Coder>,
    /// The query's slot, and the slots that hold a query.
    pub(crate) slot: usize,
    pub(crate) members: Set,
    /// The predictions and parities that have arrived.
    pub(crate) predictions: Vec<Option<Output>>,
    pub(crate) parities: Vec<Option<Output>>,
}

/// A decoded prediction with its confidence.
pub(crate) type Decoded = (Outputs, Option<f32>);

/// Whether codes reconstruct an output: they add and subtract numbers of this type only.
pub(crate) fn is_decodable(output: &TensorMetadata) -> bool {
    output.datatype == DataType::Fp32.as_str()
}

impl Decoding {
    /// Approximate number of bytes read.
    pub(super) fn bytes(&self) -> usize {
        let of = |part: &Output| -> usize {
            part.outputs.tensors.iter().map(|o| o.tensor.data().len() / part.outputs.rows.max(1)).sum()
        };
        self.predictions.iter().chain(&self.parities).flatten().map(of).sum()
    }

    pub(super) fn runs_models(&self) -> bool {
        self.coder.code.spec().kind.runs_nets()
    }

    pub(super) fn decode(&self, workspace: &mut Workspace) -> Result<Decoded, Error> {
        let wanted = &self.row.call.inputs.outputs;
        let declared = self.pool.metadata.outputs.iter();
        let declared: SmallVec<[&TensorMetadata; 4]> =
            declared.filter(|declared| is_wanted(wanted, &declared.name)).collect();
        let tensors: Vec<Tensor> =
            declared.iter().map(|declared| self.output(declared, workspace)).collect::<Result<_, _>>()?;
        let values: SmallVec<[Cow<'_, [f32]>; 4]> =
            tensors.iter().map(Tensor::as_f32).collect::<Result<_, _>>()?;
        let scores = declared.iter().zip(&tensors).zip(&values).filter_map(|((declared, tensor), values)| {
            ClassScores::new(
                values,
                tensor.shape().last().copied().unwrap_or(1),
                self.coder.meaning(&declared.name),
            )
        });
        let confidence = self.coder.calibration().confidence(scores);
        drop(values);
        let named = declared.iter().zip(tensors);
        let named = named.map(|(declared, tensor)| NamedTensor::new(declared.name.clone(), tensor));
        Ok((Outputs::row(named.collect()), confidence))
    }

    fn output(&self, declared: &TensorMetadata, workspace: &mut Workspace) -> Result<Tensor, Error> {
        let missing = || missing(declared);
        let rows = |parts: &[Option<Output>]| {
            let row = |part: &Option<Output>| part.as_ref().map(|part| self.row(part, declared)).transpose();
            parts.iter().map(row).collect::<Result<SmallVec<[Option<Tensor>; 8]>, Error>>()
        };
        let (predictions, parities) = (rows(&self.predictions)?, rows(&self.parities)?);
        let parity = parities.iter().flatten().next_back().ok_or_else(missing)?;
        let scale = self.coder.code.output_scale();
        let mut prediction = vec![0.0; parity.len() / scale];
        let (own, others) = (floats(&predictions)?, floats(&parities)?);
        let mut own: SmallVec<[Option<&[f32]>; 16]> = own.iter().map(Option::as_deref).collect();
        own.resize(self.coder.code.recovery().k, None); // blank slots of a group that was not full
        let others: SmallVec<[Option<&[f32]>; 4]> = others.iter().map(Option::as_deref).collect();
        let received = Received { members: self.members, predictions: &own, parities: &others };
        self.coder.code.decode(received, self.slot, &mut prediction, workspace)?;
        if !prediction.iter().all(|value| value.is_finite()) {
            let name = &declared.name;
            return Err(Error::NotCoded(format!("reconstruction of output '{name}' is not finite")));
        }
        let shape = self.shape(declared, parity, scale).ok_or_else(missing)?;
        Ok(Tensor::from_f32(shape, &prediction)?)
    }

    /// One output of one part.
    fn row(&self, part: &Output, declared: &TensorMetadata) -> Result<Tensor, Error> {
        let row = part.outputs.row_named(&declared.name, part.row, self.pool.batched);
        let row = row.ok_or_else(|| missing(declared))?;
        match row.datatype() {
            DataType::Fp32 => Ok(row),
            datatype => {
                let name = &declared.name;
                Err(Error::NotCoded(format!(
                    "cannot reconstruct output '{name}': it is {datatype}, not FP32"
                )))
            }
        }
    }

    /// Shape of a prediction, which may differ from a parity output's: that may have an axis for its slots.
    fn shape(&self, declared: &TensorMetadata, parity: &Tensor, scale: usize) -> Option<Vec<usize>> {
        let batch = usize::from(self.pool.batched);
        let fixed: Option<Vec<usize>> =
            declared.shape.iter().skip(batch).map(|&dim| usize::try_from(dim).ok()).collect();
        let row = match fixed {
            Some(row) => row,
            None if scale == 1 => parity.shape().get(batch..)?.to_vec(),
            None if parity.shape().len() == declared.shape.len() + 1 => {
                parity.shape().get(batch + 1..)?.to_vec()
            }
            None => return None,
        };
        Some(std::iter::repeat_n(1, batch).chain(row).collect())
    }
}

fn missing(declared: &TensorMetadata) -> Error {
    Error::NotCoded(format!("cannot reconstruct output '{}': an input of the code lacks it", declared.name))
}

/// The values of the rows that are there.
pub(super) type Rows<'a> = SmallVec<[Option<Cow<'a, [f32]>>; 8]>;

/// Their floats, in place where they are aligned.
pub(super) fn floats(rows: &[Option<Tensor>]) -> Result<Rows<'_>, Error> {
    Ok(rows.iter().map(|row| row.as_ref().map(Tensor::as_f32).transpose()).collect::<Result<_, _>>()?)
}
