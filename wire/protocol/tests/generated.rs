//! Compares the committed gRPC code with its `.proto`, so that a build needs no protobuf compiler.

use std::fs;
use std::path::Path;

use prost::Message;

const REFRESH: &str = "refresh with PARM_REGENERATE=1 cargo test -p parm-protocol --test generated";

#[test]
fn generated_code_is_what_the_proto_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/grpc/generated");
    let fresh = tempfile::tempdir().unwrap();

    let mut descriptors =
        protox::compile([root.join("proto/open_inference.proto")], [root.join("proto")]).unwrap();
    // Comments are in the `.proto`.
    descriptors.file.iter_mut().for_each(|file| file.source_code_info = None);
    fs::write(fresh.path().join("inference.bin"), descriptors.encode_to_vec()).unwrap();
    // Messages only: the crate `transport` has the methods.
    tonic_prost_build::configure()
        .build_server(false)
        .build_client(false)
        .bytes(".")
        .btree_map(".")
        // Types that REST has as well.
        .extern_path(".inference.StatisticDuration", "crate::DurationStatistics")
        .extern_path(".inference.InferStatistics", "crate::RequestStatistics")
        .extern_path(".inference.InferBatchStatistics", "crate::BatchStatistics")
        .extern_path(".inference.ModelStatistics", "crate::ModelStatistics")
        .extern_path(".inference.ModelMetadataResponse", "crate::ModelMetadata")
        .extern_path(".inference.ModelParameter", "crate::ModelParameter")
        .extern_path(".inference.RepositoryIndexResponse.ModelIndex", "crate::ModelIndex")
        // Inputs and outputs have the same fields.
        .extern_path(
            ".inference.ModelInferResponse.InferOutputTensor",
            "crate::grpc::inference::model_infer_request::InferInputTensor",
        )
        .emit_rerun_if_changed(false)
        .out_dir(fresh.path())
        .compile_fds(descriptors)
        .unwrap();

    for name in ["inference.rs", "inference.bin"] {
        let wanted = fs::read(fresh.path().join(name)).unwrap();
        #[allow(clippy::disallowed_methods)] // a switch for the people who run the test
        if std::env::var_os("PARM_REGENERATE").is_some() {
            fs::create_dir_all(&committed).unwrap();
            fs::write(committed.join(name), &wanted).unwrap();
        }
        let found = fs::read(committed.join(name)).unwrap_or_default();
        assert!(found == wanted, "{name} is stale: {REFRESH}");
    }
}
