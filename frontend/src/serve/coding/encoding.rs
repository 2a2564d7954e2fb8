//! Encodes the queries of a group into the inputs of its parity models.
//!
//! Each input tensor is read once, in place if it is aligned.

use std::sync::Arc;

use bytes::Bytes;
use parm_encoder::{Element, Input, Members, Workspace};
use parm_protocol::{DataType, NamedTensor, Tensor};
use smallvec::SmallVec;

use super::decoding::floats;
use crate::error::Error;
use crate::serve::coded::Grouped;
use crate::serve::inputs::Row;
use crate::serve::pool::Pool;

/// A group to encode.
pub(crate) struct Encoding {
    pub(crate) group: Grouped,
    pub(crate) pool: Arc<Pool>,
    /// The query of each slot; none in a blank one.
    pub(crate) slots: SmallVec<[Option<Row>; 4]>,
}

/// Inputs of one parity.
pub(crate) type ParityQuery = Vec<NamedTensor>;

/// The floats of a parity, aligned.
struct Floats(Vec<f32>);

impl AsRef<[u8]> for Floats {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Encoding {
    /// Number of bytes read.
    pub(super) fn bytes(&self) -> usize {
        let of = |row: &Row| -> usize {
            let tensors = &row.inputs.tensors;
            tensors.iter().map(|input| input.tensor.data().len() / row.inputs.rows.max(1)).sum()
        };
        self.slots.iter().flatten().map(of).sum()
    }

    pub(super) fn runs_models(&self) -> bool {
        self.group.coder.code.spec().kind.runs_nets()
    }

    pub(super) fn encode(&self, workspace: &mut Workspace) -> Result<Vec<ParityQuery>, Error> {
        let first = self.slots.iter().flatten().next().ok_or(parm_encoder::Error::EmptyGroup)?;
        let parities = self.group.coder.code.recovery().parities;
        let mut queries = vec![ParityQuery::new(); parities];
        for (place, input) in first.inputs.tensors.iter().enumerate() {
            let (dims, buffers) = self.column(place, input, workspace)?;
            let mut shape: SmallVec<[usize; 4]> = SmallVec::new();
            shape.extend(self.pool.batched.then_some(1));
            shape.extend_from_slice(&dims);
            for (query, buffer) in queries.iter_mut().zip(buffers) {
                let tensor = Tensor::new(input.tensor.datatype(), shape.clone(), buffer)?;
                query.push(NamedTensor::new(input.name.as_str(), tensor));
            }
        }
        Ok(queries)
    }

    /// Encodes one input, that of the first query being `own`. Returns the dimensions of a parity query and a buffer for each
    /// parity.
    fn column(
        &self,
        place: usize,
        own: &NamedTensor,
        workspace: &mut Workspace,
    ) -> Result<(Vec<usize>, SmallVec<[Bytes; 4]>), Error> {
        let (code, datatype) = (&self.group.coder.code, own.tensor.datatype());
        let bytes = datatype.size().ok_or_else(|| {
            Error::NotCoded(format!("cannot encode input '{}': codes do not support {datatype}", own.name))
        })?;
        let element = if datatype == DataType::Fp32 { Element::Float32 } else { Element::Bytes(bytes) };
        let dims = own.tensor.shape().get(usize::from(self.pool.batched)..).unwrap_or_default();
        let input = Input { dims, element };
        let parity_dims = code.parity_dims(input)?;
        let len = dims.iter().product::<usize>() * code.query_scale();
        let parities = code.recovery().parities;
        let query = |slot: &Option<Row>| {
            let Some((row, input)) =
                slot.as_ref().and_then(|row| Some((row, row.inputs.tensors.get(place)?)))
            else {
                return Ok(None);
            };
            Ok(Some(match self.pool.batched {
                true => input.tensor.slice_rows(row.index, 1)?,
                false => input.tensor.clone(),
            }))
        };
        let queries = self.slots.iter().map(query).collect::<Result<SmallVec<[_; 8]>, Error>>()?;
        let buffers = if element == Element::Float32 {
            let mut buffers = vec![vec![0.0f32; len]; parities];
            let mut outs: SmallVec<[&mut [f32]; 4]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
            let queries = floats(&queries)?;
            let queries: SmallVec<[Option<&[f32]>; 8]> = queries.iter().map(Option::as_deref).collect();
            code.encode(Members { input, queries: &queries }, &mut outs, workspace)?;
            drop(outs);
            buffers.into_iter().map(|floats| Bytes::from_owner(Floats(floats))).collect()
        } else {
            let mut buffers = vec![vec![0u8; len * bytes]; parities];
            let mut outs: SmallVec<[&mut [u8]; 4]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
            let queries = queries.iter().map(|query| query.as_ref().map(|query| &query.data()[..]));
            let queries: SmallVec<[Option<&[u8]>; 8]> = queries.collect();
            code.encode_bytes(Members { input, queries: &queries }, &mut outs)?;
            drop(outs);
            buffers.into_iter().map(Bytes::from).collect()
        };
        Ok((parity_dims, buffers))
    }
}
