//! Conversion of server and model metadata to and from messages.

use crate::grpc::inference as pb;
use crate::{ModelConfig, ModelConfigTensor, ModelParameter, Place, ServerMetadata};

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
}
