//! The protocol's element types.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

use crate::Error;

macro_rules! datatypes {
    ($($name:ident $text:literal $size:expr,)+) => {
        /// An element type of the Open Inference Protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // the names say it
        pub enum DataType {
            $($name,)+
        }

        impl DataType {
            /// Every datatype, in the order of their numbers in frames.
            pub const ALL: [DataType; 14] = [$(DataType::$name,)+];

            /// Size of one element on the wire; `None` for `BYTES`, whose elements carry their own length.
            pub const fn size(self) -> Option<usize> {
                match self {
                    $(DataType::$name => $size,)+
                }
            }

            /// The protocol's spelling.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(DataType::$name => $text,)+
                }
            }
        }
    };
}

datatypes! {
    Bool "BOOL" Some(1),
    Uint8 "UINT8" Some(1),
    Uint16 "UINT16" Some(2),
    Uint32 "UINT32" Some(4),
    Uint64 "UINT64" Some(8),
    Int8 "INT8" Some(1),
    Int16 "INT16" Some(2),
    Int32 "INT32" Some(4),
    Int64 "INT64" Some(8),
    Fp16 "FP16" Some(2),
    Bf16 "BF16" Some(2),
    Fp32 "FP32" Some(4),
    Fp64 "FP64" Some(8),
    // Length-prefixed byte strings: u32 little-endian length, then the bytes, element after element.
    Bytes "BYTES" None,
}

impl DataType {
    /// Rounds a number to the nearest FP16 or BF16. `None` for other types, and if a finite number is out of range.
    pub fn half_precision(self, number: f64) -> Option<[u8; 2]> {
        let (bytes, is_finite) = match self {
            DataType::Fp16 => (f16::from_f64(number).to_le_bytes(), f16::from_f64(number).is_finite()),
            DataType::Bf16 => (bf16::from_f64(number).to_le_bytes(), bf16::from_f64(number).is_finite()),
            _ => return None,
        };
        (is_finite || !number.is_finite()).then_some(bytes)
    }

    /// Reads an FP16, or a BF16 if it is that type.
    pub fn read_half(self, bytes: [u8; 2]) -> f64 {
        match self {
            DataType::Bf16 => bf16::from_le_bytes(bytes).to_f64(),
            _ => f16::from_le_bytes(bytes).to_f64(),
        }
    }

    /// The article before its name, as it is spoken.
    pub(crate) const fn article(self) -> &'static str {
        match self.as_str().as_bytes() {
            [b'I' | b'F', ..] => "an",
            _ => "a",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DataType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        DataType::ALL.into_iter().find(|datatype| datatype.as_str() == text).ok_or_else(|| {
            Error::invalid(format!(
                "unknown datatype '{text}': use BOOL, UINT8-64, INT8-64, FP16, BF16, FP32, FP64 or BYTES"
            ))
        })
    }
}
