//! The codes: encode a group of queries into parity queries, and reconstruct a lost prediction from the rest.
//!
//! ```
//! use parm_encoder::{CodeSpec, Input, Kind, Members, Received, Set, Workspace};
//!
//! // Groups of two queries with one parity. The model F(x) = 3 x is linear, so it serves its own parities.
//! let code = CodeSpec::new(Kind::Mds, 2, 1).build()?;
//! let model = |query: &[f32]| query.iter().map(|value| 3.0 * value).collect::<Vec<f32>>();
//! let (queries, mut parity, mut workspace) = ([[1.0, 2.0], [5.0, 7.0]], [0.0; 2], Workspace::new());
//! let members = Members { input: Input::floats(&[2]), queries: &[Some(&queries[0]), Some(&queries[1])] };
//! code.encode(members, &mut [&mut parity], &mut workspace)?;
//!
//! // The prediction of the second query is late: reconstruct it from the first one and the parity output.
//! let (first, parity) = (model(&queries[0]), model(&parity));
//! let received =
//!     Received { members: Set::first(2), predictions: &[Some(&first), None], parities: &[Some(&parity)] };
//! let mut second = [0.0; 2];
//! code.decode(received, 1, &mut second, &mut workspace)?;
//! assert_eq!(second, [15.0, 21.0]);
//! # Ok::<(), parm_encoder::Error>(())
//! ```
//!
//! The crate works on slices and has no tensor type, runtime or protobuf. A [`CodeSpec`] names a code and its
//! parameters, and [`CodeSpec::build`] checks them and returns a [`Code`]. [`Recovery`] (small, `Copy`) tells a
//! dispatcher which losses can be recovered, and [`Kind`] has the properties of a code that its name determines.
//! A loss that cannot be recovered gives an [`Error`], never a guess.
//!
//! | code | parity queries | size | recovers | exact for | elements |
//! |---|---|---|---|---|---|
//! | `sum` | 1 | 1 | any one loss | its parity model | f32 |
//! | `weighted` | r | 1 | any r losses | its parity models | f32 |
//! | `tiles` | r | 1 | all from one parity (head `slots`) or r losses (head `sum`) | its parity models | f32 images |
//! | `slots` | r | k | the same | its parity models | any |
//! | `mds` | r | 1 | any r losses | affine models, which are their own parity models | f32 |
//! | `berrut` | k + r, and no query unchanged | 1 | any r losses of the k + r | constants; otherwise approximate | f32 |
//! | `learned` | r | 1 | any r losses | nothing: its nets approximate | f32 |
//!
//! Blank slots of a partial group are zeros; `mds` uses the code of a smaller group; `berrut` returns an error.
//! Encoding does not allocate. Decoding does not allocate once a [`Workspace`] has grown.

pub mod guard;
pub mod kernel;
pub mod path;

mod code;
mod error;
mod kind;
mod recovery;
mod spec;

mod linear;

mod berrut;
mod learned;
mod slots;
mod tiles;

pub use code::{Code, Element, Input, Members, Received, Workspace};
pub use error::Error;
pub use kind::Kind;
pub use learned::{Learned, Nets};
pub use recovery::{Arrived, Needs, Recovery, Set};
pub use spec::{CodeSpec, Head};
