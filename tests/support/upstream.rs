//! An upstream server of a test: a thread per connection, and a function that answers.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Request line and headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl Heard {
    /// A header's value, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<String> {
        super::http::header(&self.head, name)
    }

    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// A server that runs until the test program ends.
pub struct Upstream {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    is_dead: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Upstream {
    /// Starts a server. `answer` writes to the connection, and says whether it stays open. Health checks are answered here.
    pub fn start(answer: impl Fn(&Heard, &mut TcpStream) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, heard) = (Arc::new(answer), Arc::new(Mutex::new(Vec::new())));
        let log = heard.clone();
        let (is_dead, connections) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (dead, known) = (is_dead.clone(), connections.clone());
        thread::spawn(move || {
            for stream in
                listener.incoming().map_while(Result::ok).take_while(|_| !dead.load(Ordering::SeqCst))
            {
                known.lock().unwrap().extend(stream.try_clone());
                let (answer, log) = (answer.clone(), log.clone());
                thread::spawn(move || serve(stream, &log, |heard, stream| answer(heard, stream)));
            }
        });
        Self { address, heard, is_dead, connections }
    }

    /// A server that answers every request with this text.
    pub fn saying(text: &'static str) -> Self {
        Self::start(move |_, stream| say(stream, "200 OK", text))
    }

    /// Closes its port and its connections, as if its process had ended.
    pub fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes its listener
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests so far, without health checks.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
}

/// Writes an answer with a length.
pub fn say(stream: &mut TcpStream, status: &str, body: &str) -> bool {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).is_ok()
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<Heard>>, answer: impl Fn(&Heard, &mut TcpStream) -> bool) {
    let mut read = Vec::new();
    while let Some(heard) = hear(&mut stream, &mut read) {
        let goes_on = if heard.path() == "/health" {
            say(&mut stream, "200 OK", "")
        } else {
            log.lock().unwrap().push(heard.clone());
            answer(&heard, &mut stream)
        };
        if !goes_on {
            break;
        }
    }
    // `Upstream::connections` holds it as well.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Reads a request with a length; `None` at the end. What follows it stays in `read`.
fn hear(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<Heard> {
    let mut more = |read: &mut Vec<u8>| {
        let mut piece = [0; 65_536];
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        read.extend_from_slice(&piece[..count]);
        Some(())
    };
    let end = loop {
        match read.windows(4).position(|window| window == b"\r\n\r\n") {
            Some(at) => break at + 4,
            None => more(read)?,
        }
    };
    let head = String::from_utf8_lossy(&read[..end]).into_owned();
    let mut heard = Heard { head, body: Vec::new() };
    let length: usize = heard.header("content-length").map_or(0, |length| length.parse().unwrap());
    while read.len() < end + length {
        more(read)?;
    }
    heard.body = read[end..end + length].to_vec();
    read.drain(..end + length);
    Some(heard)
}
