//! An answer in the protocol's form: one object, or an event for each piece of text.

use serde_json::{Value, json};

/// Where an answer goes.
pub trait AnswerSink {
    /// Whether nobody waits for it any more.
    fn is_gone(&self) -> bool;

    /// An event; the first one begins the answer.
    fn event(&mut self, data: &str);

    /// The last event was sent.
    fn end(&mut self);

    /// A whole answer, with a status of HTTP.
    fn whole(&mut self, status: u16, body: &Value);
}

/// What all parts of an answer have alike.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// Its name.
    pub id: String,
    /// When it was begun, in seconds since 1970.
    pub created: u64,
    /// The model that writes it.
    pub model: String,
    /// Whether it is a message of a conversation.
    pub is_chat: bool,
}

impl Reply {
    fn object(&self, is_piece: bool) -> &'static str {
        match (self.is_chat, is_piece) {
            (true, true) => "chat.completion.chunk",
            (true, false) => "chat.completion",
            (false, _) => "text_completion",
        }
    }

    fn with(&self, is_piece: bool, choices: &Value, usage: Option<Value>) -> Value {
        let Self { id, created, model, .. } = self;
        let object = self.object(is_piece);
        let mut reply = json!({
            "id": id, "object": object, "created": created, "model": model, "choices": choices,
        });
        if let Some(usage) = usage {
            reply["usage"] = usage;
        }
        reply
    }

    /// The whole answer.
    pub(super) fn whole(&self, text: &str, finish: &str, usage: Value) -> Value {
        let said = if self.is_chat {
            ("message", json!({ "role": "assistant", "content": text, "refusal": null }))
        } else {
            ("text", json!(text))
        };
        let choice =
            json!({ "index": 0, said.0: said.1, "logprobs": null, "finish_reason": finish });
        self.with(false, &json!([choice]), Some(usage))
    }

    /// The event that begins a message; a text has none.
    pub(super) fn first(&self) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        self.is_chat.then(|| self.piece(&delta, None))
    }

    /// An event with more text.
    pub(super) fn more(&self, text: &str) -> Value {
        self.piece(&json!({ "content": text }), None)
    }

    /// The event that says why the text ended.
    pub(super) fn finish(&self, why: &str) -> Value {
        self.piece(&json!({}), Some(why))
    }

    /// The event that counts tokens.
    pub(super) fn usage(&self, usage: Value) -> Value {
        self.with(true, &json!([]), Some(usage))
    }

    fn piece(&self, delta: &Value, finish: Option<&str>) -> Value {
        let said = if self.is_chat {
            ("delta", delta.clone())
        } else {
            ("text", delta.get("content").cloned().unwrap_or_else(|| json!("")))
        };
        let choice =
            json!({ "index": 0, said.0: said.1, "logprobs": null, "finish_reason": finish });
        self.with(true, &json!([choice]), None)
    }
}

/// How many tokens were read and written; `cached` of those read had been read before.
pub(super) fn usage((read, cached): (usize, usize), written: usize) -> Value {
    json!({
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": { "cached_tokens": cached },
    })
}
