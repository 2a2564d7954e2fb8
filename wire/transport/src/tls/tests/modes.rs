//! A fleet that enables TLS step by step: neighbouring modes are compatible, and none is downgraded, even if another
//! server takes the address of its peer.

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
async fn address_of_an_upstream_decides_in_every_mode() {
    let scene = Scene::new();
    for (mode, secured) in ALL.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let ca = secured.then(|| scene.path("ca.pem"));
        let tls = Tls::open(&Config { ca, ..scene.local(mode) }).unwrap();
        let server = if secured { scene.local(Mode::Require) } else { Config::default() };
        let running = serve(&server).await;
        for url in &urls(running.addresses, secured)[..2] {
            let alive = dial(&format!("upstream+{url}"), &tls).unwrap().is_ready().await;
            assert_eq!(alive, Ok(true), "{url} with {}", mode.name());
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
    let (url, mut heard) = impostor("127.0.0.1:0".parse().unwrap()).await;
    for _ in 0..4 {
        let error = ask(&url, &tls, 8).await.unwrap_err();
        assert!(error.to_string().contains("does not speak TLS"), "{error}");
        assert_eq!(heard.recv().await.unwrap()[0], 0x16, "nothing but handshakes is sent");
    }
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
    secured.stop.cancel();
    let _heard = impostor(secured.addresses.http).await;
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

/// A plain HTTP server that takes an address, which another server leaves. It reports the first bytes of each caller.
async fn impostor(address: SocketAddr) -> (String, tokio::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let url = format!("http://{}", listener.local_addr().unwrap());
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
    (url, heard)
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
    client.infer(request("", 8), CallContext::default()).await.unwrap();
    let first = handshakes();
    for _ in 0..140 {
        // Less than the idle time of a pooled connection.
        pass(Duration::from_secs(29)).await;
        client.infer(request("", 8), CallContext::default()).await.unwrap();
    }
    assert_eq!(handshakes(), first, "{scheme}: the first connection lasts for more than an hour");
    secured.stop.cancel();
    let (_, mut heard) = impostor(address).await;
    let mut all = Vec::new();
    for _ in 0..200 {
        // The draining server may answer for a moment.
        let _ = client.infer(request("", 8), CallContext::default()).await;
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
async fn server_stays_secured_when_its_handshake_was_long_ago() {
    stays_secured("frames").await;
    stays_secured("http").await;
}
