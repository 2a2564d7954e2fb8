//! Cancelled requests whose number a client uses again.

use super::*;

/// Takes as many seconds as its request's id says.
async fn answer(request: InferRequest) -> Result<parm_protocol::InferResponse, Error> {
    tokio::time::sleep(Duration::from_secs(request.id.parse().unwrap())).await;
    Ok(echo(request))
}

/// Sends a frame and, a second later, the others. Returns every answer.
async fn answers(first: Frame, rest: &[Frame]) -> Vec<(header::Kind, u64, String)> {
    let (mut near, far) = UnixStream::pair().unwrap();
    let service = Arc::new(Scripted(|request, _| answer(request)));
    let limits = Config::default().into();
    let _serving =
        tokio::spawn(async move { serve(far.into(), b"", service, &limits, CancellationToken::new()).await });
    near.write_all(&first.chunks.concat()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let rest: Vec<Bytes> = rest.iter().flat_map(|frame| frame.chunks.clone()).collect();
    near.write_all(&rest.concat()).await.unwrap();
    let (began, mut heard) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(60) {
        let frame = tokio::time::timeout(Duration::from_secs(60), next_frame(&mut near)).await;
        let Ok(Ok((header, body))) = frame else { break };
        let body = Bytes::from(body);
        match header.kind {
            header::Kind::Ping => {
                near.write_all(&Frame::bare(header::Kind::Pong, 0).chunks[0]).await.unwrap();
            }
            header::Kind::Response => {
                heard.push((header.kind, header.id, codec::decode_response(&body).unwrap().id));
            }
            other => heard.push((other, header.id, codec::decode_failure(&body).unwrap().to_string())),
        }
    }
    heard
}

fn ask(number: u64, id: &str) -> Frame {
    codec::encode_request(number, &request(id, 8), &codec::Envelope::default(), 64 << 20).unwrap()
}

#[tokio::test(start_paused = true)]
async fn request_gets_its_own_answer_when_its_id_was_cancelled() {
    let cancel = Frame::bare(header::Kind::Cancel, 5);
    let heard = answers(ask(5, "20"), &[cancel, ask(5, "10")]).await;
    assert_eq!(heard, [(header::Kind::Response, 5, "10".to_owned())]);
}
