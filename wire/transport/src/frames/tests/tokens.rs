//! Tokens on a connection: used if both sides agree, otherwise never sent.

use std::num::NonZeroU16;
use std::sync::OnceLock;

use parm_protocol::InferResponse;
use parm_protocol::fleet::{Caller, Giver, Mailbox, News, SHARE, Watcher, Wish};
use parm_tokens::{Class, Frontend, Grant, Message, Note, Order, Token};
use tokio::sync::mpsc;

use super::*;
use crate::scripted::any_model;

/// A message that the server's service received.
#[derive(Debug, PartialEq)]
enum Heard {
    Joined,
    Left,
    Told(Order<Wish>),
    Asked(Option<Caller>),
    /// A request was charged to a share.
    Charged(String),
}

/// A service that gives tokens when the test tells it to.
struct Giving {
    heard: mpsc::Sender<Heard>,
    mailbox: OnceLock<Box<dyn Mailbox>>,
}

const FRONTEND: Frontend = Frontend(7);

impl Giver for Giving {
    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend {
        assert!(self.mailbox.set(mailbox).is_ok(), "one connection");
        let _ = self.heard.try_send(Heard::Joined);
        FRONTEND
    }

    fn leave(&self, frontend: Frontend) {
        assert_eq!(frontend, FRONTEND);
        let _ = self.heard.try_send(Heard::Left);
    }

    fn told(&self, frontend: Frontend, order: Order<Wish>) {
        assert_eq!(frontend, FRONTEND);
        let _ = self.heard.try_send(Heard::Told(order));
    }
}

struct Service(Arc<Giving>);

