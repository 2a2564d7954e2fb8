//! Small DNS server over UDP with the records of a test.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const A: u16 = 1;
const SRV: u16 = 33;

/// The records of the server.
#[derive(Clone, Debug, Default)]
pub struct Zone {
    /// Addresses of every name.
    pub addresses: Vec<Ipv4Addr>,
    /// Priority, port and host of every service.
    pub services: Vec<(u16, u16, &'static str)>,
}

/// A name server that runs until it is dropped.
pub struct Names {
    pub address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Names {
    pub fn start(zone: Zone) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        // The timeout lets the thread check its stop flag.
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let (zone, stop) = (Arc::new(Mutex::new(zone)), Arc::new(AtomicBool::new(false)));
        let (shown, ended) = (zone.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let mut question = [0; 512];
            while !ended.load(Ordering::SeqCst) {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                let answer = answer(&question[..length], &shown.lock().unwrap());
                let _ = socket.send_to(&answer, from);
            }
        });
        Self { address, zone, stop, thread: Some(thread) }
    }

    /// Replaces the records.
    pub fn say(&self, zone: Zone) {
        *self.zone.lock().unwrap() = zone;
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers the only question: its name ends with an empty label, and its type and class follow.
fn answer(question: &[u8], zone: &Zone) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|&byte| byte == 0).unwrap() + 5;
    let kind = u16::from_be_bytes([question[end - 4], question[end - 3]]);
    let records: Vec<Vec<u8>> = match kind {
        A => zone.addresses.iter().map(|address| address.octets().to_vec()).collect(),
        SRV => zone.services.iter().map(service).collect(),
        _ => Vec::new(),
    };
    let mut answer = question[..2].to_vec();
    answer.extend([0x85, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
    answer.extend(&question[12..end]);
    for record in records {
        // The name of the question, this type, class IN, a TTL of one hour.
        answer.extend([0xc0, 12]);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1, 0, 0, 0x0e, 0x10]);
        answer.extend((record.len() as u16).to_be_bytes());
        answer.extend(record);
    }
    answer
}

fn service(&(priority, port, host): &(u16, u16, &str)) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(priority.to_be_bytes());
    record.extend([0, 1]);
    record.extend(port.to_be_bytes());
    for label in host.split('.') {
        record.push(label.len() as u8);
        record.extend(label.as_bytes());
    }
    record.push(0);
    record
}
