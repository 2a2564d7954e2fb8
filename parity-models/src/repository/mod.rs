//! Models on disk, in Triton's layout.
//!
//! ```text
//! ROOT/NAME/VERSION/model.onnx     versions are whole numbers from 1
//! ROOT/NAME/parm.toml              optional: the coding bundle of a deployed model
//! ```
//!
//! An invalid model never hides the others: a scan returns the valid models and the errors.

mod digest;
mod name;
mod pbtxt;
mod scan;
mod watch;

pub(crate) use digest::digest;
pub use name::check_name;
pub use pbtxt::TritonConfig;
pub use scan::{Format, ModelFolder, POOLING, Repository, Scan, TOKENIZER, Version};
pub use watch::{Change, Poll, Watch};
