//! Which path is for what.

use std::sync::Arc;

use fedra::apply::completions::{ApiError, CompletionRequest, ModelList};
use fedra_net::{HttpRequest, Responder};
use serde_json::json;

use super::queue::{Queue, Turned};

/// Says that the server is there; it needs no key.
pub const HEALTH: &str = "/health";
const MODELS: &str = "/v1/models";
const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
/// After how many seconds a client that was turned away may ask again.
const ASK_AGAIN: u32 = 2;

/// What requests meet first.
pub struct Front {
    /// The models.
    pub list: ModelList,
    /// Where they wait.
    pub queue: Arc<Queue>,
}

/// A refusal in the protocol's form.
pub fn refusal(status: u16, told: &str) -> String {
    ApiError::new(status, told).json().to_string()
}

impl Front {
    /// Answers what needs no model, and has everything else wait.
    pub fn answer(&self, request: HttpRequest, responder: Responder) {
        let HttpRequest { method, path, body } = request;
        let taken = if path == CHAT || path == TEXT { "POST" } else { "GET" };
        let model = path.strip_prefix(MODELS).and_then(|rest| rest.strip_prefix('/'));
        let known = [HEALTH, MODELS, CHAT, TEXT].contains(&&*path) || model.is_some();
        if known && method != taken {
            let told = format!("found {method} {path}, expected {taken}");
            return responder.other_method(refusal(405, &told), taken);
        }
        let answered = match (&*path, model) {
            (HEALTH, _) => Ok(json!({ "status": "ok" })),
            (MODELS, _) => Ok(self.list.all()),
            (_, Some(name)) => self.list.one(&decoded(name)),
            (CHAT, _) => return self.wait(CompletionRequest::chat(&body), responder),
            (TEXT, _) => return self.wait(CompletionRequest::text(&body), responder),
            (_, None) => Err(ApiError::new(
                404,
                format!("found {path}, expected {CHAT}, {TEXT}, {MODELS} or {HEALTH}"),
            )),
        };
        match answered {
            Ok(body) => responder.answer(200, body.to_string()),
            Err(error) => refuse(&error, responder),
        }
    }

    fn wait(&self, request: Result<CompletionRequest, ApiError>, responder: Responder) {
        let checked = request.and_then(|request| {
            self.list.find(&request.model)?;
            Ok(request)
        });
        let request = match checked {
            Ok(request) => request,
            Err(error) => return refuse(&error, responder),
        };
        if let Err((turned, responder)) = self.queue.add(request, responder) {
            let (status, told) = match turned {
                Turned::Full => (429, "enough requests wait already; ask again later"),
                Turned::Closed => (503, "the server is stopping"),
            };
            responder.ask_again(status, refusal(status, told), ASK_AGAIN);
        }
    }
}

fn refuse(error: &ApiError, responder: Responder) {
    responder.answer(error.status, error.json().to_string());
}

/// A name in a path: `%2F` is a slash.
fn decoded(name: &str) -> String {
    let bytes = name.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let code = name.get(at + 1..at + 3).filter(|_| byte == b'%');
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        out.push(code.unwrap_or(byte));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded_and_bad_codes_stay() {
        for (given, expected) in [
            ("a%2Fb", "a/b"),
            ("a/b", "a/b"),
            ("100%", "100%"),
            ("%zz%C3%A4", "%zzä"),
            ("ä%2", "ä%2"),
        ] {
            assert_eq!(decoded(given), expected);
        }
    }
}
