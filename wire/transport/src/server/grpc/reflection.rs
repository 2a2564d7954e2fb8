//! Server reflection, v1 and v1alpha, so that grpcurl and its like need no `.proto` file.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body as AnyBody;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use parm_protocol::grpc::FILE_DESCRIPTOR_SET;
use parm_protocol::{Error, InferenceService};
use tokio::time::Sleep;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::LONGEST_QUESTION;
use crate::budget::Share;
use crate::listening::Lent;
use crate::routes::Endpoint;
use crate::server::shared::Shared;

type Describer = BoxCloneSyncService<Request<Questions>, Response<tonic::body::Body>, Infallible>;

pub(in crate::server) struct Reflection {
    v1: Describer,
    v1alpha: Describer,
}

impl Reflection {
    pub(in crate::server) fn new() -> Self {
        let descriptors = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
                .include_reflection_service(false)
        };
        const WHOLE: &str = "compiled descriptors are valid";
        Self {
            v1: BoxCloneSyncService::new(descriptors().build_v1().expect(WHOLE)),
            v1alpha: BoxCloneSyncService::new(descriptors().build_v1alpha().expect(WHOLE)),
        }
    }

    pub(super) async fn answer<S: InferenceService>(
        &self,
        shared: &Shared<S>,
        version: Endpoint,
        request: Request<Lent<Incoming>>,
    ) -> Response<AnyBody> {
        let describer = if version == Endpoint::Reflection { &self.v1 } else { &self.v1alpha };
        let (share, limit) = (shared.budget.share(), shared.config.body_timeout);
        let questions = request.map(|body| Questions {
            body,
            share,
            came: 0,
            // Older tools ask several questions in one call, one after the other.
            timer: Box::pin(tokio::time::sleep(limit)),
        });
        let Ok(response) = describer.clone().oneshot(questions).await;
        response.map(|body| AnyBody::new(body.map_err(axum::Error::new)))
    }
}

/// The messages of a client, which are limited in time and size. All their bytes count against the byte budget until the call
/// ends, because the answers to them may wait for the client.
struct Questions {
    body: Lent<Incoming>,
    share: Arc<Share>,
    came: usize,
    timer: Pin<Box<Sleep>>,
}

impl Questions {
    fn count(&mut self, frame: &Frame<Bytes>) -> Result<(), Error> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        self.came = self.came.saturating_add(bytes);
        if self.came > LONGEST_QUESTION {
            let message = "the messages of this call have too many bytes together: make another call";
            return Err(Error::malformed(message));
        }
        self.share.grow(bytes)
    }
}

impl Body for Questions {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| {
                let frame = frame?;
                self.count(&frame)?;
                Ok(frame)
            }));
        }
        ready!(self.timer.as_mut().poll(cx));
        let message = "the messages did not arrive in time: make another call".into();
        Poll::Ready(Some(Err(Error::Malformed { message }.into())))
    }
}
