//! Asks and grants on a connection: used if both sides agree, otherwise never sent.

use std::num::NonZeroU16;
use std::sync::OnceLock;

use parm_grants::{Ask, Class, Order, Told};
use parm_protocol::fleet::{Frontend, Giver, Mailbox, News, SHARE, Watcher};
use tokio::sync::mpsc;

use super::*;

/// A message that the server's service received.
#[derive(Debug, PartialEq)]
enum Heard {
    Joined,
    Left,
    Ordered(Order),
    /// A request that runs, of this frontend.
    Came(Option<Frontend>),
    /// A request that the service rejects before it runs.
    Refused,
    /// A request was charged to a share.
    Charged(String),
}

/// A service that grants what the test tells it to.
struct Giving {
    heard: mpsc::Sender<Heard>,
    mailbox: OnceLock<Box<dyn Mailbox>>,
}

const FRONTEND: Frontend = Frontend(7);

impl Giver for Giving {
    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend {
        mailbox.post(Told::Shared(true), true);
        assert!(self.mailbox.set(mailbox).is_ok(), "one connection");
        let _ = self.heard.try_send(Heard::Joined);
        FRONTEND
    }

    fn leave(&self, frontend: Frontend) {
        assert_eq!(frontend, FRONTEND);
        let _ = self.heard.try_send(Heard::Left);
    }

    fn hears(&self, frontend: Frontend, order: Order) {
        assert_eq!(frontend, FRONTEND);
        let _ = self.heard.try_send(Heard::Ordered(order));
    }
}

struct Service(Arc<Giving>);

impl InferenceService for Service {
    fn giver(&self) -> Option<Arc<dyn Giver>> {
        Some(self.0.clone())
    }
    async fn infer(&self, request: InferRequest, context: Context) -> Result<InferResponse, Error> {
        let share = request.parameters.get(SHARE).and_then(|share| share.as_str());
        let heard = match share {
            Some(share) => Heard::Charged(share.to_owned()),
            None if request.id == "refused" => Heard::Refused,
            None => Heard::Came(context.caller.map(|caller| caller.comes())),
        };
        let _ = self.0.heard.try_send(heard);
        Ok(echo(request))
    }
}

struct Listener(mpsc::Sender<(u64, News)>);

impl Watcher for Listener {
    fn heard(&self, connection: u64, news: News) {
        let _ = self.0.try_send((connection, news));
    }
}

/// Both ends of a connection, and what they hear.
struct Ends {
    connection: Connection,
    giving: Arc<Giving>,
    hears: mpsc::Receiver<Heard>,
    told: mpsc::Receiver<(u64, News)>,
    server: Server,
}

/// The parameters say whether the sides support grants.
fn ends(budget: Arc<Budget>, (near, far): (Socket, Socket), server: bool, client: bool) -> Ends {
    let (heard, hears) = mpsc::channel(64);
    let giving = Arc::new(Giving { heard, mailbox: OnceLock::new() });
    let config = Config::default();
    let negotiated = Negotiated { grants: client, slots: NonZeroU16::new(3), ..Negotiated::of(&config) };
    let (news, told) = mpsc::channel(64);
    let watcher: Arc<dyn Watcher> = Arc::new(Listener(news));
    let connection = Connection::new("pair".into(), near, b"", negotiated, &config, Some((5, watcher)));
    let limits = Limits { budget, grants: server, ..config.into() };
    let server = Server::new(far, Service(giving.clone()), limits);
    Ends { connection, giving, hears, told, server }
}

fn pair() -> (Socket, Socket) {
    let (near, far) = UnixStream::pair().unwrap();
    (near.into(), far.into())
}

fn unlimited() -> Arc<Budget> {
    Budget::new(usize::MAX)
}

fn ask(millis: u64) -> Order {
    Order::Ask(Ask { class: Class::Late, waited: Duration::from_millis(millis), jobs: 2 })
}

#[tokio::test]
async fn messages_go_both_ways_until_the_end() {
    go_both_ways(ends(unlimited(), pair(), true, true)).await;
}

#[tokio::test]
async fn messages_go_both_ways_over_tls() {
    go_both_ways(ends(unlimited(), crate::tls::tests::pair().await, true, true)).await;
}

