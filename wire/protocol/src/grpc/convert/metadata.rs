//! Conversion of server and model metadata to and from messages.

use crate::grpc::inference as pb;
use crate::{
    BatchStatistics, DurationStatistics, ModelConfig, ModelConfigTensor, ModelIndex, ModelMetadata,
    ModelParameter, ModelStatistics, Place, ServerMetadata, TensorMetadata,
};

/// Server metadata to its message.
pub fn server_to_message(from: ServerMetadata) -> pb::ServerMetadataResponse {
    let Place { node, zone, card } = from.place;
    pb::ServerMetadataResponse {
        name: from.name,
        version: from.version,
        extensions: from.extensions,
        node: node.unwrap_or_default(),
        zone: zone.unwrap_or_default(),
        card: card.unwrap_or_default(),
    }
}

/// Server metadata from its message.
pub fn server_from_message(from: pb::ServerMetadataResponse) -> ServerMetadata {
    let place = Place::announced(&from.node, &from.zone, &from.card);
    ServerMetadata { name: from.name, version: from.version, extensions: from.extensions, place }
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
        parameters: from
            .parameters
            .into_iter()
            .map(|(name, value)| (name, pb::ModelParameter { string_value: value.string_value }))
            .collect(),
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
        parameters: from
            .parameters
            .into_iter()
            .map(|(name, value)| (name, ModelParameter { string_value: value.string_value }))
            .collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_metadata_survives_the_wire() {
        let server = ServerMetadata {
            name: "parm".into(),
            version: "1".into(),
            extensions: vec!["binary_tensor_data".into()],
            place: Place::announced("n1", "", "GPU-1"),
        };
        assert_eq!(server_from_message(server_to_message(server.clone())), server);
    }

    #[test]
    fn model_metadata_survives_the_wire_with_open_dimensions() {
        let tensor = |name: &str, shape: &[i64]| TensorMetadata {
            name: name.into(),
            datatype: "FP32".into(),
            shape: shape.into(),
        };
        let model = ModelMetadata {
            name: "m".into(),
            versions: vec!["1".into(), "2".into()],
            platform: "onnx".into(),
            inputs: vec![tensor("a", &[-1, 3]), tensor("scalar", &[])],
            outputs: vec![tensor("y", &[-1, 10])],
        };
        assert_eq!(metadata_from_message(metadata_to_message(model.clone())), model);
    }

    #[test]
    fn every_datatype_of_a_configuration_survives_the_wire() {
        let types = ["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"];
        let types = types.into_iter().chain(["FP16", "FP32", "FP64", "STRING", "BF16"]);
        let tensors: Vec<_> = types
            .map(|name| ModelConfigTensor {
                name: name.to_lowercase(),
                data_type: format!("TYPE_{name}"),
                dims: vec![-1, 2],
            })
            .collect();
        let config = ModelConfig {
            name: "m".into(),
            platform: "onnx".into(),
            max_batch_size: 8,
            input: tensors.clone(),
            output: tensors,
            parameters: [("a".into(), ModelParameter { string_value: "1".into() })].into(),
        };
        assert_eq!(config_from_message(config_to_message(config.clone())), config);
    }

    #[test]
    fn unknown_datatype_of_a_configuration_becomes_invalid() {
        let tensor = ModelConfigTensor { name: "a".into(), data_type: "TYPE_FP8".into(), dims: vec![] };
        let config = ModelConfig { input: vec![tensor], ..ModelConfig::default() };
        let mut message = config_to_message(config);
        assert_eq!(message.input[0].data_type(), pb::DataType::TypeInvalid);
        message.input[0].data_type = 999;
        assert_eq!(
            config_from_message(message).input[0].data_type,
            "TYPE_INVALID",
            "a newer server's number"
        );
    }

    #[test]
    fn an_entry_of_the_repository_index_survives_the_wire() {
        let entry = ModelIndex {
            name: "m".into(),
            version: "2".into(),
            state: "UNAVAILABLE".into(),
            reason: "unloaded".into(),
        };
        assert_eq!(index_from_message(index_to_message(entry.clone())), entry);
    }

    #[test]
    fn every_figure_of_a_models_statistics_keeps_its_place() {
        let duration = |count| DurationStatistics { count, ns: count * 1000 };
        let statistics = ModelStatistics {
            name: "m".into(),
            version: "1".into(),
            last_inference_ms: 1,
            inference_count: 2,
            execution_count: 3,
            success: duration(4),
            fail: duration(5),
            queue: duration(6),
            compute_input: duration(7),
            compute_infer: duration(8),
            compute_output: duration(9),
            batch_stats: vec![BatchStatistics {
                batch_size: 10,
                compute_input: duration(11),
                compute_infer: duration(12),
                compute_output: duration(13),
            }],
        };
        let message = statistics_to_message(statistics.clone());
        let stats = message.inference_stats.as_ref().unwrap();
        let counts = [&stats.success, &stats.fail, &stats.queue, &stats.compute_input, &stats.compute_infer];
        assert_eq!(counts.map(|of| of.as_ref().unwrap().count), [4, 5, 6, 7, 8]);
        assert_eq!(statistics_from_message(message), statistics);

        let silent = pb::ModelStatistics { name: "m".into(), ..Default::default() };
        assert_eq!(
            statistics_from_message(silent),
            ModelStatistics { name: "m".into(), ..Default::default() },
            "a server that leaves the figures out has none"
        );
    }
}
