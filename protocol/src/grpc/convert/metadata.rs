//! What a server says about itself and its models, as messages.

use crate::grpc::inference as pb;
use crate::{
    BatchStatistics, DurationStatistics, ModelConfig, ModelConfigTensor, ModelIndex, ModelMetadata,
    ModelStatistics, ServerMetadata, TensorMetadata,
};

/// Server metadata to its message.
pub fn server_to_message(from: ServerMetadata) -> pb::ServerMetadataResponse {
    pb::ServerMetadataResponse { name: from.name, version: from.version, extensions: from.extensions }
}

/// Server metadata from its message.
pub fn server_from_message(from: pb::ServerMetadataResponse) -> ServerMetadata {
    ServerMetadata { name: from.name, version: from.version, extensions: from.extensions }
}

/// Model metadata to its message.
pub fn metadata_to_message(from: ModelMetadata) -> pb::ModelMetadataResponse {
    let tensor = |from: TensorMetadata| pb::model_metadata_response::TensorMetadata {
        name: from.name,
        datatype: from.datatype,
        shape: from.shape,
    };
    pb::ModelMetadataResponse {
        name: from.name,
        versions: from.versions,
        platform: from.platform,
        inputs: from.inputs.into_iter().map(tensor).collect(),
        outputs: from.outputs.into_iter().map(tensor).collect(),
        properties: Default::default(),
    }
}

/// Model metadata from its message.
pub fn metadata_from_message(from: pb::ModelMetadataResponse) -> ModelMetadata {
    let tensor = |from: pb::model_metadata_response::TensorMetadata| TensorMetadata {
        name: from.name,
        datatype: from.datatype,
        shape: from.shape,
    };
    ModelMetadata {
        name: from.name,
        versions: from.versions,
        platform: from.platform,
        inputs: from.inputs.into_iter().map(tensor).collect(),
        outputs: from.outputs.into_iter().map(tensor).collect(),
    }
}

/// A model's configuration to its message; a datatype that the message has no name for becomes `TYPE_INVALID`.
pub fn config_to_message(from: ModelConfig) -> pb::ModelConfig {
    let data_type =
        |name: &str| pb::DataType::from_str_name(name).unwrap_or(pb::DataType::TypeInvalid).into();
    let input = |from: ModelConfigTensor| pb::ModelInput {
        data_type: data_type(&from.data_type),
        name: from.name,
        dims: from.dims,
    };
    let output = |from: ModelConfigTensor| pb::ModelOutput {
        data_type: data_type(&from.data_type),
        name: from.name,
        dims: from.dims,
    };
    pb::ModelConfig {
        name: from.name,
        platform: from.platform,
        max_batch_size: from.max_batch_size,
        input: from.input.into_iter().map(input).collect(),
        output: from.output.into_iter().map(output).collect(),
    }
}

/// A model's configuration from its message.
pub fn config_from_message(from: pb::ModelConfig) -> ModelConfig {
    let input = |from: pb::ModelInput| ModelConfigTensor {
        data_type: from.data_type().as_str_name().to_owned(),
        name: from.name,
        dims: from.dims,
    };
    let output = |from: pb::ModelOutput| ModelConfigTensor {
        data_type: from.data_type().as_str_name().to_owned(),
        name: from.name,
        dims: from.dims,
    };
    ModelConfig {
        name: from.name,
        platform: from.platform,
        max_batch_size: from.max_batch_size,
        input: from.input.into_iter().map(input).collect(),
        output: from.output.into_iter().map(output).collect(),
    }
}

/// One entry of the repository index to its message.
pub fn index_to_message(from: ModelIndex) -> pb::repository_index_response::ModelIndex {
    pb::repository_index_response::ModelIndex {
        name: from.name,
        version: from.version,
        state: from.state,
        reason: from.reason,
    }
}

/// One entry of the repository index from its message.
pub fn index_from_message(from: pb::repository_index_response::ModelIndex) -> ModelIndex {
    ModelIndex { name: from.name, version: from.version, state: from.state, reason: from.reason }
}

/// A model's statistics to their message.
pub fn statistics_to_message(from: ModelStatistics) -> pb::ModelStatistics {
    let batch = |from: BatchStatistics| pb::InferBatchStatistics {
        batch_size: from.batch_size,
        compute_input: duration_to(from.compute_input),
        compute_infer: duration_to(from.compute_infer),
        compute_output: duration_to(from.compute_output),
    };
    pb::ModelStatistics {
        name: from.name,
        version: from.version,
        last_inference: from.last_inference_ms,
        inference_count: from.inference_count,
        execution_count: from.execution_count,
        inference_stats: Some(pb::InferStatistics {
            success: duration_to(from.success),
            fail: duration_to(from.fail),
            queue: duration_to(from.queue),
            compute_input: duration_to(from.compute_input),
            compute_infer: duration_to(from.compute_infer),
            compute_output: duration_to(from.compute_output),
        }),
        batch_stats: from.batch_stats.into_iter().map(batch).collect(),
    }
}

/// A model's statistics from their message.
pub fn statistics_from_message(from: pb::ModelStatistics) -> ModelStatistics {
    let batch = |from: pb::InferBatchStatistics| BatchStatistics {
        batch_size: from.batch_size,
        compute_input: duration_from(from.compute_input),
        compute_infer: duration_from(from.compute_infer),
        compute_output: duration_from(from.compute_output),
    };
    let stats = from.inference_stats.unwrap_or_default();
    ModelStatistics {
        name: from.name,
        version: from.version,
        last_inference_ms: from.last_inference,
        inference_count: from.inference_count,
        execution_count: from.execution_count,
        success: duration_from(stats.success),
        fail: duration_from(stats.fail),
        queue: duration_from(stats.queue),
        compute_input: duration_from(stats.compute_input),
        compute_infer: duration_from(stats.compute_infer),
        compute_output: duration_from(stats.compute_output),
        batch_stats: from.batch_stats.into_iter().map(batch).collect(),
    }
}

fn duration_to(from: DurationStatistics) -> Option<pb::StatisticDuration> {
    Some(pb::StatisticDuration { count: from.count, ns: from.ns })
}

fn duration_from(from: Option<pb::StatisticDuration>) -> DurationStatistics {
    let from = from.unwrap_or_default();
    DurationStatistics { count: from.count, ns: from.ns }
}