async fn go_both_ways(ends: Ends) {
    let Ends { connection, giving, mut hears, mut told, .. } = ends;
    assert_eq!(hears.recv().await, Some(Heard::Joined));
    for news in [News::Slots(NonZeroU16::new(3).unwrap()), News::Told(Told::Shared(true))] {
        assert_eq!(told.recv().await, Some((5, news)));
    }
    let extreme =
        |class, jobs, micros| Order::Ask(Ask { class, jobs, waited: Duration::from_micros(micros) });
    let orders = [ask(40), extreme(Class::First, 0, u32::MAX.into()), extreme(Class::Spare, u16::MAX, 0)];
    for order in orders.into_iter().chain([Order::Return]) {
        connection.tell(order);
        assert_eq!(hears.recv().await, Some(Heard::Ordered(order)));
    }
    for message in [Told::Granted, Told::Recalled, Told::Shared(false)] {
        giving.mailbox.get().unwrap().post(message, true);
        assert_eq!(told.recv().await, Some((5, News::Told(message))));
    }
    connection.infer(&request("", 8), ANY_TIME).await.unwrap();
    assert_eq!(hears.recv().await, Some(Heard::Came(Some(FRONTEND))));
    drop(connection);
    assert_eq!(hears.recv().await, Some(Heard::Left));
}

#[tokio::test]
async fn grant_of_a_request_that_does_not_run_goes_back() {
    let budget = Budget::new(100_000);
    let Ends { connection, mut hears, .. } = ends(budget.clone(), pair(), true, true);
    assert_eq!(hears.recv().await, Some(Heard::Joined));
    connection.infer(&request("refused", 8), ANY_TIME).await.unwrap();
    assert_eq!(hears.recv().await, Some(Heard::Refused));
    assert_eq!(hears.recv().await, Some(Heard::Ordered(Order::Return)));
    let spent = budget.share();
    spent.grow(100_000).unwrap();
    connection.infer(&request("", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(hears.recv().await, Some(Heard::Ordered(Order::Return)), "the server rejected it");
}

#[tokio::test]
async fn end_of_a_connection_is_its_last_news() {
    let Ends { connection, giving, mut hears, mut told, server } = ends(unlimited(), pair(), true, true);
    assert_eq!(hears.recv().await, Some(Heard::Joined));
    server.drain.cancel();
    while told.recv().await != Some((5, News::Ended)) {}
    giving.mailbox.get().unwrap().post(Told::Granted, true);
    server.task.await.unwrap().unwrap();
    drop(connection);
    assert_eq!(told.recv().await, None, "a draining connection grants nothing");
}

#[tokio::test]
async fn ask_is_received_when_the_byte_budget_is_spent() {
    let budget = Budget::new(100_000);
    let spent = budget.share();
    spent.grow(100_000).unwrap();
    let Ends { connection, mut hears, .. } = ends(budget, pair(), true, true);
    assert_eq!(hears.recv().await, Some(Heard::Joined));
    connection.tell(ask(0));
    assert_eq!(hears.recv().await, Some(Heard::Ordered(ask(0))));
}

#[tokio::test]
async fn request_is_charged_to_its_share() {
    let Ends { connection, mut hears, .. } = ends(unlimited(), pair(), false, false);
    let context = CallContext { share: Some("gold".into()), ..CallContext::default() };
    connection.infer(&request("", 8), &context).await.unwrap();
    assert_eq!(hears.recv().await, Some(Heard::Charged("gold".into())));
}

#[tokio::test]
async fn older_peer_never_receives_a_message_of_grants() {
    for (server, client) in [(false, false), (true, false), (false, true)] {
        let Ends { connection, mut hears, mut told, .. } = ends(unlimited(), pair(), server, client);
        connection.tell(ask(0));
        connection.infer(&request("", 8), ANY_TIME).await.unwrap();
        let heard: Vec<_> = std::iter::from_fn(|| hears.try_recv().ok()).collect();
        let heard: Vec<_> = heard.into_iter().filter(|heard| *heard != Heard::Joined).collect();
        assert_eq!(heard, [Heard::Came(server.then_some(FRONTEND))], "{server} {client}");
        let said: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        assert!(said.iter().all(|(_, news)| matches!(news, News::Slots(_))), "{said:?}");
    }
}
