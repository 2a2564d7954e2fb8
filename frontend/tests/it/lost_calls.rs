//! Calls that a server lost because it read them more slowly than another one.

use http::Method;
use parm_protocol::{Code, Error, OpaqueRequest, RequestStream};
use parm_settings::PolicyKind;

use crate::fleet::MS;
use crate::rig::metric;
use crate::upstreams::{Does, Server, over, request, send};

#[tokio::test(start_paused = true)]
async fn server_that_lost_calls_stays_in_service() {
    let lost = Error::Unsent { peer: "a".into(), message: "its client has sent too much for a copy".into() };
    let servers = [Server::new("a", Does::Fails(lost)), Server::new("b", Does::Answers(MS))];
    let frontend = over(PolicyKind::Hedge, &servers.each_ref()).await;
    let mut failed = 0;
    for _ in 0..16 {
        let stream = Some(RequestStream::new("a".into()));
        let call = OpaqueRequest { stream, ..request(Method::POST, "/v1/chat/completions") };
        if let Err(error) = send(&frontend, call).await {
            assert_eq!(error.code(), Code::Unavailable, "{error}");
            failed += 1;
        }
    }
    assert_eq!((failed, metric(&frontend, "parm_ejections_total", &["reason=\"failing\""])), (8, 0.0));
}
