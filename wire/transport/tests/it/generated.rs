//! Compares the committed gRPC client with its `.proto`, so that a build needs no protobuf compiler.

use std::fs;
use std::path::Path;

const REFRESH: &str = "refresh with PARM_REGENERATE=1 cargo test -p parm-transport --test it generated";

#[test]
fn the_generated_client_is_what_the_proto_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/grpc/generated/inference.rs");
    let fresh = tempfile::tempdir().unwrap();
    let proto = root.join("../protocol/proto");
    let descriptors = protox::compile([proto.join("open_inference.proto")], [proto]).unwrap();
    // No server code: `server` drives tonic itself, so that rejections by tonic are answered from our table too.
    tonic_prost_build::configure()
        .build_server(false)
        .extern_path(".inference", "::parm_protocol::grpc::inference")
        .emit_rerun_if_changed(false)
        .out_dir(fresh.path())
        .compile_fds(descriptors)
        .unwrap();

    let wanted = fs::read(fresh.path().join("inference.rs")).unwrap();
    #[allow(clippy::disallowed_methods)] // a switch for the people who run the test
    if std::env::var_os("PARM_REGENERATE").is_some() {
        fs::create_dir_all(committed.parent().unwrap()).unwrap();
        fs::write(&committed, &wanted).unwrap();
    }
    let found = fs::read(&committed).unwrap_or_default();
    assert!(found == wanted, "the client is stale: {REFRESH}");
}
