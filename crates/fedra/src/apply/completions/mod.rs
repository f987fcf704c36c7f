//! The protocol of OpenAI's chat completions, without a socket: requests in JSON are checked, answered by a decoder, and
//! answers are JSON again, whole or as events.
//!
//! Whoever carries the bytes calls [`CompletionRequest::chat`] or [`CompletionRequest::text`], and then
//! [`ServedModels::answer`] on a thread that may take its time. A field that would change the answer and is not followed
//! is refused; the protocol's other fields are listed in `request.rs`.

mod api_error;
mod decoders;
mod model_list;
mod reply;
mod request;
mod served;

pub use api_error::ApiError;
pub use decoders::{Decoders, MakeDecoder};
pub use model_list::ModelList;
pub use reply::AnswerSink;
pub use request::{Asked, CompletionRequest};
pub use served::{AnswerOrigin, Answered, ServedModel, ServedModels, WriteLimits};
