//! The routes of the emulated chat server and the access that each requires.

use parm_transport::keys::{Access, Method, Route};

/// OpenAI's routes, on the addresses of clients.
pub static ROUTES: &[Route] = &[
    Route::guest(Method::GET, "/health", Access::Everyone),
    Route::guest(Method::GET, "/v1/models", Access::AnyKey),
    Route::guest(Method::POST, "/v1/chat/completions", Access::Infer),
    Route::guest(Method::POST, "/v1/completions", Access::Infer),
    Route::guest(Method::POST, "/v1/embeddings", Access::Infer),
];
