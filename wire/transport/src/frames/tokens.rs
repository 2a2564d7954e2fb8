//! Encodes tokens and orders as frames, usually bare headers whose id holds everything.
//!
//! ```text
//! granted   id: token u32 | lease in ms u16 (0: none) | sharers u14 | reserved u1 | contended u1, from the lowest bit on
//! recalled, given back   id: token
//! sharing   id: jobs that the server runs at a time, if the client is its only one, otherwise 0
//! met       id: the note of a reservation; the token that is granted next meets it. Only where it had a note
//! reserve   id: the client's note of it u32, or 0 | wait of its query in microseconds u32   head: model, class u8, share   withdraw   head: model, share      the share is missing where it is the model's own
//! redeem    id: token; the next request of the connection uses it
//! ```

use std::time::Duration;

use bytes::{BufMut, Bytes};
use parm_protocol::Error;
use parm_protocol::fleet::Wish;
use parm_tokens::{Class, Grant, Message, Note, Order, Token};

use super::codec;
use super::frame::{Builder, Frame};
use super::header::{Header, Kind};
use super::wire::put_text;

/// Larger numbers of frontends are sent as this.
const MOST_SHARERS: u16 = 0x3fff;

/// A server's message.
pub(super) fn message(message: Message) -> Frame {
    match message {
        Message::Granted(grant) => {
            let granted = Frame::bare(Kind::Granted, packed(grant));
            // A client without notes may not know this frame.
            let known = grant.met != Note::default();
            if known { Frame::bare(Kind::Met, grant.met.0.into()).then(granted) } else { granted }
        }
        Message::Recalled(token) => Frame::bare(Kind::Recalled, token.0.into()),
        Message::Alone(slots) => Frame::bare(Kind::Sharing, slots.max(1).into()),
        Message::Shared => Frame::bare(Kind::Sharing, 0),
    }
}

/// Decodes a server's frame, given the frames before it; `None` if it is not about tokens, or belongs to the next one.
pub(super) fn read_message(header: &Header, met: &mut Note) -> Option<Message> {
    match header.kind {
        Kind::Met => {
            *met = Note(header.id as u32);
            None
        }
        Kind::Granted => Some(Message::Granted(Grant { met: std::mem::take(met), ..unpacked(header.id) })),
        Kind::Recalled => Some(Message::Recalled(Token(header.id as u32))),
        Kind::Sharing if header.id == 0 => Some(Message::Shared),
        Kind::Sharing => Some(Message::Alone(u16::try_from(header.id).unwrap_or(u16::MAX))),
        _ => None,
    }
}

/// Encodes an order. For a server without shares all jobs of a model are one: it receives reservations, but no
/// withdrawals.
pub(super) fn order(order: &Order<Wish>, shares: bool) -> Option<Result<Frame, Error>> {
    let (kind, wish, class, id) = match order {
        Order::GiveBack(token) => return Some(Ok(Frame::bare(Kind::GiveBack, token.0.into()))),
        Order::Reserve(wish, class, note, waited) => {
            let waited = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
            (Kind::Reserve, wish, Some(class), u64::from(note.0) | u64::from(waited) << 32)
        }
        Order::Withdraw(Wish { share: Some(_), .. }) if !shares => return None,
        Order::Withdraw(wish) => (Kind::Withdraw, wish, None, 0),
    };
    let share = wish.share.as_deref().filter(|_| shares);
    let mut builder = Builder::new(32 + wish.model.len() + share.map_or(0, str::len));
    put_text(builder.head(), &wish.model);
    class.iter().for_each(|class| builder.head().put_u8(class.byte()));
    share.iter().for_each(|share| put_text(builder.head(), share));
    Some(builder.finish(kind, id, std::iter::empty(), usize::MAX))
}

/// Decodes a client's frame; `None` if it is not an order.
pub(super) fn read_order(header: &Header, body: &Bytes) -> Option<Result<Order<Wish>, Error>> {
    let read = |classed: bool| -> Result<Order<Wish>, Error> {
        let (mut head, data) = codec::open(body)?;
        let model = head.text()?;
        let class = if classed { Some(Class::of(head.byte()?)) } else { None };
        let wish = Wish { model, share: head.text_if_any()? };
        head.finish()?;
        data.finish()?;
        Ok(match class {
            Some(class) => {
                let waited = Duration::from_micros(header.id >> 32);
                Order::Reserve(wish, class, Note(header.id as u32), waited)
            }
            None => Order::Withdraw(wish),
        })
    };
    match header.kind {
        Kind::GiveBack => Some(Ok(Order::GiveBack(Token(header.id as u32)))),
        Kind::Reserve => Some(read(true)),
        Kind::Withdraw => Some(read(false)),
        _ => None,
    }
}

