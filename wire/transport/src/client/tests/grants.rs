//! A client and a server agree on grants.

use std::sync::OnceLock;

use parm_grants::{Ask, Class, Order, Told};
use parm_protocol::fleet::{Frontend, Giver, Mailbox, News, Watcher};
use tokio::sync::mpsc;

use super::*;

const ASK: Order = Order::Ask(Ask { class: Class::First, waited: Duration::from_millis(3), jobs: 1 });

/// A service that says at once that it is shared, and reports what it hears; `None` for a frontend that joins.
struct Sharing(mpsc::Sender<Option<Order>>);

impl Giver for Sharing {
    fn join(&self, mailbox: Box<dyn Mailbox>) -> Frontend {
        let _ = self.0.try_send(None);
        mailbox.post(Told::Shared(true), true);
        Frontend(1)
    }

    fn leave(&self, _: Frontend) {}

    fn hears(&self, _: Frontend, order: Order) {
        let _ = self.0.try_send(Some(order));
    }
}

struct Service(Arc<Sharing>);

impl InferenceService for Service {
    fn giver(&self) -> Option<Arc<dyn Giver>> {
        Some(self.0.clone())
    }
    async fn infer(&self, request: InferRequest, context: Context) -> Result<InferResponse, Error> {
        context.caller.map(|caller| caller.comes());
        Ok(echo(request))
    }
}

/// Asks for a job as soon as it hears that the server is shared.
struct Asking(OnceLock<Arc<dyn Client>>);

impl Watcher for Asking {
    fn heard(&self, _: u64, news: News) {
        if news == News::Told(Told::Shared(true)) {
            self.0.get().unwrap().tell(ASK);
        }
    }
}

async fn served() -> (Endpoint, mpsc::Receiver<Option<Order>>) {
    let (heard, hears) = mpsc::channel(8);
    let server = Arc::new(Server::new(Service(Arc::new(Sharing(heard)))));
    (over_tcp(&server).await, hears)
}

#[tokio::test(flavor = "multi_thread")]
async fn client_can_answer_what_the_server_says_at_once() {
    for _ in 0..50 {
        let (endpoint, mut hears) = served().await;
        let client = connect(&endpoint, &Config::default()).unwrap();
        let asking = Arc::new(Asking(OnceLock::new()));
        assert!(asking.0.set(client.clone()).is_ok());
        client.watch(asking);
        client.infer(request("", 8), CallContext::default()).await.unwrap();
        assert_eq!([hears.recv().await, hears.recv().await], [Some(None), Some(Some(ASK))]);
    }
}
