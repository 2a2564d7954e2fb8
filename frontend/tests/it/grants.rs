//! Tests of a frontend at instances that grant their room, as workers do that several frontends share.

use std::num::NonZeroU16;
use std::time::Duration;

use parm_frontend::Config;
use parm_grants::{Ask, Class, Order, Told};
use parm_protocol::fleet::News;
use parm_protocol::{InferenceService, ModelRef};
use parm_settings::{BatchSize, PolicyKind};

use tokio::time::sleep;

use crate::rig::{column, config, frontend, infer, ready, request, start, until};
use crate::scripted::Scripted;

const SHARED: News = News::Told(Told::Shared(true));
const GRANTED: News = News::Told(Told::Granted);
const RECALLED: News = News::Told(Told::Recalled);

fn without_batches() -> Config {
    let mut config = config(PolicyKind::Equal);
    config.dispatch.batch.max_size = BatchSize::ONE;
    config
}

/// The latest ask that an instance knows.
fn ask(instance: &Scripted) -> Option<Ask> {
    let asks = instance.asks.lock();
    let asks = asks.iter().rev().filter_map(|order| match order {
        Order::Ask(ask) => Some(*ask),
        Order::Return => None,
    });
    asks.into_iter().next().filter(|ask| ask.jobs > 0)
}

fn returned(instance: &Scripted) -> usize {
    instance.asks.lock().iter().filter(|order| **order == Order::Return).count()
}

async fn until_asked(instance: &Scripted) {
    until("the instance is asked", || ask(instance).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn query_waits_at_the_frontend_until_an_instance_grants_it() {
    let instances = [Scripted::quick("a", 10), Scripted::quick("b", 10)];
    let frontend = frontend(config(PolicyKind::Equal), &instances.each_ref()).await;
    instances.iter().for_each(|instance| instance.says(1, SHARED));
    let answer = start(&frontend, request(&[1.0]));
    until("both instances are asked", || instances.iter().all(|instance| ask(instance).is_some())).await;
    let asked = ask(&instances[0]).unwrap();
    assert_eq!((asked.class, asked.jobs), (Class::First, 1));
    assert!(
        instances.iter().all(|instance| instance.seen.lock().is_empty()),
        "no instance has the query yet"
    );
    instances[1].says(1, GRANTED);
    assert_eq!(column(&answer.await.unwrap().unwrap()), [2.0]);
    assert_eq!((instances[0].seen.lock().len(), instances[1].seen.lock().len()), (0, 1));
    assert_eq!(ask(&instances[0]), None, "the ask is withdrawn");
}

#[tokio::test(start_paused = true)]
async fn ask_says_how_long_its_oldest_query_has_waited() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(without_batches(), &[&instance]).await;
    // The ask of the second is not renewed by less than a part of a run.
    infer(&frontend, request(&[1.0])).await.unwrap();
    instance.says(1, SHARED);
    let first = start(&frontend, request(&[1.0]));
    until_asked(&instance).await;
    assert!(ask(&instance).unwrap().waited < Duration::from_millis(2), "{:?}", ask(&instance));
    sleep(Duration::from_millis(30)).await;
    let second = start(&frontend, request(&[1.0]));
    sleep(Duration::from_millis(20)).await;
    assert_eq!(instance.asks.lock().len(), 1, "the oldest query is the same");
    instance.says(1, GRANTED);
    first.await.unwrap().unwrap();
    let waited = ask(&instance).unwrap().waited;
    assert!((15..25).contains(&waited.as_millis()), "that of the second query: {waited:?}");
    instance.says(1, GRANTED);
    second.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn instance_gets_as_many_jobs_at_a_time_as_it_states() {
    let instance = Scripted::quick("a", 50);
    let frontend = frontend(without_batches(), &[&instance]).await;
    for (slots, jobs) in [(1, 1), (3, 3), (2, 2)] {
        instance.says(1, News::Slots(NonZeroU16::new(slots).unwrap()));
        sleep(Duration::from_secs(1)).await;
        let before = instance.seen.lock().len();
        let calls = [1.0, 2.0, 3.0, 4.0].map(|value| start(&frontend, request(&[value])));
        sleep(Duration::from_millis(25)).await;
        assert_eq!(instance.seen.lock().len() - before, jobs, "{slots} slots");
        for call in calls {
            call.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn recalled_grant_is_returned_unless_it_is_used() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, SHARED);
    instance.says(1, GRANTED);
    instance.says(1, RECALLED);
    assert_eq!(*instance.asks.lock(), [Order::Return]);
    instance.says(1, GRANTED);
    infer(&frontend, request(&[1.0])).await.unwrap();
    instance.says(1, RECALLED);
    assert_eq!(returned(&instance), 1, "the second was used");
}

#[tokio::test(start_paused = true)]
async fn grants_end_with_their_connection() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, SHARED);
    let waiting = start(&frontend, request(&[1.0]));
    until_asked(&instance).await;
    instance.says(2, SHARED);
    until("the instance is asked again", || instance.asks.lock().len() == 2).await;
    for news in [GRANTED, News::Told(Told::Shared(false)), News::Ended] {
        instance.says(1, news);
    }
    sleep(Duration::from_millis(20)).await;
    assert!(instance.seen.lock().is_empty(), "messages of an earlier connection are ignored");
    instance.says(2, News::Ended);
    assert_eq!(column(&waiting.await.unwrap().unwrap()), [2.0]);
}

#[tokio::test(start_paused = true)]
async fn grant_of_a_job_that_is_not_sent_is_returned() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, SHARED);
    let mut answer = Box::pin(infer(&frontend, request(&[1.0])));
    let waits = tokio::time::timeout(Duration::from_millis(5), &mut answer).await;
    assert!(waits.is_err(), "it needs a grant");
    instance.says(1, GRANTED);
    // The job is started, and its client leaves before the task of the job runs.
    drop(answer);
    until("the grant is returned", || returned(&instance) == 1).await;
    assert!(instance.seen.lock().is_empty(), "the instance did not get the job");
    instance.says(1, GRANTED);
    infer(&frontend, request(&[1.0])).await.unwrap();
    sleep(Duration::from_millis(500)).await;
    assert_eq!(returned(&instance), 1);
}

#[tokio::test(start_paused = true)]
async fn grants_are_needed_after_the_models_were_loaded_again() {
    let instance = Scripted::quick("a", 10);
    let frontend = frontend(config(PolicyKind::Equal), &[&instance]).await;
    instance.says(1, SHARED);
    // Without models it leaves the dispatcher, and its connection stays.
    frontend.unload_model("double").await.unwrap();
    until("its model is gone", || frontend.model_metadata(&ModelRef::latest("double")).is_err()).await;
    frontend.load_model("double").await.unwrap();
    until("its model is back", || ready(&frontend) == 1.0).await;
    let answer = start(&frontend, request(&[1.0]));
    until_asked(&instance).await;
    assert!(instance.seen.lock().is_empty(), "it must not get the query without a grant");
    instance.says(1, GRANTED);
    assert_eq!(column(&answer.await.unwrap().unwrap()), [2.0]);
}
