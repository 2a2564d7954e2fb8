//! Decodes a missing prediction from the outputs of its group.
//!
//! Each floating point output that the client requested is decoded on its own. A client that also wants another type of
//! output gets no reconstruction, because a partial answer is useless. The result is checked, so a NaN from a parity
//! model never reaches a client.

use std::borrow::Cow;
use std::sync::Arc;

use parm_dispatch::{GroupId, QueryId, Source};
use parm_encoder::{Received, Set};
use parm_parity_models::bundle::{ClassScores, Meaning};
use parm_protocol::{DataType, NamedTensor, Tensor, TensorMetadata};
use smallvec::SmallVec;

use super::coder::Coder;
use super::work::Scratch;
use crate::error::Error;
use crate::serve::inputs::Inputs;
use crate::serve::outputs::Outputs;
use crate::serve::pool::Pool;

/// A prediction to decode.
pub(crate) struct Decoding {
    pub(crate) group: GroupId,
    pub(crate) query: QueryId,
    pub(crate) pool: Arc<Pool>,
    pub(crate) coder: Arc<Coder>,
    /// The query's slot, and the slots of its row that hold a query.
    pub(crate) slot: usize,
    pub(crate) members: Set,
    pub(crate) parts: Vec<Arrived>,
    /// The query's request, with the requested outputs.
    pub(crate) inputs: Arc<Inputs>,
}

/// An output that has arrived.
pub(crate) struct Arrived {
    pub(crate) source: Source,
    pub(crate) outputs: Arc<Outputs>,
    pub(crate) row: usize,
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
        let of = |part: &Arrived| -> usize {
            part.outputs.tensors.iter().map(|o| o.tensor.data().len() / part.outputs.rows.max(1)).sum()
        };
        self.parts.iter().map(of).sum()
    }

    pub(super) fn runs_models(&self) -> bool {
        self.coder.code.spec().kind.runs_nets()
    }

    pub(super) fn decode(&self, scratch: &mut Scratch) -> Result<Decoded, Error> {
        let wanted = &self.inputs.outputs;
        let is_wanted = |declared: &&TensorMetadata| {
            wanted.is_empty() || wanted.iter().any(|output| output.name == declared.name)
        };
        let declared: SmallVec<[&TensorMetadata; 4]> =
            self.pool.metadata.outputs.iter().filter(is_wanted).collect();
        let tensors: Vec<Tensor> =
            declared.iter().map(|declared| self.output(declared, scratch)).collect::<Result<_, _>>()?;
        let values: SmallVec<[Cow<'_, [f32]>; 4]> =
            tensors.iter().map(Tensor::as_f32).collect::<Result<_, _>>()?;
        let scores = declared.iter().zip(&tensors).zip(&values).filter_map(|((declared, tensor), values)| {
            ClassScores::new(values, tensor.shape().last().copied().unwrap_or(1), self.meaning(declared))
        });
        let confidence = self.coder.calibration.confidence(scores);
        drop(values);
        let named = declared.iter().zip(tensors);
        let named = named.map(|(declared, tensor)| NamedTensor::new(declared.name.clone(), tensor));
        Ok((Outputs::row(named.collect()), confidence))
    }

    fn output(&self, declared: &TensorMetadata, scratch: &mut Scratch) -> Result<Tensor, Error> {
        let missing = || Error::PartMissing { output: declared.name.clone() };
        let rows: SmallVec<[(Source, Tensor); 8]> = self
            .parts
            .iter()
            .map(|part| Ok((part.source, self.row(part, declared)?)))
            .collect::<Result<_, Error>>()?;
        let recovery = self.coder.code.recovery();
        let mut floats: SmallVec<[Cow<'_, [f32]>; 8]> = SmallVec::new();
        for (_, row) in &rows {
            floats.push(row.as_f32()?);
        }
        let mut predictions: SmallVec<[Option<&[f32]>; 16]> = SmallVec::from_elem(None, recovery.k);
        let mut parities: SmallVec<[Option<&[f32]>; 4]> = SmallVec::from_elem(None, recovery.parities);
        let mut parity = None;
        for ((source, row), floats) in rows.iter().zip(&floats) {
            let place = match source {
                Source::Slot(slot) => predictions.get_mut(usize::from(*slot)),
                Source::Parity(index) => {
                    parity = Some(row);
                    parities.get_mut(usize::from(*index))
                }
            };
            *place.ok_or_else(missing)? = Some(&**floats);
        }
        let parity = parity.ok_or_else(missing)?;
        let scale = self.coder.code.output_scale();
        let mut prediction = vec![0.0; parity.len() / scale];
        let received = Received { members: self.members, predictions: &predictions, parities: &parities };
        self.coder.code.decode(received, self.slot, &mut prediction, &mut scratch.workspace)?;
        if !prediction.iter().all(|value| value.is_finite()) {
            return Err(Error::NotFinite { output: declared.name.clone() });
        }
        let shape = self.shape(declared, parity, scale).ok_or_else(missing)?;
        Ok(Tensor::from_f32(shape, &prediction)?)
    }

    /// One output of one part.
    fn row(&self, part: &Arrived, declared: &TensorMetadata) -> Result<Tensor, Error> {
        let output = part.outputs.tensors.iter().find(|output| output.name == declared.name);
        let output = output.ok_or_else(|| Error::PartMissing { output: declared.name.clone() })?;
        let datatype = output.tensor.datatype();
        if datatype != DataType::Fp32 {
            return Err(Error::NotDecodable { output: declared.name.clone(), datatype });
        }
        Ok(if self.pool.batched { output.tensor.slice_rows(part.row, 1)? } else { output.tensor.clone() })
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

    pub(super) fn meaning(&self, declared: &TensorMetadata) -> Meaning {
        let known = self.coder.meanings.iter().find(|(name, _)| *name == declared.name);
        known.map_or(Meaning::Values, |(_, meaning)| *meaning)
    }
}
