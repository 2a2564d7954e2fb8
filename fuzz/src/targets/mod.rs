//! The fuzz targets: each decodes untrusted bytes to an error or to a value that survives being written and read again.

pub mod frames;
pub mod grpc_convert;
pub mod kubernetes;
pub mod manifest;
pub mod onnx;
pub mod rest_binary;
pub mod rest_json;
pub mod settings;
pub mod texts;
mod trip;
pub mod workers;

/// A target, which panics on a finding.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also the name of its folder of seeds.
pub const ALL: [(&str, Target); 10] = [
    ("frames", frames::run),
    ("grpc_convert", grpc_convert::run),
    ("kubernetes", kubernetes::run),
    ("manifest", manifest::run),
    ("onnx", onnx::run),
    ("rest_binary", rest_binary::run),
    ("rest_json", rest_json::run),
    ("settings", settings::run),
    ("texts", texts::run),
    ("workers", workers::run),
];
