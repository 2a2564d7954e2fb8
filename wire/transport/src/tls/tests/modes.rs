//! A fleet that enables TLS step by step: neighbouring modes are compatible, and none is downgraded.

use tokio::net::TcpListener;

use super::*;

const ALL: [Mode; 4] = [Mode::Off, Mode::Allow, Mode::Prefer, Mode::Require];

#[tokio::test]
async fn machines_one_step_apart_understand_each_other() {
    let scene = Scene::new();
    for (at, server) in ALL.into_iter().enumerate() {
        let running = serve(&scene.local(server)).await;
        for caller in &ALL[at.saturating_sub(1)..(at + 2).min(ALL.len())] {
            // A server that requires TLS is reached by callers that speak it.
            all(running.addresses, false, &scene.caller(*caller), Ok(())).await;
        }
    }
}

#[tokio::test]
async fn caller_that_requires_tls_never_sends_plain_text() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Off)).await;
    let tls = scene.caller(Mode::Require);
    for _ in 0..2 {
        all(running.addresses, false, &tls, Err("TLS")).await;
    }
    // An impostor that records what it receives, answers in plain text, and takes the place of a TLS server.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}");
    let first = tokio::spawn(async move {
        let mut begins = Vec::new();
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = [0; 4096];
            assert!(stream.read(&mut heard).await.unwrap() > 0);
            begins.push(heard[0]);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
        }
        begins
    });
    for _ in 0..4 {
        let error = ask(&url, &tls, 8).await.unwrap_err();
        assert!(error.to_string().contains("does not speak TLS"), "{error}");
    }
    assert_eq!(first.await.unwrap(), [0x16; 4], "nothing but handshakes is sent");
}

#[tokio::test]
async fn caller_that_prefers_tls_falls_back_and_remembers_it() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Off)).await;
    let tls = scene.caller(Mode::Prefer);
    let [http, grpc, frames] = urls(running.addresses, false);
    for url in [&http, &http, &frames, &frames] {
        ask(url, &tls, 8).await.unwrap();
    }
    ask(&grpc, &tls, 8).await.unwrap();
    let page = tls.metrics();
    assert!(page.contains("parm_tls_fallbacks_total 2\n"), "one for each port: {page}");
}

#[tokio::test]
async fn server_that_spoke_tls_gets_no_plain_text() {
    let scene = Scene::new();
    let (secured, tls) = (serve(&scene.local(Mode::Prefer)).await, scene.caller(Mode::Prefer));
    let url = format!("http://{}", secured.addresses.http);
    ask(&url, &tls, 8).await.unwrap();
    // The same address, now in plain text.
    let address = secured.addresses.http;
    secured.stop.cancel();
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    let error = ask(&url, &tls, 8).await.unwrap_err().to_string();
    assert!(error.contains("spoke TLS before") && error.contains("allow"), "{error}");
    assert!(tls.metrics().contains("parm_tls_fallbacks_total 0\n"));
}

#[tokio::test]
async fn one_port_takes_both_until_tls_is_required() {
    let scene = Scene::new();
    let running = serve(&scene.local(Mode::Allow)).await;
    all(running.addresses, false, &Tls::default(), Ok(())).await;
    all(running.addresses, true, &scene.caller(Mode::Off), Ok(())).await;
    let page = running.tls.metrics();
    let counted = |spoken: &str| {
        let line = page.lines().find(|line| line.contains(&format!("{{spoken=\"{spoken}\"}}"))).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
    };
    assert!(counted("plain") >= 3 && counted("tls") >= 3 && counted("refused") == 0, "{page}");
}
