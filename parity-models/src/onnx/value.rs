//! A declared value of a graph.

use std::fmt;

use serde::{Serialize, Serializer};

use super::DataType;
use super::proto::{Dimension, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto};

/// One dimension of a declared shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Dim {
    /// A known size.
    Fixed(usize),
    /// Any size, equal wherever the name occurs.
    Symbol(String),
    /// Any size.
    Unknown,
}

impl Dim {
    /// The size, if it is known.
    pub fn fixed(&self) -> Option<usize> {
        match self {
            Dim::Fixed(size) => Some(*size),
            _ => None,
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Fixed(size) => size.fmt(f),
            Dim::Symbol(name) => f.write_str(name),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// A number, a name, or null.
impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Dim::Fixed(size) => serializer.serialize_u64(*size as u64),
            Dim::Symbol(name) => serializer.serialize_str(name),
            Dim::Unknown => serializer.serialize_none(),
        }
    }
}

/// A declared input, output or intermediate value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// The value's name in the graph.
    pub name: String,
    /// Element type; `Undefined` if the file does not declare it, or if the value is not a tensor.
    #[serde(serialize_with = "displayed")]
    pub datatype: DataType,
    /// Dimensions; `None` if not even the rank is declared.
    pub shape: Option<Vec<Dim>>,
}

impl Value {
    /// Decodes a declaration.
    pub fn from_proto(info: &ValueInfoProto) -> Self {
        let tensor = info.r#type.as_ref().and_then(|kind| kind.tensor_type.as_ref());
        let datatype = tensor.and_then(|tensor| DataType::try_from(tensor.elem_type).ok());
        Self {
            name: info.name.clone(),
            datatype: datatype.unwrap_or(DataType::Undefined),
            shape: tensor.and_then(|tensor| tensor.shape.as_ref()).map(dims),
        }
    }

    /// The declaration in its form in a file.
    pub fn to_proto(&self) -> ValueInfoProto {
        let dim = |dim: &Dim| match dim {
            Dim::Fixed(size) => Dimension { dim_value: Some(*size as i64), ..Dimension::default() },
            Dim::Symbol(name) => Dimension { dim_param: Some(name.clone()), ..Dimension::default() },
            Dim::Unknown => Dimension::default(),
        };
        let shape = self.shape.as_ref().map(|dims| TensorShapeProto { dim: dims.iter().map(dim).collect() });
        let tensor_type = Some(TensorTypeProto { elem_type: self.datatype as i32, shape });
        let kind = TypeProto { tensor_type, ..TypeProto::default() };
        ValueInfoProto { name: self.name.clone(), r#type: Some(kind), ..ValueInfoProto::default() }
    }

    /// The shape in the serving protocol's form: -1 for dynamic sizes. `None` if the rank is not declared.
    pub fn protocol_shape(&self) -> Option<Vec<i64>> {
        let shape = self.shape.as_ref()?;
        Some(shape.iter().map(|dim| dim.fixed().map_or(-1, |size| size as i64)).collect())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.datatype)?;
        match &self.shape {
            None => f.write_str("[..]"),
            Some(shape) => {
                let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
                write!(f, "[{}]", dims.join(", "))
            }
        }
    }
}

fn dims(shape: &TensorShapeProto) -> Vec<Dim> {
    let dim = |dim: &Dimension| match (dim.dim_value, &dim.dim_param) {
        // Some exporters write -1 for dynamic sizes.
        (Some(size), _) => usize::try_from(size).map_or(Dim::Unknown, Dim::Fixed),
        (None, Some(name)) if !name.is_empty() => Dim::Symbol(name.clone()),
        _ => Dim::Unknown,
    };
    shape.dim.iter().map(dim).collect()
}

fn displayed<S: Serializer>(datatype: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(datatype)
}
