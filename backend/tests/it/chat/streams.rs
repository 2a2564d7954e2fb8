//! Streams: their chunks in order, their end, and clients that leave.

use super::*;

#[tokio::test]
async fn chunks_are_role_content_reason_usage_and_done() {
    let scene = Scene::new().await;
    let body = with(chat_about("How late is it?", 4), "stream", true);
    let whole = scene.post("/v1/chat/completions", &chat_about("How late is it?", 4)).await.json();
    let answer = scene
        .post("/v1/chat/completions", &with(body.clone(), "stream_options", json!({ "include_usage": true })))
        .await;
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    let events = answer.events();
    assert_eq!(events.len(), 1 + 4 + 1 + 1, "{}", answer.body);
    let delta = |at: usize| events[at]["choices"][0]["delta"].clone();
    assert_eq!(delta(0), json!({ "role": "assistant", "content": "" }));
    let text: String = (1..5).map(|at| delta(at)["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text);
    assert_eq!((delta(5), &events[5]["choices"][0]["finish_reason"]), (json!({}), &json!("length")));
    assert!((0..6).all(|at| events[at]["usage"].is_null() && events[at]["id"] == whole["id"]));
    assert_eq!((&events[6]["choices"], &events[6]["usage"]), (&json!([]), &whole["usage"]));
    let plain = scene.post("/v1/chat/completions", &body).await.events();
    assert!(plain.len() == 6 && plain.iter().all(|event| event.get("usage").is_none()), "{plain:?}");
}

#[tokio::test]
async fn completion_streams_text() {
    let scene = Scene::new().await;
    let body = json!({ "model": "tiny", "prompt": "Once", "max_tokens": 3, "stream": true });
    let events = scene.post("/v1/completions", &body).await.events();
    let texts: Vec<&str> = events.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    let whole = scene.post("/v1/completions", &with(body, "stream", false)).await.json();
    assert_eq!(whole["choices"][0]["text"], texts.concat());
    assert_eq!((texts.len(), &events[3]["choices"][0]["finish_reason"]), (4, &json!("length")));
}

/// Iterations that never end within a test.
fn slow() -> chat::Config {
    chat::Config { iteration_ms: 60_000.0, ..settings() }
}

#[tokio::test]
async fn client_that_leaves_frees_its_place_at_once() {
    let scene = Scene::with(slow()).await;
    for streams in [true, false] {
        let body = with(chat_about("Hi", 1000), "stream", streams).to_string();
        let mut client = scene.send("POST", "/v1/chat/completions", body.as_bytes()).await;
        // The iteration of the first client goes on, so that the second one waits.
        scene.until(if streams { "parm_chat_running" } else { "parm_chat_waiting" }, 1.0).await;
        if streams {
            let mut head = [0; 12];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200", "the head does not wait for a token");
        }
        drop(client);
        scene.until("parm_chat_running", 0.0).await;
        scene.until("parm_chat_waiting", 0.0).await;
    }
    assert_eq!(scene.count("parm_chat_cancelled_total"), 2.0);
}

#[tokio::test]
async fn stream_counts_for_its_key_until_it_ends() {
    let concurrency = std::num::NonZeroU32::new(1);
    let key = Entry { concurrency, ..Entry::new("a", Role::Infer, Digest::of(KEY.as_bytes())) };
    let scene = Scene::guarded(slow(), Keys::of(&[key])).await;
    let body = with(chat_about("Hi", 1000), "stream", true).to_string();
    let (path, body) = ("/v1/chat/completions", body.as_bytes());
    let mut first = scene.send("POST", path, body).await;
    let mut head = [0; 12];
    first.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(scene.ask("POST", path, body).await.status, 429, "the stream is in progress");
    drop(first);
    // Until the server has noticed it.
    loop {
        let mut next = scene.send("POST", path, body).await;
        next.read_exact(&mut head).await.unwrap();
        if &head == b"HTTP/1.1 200" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn requests_beyond_the_queue_are_rejected_with_advice() {
    let queue = NonZeroUsize::new(2).unwrap();
    let scene = Scene::with(chat::Config { queue, ..slow() }).await;
    let body = chat_about("Hi", 1000).to_string();
    let path = "/v1/chat/completions";
    let _first = scene.send("POST", path, body.as_bytes()).await;
    scene.until("parm_chat_running", 1.0).await;
    let _others =
        [scene.send("POST", path, body.as_bytes()).await, scene.send("POST", path, body.as_bytes()).await];
    scene.until("parm_chat_waiting", 2.0).await;
    let answer = scene.ask("POST", path, body.as_bytes()).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (503, &json!("overloaded")));
    assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
    assert_eq!(scene.count("parm_chat_rejected_total"), 1.0);
}

#[tokio::test]
async fn client_that_reads_slowly_gets_every_token() {
    let scene = Scene::new().await;
    let body = with(chat_about("Hi", 20_000), "stream", true).to_string();
    let mut client = scene.send("POST", "/v1/chat/completions", body.as_bytes()).await;
    // The server generates all of them meanwhile.
    scene.until("parm_chat_output_tokens_total", 20_000.0).await;
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(Answer::read(&bytes).events().len(), 20_002);
}
