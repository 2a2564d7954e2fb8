//! A request and its answer as bytes.

use bytes::{Buf, Bytes};
use parm_protocol::{DataType, NamedTensor, Tensor};
use serde::{Deserialize, Serialize};

const MOST_HEAD: usize = 1 << 20;

/// A request and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Rows of every input.
    pub inputs: Vec<NamedTensor>,
    /// The deployed model's answer; empty if another model answered.
    pub outputs: Vec<NamedTensor>,
}

/// The head of a record, before the bytes of its tensors.
#[derive(Serialize, Deserialize)]
struct Head {
    unix_ms: u64,
    inputs: Vec<Described>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<Described>,
}

#[derive(Serialize, Deserialize)]
struct Described {
    name: String,
    datatype: String,
    shape: Vec<usize>,
    bytes: usize,
}

impl Record {
    /// The encoded record: its length, that of its head, the head, and the tensors in order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let describe = |tensors: &[NamedTensor]| tensors.iter().map(Described::of).collect();
        let head =
            Head { unix_ms: self.unix_ms, inputs: describe(&self.inputs), outputs: describe(&self.outputs) };
        // Strings and numbers, which JSON can always express.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let tensors = || self.inputs.iter().chain(&self.outputs).map(|named| named.tensor.data());
        let length = 4 + head.len() + tensors().map(Bytes::len).sum::<usize>();
        let mut bytes = Vec::with_capacity(8 + length);
        bytes.extend((length as u64).to_le_bytes());
        bytes.extend((head.len() as u32).to_le_bytes());
        bytes.extend(head);
        tensors().for_each(|data| bytes.extend_from_slice(data));
        bytes
    }

    /// Takes the next record from the front; `None` at the end, or if the rest is not a whole record.
    pub(crate) fn take(rest: &mut Bytes) -> Option<Self> {
        let length = usize::try_from(rest.get(..8)?.get_u64_le()).ok()?;
        let end = length.checked_add(8).filter(|end| *end <= rest.len())?;
        let mut record = rest.split_to(end).split_off(8);
        let head = record.get(..4)?.get_u32_le() as usize;
        let head = (head <= MOST_HEAD && head + 4 <= record.len()).then(|| record.split_to(head + 4))?;
        let Head { unix_ms, inputs, outputs } = serde_json::from_slice(&head[4..]).ok()?;
        let mut tensors = |described: Vec<Described>| {
            let tensors = described.into_iter().map(|described| described.tensor(&mut record));
            tensors.collect::<Option<Vec<NamedTensor>>>()
        };
        Some(Self { unix_ms, inputs: tensors(inputs)?, outputs: tensors(outputs)? })
    }
}

impl Described {
    fn of(NamedTensor { name, tensor, .. }: &NamedTensor) -> Self {
        Self {
            name: name.clone(),
            datatype: tensor.datatype().as_str().into(),
            shape: tensor.shape().to_vec(),
            bytes: tensor.data().len(),
        }
    }

    fn tensor(self, rest: &mut Bytes) -> Option<NamedTensor> {
        let data = (self.bytes <= rest.len()).then(|| rest.split_to(self.bytes))?;
        let datatype: DataType = self.datatype.parse().ok()?;
        Some(NamedTensor::new(self.name, Tensor::new(datatype, self.shape.as_slice(), data).ok()?))
    }
}
