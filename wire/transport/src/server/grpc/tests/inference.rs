//! Inference requests and their responses.

use parm_protocol::grpc::inference::InferTensorContents;

use super::*;

#[tokio::test]
async fn raw_and_typed_tensors_are_answered_raw() {
    let scene = Scene::new(Script::echo());
    let raw = row();
    let contents = InferTensorContents { fp32_contents: vec![0.5, 1.0, -2.0, 4.0], ..Default::default() };
    let mut typed = proto::ModelInferRequest { raw_input_contents: vec![], ..row() };
    typed.inputs[0].contents = Some(contents);
    for message in [raw, typed] {
        let answer = scene.client().model_infer(message).await.unwrap();
        assert!(!answer.metadata().contains_key("parm-outcome"));
        let answer = answer.into_inner();
        assert_eq!((answer.model_name.as_str(), answer.id.as_str()), ("m", "q"));
        assert_eq!((answer.outputs[0].name.as_str(), &answer.outputs[0].shape[..]), ("x", &[1, 4][..]));
        assert_eq!(answer.raw_output_contents, row().raw_input_contents);
    }
    assert_eq!(scene.rejected(), [""; 0]);
}

#[tokio::test]
async fn large_tensors_go_both_ways() {
    let scene = Scene::new(Script::echo());
    let values: Vec<u8> = (0..2_000_000u32).flat_map(|value| (value as f32).to_le_bytes()).collect();
    let mut message = row();
    message.inputs[0].shape = vec![2, 1_000_000];
    message.raw_input_contents = vec![values.clone().into()];
    let mut client = scene.client().max_decoding_message_size(usize::MAX);
    let answer = client.model_infer(message).await.unwrap().into_inner();
    assert!(answer.raw_output_contents == [values]);
}

#[tokio::test]
async fn the_outcome_is_metadata_too() {
    let scene = Scene::new(Script::new(|request, _| async {
        let mut answer = crate::scripted::echo(request);
        answer.parameters.insert("parm_outcome".into(), "reconstructed".into());
        Ok(answer)
    }));
    let answer = scene.client().model_infer(row()).await.unwrap();
    assert_eq!(answer.metadata().get("parm-outcome").unwrap(), "reconstructed");
    assert!(answer.into_inner().parameters.contains_key("parm_outcome"));
}

#[tokio::test(start_paused = true)]
async fn deadline_and_trace_reach_the_service() {
    let (seen, mut contexts) = tokio::sync::mpsc::channel(2);
    let scene = Scene::new(Script::new(move |request, context| {
        seen.try_send(context).unwrap();
        async { Ok(crate::scripted::echo(request)) }
    }));
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let raw = scene.raw().await.header("grpc-timeout", "250m").header("traceparent", traceparent);
    for (mut raw, timeout, trace) in [
        (raw, Some(std::time::Duration::from_millis(250)), Some(traceparent)),
        (scene.raw().await, None, None),
    ] {
        let before = tokio::time::Instant::now();
        assert_eq!(raw.call(INFER, framed(&row())).await.code(), Code::Ok);
        let context = contexts.recv().await.unwrap();
        assert_eq!(context.transport, Transport::Grpc);
        assert_eq!(context.arrived, before, "time is paused");
        assert_eq!(context.deadline, timeout.map(|timeout| before + timeout));
        assert_eq!(context.traceparent.as_deref(), trace);
    }
}