impl InferenceService for Service {
    any_model!(orders);
    fn giver(&self) -> Option<Arc<dyn Giver>> {
        Some(self.0.clone())
    }
    async fn infer(&self, request: InferRequest, context: Context) -> Result<InferResponse, Error> {
        let share = request.parameters.get(SHARE).and_then(|share| share.as_str());
        let heard = share.map_or(Heard::Asked(context.caller), |share| Heard::Charged(share.to_owned()));
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

/// Both ends; each parameter says whether that side supports tokens.
fn both(server: bool, client: bool) -> (Connection, Arc<Giving>, mpsc::Receiver<Heard>) {
    let (near, far) = UnixStream::pair().unwrap();
    over((near.into(), far.into()), server, client)
}

fn over(
    sockets: (Socket, Socket),
    server: bool,
    client: bool,
) -> (Connection, Arc<Giving>, mpsc::Receiver<Heard>) {
    within(Budget::new(usize::MAX), sockets, server, client)
}

fn within(
    budget: Arc<Budget>,
    (near, far): (Socket, Socket),
    server: bool,
    client: bool,
) -> (Connection, Arc<Giving>, mpsc::Receiver<Heard>) {
    let (heard, hears) = mpsc::channel(64);
    let giving = Arc::new(Giving { heard, mailbox: OnceLock::new() });
    let config = Config::default();
    let negotiated = Negotiated { tokens: client, ..Negotiated::of(&config) };
    let connection = Connection::new("pair".into(), near, b"", negotiated, &config);
    let (service, limits) =
        (Arc::new(Service(giving.clone())), Limits { budget, tokens: server, ..config.into() });
    tokio::spawn(async move { serve(far, b"", service, &limits, CancellationToken::new()).await });
    (connection, giving, hears)
}

#[tokio::test]
async fn tokens_and_orders_go_both_ways_until_the_end() {
    tokens_and_wishes(both(true, true)).await;
}

#[tokio::test]
async fn tokens_and_orders_go_both_ways_over_tls() {
    tokens_and_wishes(over(crate::tls::tests::pair().await, true, true)).await;
}

async fn tokens_and_wishes(
    (connection, giving, mut hears): (Connection, Arc<Giving>, mpsc::Receiver<Heard>),
) {
    let (news, mut told) = mpsc::channel(64);
    let watcher: Arc<dyn Watcher> = Arc::new(Listener(news));
    connection.watch(3, &watcher);
    assert_eq!(told.recv().await, Some((3, News::Offered)));
    assert_eq!(hears.recv().await, Some(Heard::Joined));
    let wish = Order::Reserve(
        Wish { share: Some("s".into()), ..Wish::of("m") },
        Class::Late,
        Note(8),
        Duration::from_millis(40),
    );
    connection.tell(&wish);
    assert_eq!(hears.recv().await, Some(Heard::Told(wish)));

    let lease = Some(Duration::from_millis(9));
    let grant = Grant { token: Token(5), lease, contended: true, reserved: true, sharers: 2, met: Note(8) };
    let unasked = Grant { met: Note::default(), ..grant };
    for message in [Message::Granted(grant), Message::Granted(unasked), Message::Recalled(Token(5))] {
        giving.mailbox.get().unwrap().post(message, true);
        assert_eq!(told.recv().await, Some((3, News::Told(message))));
    }
    let context = CallContext { token: Some(Token(5)), ..CallContext::default() };
    for (context, token) in [(context, Some(Token(5))), (ANY_TIME.clone(), None)] {
        connection.infer(&request("", 8), &context).await.unwrap();
        assert_eq!(hears.recv().await, Some(Heard::Asked(Some(Caller { frontend: FRONTEND, token }))));
    }
    drop(connection);
    assert_eq!(hears.recv().await, Some(Heard::Left));
}

#[tokio::test]
async fn slots_of_the_server_are_news_of_its_connection() {
    let (near, _far) = UnixStream::pair().unwrap();
    let config = Config::default();
    let stated = Negotiated { slots: NonZeroU16::new(3), ..Negotiated::of(&config) };
    let headers: http::HeaderMap = stated.headers().collect();
    let negotiated = Negotiated { tokens: true, ..Negotiated::from_headers(&headers) };
    let connection = Connection::new("pair".into(), near.into(), b"", negotiated, &config);
    let (news, mut told) = mpsc::channel(64);
    let watcher: Arc<dyn Watcher> = Arc::new(Listener(news));
    connection.watch(1, &watcher);
    assert_eq!(told.recv().await, Some((1, News::Offered)));
    assert_eq!(told.recv().await, Some((1, News::Slots(NonZeroU16::new(3).unwrap()))));
}

#[tokio::test]
async fn order_is_received_when_the_byte_budget_is_spent() {
    let (near, far) = UnixStream::pair().unwrap();
    let budget = Budget::new(100_000);
    let spent = budget.share();
    spent.grow(100_000).unwrap();
    let (connection, _giving, mut hears) = within(budget, (near.into(), far.into()), true, true);
    assert_eq!(hears.recv().await, Some(Heard::Joined));
    let reserve = Order::Reserve(Wish::of("m"), Class::Late, Note(8), Duration::ZERO);
    for order in [reserve, Order::Withdraw(Wish::of("m")), Order::GiveBack(Token(5))] {
        connection.tell(&order);
        assert_eq!(hears.recv().await, Some(Heard::Told(order)));
    }
    // One that is too large is ignored, and the connection stays.
    connection.tell(&Order::Withdraw(Wish::of("m".repeat(20_000))));
    let refused = connection.infer(&request("", 8), ANY_TIME).await.unwrap_err();
    assert_eq!(refused.code(), Code::Overloaded);
    drop(spent);
    connection.infer(&request("", 8), ANY_TIME).await.unwrap();
    assert!(matches!(hears.recv().await, Some(Heard::Asked(_))));
}

#[tokio::test]
async fn request_is_charged_to_its_share_if_the_server_has_shares() {
    for knows in [true, false] {
        let (near, far) = UnixStream::pair().unwrap();
        let (heard, mut hears) = mpsc::channel(64);
        let service = Arc::new(Service(Arc::new(Giving { heard, mailbox: OnceLock::new() })));
        let config = Config::default();
        let negotiated = Negotiated { shares: knows, ..Negotiated::of(&config) };
        let connection = Connection::new("pair".into(), near.into(), b"", negotiated, &config);
        let limits = Limits::from(config);
        tokio::spawn(async move { serve(far.into(), b"", service, &limits, CancellationToken::new()).await });
        let context = CallContext { share: Some("gold".into()), ..CallContext::default() };
        connection.infer(&request("", 8), &context).await.unwrap();
        let charged = if knows { Heard::Charged("gold".into()) } else { Heard::Asked(None) };
        assert_eq!(hears.recv().await, Some(charged));
    }
}

#[tokio::test]
async fn peer_without_tokens_never_receives_one() {
    for (server, client) in [(false, false), (true, false)] {
        let (connection, _giving, mut hears) = both(server, client);
        let (news, mut told) = mpsc::channel(64);
        let watcher: Arc<dyn Watcher> = Arc::new(Listener(news));
        connection.watch(1, &watcher);
        connection.tell(&Order::Withdraw(Wish::of("m")));
        let context = CallContext { token: Some(Token(5)), ..CallContext::default() };
        connection.infer(&request("", 8), &context).await.unwrap();
        let caller = server.then_some(Caller { frontend: FRONTEND, token: None });
        let heard: Vec<_> = std::iter::from_fn(|| hears.try_recv().ok()).collect();
        let heard: Vec<_> = heard.into_iter().filter(|heard| *heard != Heard::Joined).collect();
        assert_eq!(heard, [Heard::Asked(caller)]);
        assert!(told.try_recv().is_err());
    }
}