/// Announces that the next request uses a token.
pub(super) fn redeem(token: Token) -> Frame {
    Frame::bare(Kind::Redeem, token.0.into())
}

fn packed(grant: Grant) -> u64 {
    let Grant { token, lease, contended, reserved, sharers, met: _ } = grant;
    let (contended, reserved) = (u64::from(contended) << 63, u64::from(reserved) << 62);
    let lease = lease.map_or(0, |lease| lease.as_millis().clamp(1, u128::from(u16::MAX)) as u64);
    u64::from(token.0) | lease << 32 | u64::from(sharers.min(MOST_SHARERS)) << 48 | reserved | contended
}

fn unpacked(id: u64) -> Grant {
    let lease = id >> 32 & 0xffff;
    Grant {
        token: Token(id as u32),
        lease: (lease > 0).then(|| Duration::from_millis(lease)),
        contended: id >> 63 == 1,
        reserved: id >> 62 & 1 == 1,
        sharers: (id >> 48) as u16 & MOST_SHARERS,
        met: Note::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(frame: &Frame) -> Header {
        Header::from_bytes(frame.chunks[0].first_chunk().unwrap()).unwrap()
    }

    fn received(wish: &Order<Wish>, shares: bool) -> Option<Order<Wish>> {
        let frame = order(wish, shares)?.unwrap();
        let all: Vec<u8> = frame.chunks.iter().flatten().copied().collect();
        let body = Bytes::from(all).slice(super::super::header::LENGTH..);
        Some(read_order(&header(&frame), &body).unwrap().unwrap())
    }

    #[test]
    fn every_message_survives_the_wire() {
        let all = Some(Duration::from_millis(100));
        let grants =
            [(None, false, false, 1, 0), (all, true, false, MOST_SHARERS, 1), (all, false, true, 2, !0)];
        let grants = grants.map(|(lease, contended, reserved, sharers, met)| {
            let (token, met) = (Token(u32::MAX), Note(met));
            Message::Granted(Grant { token, lease, contended, reserved, sharers, met })
        });
        for sent in
            grants.into_iter().chain([Message::Recalled(Token(7)), Message::Alone(3), Message::Shared])
        {
            let frame = message(sent);
            let mut met = Note::default();
            let read = frame.chunks.iter().filter_map(|chunk| {
                read_message(&Header::from_bytes(chunk.first_chunk().unwrap()).unwrap(), &mut met)
            });
            assert_eq!(read.collect::<Vec<_>>(), [sent]);
        }
    }

    #[test]
    fn orders_survive_the_wire_and_broken_ones_are_malformed() {
        let of_a_share = Wish { model: "model".into(), share: Some("share".into()) };
        let longest = Duration::from_micros(u32::MAX.into());
        let wishes = [
            Order::Reserve(Wish::of("model"), Class::Late, Note::default(), Duration::ZERO),
            Order::Reserve(of_a_share.clone(), Class::Query, Note(u32::MAX), longest),
            Order::Withdraw(Wish::of("model")),
            Order::Withdraw(of_a_share.clone()),
            Order::GiveBack(Token(9)),
        ];
        for wish in wishes {
            assert_eq!(received(&wish, true), Some(wish));
        }
        // A server without shares ignores the share of an order.
        let reserve = |wish| Order::Reserve(wish, Class::Query, Note(1), Duration::from_micros(1));
        let all_are_one = reserve(Wish::of("model"));
        assert_eq!(received(&reserve(of_a_share.clone()), false), Some(all_are_one));
        assert_eq!(received(&Order::Withdraw(of_a_share), false), None, "other jobs may wait for the model");
        let header = Header { kind: Kind::Reserve, id: 0, body: 8 };
        assert!(read_order(&header, &Bytes::from_static(&[255; 8])).unwrap().is_err());
    }
}
