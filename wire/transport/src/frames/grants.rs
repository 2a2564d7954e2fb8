//! Encodes asks and grants as bare headers, whose id holds everything.
//!
//! ```text
//! granted, recalled, return   id: 0
//! shared                      id: 1 if other clients use the server too, otherwise 0
//! ask                         id: jobs u16 | class u8 | 0 u8 | wait of the oldest in microseconds u32, from the lowest bit on
//! ```

use std::time::Duration;

use parm_grants::{Ask, Class, Order, Told};

use super::frame::Frame;
use super::header::{Header, Kind};

/// A server's message.
pub(super) fn told(told: Told) -> Frame {
    match told {
        Told::Granted => Frame::bare(Kind::Granted, 0),
        Told::Recalled => Frame::bare(Kind::Recalled, 0),
        Told::Shared(shared) => Frame::bare(Kind::Shared, shared.into()),
    }
}

/// Decodes a server's message; `None` if it is something else.
pub(super) fn read_told(header: &Header) -> Option<Told> {
    match header.kind {
        Kind::Granted => Some(Told::Granted),
        Kind::Recalled => Some(Told::Recalled),
        Kind::Shared => Some(Told::Shared(header.id != 0)),
        _ => None,
    }
}

/// A client's message.
pub(super) fn order(order: Order) -> Frame {
    match order {
        Order::Return => Frame::bare(Kind::Return, 0),
        Order::Ask(Ask { class, waited, jobs }) => {
            let waited = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
            let id = u64::from(jobs) | (class as u64) << 16 | u64::from(waited) << 32;
            Frame::bare(Kind::Ask, id)
        }
    }
}

/// Decodes a client's message; `None` if it is something else.
pub(super) fn read_order(header: &Header) -> Option<Order> {
    match header.kind {
        Kind::Return => Some(Order::Return),
        Kind::Ask => {
            let class = match (header.id >> 16) as u8 {
                0 => Class::Late,
                1 => Class::First,
                _ => Class::Spare,
            };
            let waited = Duration::from_micros(header.id >> 32);
            Some(Order::Ask(Ask { class, waited, jobs: header.id as u16 }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(frame: &Frame) -> Header {
        Header::from_bytes(frame.chunks[0].first_chunk().unwrap()).unwrap()
    }

    #[test]
    fn every_message_survives_the_wire() {
        for sent in [Told::Granted, Told::Recalled, Told::Shared(true), Told::Shared(false)] {
            let header = header(&told(sent));
            assert_eq!((read_told(&header), read_order(&header)), (Some(sent), None));
        }
        let ask =
            |class, micros, jobs| Order::Ask(Ask { class, waited: Duration::from_micros(micros), jobs });
        let asks = [
            ask(Class::Late, 0, u16::MAX),
            ask(Class::First, u32::MAX.into(), 0),
            ask(Class::Spare, 1, 1),
            Order::Return,
        ];
        for sent in asks {
            let header = header(&order(sent));
            assert_eq!((read_told(&header), read_order(&header)), (None, Some(sent)));
        }
        let longest = header(&order(ask(Class::First, u64::MAX, 1)));
        assert_eq!(read_order(&longest), Some(ask(Class::First, u32::MAX.into(), 1)));
    }
}
