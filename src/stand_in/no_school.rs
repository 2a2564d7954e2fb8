//! Replaces the teaching of candidates in a build without the trainer.

use bytes::Bytes;
use parm_stand_ins::{Lessons, Rows, School};

use crate::Failure;
use crate::stand_in::StandInSearch;

/// A type without values: this build cannot teach.
pub enum NoClass {}

/// Returns an error that states how to build the trainer, if teaching is requested.
pub fn find(flags: &StandInSearch, _: &str, _: Option<Rows>) -> Result<Option<NoClass>, Failure> {
    if flags.teach.is_some() { Err(crate::train::absent()) } else { Ok(None) }
}

impl School for NoClass {
    fn rows(&self) -> Option<&Rows> {
        match *self {}
    }

    fn teach(&self, _: &str, _: &Bytes, _: &Lessons<'_>) -> Result<Bytes, String> {
        match *self {}
    }
}

impl NoClass {
    /// Never called, because the type has no values.
    pub fn forget(&self) {
        match *self {}
    }
}
