//! The codec of calls that have one message: a second message is an error.
//!
//! tonic reads what follows the message of such a call, decodes it and forgets it. A client that goes on sending would keep a
//! call reading for as long as a body may take, and fill the budget of bytes that all requests share.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// What a client reads that sends a second message.
pub(super) const WORDS: &str = "a call has one message: send other requests as calls of their own";

/// Reads one `M`, and writes `R`.
pub(super) struct SingleCodec<R, M>(PhantomData<(R, M)>);

impl<R, M> Default for SingleCodec<R, M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<R, M> Codec for SingleCodec<R, M>
where
    R: Message + 'static,
    M: Message + Default + 'static,
{
    type Encode = R;
    type Decode = M;
    type Encoder = ProstEncoder<R>;
    type Decoder = SingleDecoder<M>;

    fn encoder(&mut self) -> ProstEncoder<R> {
        ProstCodec::<R, M>::default().encoder()
    }

    fn decoder(&mut self) -> SingleDecoder<M> {
        SingleDecoder { one: ProstCodec::<R, M>::default().decoder(), decoded: false }
    }
}

/// Decodes one message.
pub(super) struct SingleDecoder<M> {
    one: ProstDecoder<M>,
    decoded: bool,
}

impl<M: Message + Default> Decoder for SingleDecoder<M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        if std::mem::replace(&mut self.decoded, true) {
            return Err(Status::invalid_argument(WORDS));
        }
        self.one.decode(from)
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.one.buffer_settings()
    }
}
