//! Grants of a worker's instance to frontends that share it.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use parm_backend::{Batching, Config};
use parm_grants::{Ask, Class, Order, Told};
use parm_protocol::fleet::{Caller, Frontend, Giver, Mailbox};
use parm_protocol::{Context, InferenceService};
use tokio::sync::mpsc;

use crate::support::{LONG, Served, config, context, request, values};

/// A frontend that takes part.
struct Front {
    frontend: Frontend,
    giver: Arc<dyn Giver>,
    told: mpsc::Receiver<Told>,
}

struct Post(mpsc::Sender<Told>);

impl Mailbox for Post {
    fn post(&self, told: Told, _: bool) {
        let _ = self.0.try_send(told);
    }
}

impl Front {
    fn join(served: &Served) -> Self {
        let giver = served.worker.giver().expect("it grants its instances");
        let (to, told) = mpsc::channel(64);
        Self { frontend: giver.join(Box::new(Post(to))), giver, told }
    }

    /// Frontends that know of each other.
    fn several<const N: usize>(served: &Served) -> [Self; N] {
        let mut all = [(); N].map(|()| Self::join(served));
        for front in &mut all {
            assert_eq!(front.told.try_recv(), Ok(Told::Shared(true)));
        }
        all
    }

    fn asks(&self, class: Class) {
        self.giver.hears(self.frontend, Order::Ask(Ask { class, waited: Duration::ZERO, jobs: 1 }));
    }

    async fn hears(&mut self) -> Told {
        let told = tokio::time::timeout(LONG, self.told.recv()).await;
        told.expect("a message arrives").expect("the worker lives")
    }

    /// The context of a job of this frontend.
    fn context(&self) -> Context {
        Context { caller: Some(Caller::new(self.giver.clone(), self.frontend)), ..context() }
    }

    async fn runs(&self, served: &Served) {
        served.worker.infer(request(&[0.; 4]), self.context()).await.unwrap();
    }
}

#[tokio::test]
async fn single_frontend_needs_no_grants_until_another_joins() {
    let served = Served::start(config());
    let mut first = Front::join(&served);
    first.runs(&served).await;
    assert!(first.told.try_recv().is_err(), "it was told nothing");
    let mut second = Front::join(&served);
    assert_eq!([first.told.try_recv(), second.told.try_recv()], [Ok(Told::Shared(true)); 2]);
    assert_eq!(second.giver.slots(), NonZeroU16::new(1));
    assert_eq!(served.metric("parm_sharing_frontends"), 2.0);
    second.giver.leave(second.frontend);
    assert_eq!(first.hears().await, Told::Shared(false));
}

#[tokio::test]
async fn grant_stays_with_the_frontend_whose_job_ended() {
    let served = Served::start(config());
    let [mut front, mut other] = Front::several(&served);
    for _ in 0..3 {
        front.runs(&served).await;
        assert_eq!(front.hears().await, Told::Granted);
        assert_eq!(served.metric("parm_sharing_grants"), 1.0);
    }
    assert!(other.told.try_recv().is_err());
}

#[tokio::test]
async fn job_with_a_grant_precedes_those_that_wait() {
    let served = Served::start(config());
    let [mut front, other] = Front::several(&served);
    front.asks(Class::First);
    assert_eq!(front.hears().await, Told::Granted);
    served.stall();
    // A job without a grant does not wait for one that may come.
    let running = served.send_as(request(&[0.; 4]), other.context()).await;
    served.until_pending(0.0).await;
    let (done, mut order) = mpsc::channel(2);
    for (sender, name) in [(&other, 2.), (&front, 1.)] {
        let answer = served.send_as(request(&[name, 0., 0., 0.]), sender.context()).await;
        let done = done.clone();
        tokio::spawn(async move { done.try_send(values(&answer.await.unwrap().unwrap())[0]) });
    }
    served.release();
    running.await.unwrap().unwrap();
    assert_eq!([order.recv().await, order.recv().await], [Some(1.), Some(2.)]);
}

#[tokio::test]
async fn grant_that_does_not_come_back_is_void() {
    let served = Served::start(config());
    let [mut dead, mut alive] = Front::several(&served);
    dead.asks(Class::First);
    assert_eq!(dead.hears().await, Told::Granted);
    alive.asks(Class::First);
    assert_eq!(dead.hears().await, Told::Recalled);
    assert_eq!(alive.hears().await, Told::Granted);
    alive.runs(&served).await;
    // A job with a void grant is served like any other.
    dead.runs(&served).await;
}

#[tokio::test]
async fn grants_return_from_dead_frontends_and_rejected_requests() {
    let served = Served::start(config());
    let [mut dies, mut stays, _third] = Front::several(&served);
    dies.asks(Class::First);
    assert_eq!(dies.hears().await, Told::Granted);
    stays.asks(Class::First);
    dies.giver.leave(dies.frontend);
    assert_eq!(stays.hears().await, Told::Granted);
    // Rows of three values, for a model with rows of four.
    served.worker.infer(request(&[]), stays.context()).await.unwrap_err();
    assert_eq!(served.metric("parm_sharing_grants"), 0.0);
}

#[tokio::test]
async fn grant_of_a_cancelled_job_goes_to_the_next() {
    let served = Served::start(config());
    let [mut gone, mut next] = Front::several(&served);
    gone.asks(Class::First);
    assert_eq!(gone.hears().await, Told::Granted);
    served.stall();
    let running = served.send_as(request(&[0.; 4]), next.context()).await;
    served.until_pending(0.0).await;
    let cancelled = served.send_as(request(&[0.; 4]), gone.context()).await;
    next.asks(Class::First);
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    served.release();
    running.await.unwrap().unwrap();
    assert_eq!(next.hears().await, Told::Granted);
}

#[tokio::test]
async fn nothing_is_granted_with_batching() {
    let batching = Batching { max_batch: 4.try_into().unwrap() };
    assert!(Served::start(Config { batching, ..config() }).worker.giver().is_none());
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
