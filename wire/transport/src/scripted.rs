//! Services for tests. Tests that are programs of their own include this file.

use std::future::Future;

use parm_protocol::{Context, Error, InferRequest, InferResponse, InferenceService};

/// The methods of a service that has every model and describes none; `orders` adds those that load models, and `forwards` those
/// of a service whose requests are all for upstream servers.
macro_rules! any_model {
    () => {
        fn is_ready(&self) -> bool {
            true
        }
        fn is_model_ready(&self, _: &parm_protocol::ModelRef) -> Result<bool, Error> {
            Ok(true)
        }
        fn model_metadata(&self, _: &parm_protocol::ModelRef) -> Result<parm_protocol::ModelMetadata, Error> {
            Ok(Default::default())
        }
        fn model_config(&self, _: &parm_protocol::ModelRef) -> Result<parm_protocol::ModelConfig, Error> {
            Ok(Default::default())
        }
        fn statistics(
            &self,
            _: Option<&parm_protocol::ModelRef>,
        ) -> Result<Vec<parm_protocol::ModelStatistics>, Error> {
            Ok(vec![])
        }
        fn repository_index(&self, _: bool) -> Result<Vec<parm_protocol::ModelIndex>, Error> {
            Ok(vec![])
        }
    };
    (orders) => {
        $crate::scripted::any_model!();
        fn server_metadata(&self) -> parm_protocol::ServerMetadata {
            Default::default()
        }
        async fn load_model(&self, _: &str) -> Result<(), Error> {
            Ok(())
        }
        async fn unload_model(&self, _: &str) -> Result<(), Error> {
            Ok(())
        }
    };
    (forwards) => {
        $crate::scripted::any_model!(orders);
        async fn infer(
            &self,
            _: parm_protocol::InferRequest,
            _: Context,
        ) -> Result<parm_protocol::InferResponse, Error> {
            panic!("everything is forwarded")
        }
        fn forwards(&self, _: &str) -> bool {
            true
        }
    };
}
pub(crate) use any_model;

pub(crate) struct Scripted<F>(pub(crate) F);

impl<F, A> InferenceService for Scripted<F>
where
    F: Fn(InferRequest, Context) -> A + Send + Sync + 'static,
    A: Future<Output = Result<InferResponse, Error>> + Send,
{
    any_model!(orders);
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
