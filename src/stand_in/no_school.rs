//! Teaching, in a build that has no trainer.

use parm_stand_ins::School;

use crate::Failure;
use crate::cli::stand_in::StandInSearch;

/// Says how to get a trainer, if one is wanted.
pub fn find(flags: &StandInSearch, _: &str) -> Result<Option<Box<dyn School>>, Failure> {
    if flags.teach.is_some() { Err(crate::train::absent()) } else { Ok(None) }
}
