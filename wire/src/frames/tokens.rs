//! Tokens as frames: mostly a bare header whose number says it all.
//!
//! ```text
//! granted   id: token u32 | lease in ms u16 (0: none) | sharers u15 | contended u1, from the lowest bit on
//! recalled, given back   id: token
//! reserve   head: model, class u8          withdraw   head: model
//! redeem    id: token; the next request of the connection uses it
//! ```

use std::time::Duration;

use bytes::{BufMut, Bytes};
use parm_protocol::Error;
use parm_tokens::{Class, Grant, Message, Order, Token};

use super::codec;
use super::frame::{Builder, Frame};
use super::header::{Header, Kind};
use super::wire::put_text;

/// A server's message.
pub(super) fn message(message: Message) -> Frame {
    match message {
        Message::Granted(grant) => Frame::bare(Kind::Granted, packed(grant)),
        Message::Recalled(token) => Frame::bare(Kind::Recalled, token.0.into()),
    }
}

/// What a server's frame says; `None` if it is not about tokens.
pub(super) fn read_message(header: &Header) -> Option<Message> {
    match header.kind {
        Kind::Granted => Some(Message::Granted(unpacked(header.id))),
        Kind::Recalled => Some(Message::Recalled(Token(header.id as u32))),
        _ => None,
    }
}

/// A client's wish.
pub(super) fn order(order: &Order<String>) -> Result<Frame, Error> {
    let (kind, model, class) = match order {
        Order::GiveBack(token) => return Ok(Frame::bare(Kind::GiveBack, token.0.into())),
        Order::Reserve(model, class) => (Kind::Reserve, model, Some(class)),
        Order::Withdraw(model) => (Kind::Withdraw, model, None),
    };
    let mut builder = Builder::new(16 + model.len());
    put_text(builder.head(), model);
    class.iter().for_each(|class| builder.head().put_u8(class.byte()));
    builder.finish(kind, 0, std::iter::empty(), usize::MAX)
}

/// What a client's frame says; `None` if it is not a wish.
pub(super) fn read_order(header: &Header, body: &Bytes) -> Option<Result<Order<String>, Error>> {
    let read = |classed: bool| -> Result<Order<String>, Error> {
        let (mut head, data) = codec::open(body)?;
        let model = head.text()?;
        let class = if classed { Some(Class::of(head.byte()?)) } else { None };
        head.finish()?;
        data.finish()?;
        Ok(class.map_or_else(|| Order::Withdraw(model.clone()), |class| Order::Reserve(model.clone(), class)))
    };
    match header.kind {
        Kind::GiveBack => Some(Ok(Order::GiveBack(Token(header.id as u32)))),
        Kind::Reserve => Some(read(true)),
        Kind::Withdraw => Some(read(false)),
        _ => None,
    }
}

/// Says that the next request uses a token.
pub(super) fn redeem(token: Token) -> Frame {
    Frame::bare(Kind::Redeem, token.0.into())
}

fn packed(grant: Grant) -> u64 {
    let Grant { token, lease, contended, sharers } = grant;
    let lease = lease.map_or(0, |lease| lease.as_millis().clamp(1, u128::from(u16::MAX)) as u64);
    u64::from(token.0) | lease << 32 | u64::from(sharers & 0x7fff) << 48 | u64::from(contended) << 63
}

fn unpacked(id: u64) -> Grant {
    let lease = id >> 32 & 0xffff;
    Grant {
        token: Token(id as u32),
        lease: (lease > 0).then(|| Duration::from_millis(lease)),
        contended: id >> 63 == 1,
        sharers: (id >> 48 & 0x7fff) as u16,
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
        let grants = [(None, false, 1), (Some(Duration::from_millis(100)), true, 0x7fff)];
        let grants = grants.map(|(lease, contended, sharers)| {
            Message::Granted(Grant { token: Token(u32::MAX), lease, contended, sharers })
        });
        for sent in grants.into_iter().chain([Message::Recalled(Token(7))]) {
            assert_eq!(read_message(&header(&message(sent))), Some(sent));
        }
    }

    #[test]
    fn every_wish_survives_the_wire_and_a_broken_one_is_malformed() {
        let wishes = [
            Order::Reserve("model".to_owned(), Class::Late),
            Order::Withdraw("model".to_owned()),
            Order::GiveBack(Token(9)),
        ];
        for wish in wishes {
            let frame = order(&wish).unwrap();
            let all: Vec<u8> = frame.chunks.iter().flatten().copied().collect();
            let body = Bytes::from(all).slice(super::super::header::LENGTH..);
            assert_eq!(read_order(&header(&frame), &body), Some(Ok(wish)));
        }
        let header = Header { kind: Kind::Reserve, id: 0, body: 8 };
        assert!(read_order(&header, &Bytes::from_static(&[255; 8])).unwrap().is_err());
    }
}
