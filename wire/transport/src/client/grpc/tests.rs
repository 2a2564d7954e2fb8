//! The client against a minimal server with scripted answers.

use std::convert::Infallible;
use std::sync::Arc;

use hyper_util::rt::TokioExecutor;
use parm_protocol::grpc::inference::{
    InferTensorContents, ModelInferRequest, ModelInferResponse, model_infer_response,
};
use parm_protocol::{Code, DataType, NamedTensor, Parameters, Tensor};
use tokio::net::TcpListener;
use tonic::metadata::MetadataMap;
use tonic_prost::ProstCodec;

use super::*;
use crate::client::{Token, connect};

type Answer = Result<ModelInferResponse, Status>;

/// Serves `ModelInfer` with a function, until the test ends.
async fn serve<F>(answer: F) -> Arc<dyn Client>
where
    F: Fn(MetadataMap, ModelInferRequest) -> Answer + Clone + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            let service =
                hyper::service::service_fn(move |request: ::http::Request<hyper::body::Incoming>| {
                    let answer = answer.clone();
                    let unary = tower::service_fn(move |request: Request<ModelInferRequest>| {
                        let (metadata, _, message) = request.into_parts();
                        std::future::ready(answer(metadata, message).map(Response::new))
                    });
                    async move {
                        assert_eq!(request.uri().path(), "/inference.GRPCInferenceService/ModelInfer");
                        let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                        Ok::<_, Infallible>(grpc.unary(unary, request).await)
                    }
                });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    let config = Config { token: Some(Token::new("hush")), ..Config::default() };
    connect(&endpoint, &config).unwrap()
}

fn request() -> InferRequest {
    let tensor = Tensor::from_f32([1, 2].as_slice(), &[1.0, 2.0]).unwrap();
    InferRequest {
        model: ModelRef { name: "m".into(), version: Some("3".into()) },
        id: "q".into(),
        parameters: Parameters::new(),
        inputs: vec![NamedTensor::new("x", tensor)],
        outputs: vec![],
    }
}

fn output(contents: Option<InferTensorContents>) -> model_infer_response::InferOutputTensor {
    model_infer_response::InferOutputTensor {
        name: "y".into(),
        datatype: DataType::Fp32.to_string(),
        shape: vec![1, 2],
        contents,
        ..Default::default()
    }
}

#[tokio::test]
async fn requests_carry_raw_tensors_deadline_trace_and_credential() {
    let client = serve(|metadata, message| {
        assert_eq!((message.model_name.as_str(), message.model_version.as_str()), ("m", "3"));
        assert_eq!(message.raw_input_contents, [[1.0f32, 2.0].map(f32::to_le_bytes).concat()]);
        assert_eq!(metadata.get("authorization").unwrap(), "Bearer hush");
        assert_eq!(metadata.get("traceparent").unwrap(), "00-1-2-01");
        assert!(metadata.contains_key("grpc-timeout"));
        let raw_output_contents = message.raw_input_contents;
        Ok(ModelInferResponse {
            id: message.id,
            outputs: vec![output(None)],
            raw_output_contents,
            ..Default::default()
        })
    })
    .await;
    let deadline = Some(Instant::now() + Duration::from_secs(60));
    let traceparent = Some("00-1-2-01".into());
    let context = CallContext { deadline, traceparent, ..CallContext::default() };
    let answer = client.infer(request(), context).await.unwrap();
    assert_eq!(answer.id, "q");
    assert_eq!(answer.outputs[0].tensor.as_f32().unwrap().as_ref(), [1.0, 2.0]);
}

#[tokio::test]
async fn typed_contents_are_read_as_well() {
    let client = serve(|_, _| {
        let contents = InferTensorContents { fp32_contents: vec![0.5, -8.0], ..Default::default() };
        Ok(ModelInferResponse { outputs: vec![output(Some(contents))], ..Default::default() })
    })
    .await;
    let answer = client.infer(request(), CallContext::default()).await.unwrap();
    assert_eq!(answer.outputs[0].tensor.as_f32().unwrap().as_ref(), [0.5, -8.0]);
}

#[tokio::test]
async fn statuses_keep_their_class_and_words() {
    let mut shed = MetadataMap::new();
    shed.insert("grpc-retry-pushback-ms", "-1".parse().unwrap());
    let cases = [
        (Status::not_found("w"), Code::NotFound),
        (Status::invalid_argument("w"), Code::InvalidArgument),
        (Status::resource_exhausted("w"), Code::TooLarge),
        (Status::unavailable("w"), Code::Unavailable),
        (Status::with_metadata(tonic::Code::ResourceExhausted, "w", shed.clone()), Code::TooManyRequests),
        (Status::with_metadata(tonic::Code::Unavailable, "w", shed), Code::Overloaded),
        (Status::deadline_exceeded("w"), Code::DeadlineExceeded),
        (Status::unauthenticated("w"), Code::Unauthenticated),
        (Status::permission_denied("w"), Code::PermissionDenied),
        (Status::unimplemented("w"), Code::Unimplemented),
        (Status::internal("w"), Code::Internal),
    ];
    for (status, code) in cases {
        let client = serve(move |_, _| Err(status.clone())).await;
        let error = client.infer(request(), CallContext::default()).await.unwrap_err();
        assert_eq!(error, Error::Remote { code, message: "w".into() });
    }
}

#[tokio::test(start_paused = true)]
async fn call_to_a_silent_server_times_out_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    let client = connect(&endpoint, &Config::default()).unwrap();
    let deadline = Some(Instant::now() + Duration::from_millis(30));
    let error =
        client.infer(request(), CallContext { deadline, ..CallContext::default() }).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error:?}");
}

#[tokio::test]
async fn no_request_is_lost_when_a_server_sends_goaway() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service =
                hyper::service::service_fn(async |request: ::http::Request<hyper::body::Incoming>| {
                    let unary = tower::service_fn(|_: Request<ModelInferRequest>| {
                        std::future::ready(Ok(Response::new(ModelInferResponse::default())))
                    });
                    let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                    Ok::<_, Infallible>(grpc.unary(unary, request).await)
                });
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let connection = http.serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                let mut connection = std::pin::pin!(connection);
                let old = tokio::time::timeout(Duration::from_millis(2), connection.as_mut()).await;
                if old.is_err() {
                    connection.as_mut().graceful_shutdown();
                    connection.await.ok();
                }
            });
        }
    });
    let client = connect(&endpoint, &Config::default()).unwrap();
    let callers = (0..8).map(|_| async {
        for _ in 0..500 {
            client.infer(request(), CallContext::default()).await.unwrap();
        }
    });
    futures::future::join_all(callers).await;
}

#[tokio::test]
async fn a_server_that_hangs_up_is_a_transport_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("grpc://{}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    let client = connect(&endpoint, &Config::default()).unwrap();
    let error = client.infer(request(), CallContext::default()).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error:?}");
}
