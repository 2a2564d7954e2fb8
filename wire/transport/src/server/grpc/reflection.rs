//! Server reflection, v1 and v1alpha, so that grpcurl and its like need no `.proto` file.

use std::convert::Infallible;

use parm_protocol::grpc::FILE_DESCRIPTOR_SET;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::Response;
use super::timely::Timely;

type Describer = BoxCloneSyncService<http::Request<Timely>, Response, Infallible>;

/// The version of reflection that a client uses; older tools only know the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1Alpha,
    V1,
}

/// Describes every service of the server.
pub(super) struct Reflection {
    v1: Describer,
    v1alpha: Describer,
}

impl Reflection {
    pub(super) fn new() -> Self {
        let descriptors = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
                .include_reflection_service(false)
        };
        const WHOLE: &str = "compiled descriptors are valid";
        Self {
            v1: BoxCloneSyncService::new(descriptors().build_v1().expect(WHOLE)),
            v1alpha: BoxCloneSyncService::new(descriptors().build_v1alpha().expect(WHOLE)),
        }
    }

    pub(super) async fn answer(&self, version: Version, request: http::Request<Timely>) -> Response {
        let describer = match version {
            Version::V1 => &self.v1,
            Version::V1Alpha => &self.v1alpha,
        };
        let Ok(response) = describer.clone().oneshot(request).await;
        response
    }
}
