//! Why a request is not answered, in the protocol's form.

use serde_json::{Value, json};

/// A refusal or a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The status of HTTP.
    pub status: u16,
    /// A sentence.
    pub message: String,
    /// The field that is to blame.
    pub param: Option<String>,
    /// A word for programs.
    pub code: Option<&'static str>,
}

impl ApiError {
    /// With a status.
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        let code = match status {
            401 => Some("invalid_api_key"),
            _ => None,
        };
        Self { status, message: message.into(), param: None, code }
    }

    /// A field that cannot be used.
    pub fn field(field: &str, message: impl Into<String>) -> Self {
        let message = format!("{field}: {}", message.into());
        Self { param: Some(field.to_owned()), ..Self::new(400, message) }
    }

    /// The same with a word for programs.
    #[must_use]
    pub fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The body of an answer.
    pub fn json(&self) -> Value {
        let kind = match self.status {
            401 => "authentication_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        let Self { message, param, code, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}
