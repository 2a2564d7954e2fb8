//! Metadata of the server, its models and its repository; loading and unloading.

use parm_protocol::grpc::convert::{self, model_ref};
use parm_protocol::grpc::inference as proto;
use parm_protocol::{Error, InferenceService};

use super::Response;
use super::call::GrpcCall;
use super::method::Repository;
use crate::server::replacements;

pub(super) async fn answer<S: InferenceService>(method: Repository, call: GrpcCall<'_, S>) -> Response {
    let service = &*call.shared.service;
    match method {
        Repository::ServerLive => {
            call.read(|_: proto::ServerLiveRequest| Ok(proto::ServerLiveResponse { live: service.is_live() }))
                .await
        }
        Repository::ServerReady => {
            call.read(|_: proto::ServerReadyRequest| {
                Ok(proto::ServerReadyResponse { ready: service.is_ready() })
            })
            .await
        }
        Repository::ServerMetadata => {
            call.read(|_: proto::ServerMetadataRequest| {
                Ok(convert::server_to_message(service.server_metadata()))
            })
            .await
        }
        Repository::ModelReady => {
            call.read(|asked: proto::ModelReadyRequest| {
                let ready = service.is_model_ready(&model_ref(asked.name, asked.version))?;
                Ok(proto::ModelReadyResponse { ready })
            })
            .await
        }
        Repository::ModelMetadata => {
            call.read(|asked: proto::ModelMetadataRequest| {
                let metadata = service.model_metadata(&model_ref(asked.name, asked.version))?;
                Ok(convert::metadata_to_message(metadata))
            })
            .await
        }
        Repository::ModelConfig => {
            call.read(|asked: proto::ModelConfigRequest| {
                let config = service.model_config(&model_ref(asked.name, asked.version))?;
                Ok(proto::ModelConfigResponse { config: Some(convert::config_to_message(config)) })
            })
            .await
        }
        Repository::ModelStatistics => call.read(|asked| statistics(service, asked)).await,
        Repository::Index => call.read(|asked| index(service, &asked)).await,
        Repository::Load => call.unary(|asked| load(service, asked)).await,
        Repository::Unload => call.unary(|asked| unload(service, asked)).await,
    }
}

/// Without a name, statistics of all models.
fn statistics<S: InferenceService>(
    service: &S,
    asked: proto::ModelStatisticsRequest,
) -> Result<proto::ModelStatisticsResponse, Error> {
    let model = (!asked.name.is_empty()).then(|| model_ref(asked.name, asked.version));
    let models = service.statistics(model.as_ref())?;
    let model_stats = models.into_iter().map(convert::statistics_to_message).collect();
    Ok(proto::ModelStatisticsResponse { model_stats })
}

fn index<S: InferenceService>(
    service: &S,
    asked: &proto::RepositoryIndexRequest,
) -> Result<proto::RepositoryIndexResponse, Error> {
    let models = service.repository_index(asked.ready)?;
    Ok(proto::RepositoryIndexResponse { models: models.into_iter().map(convert::index_to_message).collect() })
}

async fn load<S: InferenceService>(
    service: &S,
    asked: proto::RepositoryModelLoadRequest,
) -> Result<tonic::Response<proto::RepositoryModelLoadResponse>, Error> {
    replacements::reject(asked.parameters.keys().map(String::as_str))?;
    service.load_model(&asked.model_name).await?;
    Ok(tonic::Response::new(proto::RepositoryModelLoadResponse {}))
}

async fn unload<S: InferenceService>(
    service: &S,
    asked: proto::RepositoryModelUnloadRequest,
) -> Result<tonic::Response<proto::RepositoryModelUnloadResponse>, Error> {
    service.unload_model(&asked.model_name).await?;
    Ok(tonic::Response::new(proto::RepositoryModelUnloadResponse {}))
}
