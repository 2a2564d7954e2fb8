//! Teaching, in a build that has no trainer.

use bytes::Bytes;
use parm_stand_ins::{Lessons, Rows, School};

use crate::Failure;
use crate::cli::stand_in::StandInSearch;

/// There is none.
pub enum NoClass {}

/// Says how to get a trainer, if one is wanted.
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
    /// There is nothing to forget.
    pub fn forget(&self) {
        match *self {}
    }
}
