//! The metadata of a host and its models.

use std::sync::Arc;

use parm_protocol::{Error, ModelConfig, ModelMetadata, ModelRef, ModelStatistics, ServerMetadata};

use super::{Host, Loaded};

/// The protocol extensions on offer, by Triton's names.
const EXTENSIONS: [&str; 4] = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"];

impl Host {
    pub(crate) fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata {
            name: "parm-worker".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            extensions: EXTENSIONS.map(String::from).to_vec(),
            place: self.place.clone(),
        }
    }

    pub(crate) fn is_model_ready(&self, model: &ModelRef) -> Result<bool, Error> {
        match self.catalogue.find(model) {
            Ok(_) => Ok(true),
            Err(Error::NoInstance { .. } | Error::Unavailable { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn model_metadata(&self, model: &ModelRef) -> Result<ModelMetadata, Error> {
        let loaded = self.catalogue.find(model)?;
        Ok(ModelMetadata { versions: self.catalogue.versions(&model.name), ..loaded.metadata.clone() })
    }

    pub(crate) fn model_config(&self, model: &ModelRef) -> Result<ModelConfig, Error> {
        Ok(self.catalogue.find(model)?.config.clone())
    }

    pub(crate) fn statistics(&self, model: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Error> {
        let models: Vec<Arc<Loaded>> = match model {
            Some(model) if model.version.is_some() => vec![self.catalogue.find(model)?],
            model => self.catalogue.all_ready(model.map(|model| &*model.name))?,
        };
        let report = |model: Arc<Loaded>| model.statistics.report(model.labels().0, model.labels().1);
        Ok(models.into_iter().map(report).collect())
    }
}
