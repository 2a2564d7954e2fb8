//! A gRPC client of a process.

use std::net::SocketAddr;

use bytes::{Buf, BufMut};
use parm_transport::grpc::Method;
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{IntoRequest, Response, Status};

/// Messages as bytes.
#[derive(Clone, Copy)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

/// A connection to a process.
#[derive(Clone)]
pub struct Grpc(pub tonic::client::Grpc<Channel>);

impl Grpc {
    pub async fn connect(address: SocketAddr) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
        client.ready().await.unwrap();
        Self(client)
    }

    /// Calls the method of a message.
    pub async fn ask<M: Method>(
        &mut self,
        message: impl IntoRequest<M>,
    ) -> Result<Response<M::Answer>, Status> {
        self.0.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = message.into_request().map(|message| message.encode_to_vec());
        let answer = self.0.unary(request, M::PATH.parse().unwrap(), Raw).await?;
        Ok(answer.map(|bytes| M::Answer::decode(&bytes[..]).unwrap()))
    }
}
