//! What can be called, and who may call it.

use parm_protocol::Error;

use super::reflection;
use crate::server::config::Scope;

/// Characters of an unknown path that are told back: enough to recognise a slip.
const SHOWN: usize = 120;

/// A method of one of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    ModelInfer,
    Repository(Repository),
    Check,
    Watch,
    Reflect(reflection::Version),
}

/// Everything of the inference service but inference: the server, its models and their repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repository {
    ServerLive,
    ServerReady,
    ServerMetadata,
    ModelReady,
    ModelMetadata,
    ModelConfig,
    ModelStatistics,
    Index,
    Load,
    Unload,
}

impl Method {
    pub(super) fn of(path: &str) -> Result<Self, Error> {
        use Repository::*;
        Ok(match path {
            "/inference.GRPCInferenceService/ModelInfer" => Method::ModelInfer,
            "/inference.GRPCInferenceService/ServerLive" => Method::Repository(ServerLive),
            "/inference.GRPCInferenceService/ServerReady" => Method::Repository(ServerReady),
            "/inference.GRPCInferenceService/ServerMetadata" => Method::Repository(ServerMetadata),
            "/inference.GRPCInferenceService/ModelReady" => Method::Repository(ModelReady),
            "/inference.GRPCInferenceService/ModelMetadata" => Method::Repository(ModelMetadata),
            "/inference.GRPCInferenceService/ModelConfig" => Method::Repository(ModelConfig),
            "/inference.GRPCInferenceService/ModelStatistics" => Method::Repository(ModelStatistics),
            "/inference.GRPCInferenceService/RepositoryIndex" => Method::Repository(Index),
            "/inference.GRPCInferenceService/RepositoryModelLoad" => Method::Repository(Load),
            "/inference.GRPCInferenceService/RepositoryModelUnload" => Method::Repository(Unload),
            "/grpc.health.v1.Health/Check" => Method::Check,
            "/grpc.health.v1.Health/Watch" => Method::Watch,
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" => {
                Method::Reflect(reflection::Version::V1)
            }
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                Method::Reflect(reflection::Version::V1Alpha)
            }
            unknown => {
                let shown: String = unknown.chars().take(SHOWN).collect();
                let what = format!("the gRPC method '{shown}' (reflection lists those there are)");
                return Err(Error::Unimplemented { what });
            }
        })
    }

    /// What a credential must allow; nothing for what is open to all.
    pub(super) fn scope(self) -> Option<Scope> {
        match self {
            Method::Repository(Repository::Load | Repository::Unload) => Some(Scope::Admin),
            Method::ModelInfer | Method::Repository(_) => Some(Scope::Inference),
            Method::Check | Method::Watch | Method::Reflect(_) => None,
        }
    }
}
