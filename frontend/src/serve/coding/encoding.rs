//! Encodes the queries of a group into the inputs of its parity models.
//!
//! Each input tensor is read once.
//! Arithmetic codes read it in place if it is aligned, otherwise through a reused buffer.

use std::sync::Arc;

use parm_encoder::{Element, Input, Members};
use parm_protocol::{DataType, NamedTensor, Tensor};
use smallvec::SmallVec;

use super::buffers::{Buffer, Stock};
use super::coder::Coder;
use super::work::Scratch;
use crate::error::Error;
use crate::serve::coded::Grouped;
use crate::serve::inputs::Row;
use crate::serve::pool::Pool;

/// A group to encode.
pub(crate) struct Encoding {
    pub(crate) group: Grouped,
    pub(crate) coder: Arc<Coder>,
    pub(crate) pool: Arc<Pool>,
    /// The query of each slot; none in a blank one.
    pub(crate) slots: SmallVec<[Option<Row>; 4]>,
}

/// Inputs of one parity.
#[derive(Clone, Debug)]
pub(crate) struct ParityQuery {
    pub(crate) inputs: Vec<NamedTensor>,
}

/// One input of the whole group.
struct Column<'a> {
    name: &'a str,
    datatype: DataType,
    /// Dimensions of one query.
    dims: &'a [usize],
    /// Bytes of one query.
    bytes: usize,
    place: usize,
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
        self.coder.code.spec().kind.runs_nets()
    }

    pub(super) fn encode(
        &self,
        stock: &Arc<Stock>,
        scratch: &mut Scratch,
    ) -> Result<Vec<ParityQuery>, Error> {
        let first = self.slots.iter().flatten().next().ok_or(parm_encoder::Error::EmptyGroup)?;
        let parities = self.coder.code.recovery().parities;
        let mut queries = vec![ParityQuery { inputs: Vec::new() }; parities];
        for (place, input) in first.inputs.tensors.iter().enumerate() {
            let column = Column::of(place, input, self.pool.batched)?;
            let (dims, buffers) = self.column(&column, stock, scratch)?;
            let mut shape: SmallVec<[usize; 4]> = SmallVec::new();
            shape.extend(self.pool.batched.then_some(1));
            shape.extend_from_slice(&dims);
            for (query, buffer) in queries.iter_mut().zip(buffers) {
                let tensor = Tensor::new(column.datatype, shape.clone(), buffer.freeze())?;
                query.inputs.push(NamedTensor::new(column.name, tensor));
            }
        }
        Ok(queries)
    }

    /// Encodes one input. Returns the dimensions of a parity query and a buffer for each parity.
    fn column(
        &self,
        column: &Column<'_>,
        stock: &Arc<Stock>,
        scratch: &mut Scratch,
    ) -> Result<(Vec<usize>, SmallVec<[Buffer; 4]>), Error> {
        let code = &self.coder.code;
        let element = match (column.datatype, column.datatype.size()) {
            (DataType::Fp32, _) => Element::Float32,
            (_, Some(bytes)) => Element::Bytes(bytes),
            (datatype, None) => return Err(Error::NotCodable { input: column.name.into(), datatype }),
        };
        let input = Input { dims: column.dims, element };
        let dims = code.parity_dims(input)?;
        let scale = code.query_scale();
        let parities = code.recovery().parities;
        let mut buffers: SmallVec<[Buffer; 4]> =
            (0..parities).map(|_| stock.take(column.bytes * scale)).collect();
        if element == Element::Float32 {
            let len = column.bytes / 4;
            align(&self.slots, column, &mut scratch.aligned)?;
            let queries: SmallVec<[Option<&[f32]>; 8]> = self
                .queries(column)
                .enumerate()
                .map(|(slot, bytes)| {
                    bytes.map(|bytes| floats(bytes).unwrap_or_else(|| &scratch.aligned[slot * len..][..len]))
                })
                .collect();
            let mut outs: SmallVec<[&mut [f32]; 4]> =
                buffers.iter_mut().map(|buffer| &mut buffer.floats()[..len * scale]).collect();
            code.encode(Members { input, queries: &queries }, &mut outs, &mut scratch.workspace)?;
        } else {
            let queries: SmallVec<[Option<&[u8]>; 8]> = self.queries(column).collect();
            let mut outs: SmallVec<[&mut [u8]; 4]> =
                buffers.iter_mut().map(|buffer| &mut buffer.bytes()[..column.bytes * scale]).collect();
            code.encode_bytes(Members { input, queries: &queries }, &mut outs)?;
        }
        Ok((dims, buffers))
    }

    /// Bytes of the query in every slot.
    fn queries<'a>(&'a self, column: &'a Column<'_>) -> impl Iterator<Item = Option<&'a [u8]>> {
        self.slots.iter().map(move |slot| bytes(slot, column))
    }
}

impl<'a> Column<'a> {
    fn of(place: usize, input: &'a NamedTensor, batched: bool) -> Result<Self, Error> {
        let (tensor, name) = (&input.tensor, input.name.as_str());
        let dims = tensor.shape().get(usize::from(batched)..).unwrap_or_default();
        let size = tensor.datatype().size();
        let size =
            size.ok_or_else(|| Error::NotCodable { input: name.into(), datatype: tensor.datatype() })?;
        Ok(Self {
            name,
            datatype: tensor.datatype(),
            dims,
            bytes: dims.iter().product::<usize>() * size,
            place,
        })
    }
}

fn bytes<'a>(slot: &'a Option<Row>, column: &Column<'_>) -> Option<&'a [u8]> {
    let row = slot.as_ref()?;
    let tensor = &row.inputs.tensors.get(column.place)?.tensor;
    tensor.data().get(row.index * column.bytes..(row.index + 1) * column.bytes)
}

/// Copies unaligned floats to an aligned buffer.
fn align(slots: &[Option<Row>], column: &Column<'_>, aligned: &mut Vec<f32>) -> Result<(), Error> {
    let len = column.bytes / 4;
    for (index, slot) in slots.iter().enumerate() {
        let Some(bytes) = bytes(slot, column) else { continue };
        if floats(bytes).is_some() {
            continue;
        }
        if aligned.len() < slots.len() * len {
            aligned.resize(slots.len() * len, 0.0);
        }
        let values = bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
        aligned[index * len..][..len].iter_mut().zip(values).for_each(|(to, value)| *to = value);
    }
    Ok(())
}

/// Views bytes as floats if they are aligned and in native order.
pub(super) fn floats(bytes: &[u8]) -> Option<&[f32]> {
    if cfg!(target_endian = "little") { bytemuck::try_cast_slice(bytes).ok() } else { None }
}
