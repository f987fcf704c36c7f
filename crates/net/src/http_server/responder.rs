//! The way back to a client, for whoever makes the answer: from any thread, without waiting.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use tokio::sync::{mpsc, oneshot};

use super::body::{Answer, Piece};

const NO_SNIFFING: HeaderName = HeaderName::from_static("x-content-type-options");

/// Answers one request. Dropped without an answer, the client is told that there is none (500).
#[derive(Debug)]
pub struct Responder(pub(super) oneshot::Sender<Response<Answer>>);

impl Responder {
    /// Whether the client hung up.
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// A whole answer in JSON; `status` is a number of HTTP.
    pub fn answer(self, status: u16, json: String) {
        let _gone = self.0.send(whole(status, json));
    }

    /// The same, and that the client may ask again after some seconds.
    pub fn ask_again(self, status: u16, json: String, seconds: u32) {
        let mut answer = whole(status, json);
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        let _gone = self.0.send(answer);
    }

    /// Refuses a method (405) where another one is taken.
    pub fn other_method(self, json: String, taken: &'static str) {
        let mut answer = whole(StatusCode::METHOD_NOT_ALLOWED.as_u16(), json);
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(taken));
        let _gone = self.0.send(answer);
    }

    /// Begins an answer of events, which go out as they are made.
    pub fn events(self) -> Pieces {
        let (pieces, body) = mpsc::unbounded_channel();
        let answer = Answer::Pieces(body);
        let _gone =
            self.0.send(response(StatusCode::OK, "text/event-stream; charset=utf-8", answer));
        Pieces(pieces)
    }
}

/// An answer that is being made. Dropped without its end, the client sees that it was broken off. What the client has not
/// taken yet is kept, so whoever makes it bounds its size.
#[derive(Debug)]
pub struct Pieces(mpsc::UnboundedSender<Piece>);

impl Pieces {
    /// Whether the client hung up.
    pub fn is_gone(&self) -> bool {
        self.0.is_closed()
    }

    /// One event with this data, which has no line ends.
    pub fn event(&self, data: &str) {
        let _gone = self.0.send(Piece::Data(Bytes::from(format!("data: {data}\n\n"))));
    }

    /// It is whole.
    pub fn end(self) {
        let _gone = self.0.send(Piece::End);
    }
}

/// A whole answer in JSON.
pub(super) fn whole(status: u16, json: String) -> Response<Answer> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response(status, "application/json", Answer::Whole(Some(Bytes::from(json))))
}

fn response(status: StatusCode, kind: &'static str, body: Answer) -> Response<Answer> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(NO_SNIFFING, HeaderValue::from_static("nosniff"));
    response
}
