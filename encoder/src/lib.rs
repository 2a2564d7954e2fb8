//! The codes: how a group of queries becomes parity queries, and how a lost prediction is made from the rest.
//!
//! Slices in, slices out: this crate knows no tensor type, no runtime and no protobuf. A [`CodeSpec`] says which code;
//! [`CodeSpec::build`] checks it and gives a [`Code`]; [`Recovery`] (a few words, `Copy`) tells a dispatcher which
//! losses can be made good. What a code cannot recover is an [`Error`], never a guess.
//!
//! | code | parity queries | size | recovers | exact for | elements |
//! |---|---|---|---|---|---|
//! | `sum` | 1 | 1 | any one loss | its parity model | f32 |
//! | `weighted` | r | 1 | any r losses | its parity models | f32 |
//! | `tiles` | r | 1 | all from one parity (head `slots`) or r losses (head `sum`) | its parity models | f32 images |
//! | `slots` | r | k | the same | its parity models | any |
//! | `replicate` | k r | 1 | what was copied | every model | any |
//! | `mds` | r | 1 | any r losses | affine models, which are their own parity models | f32 |
//! | `berrut`, `spline` | k + r, and no query as it is | 1 | any r losses of the k + r | constants; otherwise approximate | f32 |
//! | `learned` | r | 1 | any r losses | what its nets learned | f32 |
//!
//! Blank slots of a partial group are zeros; `mds` uses the code of a smaller group; `berrut` and `spline` refuse.
//! Encoding does not allocate, nor does decoding once a [`Workspace`] has grown.

pub mod coefficients;
pub mod guard;
pub mod kernel;
pub mod matrix;
pub mod path;

mod code;
mod error;
mod recovery;
mod set;
mod spec;
mod workspace;

mod head;
mod interpolated;
mod linear;

mod berrut;
mod learned;
mod locator;
mod mds;
mod replicate;
mod slots;
mod spline;
mod sum;
mod tiles;
mod weighted;

pub use berrut::Berrut;
pub use code::{Code, Element, Input, Members, Received};
pub use error::{Error, Part};
pub use learned::{Learned, Nets};
pub use mds::Mds;
pub use recovery::{Arrived, Needs, Recovery};
pub use replicate::Replicate;
pub use set::Set;
pub use slots::Slots;
pub use spec::{CodeSpec, Grid, Head, Kind, Layout};
pub use spline::Spline;
pub use sum::Sum;
pub use tiles::Tiles;
pub use weighted::Weighted;
pub use workspace::Workspace;
