//! Tests that the spans of a query reach a collector as one tree, from the frontend and from the worker.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use tonic::{Request, Response, Status};

use crate::support::process::PATIENCE;
use crate::support::{Parm, affine, http};

/// Spans with the name of the service that made them.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Span)>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.unwrap_or_default().attributes;
            let service = attributes.iter().find(|attribute| attribute.key == "service.name");
            let service = format!("{:?}", service.and_then(|attribute| attribute.value.clone()));
            for scope in resource.scope_spans {
                self.0.lock().extend(scope.spans.into_iter().map(|span| (service.clone(), span)));
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn collector() -> (SocketAddr, Collector) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collector = Collector::default();
    let service = TraceServiceServer::new(collector.clone());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming));
    (address, collector)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_one_tree_of_spans_across_frontend_and_worker() {
    let (address, collector) = collector().await;
    let otlp = format!("log.otlp=http://{address}");
    let worker = Parm::worker(&["--set", &otlp]);
    let mut frontend = Parm::frontend(&[&worker], &["--set", &otlp]);
    frontend.until_model_ready();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = "b7ad6b7169203331";
    let body = affine::json(&affine::rows(1, 1)).to_string();
    let traceparent = format!("00-{trace}-{parent}-01");
    let headers = [("traceparent", traceparent.as_str())];
    let answer = http::request(frontend.http, "POST", "/v2/models/affine/infer", &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.body_text());
    // Ending a process flushes its spans.
    frontend.signal("TERM");
    frontend.wait();
    let mut worker = worker;
    worker.signal("TERM");
    worker.wait();

    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let spans = collector.0.lock().clone();
        let ours: Vec<_> = spans.iter().filter(|(_, span)| hex(&span.trace_id) == trace).collect();
        let services: BTreeMap<&str, usize> = ours.iter().fold(BTreeMap::new(), |mut count, (service, _)| {
            *count.entry(service.as_str()).or_default() += 1;
            count
        });
        if services.len() == 2 {
            let ids: Vec<String> = ours.iter().map(|(_, span)| hex(&span.span_id)).collect();
            for (service, span) in &ours {
                let above = hex(&span.parent_span_id);
                assert!(
                    above == parent || ids.contains(&above),
                    "{service} {} has no parent span",
                    span.name
                );
            }
            let roots = ours.iter().filter(|(_, span)| hex(&span.parent_span_id) == parent).count();
            assert_eq!(roots, 1, "one tree");
            return;
        }
        assert!(std::time::Instant::now() < deadline, "no spans of two services arrived: {spans:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
