//! Invalid messages, and tensors with wrong sizes.

use parm_protocol::bounds::MOST_TENSORS;
use parm_protocol::grpc::inference::infer_parameter::ParameterChoice;
use parm_protocol::grpc::inference::{InferParameter, InferTensorContents};
use proptest::prelude::*;

use super::*;

/// Sends a body to `ModelInfer` of a service that must not receive it.
async fn refused(body: impl Into<Bytes>, words: &str) {
    let scene = Scene::new(Script::new(|request, _| async move { panic!("reached with {request:?}") }));
    let status = scene.raw().await.call(INFER, body).await;
    says(&status, Code::InvalidArgument, words);
    assert_eq!(scene.rejected(), ["invalid_argument"]);
}

#[tokio::test]
async fn broken_streams_are_malformed() {
    refused(Bytes::new(), "request message").await;
    refused(&b"\0\0"[..], "EOF").await;
    refused(&b"\0\0\0\0\x09short"[..], "EOF").await;
    refused(&b"\0\0\0\0\x04\xff\xff\xff\xff"[..], "decode").await;
    refused(&b"\x01\0\0\0\x01x"[..], "compressed").await;
    refused(&b"\x07\0\0\0\x01x"[..], "flag").await;
    refused(&b"GET / HTTP/1.1\r\n\r\n"[..], "flag").await;
    let whole = framed(&row());
    refused(whole.slice(..whole.len() - 1), "EOF").await;
}

#[tokio::test]
async fn compressed_messages_are_not_offered() {
    let scene = Scene::new(Script::echo());
    let status = scene.raw().await.header("grpc-encoding", "gzip").call(INFER, framed(&row())).await;
    says(&status, Code::Unimplemented, "compression");
    assert_eq!(scene.rejected(), ["unimplemented"]);
}

#[tokio::test]
async fn tensors_that_lie_are_malformed() {
    type Lie = fn(&mut proto::ModelInferRequest);
    let lies: [(Lie, &str); 11] = [
        (|it| it.raw_input_contents[0] = Bytes::from_static(&[0; 15]), "needs 16 bytes of data, got 15"),
        (|it| it.raw_input_contents[0] = Bytes::new(), "got 0"),
        (|it| it.raw_input_contents.push(Bytes::from_static(&[0; 16])), "2 raw contents for 1 inputs"),
        (|it| it.raw_input_contents.clear(), "needs"),
        (|it| it.inputs[0].shape = vec![i64::MAX, i64::MAX], "more elements than can be addressed"),
        (|it| it.inputs[0].shape = vec![1 << 40, 1 << 40], "more elements than can be addressed"),
        (|it| it.inputs[0].shape = vec![-1, 4], "negative"),
        (|it| it.inputs[0].datatype = "FP31".into(), "unknown datatype 'FP31'"),
        (
            |it| {
                let contents = InferTensorContents { fp32_contents: vec![1.0; 4], ..Default::default() };
                it.inputs[0].contents = Some(contents);
            },
            "both contents and raw contents",
        ),
        (
            |it| {
                it.raw_input_contents.clear();
                it.inputs[0].shape = vec![1 << 30, 1 << 30];
                it.inputs[0].contents =
                    Some(InferTensorContents { fp32_contents: vec![1.0; 4], ..Default::default() });
            },
            "bytes of data, got 16",
        ),
        (
            |it| {
                it.parameters.insert("p".into(), InferParameter { parameter_choice: None });
            },
            "parameter 'p' has no value",
        ),
    ];
    for (lie, words) in lies {
        let mut message = row();
        lie(&mut message);
        refused(framed(&message), words).await;
    }
}

#[tokio::test]
async fn too_many_tensors_are_rejected_and_not_kept() {
    let inputs = vec![Default::default(); MOST_TENSORS + 1];
    let message = proto::ModelInferRequest { inputs, ..row() };
    refused(framed(&message), "more than the 4096 inputs").await;
}

#[tokio::test]
async fn long_error_message_still_arrives() {
    let mut message = row();
    message.inputs[0].datatype = "x".repeat(1 << 19);
    refused(framed(&message), "unknown datatype 'xxx").await;
}

#[tokio::test]
async fn parameters_of_every_type_arrive() {
    let scene = Scene::new(Script::echo());
    let parameter = |choice| InferParameter { parameter_choice: Some(choice) };
    let mut message = row();
    message.parameters = [
        ("b".to_owned(), parameter(ParameterChoice::BoolParam(true))),
        ("d".to_owned(), parameter(ParameterChoice::DoubleParam(0.25))),
        ("i".to_owned(), parameter(ParameterChoice::Int64Param(-3))),
        ("s".to_owned(), parameter(ParameterChoice::StringParam("any".into()))),
        ("u".to_owned(), parameter(ParameterChoice::Uint64Param(u64::MAX))),
    ]
    .into();
    let answer = scene.client().model_infer(message.clone()).await.unwrap().into_inner();
    assert_eq!(answer.parameters, message.parameters);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every input is answered: by the service, or with an error of the class of malformed messages.
    #[test]
    fn any_bytes_are_answered(at in 0usize..200, with in any::<u8>(), tail in prop::collection::vec(any::<u8>(), 0..64)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut body = framed(&row()).to_vec();
            let at = at % body.len();
            body[at] = with;
            body.splice(at + 1..body.len().min(at + 1 + tail.len()), tail);
            let scene = Scene::new(Script::echo());
            let status = scene.raw().await.call(INFER, body).await;
            let classes = [Code::Ok, Code::InvalidArgument, Code::ResourceExhausted];
            assert!(classes.contains(&status.code()), "{status:?}");
        });
    }
}
