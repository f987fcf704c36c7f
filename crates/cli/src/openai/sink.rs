//! The way of an answer to its client.

use fedra::apply::completions::AnswerSink;
use fedra_net::{Pieces, Responder};
use serde_json::Value;

/// How far it is.
pub enum Way {
    /// Nothing was sent.
    Waiting(Responder),
    /// Events go out.
    Events(Pieces),
    /// It was answered.
    Done,
}

impl AnswerSink for Way {
    fn is_gone(&self) -> bool {
        match self {
            Self::Waiting(responder) => responder.is_gone(),
            Self::Events(pieces) => pieces.is_gone(),
            Self::Done => false,
        }
    }

    fn event(&mut self, data: &str) {
        *self = match std::mem::replace(self, Self::Done) {
            Self::Waiting(responder) => Self::Events(responder.events()),
            other @ (Self::Events(_) | Self::Done) => other,
        };
        if let Self::Events(pieces) = self {
            pieces.event(data);
        }
    }

    fn end(&mut self) {
        if let Self::Events(pieces) = std::mem::replace(self, Self::Done) {
            pieces.end();
        }
    }

    fn whole(&mut self, status: u16, body: &Value) {
        if let Self::Waiting(responder) = std::mem::replace(self, Self::Done) {
            responder.answer(status, body.to_string());
        }
    }
}
