//! Captured queries in a folder: requests and the deployed model's answers, for building stand-ins.
//!
//! A frontend writes them ([`Folder`]), `parm stand-in` reads them ([`read()`]). A folder has one folder per model with
//! *segments*: append-only files, named by their start. A segment begins with its model; then follow [`Record`]s, each
//! with its length. A process that is killed loses the end of one record at most, and readers use whole records only.
//!
//! The folder is limited in size and age. Whole segments, each a sixteenth of the limit, are removed, the oldest first,
//! so little less than the limit is kept. Rejected: one file as a ring, which is never complete while it is written; a
//! file per query, which file systems handle slowly; npy files, which cannot hold rows of several sizes, nor be
//! appended to without rewriting their header.
//!
//! The files hold clients' data. Only their owner can read them, and only the limits remove them.

mod error;
mod folder;
mod names;
mod reading;
mod record;

pub use error::Error;
pub use folder::{Folder, Keep, Limits, Source};
pub use reading::{Captured, read};
pub use record::Record;
