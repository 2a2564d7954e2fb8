//! Engines: a model file in, predictions out.
//!
//! The trait is synchronous and single-threaded on purpose: an instance's thread owns its models and calls them, and
//! everything asynchronous stays on the other side of the instance's queue. A runtime's types stop at its file. Adding
//! an engine is one file here and one row in `ENGINES`.

mod emulated;
mod guard;
#[cfg(feature = "ort")]
mod ort;
mod signature;
mod strings;
mod tract;
mod upstream;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use parm_protocol::{Shape, Tensor};

pub use emulated::{Emulated, Spec};
pub use guard::guarded;
pub use signature::{Declared, Signature};
pub use upstream::Upstream;
pub(crate) use upstream::{Channel, Description};

use crate::Error;

/// A runtime for models.
pub trait Engine: Send + Sync {
    /// What the protocol calls the platform of this engine's models, such as `onnx_tract`.
    fn platform(&self) -> &'static str;

    /// Reads a model and makes it ready to run.
    fn load(&self, path: &Path, options: &Options) -> Result<Box<dyn Model>, Error>;
}

/// A loaded model, owned by one thread at a time.
pub trait Model: Send {
    /// Its declared tensors.
    fn signature(&self) -> &Signature;

    /// Runs inputs in declared order; returns outputs in declared order.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error>;

    /// Rows of a run at most; 0 where the first dimension is no batch though it varies. Where nobody knows it is unbounded.
    fn most_rows(&self) -> usize {
        usize::MAX
    }

    /// Makes runs of inputs with these shapes fast ahead of time, where the engine compiles for shapes.
    fn prepare(&mut self, _shapes: &[Shape]) -> Result<(), Error> {
        Ok(())
    }

    /// Another runnable model over the same weights, where the engine can share them between threads.
    fn replica(&self) -> Option<Box<dyn Model>> {
        None
    }
}

/// How to load a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Threads that one run may use. Only `ort` has a use for more than one.
    pub threads: NonZeroUsize,
    /// `cpu`, or `cuda:N` where the engine offers it.
    pub device: String,
    /// Path of ONNX Runtime's shared library, for `ort`.
    pub onnxruntime: Option<PathBuf>,
    /// Input shapes that a compiling engine keeps compiled plans for; the least recently used makes room.
    pub plans: NonZeroUsize,
}

/// Makes an engine, or names the cargo feature that would.
type Constructor = Result<fn() -> Box<dyn Engine>, &'static str>;

/// Constructors by the name that configurations use.
const ENGINES: [(&str, Constructor); 2] = [("tract", Ok(tract::engine)), ("ort", ORT)];

#[cfg(feature = "ort")]
const ORT: Constructor = Ok(ort::engine);
#[cfg(not(feature = "ort"))]
const ORT: Constructor = Err("ort");

/// The engine of this name.
pub fn by_name(name: &str) -> Result<Box<dyn Engine>, Error> {
    match ENGINES.iter().find(|(known, _)| *known == name) {
        Some((_, Ok(make))) => Ok(make()),
        Some((_, Err(feature))) => Err(Error::EngineNotBuilt { name: name.into(), feature }),
        None => {
            let known = ENGINES.iter().map(|(known, _)| *known).collect();
            Err(Error::UnknownEngine { name: name.into(), known })
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        let plans = const { NonZeroUsize::new(16).unwrap() };
        Self { threads: NonZeroUsize::MIN, device: "cpu".into(), onnxruntime: None, plans }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_engine_is_told_from_one_that_was_not_built() {
        let known = vec!["tract", "ort"];
        assert_eq!(by_name("tf").err(), Some(Error::UnknownEngine { name: "tf".into(), known }));
        let not_built = Error::EngineNotBuilt { name: "ort".into(), feature: "ort" };
        assert_eq!(by_name("ort").err(), (!cfg!(feature = "ort")).then_some(not_built));
        assert!(by_name("tract").is_ok());
    }
}
