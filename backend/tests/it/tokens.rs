//! Tokens of frontends that share a worker's instance, and the order of service.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use parm_backend::{Batching, Config};
use parm_protocol::fleet::{Caller, Giver, Mailbox, Wish};
use parm_protocol::{Context, InferenceService};
use parm_shares::{Settings, ShareSettings};
use parm_tokens::{Class, Frontend, Grant, Message, Note, Order, Token};
use tokio::sync::mpsc;

use crate::support::{LONG, Served, config, context, request};

/// A frontend that takes part.
struct Front {
    frontend: Frontend,
    giver: Arc<dyn Giver>,
    mail: mpsc::Receiver<Message>,
    /// Whether it is the only one, as last reported to it.
    sharing: mpsc::Receiver<Message>,
}

struct Post {
    mail: mpsc::Sender<Message>,
    sharing: mpsc::Sender<Message>,
}

impl Mailbox for Post {
    fn post(&self, message: Message, _: bool) {
        let to = match message {
            Message::Alone(_) | Message::Shared => &self.sharing,
            Message::Granted(_) | Message::Recalled(_) => &self.mail,
        };
        let _ = to.try_send(message);
    }
}

impl Front {
    fn join(served: &Served) -> Self {
        let giver = served.worker.giver().expect("it gives tokens");
        let ((to_mail, mail), (to_sharing, sharing)) = (mpsc::channel(64), mpsc::channel(64));
        let post = Post { mail: to_mail, sharing: to_sharing };
        Self { frontend: giver.join(Box::new(post)), giver, mail, sharing }
    }

    fn reserve(&self, class: Class) {
        self.reserve_after(class, Duration::ZERO);
    }

    /// Reserves for a query that has waited so long.
    fn reserve_after(&self, class: Class, waited: Duration) {
        self.giver.told(self.frontend, Order::Reserve(Wish::of("m"), class, Note(7), waited));
    }

    async fn hears(&mut self) -> Message {
        tokio::time::timeout(LONG, self.mail.recv())
            .await
            .expect("a message arrives")
            .expect("the worker lives")
    }

