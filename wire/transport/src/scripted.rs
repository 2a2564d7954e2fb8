//! A service for tests.

use std::future::Future;

use parm_protocol::{
    Context, Error, InferRequest, InferResponse, InferenceService, ModelConfig, ModelIndex, ModelMetadata,
    ModelRef, ModelStatistics, ServerMetadata,
};

/// A service that runs a closure.
pub(crate) struct Scripted<F>(pub(crate) F);

impl<F, A> InferenceService for Scripted<F>
where
    F: Fn(InferRequest, Context) -> A + Send + Sync + 'static,
    A: Future<Output = Result<InferResponse, Error>> + Send,
{
    fn is_ready(&self) -> bool {
        true
    }
    fn is_model_ready(&self, _: &ModelRef) -> Result<bool, Error> {
        Ok(true)
    }
    fn server_metadata(&self) -> ServerMetadata {
        ServerMetadata::default()
    }
    fn model_metadata(&self, _: &ModelRef) -> Result<ModelMetadata, Error> {
        Ok(ModelMetadata::default())
    }
    fn model_config(&self, _: &ModelRef) -> Result<ModelConfig, Error> {
        Ok(ModelConfig::default())
    }
    fn statistics(&self, _: Option<&ModelRef>) -> Result<Vec<ModelStatistics>, Error> {
        Ok(vec![])
    }
    fn repository_index(&self, _: bool) -> Result<Vec<ModelIndex>, Error> {
        Ok(vec![])
    }
    async fn load_model(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    async fn unload_model(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn infer(
        &self,
        request: InferRequest,
        context: Context,
    ) -> impl Future<Output = Result<InferResponse, Error>> + Send {
        (self.0)(request, context)
    }
}

/// A response with the inputs as outputs.
pub(crate) fn echo(request: InferRequest) -> InferResponse {
    InferResponse {
        model_name: request.model.name,
        model_version: "1".into(),
        id: request.id,
        parameters: request.parameters,
        outputs: request.inputs,
    }
}
