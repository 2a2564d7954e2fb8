//! The codec of calls with one message, which rejects a second one.
//!
//! tonic decodes further messages of such a call and drops them. A client that kept sending would keep the call reading
//! for the whole body timeout, and fill the byte budget that all requests share.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// The error of a client that sends a second message.
pub(super) const WORDS: &str = "a call has one message: send each request as its own call";

/// Decodes one `M`, and encodes `R`.
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
