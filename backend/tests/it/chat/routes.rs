//! Routes, whole answers and errors.

use super::*;

#[tokio::test]
async fn chat_is_answered_in_one_piece() {
    let scene = Scene::new().await;
    let answer = scene.post("/v1/chat/completions", &chat_about("How late is it?", 5)).await;
    assert_eq!((answer.status, answer.json()["object"].as_str()), (200, Some("chat.completion")));
    let choice = &answer.json()["choices"][0];
    assert_eq!(
        (&choice["message"]["role"], &choice["finish_reason"]),
        (&json!("assistant"), &json!("length"))
    );
    assert_eq!(choice["message"]["content"].as_str().unwrap().split(' ').count(), 5);
    assert_eq!(
        answer.json()["usage"],
        json!({ "prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9 })
    );
    let usual = json!({ "model": "tiny", "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi" }] }] });
    let usual = scene.post("/v1/chat/completions", &usual).await.json();
    assert_eq!(
        (&usual["usage"]["completion_tokens"], &usual["usage"]["prompt_tokens"]),
        (&json!(16), &json!(1))
    );
    assert_eq!(usual["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn replicas_give_the_same_bytes_for_the_same_request() {
    let (one, other) = (Scene::new().await, Scene::new().await);
    let body = chat_about("What is the time?", 40);
    let first = one.post("/v1/chat/completions", &body).await.body;
    assert_eq!(first, other.post("/v1/chat/completions", &body).await.body);
    let streamed = with(body.clone(), "stream", true);
    let first_stream = one.post("/v1/chat/completions", &streamed).await.body;
    // Tokens may share a chunk, but not an event.
    assert_eq!(first_stream, other.post("/v1/chat/completions", &streamed).await.body);
    let another = one.post("/v1/chat/completions", &chat_about("What is the day?", 40)).await.body;
    assert_ne!(first, another);
}

#[tokio::test]
async fn prompt_is_completed() {
    let scene = Scene::new().await;
    for (prompt, tokens) in
        [(json!("Once upon a time"), 4), (json!([1, 2, 3]), 3), (json!(["Once"]), 1), (json!([[7, 8]]), 2)]
    {
        let body = json!({ "model": "tiny", "prompt": prompt, "max_tokens": 3 });
        let answer = scene.post("/v1/completions", &body).await.json();
        assert_eq!(answer["object"], "text_completion");
        assert_eq!(answer["choices"][0]["text"].as_str().unwrap().split(' ').count(), 3);
        assert_eq!(answer["usage"]["prompt_tokens"], tokens, "{prompt}");
    }
}

#[tokio::test]
async fn inputs_are_embedded_as_numbers_or_base64() {
    let scene = Scene::new().await;
    let ask = async |input: Value, format: &str| {
        let body = json!({ "model": "tiny", "input": input, "encoding_format": format, "dimensions": 3 });
        scene.post("/v1/embeddings", &body).await.json()
    };
    let one = ask(json!("parm"), "float").await;
    let several = ask(json!(["late", "parm"]), "float").await;
    let vector = |answer: &Value, at: usize| answer["data"][at]["embedding"].clone();
    assert_eq!(vector(&one, 0), vector(&several, 1), "a vector depends on its input alone");
    assert_ne!(vector(&one, 0), vector(&several, 0));
    assert_eq!((&several["usage"]["prompt_tokens"], &several["data"][1]["index"]), (&json!(2), &json!(1)));
    let tokens = ask(json!([[1, 2], [3]]), "float").await;
    assert_eq!((tokens["data"].as_array().unwrap().len(), &tokens["usage"]["total_tokens"]), (2, &json!(3)));
    let coded = vector(&ask(json!("parm"), "base64").await, 0);
    assert_eq!(coded.as_str().unwrap().len(), 16, "12 bytes: {coded}");
    let usual = scene.post("/v1/embeddings", &json!({ "model": "tiny", "input": "parm" })).await.json();
    assert_eq!(usual["data"][0]["embedding"].as_array().unwrap().len(), 256);
}

#[tokio::test]
async fn models_health_and_own_protocol_are_next_to_the_chat() {
    let scene = Scene::new().await;
    assert_eq!(scene.ask("GET", "/health", b"").await.status, 200);
    let models = scene.ask("GET", "/v1/models", b"").await.json();
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!(scene.ask("GET", "/v2/health/ready", b"").await.status, 200);
    assert_eq!(scene.ask("GET", "/v1/nothing", b"").await.status, 404);
}

#[tokio::test]
async fn bad_requests_are_answered_in_the_clients_shape() {
    let scene = Scene::new().await;
    let ok = || chat_about("Hi", 3);
    let embedding = |input: Value| json!({ "model": "tiny", "input": input });
    let chat = "/v1/chat/completions";
    for (path, body, status, reason) in [
        (chat, json!("text"), 400, "invalid body"),
        (chat, json!({ "model": "tiny" }), 400, "messages"),
        (chat, with(ok(), "messages", json!([])), 400, "give one at least"),
        (chat, with(ok(), "messages", json!([{ "role": "user", "content": 5 }])), 400, "a text or a list"),
        (chat, with(ok(), "max_tokens", -1), 400, "invalid body"),
        (chat, with(ok(), "max_tokens", 0), 400, "max_tokens is 0"),
        (chat, with(ok(), "max_tokens", u64::MAX), 400, "shorten"),
        (chat, with(ok(), "max_completion_tokens", 262_144), 400, "262144 tokens at most"),
        (chat, with(ok(), "n", 2), 400, "use 1"),
        (chat, with(ok(), "stream_options", json!({ "include_usage": true })), 400, "stream: true"),
        (chat, with(ok(), "model", "huge"), 404, "use `tiny`"),
        ("/v1/completions", json!({ "model": "tiny", "prompt": ["a", "b"] }), 400, "send one"),
        ("/v1/completions", json!({ "model": "tiny", "prompt": {} }), 400, "a list of tokens"),
        ("/v1/embeddings", embedding(json!([])), 400, "0 entries"),
        ("/v1/embeddings", embedding(json!(vec!["a"; 2049])), 400, "2049 entries"),
        ("/v1/embeddings", with(embedding(json!("a")), "encoding_format", "hex"), 400, "base64"),
        ("/v1/embeddings", with(embedding(json!("a")), "dimensions", 0), 400, "dimensions is 0"),
        (chat, chat_about(&"x".repeat(200_000), 3), 413, "100000"),
    ] {
        let answer = scene.post(path, &body).await;
        let error = answer.json()["error"].clone();
        let message = error["message"].as_str().unwrap_or_default();
        let shown: String = body.to_string().chars().take(200).collect();
        assert_eq!(answer.status, status, "{shown}: {message}");
        assert!(message.contains(reason), "{shown}: {message}");
        assert_eq!(error["type"], "invalid_request_error", "{shown}");
    }
    let garbage = scene.ask("POST", chat, b"\xff\x00{").await;
    assert_eq!((garbage.status, garbage.json()["error"]["param"].clone()), (400, Value::Null));
    let deep = scene.ask("POST", chat, "[".repeat(50_000).as_bytes()).await;
    assert_eq!(deep.status, 400);
    let method = scene.ask("GET", chat, b"").await;
    assert_eq!((method.status, &method.json()["error"]["type"]), (405, &json!("invalid_request_error")));
    assert_eq!(scene.count("parm_chat_waiting") + scene.count("parm_chat_running"), 0.0);
}
