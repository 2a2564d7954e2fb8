//! The methods of the gRPC services.

use parm_protocol::Error;

use super::reflection;
use crate::keys::{self, Access};

/// Characters of an unknown path in the error: enough to recognise a typing error.
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

/// All methods of the inference service except inference: the server, its models and their repository.
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

/// Every method by its path.
pub(super) const METHODS: &[(&str, Method)] = &[
    ("/inference.GRPCInferenceService/ModelInfer", Method::ModelInfer),
    ("/inference.GRPCInferenceService/ServerLive", Method::Repository(Repository::ServerLive)),
    ("/inference.GRPCInferenceService/ServerReady", Method::Repository(Repository::ServerReady)),
    ("/inference.GRPCInferenceService/ServerMetadata", Method::Repository(Repository::ServerMetadata)),
    ("/inference.GRPCInferenceService/ModelReady", Method::Repository(Repository::ModelReady)),
    ("/inference.GRPCInferenceService/ModelMetadata", Method::Repository(Repository::ModelMetadata)),
    ("/inference.GRPCInferenceService/ModelConfig", Method::Repository(Repository::ModelConfig)),
    ("/inference.GRPCInferenceService/ModelStatistics", Method::Repository(Repository::ModelStatistics)),
    ("/inference.GRPCInferenceService/RepositoryIndex", Method::Repository(Repository::Index)),
    ("/inference.GRPCInferenceService/RepositoryModelLoad", Method::Repository(Repository::Load)),
    ("/inference.GRPCInferenceService/RepositoryModelUnload", Method::Repository(Repository::Unload)),
    ("/grpc.health.v1.Health/Check", Method::Check),
    ("/grpc.health.v1.Health/Watch", Method::Watch),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Method::Reflect(reflection::Version::V1)),
    (
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Method::Reflect(reflection::Version::V1Alpha),
    ),
];

impl Method {
    /// The method at a path, and its required access. A method without a row in the table of routes is not served.
    pub(super) fn of(path: &str) -> Result<(Self, Access), Error> {
        let method = METHODS.iter().find(|(known, _)| *known == path).map(|(_, method)| *method);
        let access = keys::find(keys::GRPC, &http::Method::POST, path).map(|route| route.access);
        method.zip(access).ok_or_else(|| {
            let shown: String = path.chars().take(SHOWN).collect();
            Error::Unimplemented { what: format!("the gRPC method '{shown}' (reflection lists the methods)") }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use parm_protocol::grpc::FILE_DESCRIPTOR_SET;
    use prost::Message;
    use tonic_reflection::pb::v1;

    use super::*;

    /// The part of a descriptor that names services and their methods.
    #[derive(Clone, PartialEq, Message)]
    struct Files {
        #[prost(message, repeated, tag = "1")]
        files: Vec<File>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct File {
        #[prost(string, tag = "2")]
        package: String,
        #[prost(message, repeated, tag = "6")]
        services: Vec<Named>,
    }

    /// A service with its methods, or a method.
    #[derive(Clone, PartialEq, Message)]
    struct Named {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, repeated, tag = "2")]
        methods: Vec<MethodName>,
    }

    #[derive(Clone, PartialEq, Message)]
    struct MethodName {
        #[prost(string, tag = "1")]
        name: String,
    }

    fn described(set: &[u8]) -> Vec<String> {
        let files = Files::decode(set).unwrap().files;
        let paths = files.iter().flat_map(|File { package, services }| {
            services.iter().flat_map(move |service| {
                let path = move |method: &MethodName| format!("/{package}.{}/{}", service.name, method.name);
                service.methods.iter().map(path)
            })
        });
        paths.collect()
    }

    #[test]
    fn methods_are_those_of_the_table_and_the_descriptors() {
        let served: BTreeSet<String> = METHODS.iter().map(|(path, _)| (*path).to_owned()).collect();
        let table: BTreeSet<String> = keys::GRPC.iter().map(|route| route.path.to_owned()).collect();
        assert_eq!(served, table, "keys::GRPC has a row for every method and no other rows");
        let sets = [
            FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let described: BTreeSet<String> = sets.into_iter().flat_map(described).collect();
        assert!(served.is_subset(&described), "{:?}", served.difference(&described));
        assert_eq!(served.len(), METHODS.len());
    }
}
