//! A long connection, and another server that takes the address of its peer.

use tokio::net::TcpListener;

use super::*;

/// A plain HTTP server at an address that another one leaves. It reports the first bytes of each caller.
async fn impostor(address: SocketAddr) -> tokio::sync::mpsc::Receiver<Vec<u8>> {
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let (report, heard) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 4096];
            let read = stream.read(&mut bytes).await.unwrap_or_default();
            bytes.truncate(read);
            let _ = report.send(bytes).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    heard
}

async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Sends requests on one connection for more than an hour, until it ends. The next server at the address must receive
/// nothing in plain text.
async fn stays_secured(scheme: &str) {
    let scene = Scene::new();
    let (secured, tls) = (serve(&scene.local(Mode::Prefer)).await, scene.caller(Mode::Prefer));
    let address = secured.addresses.http;
    let client = dial(&format!("{scheme}://{address}"), &tls).unwrap();
    let handshakes = || {
        let page = secured.tls.metrics();
        let line = page.lines().find(|line| line.starts_with("parm_tls_connections_total{spoken=\"tls\"}"));
        line.unwrap().to_owned()
    };
    client.infer(request(8), CallContext::default()).await.unwrap();
    let first = handshakes();
    for _ in 0..140 {
        // Less than the idle time of a pooled connection.
        pass(Duration::from_secs(29)).await;
        client.infer(request(8), CallContext::default()).await.unwrap();
    }
    assert_eq!(handshakes(), first, "{scheme}: the first connection lasts for more than an hour");
    secured.stop.cancel();
    let mut heard = impostor(address).await;
    let mut all = Vec::new();
    for _ in 0..200 {
        // The draining server may answer for a moment.
        let _ = client.infer(request(8), CallContext::default()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        all.extend(heard.try_recv());
        if all.len() >= 4 {
            break;
        }
    }
    assert!(all.len() >= 4, "{scheme}: the client dials the new server {} times", all.len());
    for bytes in all {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert!(bytes.first().is_none_or(|byte| *byte == 0x16), "{scheme}: sent in plain text: {text}");
    }
}

#[tokio::test]
async fn frames_stay_secured_when_their_handshake_was_long_ago() {
    stays_secured("frames").await;
}

#[tokio::test]
async fn http_stays_secured_when_its_handshake_was_long_ago() {
    stays_secured("http").await;
}
