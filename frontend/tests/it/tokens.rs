//! Tests of a frontend at instances that grant tokens, as shared workers do.

use std::time::Duration;

use parm_protocol::fleet::{News, Wish};
use parm_protocol::{InferenceService, ModelRef};
use parm_settings::PolicyKind;
use parm_tokens::{Class, Grant, Message, Note, Order, Token};

use crate::rig::{column, config, frontend, infer, ready, request, start, until};
use crate::scripted::Scripted;

fn granted(token: u32, contended: bool) -> News {
    let lease = Some(Duration::from_millis(100));
    let (token, met) = (Token(token), Note::default());
    News::Told(Message::Granted(Grant { token, lease, contended, reserved: false, sharers: 2, met }))
}

#[tokio::test(start_paused = true)]
async fn query_waits_at_frontend_until_a_token_is_granted() {
    let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10)];
    let frontend = frontend(config(PolicyKind::Equal), &instances.each_ref()).await;
    instances.iter().for_each(|instance| instance.says(1, News::Offered));
    let answer = start(&frontend, request(&[1.0]));
    let reserved = |wish: &Order<Wish>| matches!(wish, Order::Reserve(wish, Class::Query, ..) if *wish == Wish::of("double"));
    until("both instances have a reservation", || {
        instances.iter().all(|at| at.wishes.lock().iter().any(reserved))
    })
    .await;
    assert!(
        instances.iter().all(|instance| instance.seen.lock().is_empty()),
        "no instance may have the query yet"
    );
    instances[1].says(1, granted(7, false));
    assert_eq!(column(&answer.await.unwrap().unwrap()), [2.0]);
    assert_eq!(*instances[1].redeemed.lock(), [Some(Token(7))]);
    assert!(instances.iter().all(|at| at.wishes.lock().iter().filter(|wish| reserved(wish)).count() == 1));
    assert_eq!(instances[0].wishes.lock()[1..], [Order::Withdraw(Wish::of("double"))]);
}

#[tokio::test(start_paused = true)]
async fn reservation_reports_how_long_its_query_has_waited() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, News::Offered);
    let answer = start(&frontend, request(&[1.0]));
    let waits = || -> Vec<Duration> {
        let waited = |wish: &Order<Wish>| match wish {
            Order::Reserve(_, _, _, waited) => Some(*waited),
            _ => None,
        };
        instance.wishes.lock().iter().filter_map(waited).collect()
    };
    until("the reservation is repeated", || waits().len() == 2).await;
    assert!(waits()[0] < Duration::from_millis(10), "{:?}", waits());
    assert!(waits()[1] >= Duration::from_millis(50), "{:?}", waits());
    instance.says(1, granted(7, false));
    answer.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn unused_token_is_returned() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, News::Offered);
    let back = |token| Order::GiveBack(Token(token));
    instance.says(1, granted(1, true));
    assert_eq!(*instance.wishes.lock(), [back(1)], "a contended token must go back at once");
    instance.says(1, granted(2, false));
    instance.says(1, News::Told(Message::Recalled(Token(2))));
    assert_eq!(*instance.wishes.lock(), [back(1), back(2)], "a recalled token must go back");
    instance.says(1, granted(3, false));
    until("its lease has expired", || instance.wishes.lock().len() == 3).await;
    assert_eq!(instance.wishes.lock()[2], back(3));
    instance.says(1, granted(4, false));
    infer(&frontend, request(&[1.0])).await.unwrap();
    instance.says(1, News::Told(Message::Recalled(Token(4))));
    assert_eq!(instance.wishes.lock().len(), 3, "a used token must not go back");
}

#[tokio::test(start_paused = true)]
async fn tokens_expire_with_their_connection() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, News::Offered);
    let waiting = start(&frontend, request(&[1.0]));
    until("the instance has a reservation", || !instance.wishes.lock().is_empty()).await;
    instance.says(2, News::Offered);
    instance.says(1, granted(1, false));
    instance.says(1, News::Ended);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(instance.seen.lock().is_empty(), "messages of an old connection must be ignored");
    instance.says(2, News::Ended);
    assert_eq!(column(&waiting.await.unwrap().unwrap()), [2.0]);
    assert_eq!(*instance.redeemed.lock(), [None]);
}

#[tokio::test(start_paused = true)]
async fn token_of_a_job_that_is_not_sent_is_returned() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, News::Offered);
    let mut answer = Box::pin(infer(&frontend, request(&[1.0])));
    let waits = tokio::time::timeout(Duration::from_millis(5), &mut answer).await;
    assert!(waits.is_err(), "it needs a token");
    instance.says(1, granted(7, false));
    // The job is started, and its client leaves before the task of the job runs.
    drop(answer);
    let back = Order::GiveBack(Token(7));
    until("the token is returned", || instance.wishes.lock().contains(&back)).await;
    assert!(instance.seen.lock().is_empty(), "the instance did not get the job");
    instance.says(1, granted(8, false));
    infer(&frontend, request(&[1.0])).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(instance.wishes.lock().iter().filter(|wish| matches!(wish, Order::GiveBack(_))).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_needed_after_the_models_were_loaded_again() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, News::Offered);
    // Without models it leaves the dispatcher, and its connection stays.
    frontend.unload_model("double").await.unwrap();
    until("its model is gone", || frontend.model_metadata(&ModelRef::latest("double")).is_err()).await;
    frontend.load_model("double").await.unwrap();
    until("its model is back", || ready(&frontend) == 1.0).await;
    let answer = start(&frontend, request(&[1.0]));
    until("the instance has a reservation", || !instance.wishes.lock().is_empty()).await;
    assert!(instance.seen.lock().is_empty(), "it must not get the query without a token");
    instance.says(1, granted(7, false));
    assert_eq!(column(&answer.await.unwrap().unwrap()), [2.0]);
    assert_eq!(*instance.redeemed.lock(), [Some(Token(7))]);
}
