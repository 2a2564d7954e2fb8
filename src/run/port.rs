//! Free ports for the copies. Nothing is served on the listeners here: they only try addresses.
//!
//! They lie below those that the kernel gives to outgoing connections. Otherwise a connection to a copy that has ended could
//! get the copy's own port as its source, and would then be connected to itself.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::anyhow;
use parm_protocol::Error;

/// What stands for the port in a command.
pub const PLACE: &str = "{port}";

/// The first port, and the number of them. Linux gives 32768 and above to outgoing connections.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Attempts to find a row of free ports. A machine on which all fail has thousands of servers.
const ATTEMPTS: u64 = 100;

/// Finds this many free ports in a row. The row begins at random, because another `parm run` may be about to use what it has
/// just found free.
pub fn free(count: u16) -> anyhow::Result<Vec<u16>> {
    let random = RandomState::new();
    for attempt in 0..ATTEMPTS {
        let begin = random.hash_one(attempt) % u64::from(COUNT - count);
        let begin = FIRST + u16::try_from(begin).unwrap_or(0);
        let ports: Vec<u16> = (begin..begin + count).collect();
        if ports.iter().all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()) {
            return Ok(ports);
        }
    }
    Err(anyhow!("no {count} free ports in a row between {FIRST} and {}: end other servers", FIRST + COUNT))
}

/// Whether an address can be listened on, or the error.
pub fn check(address: SocketAddr) -> Result<(), Error> {
    let failed =
        |error: io::Error| Error::Listen { address: address.to_string(), message: error.to_string() };
    TcpListener::bind(address).map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_in_a_row_and_below_those_of_outgoing_connections() {
        for count in [1, 3, 256] {
            let ports = free(count).unwrap();
            assert_eq!(ports.len(), usize::from(count));
            assert!(ports.windows(2).all(|pair| pair[1] == pair[0] + 1) && ports[0] >= FIRST);
            assert!(*ports.last().unwrap() < 32_768);
        }
    }
}
