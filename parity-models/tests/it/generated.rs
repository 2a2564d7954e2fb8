//! Compares the committed ONNX types with their schema.

use std::path::Path;

#[test]
fn committed_onnx_types_equal_the_generated_ones() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema =
        protox::compile([root.join("proto/onnx.proto")], [root.join("proto")]).expect("schema compiles");
    let out = tempfile::tempdir().expect("temporary directory");
    prost_build::Config::new()
        .bytes([".onnx.TensorProto.raw_data"])
        .out_dir(out.path())
        .compile_fds(schema)
        .expect("types are generated");
    let generated = std::fs::read_to_string(out.path().join("onnx.rs")).expect("generated file");
    let committed = root.join("src/onnx/proto.rs");
    #[allow(clippy::disallowed_methods)] // a switch for developers who run the test
    if std::env::var_os("PARM_REGENERATE").is_some() {
        std::fs::write(&committed, &generated).expect("write the generated types");
    }
    let committed = std::fs::read_to_string(committed).unwrap_or_default();
    assert!(
        generated == committed,
        "src/onnx/proto.rs is stale: the schema changed: run this test with PARM_REGENERATE=1 and commit"
    );
}
