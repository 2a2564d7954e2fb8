//! Who waits at a door while others have yet to say something.

use super::super::doorway::MOST;
use super::*;

#[tokio::test]
async fn those_who_say_nothing_are_so_many_at_most_and_others_wait_until_one_of_them_goes() {
    let scene = Scene::new();
    let tls = Tls::open(&scene.local(Mode::Allow)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut doorway = Doorway::new(listener, &tls, Spoken::Http1);
    let address = doorway.local_addr().unwrap();
    let mut silent = Vec::new();
    for _ in 0..MOST {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut polite = TcpStream::connect(address).await.unwrap();
    polite.write_all(b"GET").await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(200), doorway.accept()).await;
    assert!(early.is_err(), "one more than may be agreed with at a time");
    silent.pop();
    let (_, from) = doorway.accept().await;
    assert_eq!(from, polite.local_addr().unwrap());
}
