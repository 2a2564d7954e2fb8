//! What the integration tests share: the running binary, load on it, and the model whose answers they can compute.

pub mod affine;
pub mod api_server;
pub mod authority;
pub mod http;
pub mod http2;
pub mod load;
pub mod names;
pub mod process;
pub mod routes;
pub mod workspace;

pub use process::Parm;
