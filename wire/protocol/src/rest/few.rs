//! A list that enforces the bounds while it is read: parts beyond a bound are never in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};

use crate::Error;
use crate::bounds::Parts;

/// An element of a bounded list.
pub(super) trait Counted {
    /// The name of the elements, for messages.
    const WHAT: &'static str;

    /// Counts the parts of one element.
    fn count(&self, parts: &mut Parts) -> Result<(), Error>;
}

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