    async fn granted(&mut self) -> Grant {
        match self.hears().await {
            Message::Granted(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn context(&self, token: Option<Token>) -> Context {
        Context { caller: Some(Caller { frontend: self.frontend, token }), ..context() }
    }
}

#[tokio::test]
async fn single_frontend_needs_no_tokens_until_another_joins() {
    let served = Served::start(config());
    let mut first = Front::join(&served);
    assert_eq!(first.sharing.try_recv(), Ok(Message::Alone(1)));
    served.worker.infer(request(&[0.; 4]), first.context(None)).await.unwrap();
    assert!(first.mail.try_recv().is_err(), "no token came");
    let second = Front::join(&served);
    assert_eq!(first.sharing.try_recv(), Ok(Message::Shared));
    assert_eq!(second.giver.slots(), NonZeroU16::new(1), "it was never alone here");
    served.worker.infer(request(&[0.; 4]), first.context(None)).await.unwrap();
    first.granted().await;
    second.giver.leave(second.frontend);
    assert_eq!(first.sharing.recv().await, Some(Message::Alone(1)));
}

#[tokio::test]
async fn answer_brings_a_token_for_the_next_job() {
    let served = Served::start(config());
    let [mut front, _other] = [(); 2].map(|()| Front::join(&served));
    served.worker.infer(request(&[0.; 4]), front.context(None)).await.unwrap();
    let first = front.granted().await;
    assert_eq!((first.lease.is_some(), first.contended, first.sharers), (true, false, 2));
    served.worker.infer(request(&[0.; 4]), front.context(Some(first.token))).await.unwrap();
    let second = front.granted().await;
    assert_ne!(first.token, second.token);
    assert_eq!(served.metric("parm_sharing_frontends"), 2.0);
}

#[tokio::test]
async fn reservations_are_served_in_order_and_late_ones_first() {
    let mut patient = config();
    // No token is recalled, however slowly this runs.
    patient.tokens.young = LONG;
    let served = Served::start(patient);
    let [mut busy, mut query, mut late] = [(); 3].map(|()| Front::join(&served));
    served.stall();
    let running = served.send_as(request(&[0.; 4]), busy.context(None)).await;
    served.until_pending(0.0).await;
    query.reserve(Class::Query);
    late.reserve(Class::Late);
    served.release();
    running.await.unwrap().unwrap();
    let grant = late.granted().await;
    assert!(grant.contended);
    served.worker.infer(request(&[0.; 4]), late.context(Some(grant.token))).await.unwrap();
    let grant = query.granted().await;
    assert!(!grant.contended);
    assert!(busy.mail.try_recv().is_err() && late.mail.try_recv().is_err(), "others waited");
    query.giver.told(query.frontend, Order::GiveBack(grant.token));
}

#[tokio::test]
async fn token_goes_to_the_query_that_waited_longest() {
    let mut patient = config();
    patient.tokens.young = LONG;
    let served = Served::start(patient);
    let [busy, mut young, mut old] = [(); 3].map(|()| Front::join(&served));
    served.stall();
    let running = served.send_as(request(&[0.; 4]), busy.context(None)).await;
    served.until_pending(0.0).await;
    young.reserve(Class::Query);
    // Longer than any pause between the two reservations.
    old.reserve_after(Class::Query, LONG);
    served.release();
    running.await.unwrap().unwrap();
    let grant = old.granted().await;
    assert!(grant.contended && young.mail.try_recv().is_err());
    old.giver.told(old.frontend, Order::GiveBack(grant.token));
    young.granted().await;
}

#[tokio::test]
async fn unreturned_token_expires_and_another_gets_the_instance() {
    let served = Served::start(config());
    let [mut dead, mut alive] = [(); 2].map(|()| Front::join(&served));
    dead.reserve(Class::Query);
    let lost = dead.granted().await;
    alive.reserve(Class::Query);
    assert_eq!(dead.hears().await, Message::Recalled(lost.token));
    let grant = alive.granted().await;
    served.worker.infer(request(&[0.; 4]), alive.context(Some(grant.token))).await.unwrap();
    // A job with a void token is served like any other.
    served.worker.infer(request(&[0.; 4]), dead.context(Some(lost.token))).await.unwrap();
}

#[tokio::test]
async fn tokens_return_from_dead_frontends_and_rejected_requests() {
    let served = Served::start(config());
    let [mut dies, mut stays] = [(); 2].map(|()| Front::join(&served));
    dies.reserve(Class::Query);
    dies.granted().await;
    stays.reserve(Class::Query);
    dies.giver.leave(dies.frontend);
    let grant = stays.granted().await;
    // Rows of three values, for a model with rows of four.
    let refused = served.worker.infer(request(&[]), stays.context(Some(grant.token))).await;
    assert!(refused.is_err());
    stays.reserve(Class::Query);
    stays.granted().await;
}

#[tokio::test]
async fn tokens_are_off_with_batching_or_by_setting() {
    let batching = Batching { max_batch: 4.try_into().unwrap(), max_delay: Duration::ZERO };
    assert!(Served::start(Config { batching, ..config() }).worker.giver().is_none());
    let mut off = config();
    off.tokens.enabled = false;
    assert!(Served::start(off).worker.giver().is_none());
}

#[tokio::test]
async fn share_with_a_reserved_instance_is_next_for_queries() {
    let own = ShareSettings { reserved: 1, ..ShareSettings::default() };
    let shares = Settings([("kept".to_owned(), own)].into());
    let mut patient = Config { shares, ..config() };
    patient.tokens.young = LONG;
    let served = Served::start(patient);
    let [busy, mut late, mut kept] = [(); 3].map(|()| Front::join(&served));
    served.stall();
    let running = served.send_as(request(&[0.; 4]), busy.context(None)).await;
    served.until_pending(0.0).await;
    late.reserve(Class::Late);
    let wish = Wish { share: Some("kept".into()), ..Wish::of("m") };
    kept.giver.told(kept.frontend, Order::Reserve(wish, Class::Query, Note::default(), Duration::ZERO));
    served.release();
    running.await.unwrap().unwrap();
    let grant = kept.granted().await;
    assert!(grant.reserved && grant.contended);
    assert!(late.mail.try_recv().is_err());
    kept.giver.told(kept.frontend, Order::GiveBack(grant.token));
    assert!(late.granted().await.reserved, "the instance must stay reserved while it is lent");
}

#[tokio::test]
async fn used_and_entitled_time_of_a_share_is_counted() {
    let served = Served::start(config());
    served.infer(request(&[0.; 4])).await.unwrap();
    while served.metric("parm_share_used_seconds_total") == 0.0 {
        tokio::task::yield_now().await;
    }
    let (used, entitled) =
        (served.metric("parm_share_used_seconds_total"), served.metric("parm_share_entitled_seconds_total"));
    assert!(
        (used - entitled).abs() < 1e-9,
        "a single share must be entitled to all time: {used} of {entitled}"
    );
}
