//! A tensor in a body: name, datatype, shape and either its values or the size of its raw bytes. Lists enforce the bounds while they
//! are read: parts beyond a bound are never in memory.

use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::body::Blobs;
use super::data::{self, Values};
use super::parameters::{Joined, Split, Text};
use crate::bounds::{Parts, Room};
use crate::{DataType, Error, NamedTensor, Shape, Tensor};

/// A tensor as it is read; `data` stays text until the datatype and shape are known.
#[derive(serde::Deserialize)]
pub(super) struct Read<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    datatype: Text<'a>,
    shape: Dims,
    #[serde(default)]
    parameters: Split,
    #[serde(default, borrow)]
    data: Option<&'a RawValue>,
}

impl Read<'_> {
    /// Checks the tensor and takes its bytes: a slice of the body, or its JSON values converted.
    pub(super) fn finish(self, blobs: &mut Blobs, room: &mut Room) -> Result<NamedTensor, Error> {
        let name = self.name.0.into_owned();
        let datatype: DataType = self.datatype.0.parse()?;
        let shape = self.shape.0;
        let bytes = match (self.parameters.binary_data_size, self.data) {
            (Some(_), Some(_)) => {
                return Err(Error::malformed(format!(
                    "tensor '{name}' has both data and binary_data_size: send one"
                )));
            }
            (None, None) => {
                return Err(Error::malformed(format!(
                    "tensor '{name}' has neither data nor binary_data_size: send one"
                )));
            }
            (Some(size), None) => blobs.take(&name, size)?,
            (None, Some(json)) => {
                let beside = data::beside(json.get(), datatype);
                room.take(beside.saturating_add(data::room(json.get(), datatype, &shape)))?;
                data::read(json.get(), datatype, &shape)
                    .map_err(|message| Error::malformed(format!("data of tensor '{name}': {message}")))?
            }
        };
        let tensor = Tensor::new(datatype, shape, bytes)?;
        Ok(NamedTensor { name, tensor, parameters: self.parameters.others })
    }
}

impl Counted for Read<'_> {
    const WHAT: &'static str = "tensors";

    fn count(&self, parts: &mut Parts) -> Result<(), Error> {
        parts.text(self.name.0.len())?;
        self.parameters.count(parts)
    }
}

/// Dimensions. The error of a negative or invalid size names the rule.
struct Dims(Shape);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimsVisitor;
        impl<'de> Visitor<'de> for DimsVisitor {
            type Value = Dims;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a shape: a list of sizes, none of them negative")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dims, A::Error> {
                let mut dims = Shape::new();
                while let Some(dim) = seq.next_element::<u64>()? {
                    Parts::dimension(dims.len()).map_err(A::Error::custom)?;
                    // Over gRPC, and in a model's metadata, a dimension is an i64.
                    let dim = i64::try_from(dim).ok().and_then(|dim| usize::try_from(dim).ok());
                    dims.push(dim.ok_or_else(|| A::Error::custom("a size in a shape is out of range"))?);
                }
                Ok(Dims(dims))
            }
        }
        deserializer.deserialize_seq(DimsVisitor)
    }
}

#[derive(serde::Serialize)]
pub(super) struct Written<'a> {
    name: &'a str,
    datatype: &'static str,
    shape: &'a [usize],
    #[serde(skip_serializing_if = "Joined::is_empty")]
    parameters: Joined<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Values<'a>>,
}

impl<'a> Written<'a> {
    /// With its values in the JSON.
    pub(super) fn json(tensor: &'a NamedTensor) -> Self {
        Self { data: Some(Values(&tensor.tensor)), ..Self::bare(tensor) }
    }

    /// With its bytes after the JSON: the caller collects them.
    pub(super) fn binary(tensor: &'a NamedTensor, blobs: &mut Vec<&'a Bytes>) -> Self {
        let bytes = tensor.tensor.data();
        blobs.push(bytes);
        let mut written = Self::bare(tensor);
        written.parameters.binary_data_size = Some(bytes.len());
        written
    }

    fn bare(tensor: &'a NamedTensor) -> Self {
        Self {
            name: &tensor.name,
            datatype: tensor.tensor.datatype().as_str(),
            shape: tensor.tensor.shape(),
            parameters: Joined::new(&tensor.parameters),
            data: None,
        }
    }
}

pub(super) trait Counted {
    /// The name of the elements, for messages.
    const WHAT: &'static str;

    fn count(&self, parts: &mut Parts) -> Result<(), Error>;
}

/// A list within the bounds.
pub(super) struct Few<T>(pub(super) Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + Counted> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FewVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Counted> Visitor<'de> for FewVisitor<T> {
            type Value = Few<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of {}", T::WHAT)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
                let (mut few, mut parts) = (Vec::new(), Parts::default());
                while let Some(one) = seq.next_element::<T>()? {
                    Parts::tensor(few.len(), T::WHAT).map_err(A::Error::custom)?;
                    one.count(&mut parts).map_err(A::Error::custom)?;
                    few.push(one);
                }
                Ok(Few(few))
            }
        }
        deserializer.deserialize_seq(FewVisitor(PhantomData))
    }
}
