/// Generated client implementations.
pub mod grpc_inference_service_client {
    #![allow(
        unused_variables,
        dead_code,
        missing_docs,
        clippy::wildcard_imports,
        clippy::let_unit_value,
    )]
    use tonic::codegen::*;
    use tonic::codegen::http::Uri;
    #[derive(Debug, Clone)]
    pub struct GrpcInferenceServiceClient<T> {
        inner: tonic::client::Grpc<T>,
    }
    impl GrpcInferenceServiceClient<tonic::transport::Channel> {
        /// Attempt to create a new client by connecting to a given endpoint.
        pub async fn connect<D>(dst: D) -> Result<Self, tonic::transport::Error>
        where
            D: TryInto<tonic::transport::Endpoint>,
            D::Error: Into<StdError>,
        {
            let conn = tonic::transport::Endpoint::new(dst)?.connect().await?;
            Ok(Self::new(conn))
        }
    }
    impl<T> GrpcInferenceServiceClient<T>
    where
        T: tonic::client::GrpcService<tonic::body::Body>,
        T::Error: Into<StdError>,
        T::ResponseBody: Body<Data = Bytes> + std::marker::Send + 'static,
        <T::ResponseBody as Body>::Error: Into<StdError> + std::marker::Send,
    {
        pub fn new(inner: T) -> Self {
            let inner = tonic::client::Grpc::new(inner);
            Self { inner }
        }
        pub fn with_origin(inner: T, origin: Uri) -> Self {
            let inner = tonic::client::Grpc::with_origin(inner, origin);
            Self { inner }
        }
        pub fn with_interceptor<F>(
            inner: T,
            interceptor: F,
        ) -> GrpcInferenceServiceClient<InterceptedService<T, F>>
        where
            F: tonic::service::Interceptor,
            T::ResponseBody: Default,
            T: tonic::codegen::Service<
                http::Request<tonic::body::Body>,
                Response = http::Response<
                    <T as tonic::client::GrpcService<tonic::body::Body>>::ResponseBody,
                >,
            >,
            <T as tonic::codegen::Service<
                http::Request<tonic::body::Body>,
            >>::Error: Into<StdError> + std::marker::Send + std::marker::Sync,
        {
            GrpcInferenceServiceClient::new(InterceptedService::new(inner, interceptor))
        }
        /// Compress requests with the given encoding.
        ///
        /// This requires the server to support it otherwise it might respond with an
        /// error.
        #[must_use]
        pub fn send_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.send_compressed(encoding);
            self
        }
        /// Enable decompressing responses.
        #[must_use]
        pub fn accept_compressed(mut self, encoding: CompressionEncoding) -> Self {
            self.inner = self.inner.accept_compressed(encoding);
            self
        }
        /// Limits the maximum size of a decoded message.
        ///
        /// Default: `4MB`
        #[must_use]
        pub fn max_decoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_decoding_message_size(limit);
            self
        }
        /// Limits the maximum size of an encoded message.
        ///
        /// Default: `usize::MAX`
        #[must_use]
        pub fn max_encoding_message_size(mut self, limit: usize) -> Self {
            self.inner = self.inner.max_encoding_message_size(limit);
            self
        }
        /// Whether the process works at all.
        pub async fn server_live(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ServerLiveRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ServerLiveResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ServerLive",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("inference.GRPCInferenceService", "ServerLive"));
            self.inner.unary(req, path, codec).await
        }
        /// Whether requests should be sent here.
        pub async fn server_ready(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ServerReadyRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ServerReadyResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ServerReady",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ServerReady"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// Whether one model can be served now.
        pub async fn model_ready(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ModelReadyRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ModelReadyResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelReady",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("inference.GRPCInferenceService", "ModelReady"));
            self.inner.unary(req, path, codec).await
        }
        /// Name, version and extensions of the server.
        pub async fn server_metadata(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ServerMetadataRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ServerMetadataResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ServerMetadata",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ServerMetadata"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// A model's tensors.
        pub async fn model_metadata(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ModelMetadataRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ModelMetadataResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelMetadata",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ModelMetadata"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// A prediction.
        pub async fn model_infer(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ModelInferRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ModelInferResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelInfer",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(GrpcMethod::new("inference.GRPCInferenceService", "ModelInfer"));
            self.inner.unary(req, path, codec).await
        }
        /// A model's configuration.
        pub async fn model_config(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ModelConfigRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ModelConfigResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelConfig",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ModelConfig"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// Statistics of one model or of all.
        pub async fn model_statistics(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::ModelStatisticsRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::ModelStatisticsResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/ModelStatistics",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "ModelStatistics"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// The models of the repository and their states.
        pub async fn repository_index(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::RepositoryIndexRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::RepositoryIndexResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/RepositoryIndex",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new("inference.GRPCInferenceService", "RepositoryIndex"),
                );
            self.inner.unary(req, path, codec).await
        }
        /// Loads or reloads a model.
        pub async fn repository_model_load(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::RepositoryModelLoadRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::RepositoryModelLoadResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/RepositoryModelLoad",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "RepositoryModelLoad",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
        /// Unloads a model.
        pub async fn repository_model_unload(
            &mut self,
            request: impl tonic::IntoRequest<::parm_protocol::grpc::inference::RepositoryModelUnloadRequest>,
        ) -> std::result::Result<
            tonic::Response<::parm_protocol::grpc::inference::RepositoryModelUnloadResponse>,
            tonic::Status,
        > {
            self.inner
                .ready()
                .await
                .map_err(|e| {
                    tonic::Status::unknown(
                        format!("Service was not ready: {}", e.into()),
                    )
                })?;
            let codec = tonic_prost::ProstCodec::default();
            let path = http::uri::PathAndQuery::from_static(
                "/inference.GRPCInferenceService/RepositoryModelUnload",
            );
            let mut req = request.into_request();
            req.extensions_mut()
                .insert(
                    GrpcMethod::new(
                        "inference.GRPCInferenceService",
                        "RepositoryModelUnload",
                    ),
                );
            self.inner.unary(req, path, codec).await
        }
    }
}
