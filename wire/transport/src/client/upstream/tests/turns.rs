//! Calls whose client sends messages over time.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use parm_protocol::{Code, Error, OpaqueRequest, RequestStream, grpc_status};
use tokio::sync::oneshot;

use super::calls::{FIRST, Pair, begin, begun, call, head};

/// A call that began with a message.
fn opened() -> (Arc<OpaqueRequest>, Arc<RequestStream>) {
    let stream = RequestStream::new(FIRST.into());
    (Arc::new(OpaqueRequest { stream: Some(stream.clone()), ..(*call(true)).clone() }), stream)
}

/// A server that answers each piece of a request with itself.
async fn echo() -> Pair {
    Pair::new(|_, mut request, mut respond| async move {
        let mut answer = None;
        while let Some(piece) = request.body_mut().data().await {
            let stream = answer.get_or_insert_with(|| respond.send_response(head(&[]), false).unwrap());
            stream.send_data(piece.unwrap(), false).unwrap();
        }
        let trailers = [("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect();
        answer.unwrap().send_trailers(trailers).unwrap();
    })
    .await
}

#[tokio::test]
async fn messages_pass_as_they_come() {
    let pair = echo().await;
    let (request, stream) = opened();
    let answer = pair.forward(request).await.unwrap();
    let (first, mut rest) = begun(answer);
    assert_eq!(first, FIRST);
    for piece in ["a", "b"] {
        stream.push(piece.into());
        assert_eq!(rest.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
    }
    assert!(!stream.is_copied() && stream.held() == 0);
    stream.end();
    let trailers = rest.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert_eq!(grpc_status(&trailers), Some(0));
}

#[tokio::test]
async fn silence_is_the_clients_until_it_has_ended() {
    let pair = Pair::new(|_, request, mut respond| async move {
        let _body = request.into_body();
        let mut stream = begin(&mut respond);
        poll_fn(|cx| stream.poll_reset(cx)).await.unwrap();
    })
    .await;
    let (request, stream) = opened();
    let brief = Arc::new(OpaqueRequest { stall: Duration::from_millis(30), ..(*request).clone() });
    let answer = pair.forward(brief).await.unwrap();
    let (_, mut rest) = begun(answer);
    tokio::time::timeout(Duration::from_millis(200), rest.frame()).await.map(drop).unwrap_err();
    stream.end();
    let trailers = rest.frame().await.unwrap().unwrap().into_trailers().unwrap();
    assert!(trailers["grpc-message"].to_str().unwrap().contains("30ms"), "{trailers:?}");
}

#[tokio::test]
async fn server_that_ends_early_ends_the_request() {
    let pair = Pair::well().await;
    let (request, stream) = opened();
    let answer = pair.forward(request.clone()).await.unwrap();
    let whole = begun(answer).1.collect().await.unwrap();
    assert_eq!(grpc_status(whole.trailers().unwrap()), Some(0));
    stream.push("more".into());
    assert_eq!(stream.held(), 0, "no server gets it");
    let error = pair.forward(request).await.unwrap_err();
    assert!(matches!(error, Error::Unsent { .. }) && error.code() == Code::Unavailable, "{error:?}");
}

#[tokio::test]
async fn call_read_too_slowly_is_lost_by_no_fault_of_its_server() {
    let (tell, told) = oneshot::channel();
    let tell = std::sync::Mutex::new(Some(tell));
    let pair = Pair::new(move |_, request, mut respond| {
        let tell = tell.lock().unwrap().take().unwrap();
        async move {
            let _body = request.into_body();
            tell.send(()).unwrap();
            poll_fn(|cx| respond.poll_reset(cx)).await.unwrap();
        }
    })
    .await;
    let (request, stream) = opened();
    let (mut fast, _handle) = stream.reader().unwrap();
    let sends = async {
        told.await.unwrap();
        poll_fn(|cx| fast.poll_next(cx)).await;
        for _ in 0..64 {
            stream.push(vec![0; 64 << 10].into());
            poll_fn(|cx| fast.poll_next(cx)).await;
        }
        std::future::pending::<()>().await;
    };
    let lost = tokio::select! {
        answer = pair.forward(request) => answer.unwrap_err(),
        () = sends => unreachable!(),
    };
    assert!(matches!(lost, Error::Unsent { .. }), "{lost:?}");
}
