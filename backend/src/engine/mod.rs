//! Engines: a model file in, predictions out.
//!
//! The trait is synchronous and single-threaded on purpose: an instance's thread owns its models and calls them, and
//! everything asynchronous stays on the other side of the instance's queue. A runtime's types stop at its file. Adding
//! an engine is one file here and one arm of `choose`.

mod emulated;
mod guard;
mod ort;
mod signature;
mod strings;
mod tract;
mod upstream;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use parm_protocol::client::BoxFuture;
use parm_protocol::{Shape, Tensor};

pub use emulated::{Emulated, Spec};
pub use guard::guarded;
pub(crate) use guard::guarded_future;
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

    /// A run that another server does, and that is only to be waited for. `None` where it is done here, or by a thread.
    fn ask(&self, _inputs: &[Tensor]) -> Option<BoxFuture<'static, Result<Vec<Tensor>, Error>>> {
        None
    }

    /// Rows of a run at most; 0 where the first dimension is no batch though it varies. Where nobody knows it is unbounded.
    fn most_rows(&self) -> usize {
        usize::MAX
    }

    /// Whether runs of one shape take about the same time, and wait for nobody.
    fn is_steady(&self) -> bool {
        true
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

/// An engine, and why it is this one.
pub struct Chosen {
    /// The name that configurations use: `tract` or `ort`.
    pub name: &'static str,
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// What people are told of it: where its library is, or that there is none.
    pub about: String,
}

/// The engine of this name. `auto` is ONNX Runtime where its library is found, and tract, which needs none, elsewhere.
///
/// A library that somebody named must open: tract in its place would be several times slower, and nobody would know why.
/// One that was only found and does not open is passed over, and what is told says so.
pub fn choose(name: &str, options: &Options) -> Result<Chosen, Error> {
    let tract = |about: String| Chosen { name: "tract", engine: tract::engine(), about };
    match name {
        "tract" => Ok(tract("tract".into())),
        "ort" => ort::engine(ort::library(options)),
        "auto" => match ort::found(options)? {
            Ok(library) => ort::engine(library),
            Err(reason) => Ok(tract(format!("tract, for {reason}"))),
        },
        _ => Err(Error::UnknownEngine { name: name.into(), known: vec!["auto", "ort", "tract"] }),
    }
}

/// The engine of this name.
pub fn by_name(name: &str, options: &Options) -> Result<Box<dyn Engine>, Error> {
    choose(name, options).map(|chosen| chosen.engine)
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
    fn an_unknown_engine_is_told_which_there_are() {
        let known = vec!["auto", "ort", "tract"];
        let options = Options::default();
        assert_eq!(by_name("tf", &options).err(), Some(Error::UnknownEngine { name: "tf".into(), known }));
        assert!(by_name("tract", &options).is_ok());
    }

    #[test]
    fn a_library_that_is_named_must_open() {
        let nowhere =
            Options { onnxruntime: Some("/nowhere/libonnxruntime.so".into()), ..Options::default() };
        for name in ["auto", "ort"] {
            let refusal = by_name(name, &nowhere).err();
            assert!(matches!(refusal, Some(Error::RuntimeLibrary { .. })), "{name}: {refusal:?}");
        }
    }
}
