//! Services for tests. Tests that are programs of their own include this file.

use std::future::Future;

use parm_protocol::{Context, Error, InferRequest, InferResponse, InferenceService};

pub(crate) struct Scripted<F>(pub(crate) F);

impl<F, A> InferenceService for Scripted<F>
where
    F: Fn(InferRequest, Context) -> A + Send + Sync + 'static,
    A: Future<Output = Result<InferResponse, Error>> + Send,
{
    fn infer(
        &self,
        request: InferRequest,
        context: Context,
    ) -> impl Future<Output = Result<InferResponse, Error>> + Send {
        (self.0)(request, context)
    }
}

pub(crate) fn echo(request: InferRequest) -> InferResponse {
    InferResponse {
        model_name: request.model.name,
        model_version: "1".into(),
        id: request.id,
        parameters: request.parameters,
        outputs: request.inputs,
    }
}
