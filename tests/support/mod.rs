//! Support of the integration tests: the running binary, load, and the test model with its answers.

pub mod affine;
pub mod api_server;
pub mod authority;
pub mod files;
pub mod grpc;
pub mod http;
pub mod http2;
pub mod load;
pub mod names;
pub mod process;
pub mod routes;
pub mod upstream;
pub mod workspace;

pub use process::Parm;
