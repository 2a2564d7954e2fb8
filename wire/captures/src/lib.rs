//! Queries kept in a folder: what clients asked and what the deployed model said, to make stand-ins from.
//!
//! A frontend writes them ([`Folder`]), `parm stand-in` reads them ([`read()`]). A folder has one folder for each model, and
//! in it *segments*: files that are only appended to, named by when they began. A segment says first whose rows these are;
//! then come [`Record`]s, one after another, each with its length. So a process that is killed loses the end of one record
//! at most, and the reader takes what is whole.
//!
//! The folder is bounded in size and age. Whole segments are removed, the oldest first: a sixteenth of the bound each, so
//! that what is kept is never much less than was asked for. Rejected: one file as a ring, which is never whole while it is
//! written; a file for each query, which file systems are slow with; and npy files, which cannot hold rows of several
//! sizes, nor be appended to without rewriting their beginning.
//!
//! What is in the files is what clients sent. They can be read by their owner only, and nobody else removes them.

mod error;
mod folder;
mod names;
mod reading;
mod record;

pub use error::Error;
pub use folder::{Folder, Keep, Limits, Source};
pub use reading::{Captured, read};
pub use record::Record;
