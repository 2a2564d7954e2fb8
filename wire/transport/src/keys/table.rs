//! The routes of the protocol and the access that each requires.
//!
//! Each server adds the rows of its own pages: the worker its faults, the frontend its admin API. A listener looks a request
//! up here before its router does, so a route without a row is not served. Tests compare the rows with what routers and gRPC
//! services have, in both directions.

use http::Method;

use super::{Access, Route};

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// The protocol over HTTP, of frontends and workers.
pub static REST: &[Route] = &[
    Route::rest(POST, "/v2/models/{model}/infer", Access::Infer),
    Route::rest(POST, "/v2/models/{model}/versions/{version}/infer", Access::Infer),
    Route::rest(GET, "/v2/frames", Access::Infer),
    Route::rest(GET, "/v1/models", Access::AnyKey),
    Route::rest(POST, "/v1/embeddings", Access::Infer),
    Route::rest(POST, "/v1/rerank", Access::Infer),
    Route::rest(POST, "/embed", Access::Infer),
    Route::rest(POST, "/rerank", Access::Infer),
    Route::rest(GET, "/v2/health/live", Access::Everyone),
    Route::rest(GET, "/v2/health/ready", Access::Everyone),
    Route::rest(GET, "/v2", Access::AnyKey),
    Route::rest(GET, "/v2/", Access::AnyKey),
    Route::rest(GET, "/v2/openapi.json", Access::AnyKey),
    Route::rest(GET, "/v2/models", Access::AnyKey),
    Route::rest(GET, "/v2/models/stats", Access::Read),
    Route::rest(GET, "/v2/models/{model}", Access::AnyKey),
    Route::rest(GET, "/v2/models/{model}/ready", Access::AnyKey),
    Route::rest(GET, "/v2/models/{model}/config", Access::AnyKey),
    Route::rest(GET, "/v2/models/{model}/stats", Access::Read),
    Route::rest(GET, "/v2/models/{model}/versions/{version}", Access::AnyKey),
    Route::rest(GET, "/v2/models/{model}/versions/{version}/ready", Access::AnyKey),
    Route::rest(GET, "/v2/models/{model}/versions/{version}/config", Access::AnyKey),
    Route::rest(GET, "/v2/models/{model}/versions/{version}/stats", Access::Read),
    Route::rest(POST, "/v2/repository/index", Access::AnyKey),
    Route::rest(POST, "/v2/repository/models/{model}/load", Access::Control),
    Route::rest(POST, "/v2/repository/models/{model}/unload", Access::Control),
];

/// The protocol over gRPC, with health and reflection.
pub static GRPC: &[Route] = &[
    Route::grpc("/inference.GRPCInferenceService/ModelInfer", Access::Infer),
    Route::grpc("/inference.GRPCInferenceService/ServerLive", Access::Everyone),
    Route::grpc("/inference.GRPCInferenceService/ServerReady", Access::Everyone),
    Route::grpc("/inference.GRPCInferenceService/ServerMetadata", Access::AnyKey),
    Route::grpc("/inference.GRPCInferenceService/ModelReady", Access::AnyKey),
    Route::grpc("/inference.GRPCInferenceService/ModelMetadata", Access::AnyKey),
    Route::grpc("/inference.GRPCInferenceService/ModelConfig", Access::AnyKey),
    Route::grpc("/inference.GRPCInferenceService/ModelStatistics", Access::Read),
    Route::grpc("/inference.GRPCInferenceService/RepositoryIndex", Access::AnyKey),
    Route::grpc("/inference.GRPCInferenceService/RepositoryModelLoad", Access::Control),
    Route::grpc("/inference.GRPCInferenceService/RepositoryModelUnload", Access::Control),
    Route::grpc("/grpc.health.v1.Health/Check", Access::Everyone),
    Route::grpc("/grpc.health.v1.Health/Watch", Access::Everyone),
    Route::grpc("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Access::AnyKey),
    Route::grpc("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Access::AnyKey),
];

/// Metrics, at the metrics address.
pub static METRICS: &[Route] = &[Route::page(GET, "/metrics", Access::Read)];

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    #[test]
    fn every_row_is_found_before_rows_with_braces() {
        for table in [REST, GRPC, METRICS] {
            for route in table {
                let found = find(table, &route.method, route.path).map(|found| found.path);
                assert_eq!(found, Some(route.path), "an earlier row hides this one");
            }
        }
    }
}
