//! A request, as written and checked.
//!
//! | fields | what happens |
//! | --- | --- |
//! | [`FOLLOWED`] | they are followed |
//! | [`IGNORED`] | they say nothing about the text, and are not looked at |
//! | [`REFUSED`] | refused, but for values under which they do nothing |
//! | any other | refused: a word that is spelt wrongly should not be lost |

use fedra_data::{Message, Role};
use serde_json::{Map, Value, json};

use super::api_error::ApiError;

/// Fields of both kinds of request that are followed.
const FOLLOWED: [&str; 11] = [
    "model",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "stream",
    "stream_options",
    "n",
];
/// Fields about accounts, caches and the like.
const IGNORED: [&str; 8] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "parallel_tool_calls",
];
/// Fields that would change the answer, each with the values under which they do not.
const REFUSED: [(&str, &[&str]); 20] = [
    ("tools", &["[]"]),
    ("tool_choice", &["\"none\"", "\"auto\""]),
    ("functions", &["[]"]),
    ("function_call", &["\"none\"", "\"auto\""]),
    ("response_format", &["{\"type\":\"text\"}"]),
    ("logprobs", &["false", "0"]),
    ("top_logprobs", &["0"]),
    ("logit_bias", &["{}"]),
    ("presence_penalty", &["0"]),
    ("frequency_penalty", &["0"]),
    ("modalities", &["[\"text\"]"]),
    ("audio", &[]),
    ("prediction", &[]),
    ("web_search_options", &[]),
    ("reasoning_effort", &["\"none\""]),
    ("verbosity", &["\"medium\""]),
    ("moderation", &[]),
    ("best_of", &["1"]),
    ("echo", &["false"]),
    ("suffix", &["\"\""]),
];
/// Most texts that end an answer, and most bytes of each.
const MOST_STOPS: usize = 4;
const LONGEST_STOP: usize = 256;
/// The highest temperature of the protocol.
const HOTTEST: f64 = 2.0;

/// What is to be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A conversation, by the model's chat template.
    Messages(Vec<Message>),
    /// A text as it is.
    Text(String),
    /// Its tokens.
    Tokens(Vec<u32>),
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// The model's name.
    pub model: String,
    /// What is continued.
    pub asked: Asked,
    /// Most tokens of the answer; the server's limit where there is none.
    pub max_tokens: Option<usize>,
    /// 0 takes the likeliest token each time.
    pub temperature: f64,
    /// Among the likeliest tokens that together have this probability.
    pub top_p: f64,
    /// Among so many of the likeliest tokens.
    pub top_k: Option<usize>,
    /// Draws follow it; other ones each time where there is none.
    pub seed: Option<u64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Whether the answer comes as events.
    pub stream: bool,
    /// Whether the last event counts tokens.
    pub counts_tokens: bool,
}

/// What a completion of a text has where nobody says another number.
const USUAL_TEXT: usize = 16;

impl CompletionRequest {
    /// A request for the next message of a conversation: `POST /v1/chat/completions`.
    pub fn chat(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::read(body, &["messages"])?;
        let messages = fields.take("messages").ok_or_else(|| missing("messages"))?;
        let asked = Asked::Messages(messages_of(&messages)?);
        fields.request(asked)
    }

    /// Whether it is about a conversation.
    pub fn is_chat(&self) -> bool {
        matches!(self.asked, Asked::Messages(_))
    }

    /// A request to continue a text: `POST /v1/completions`.
    pub fn text(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::read(body, &["prompt"])?;
        let prompt = fields.take("prompt").ok_or_else(|| missing("prompt"))?;
        let request = fields.request(prompt_of(&prompt)?)?;
        Ok(Self { max_tokens: request.max_tokens.or(Some(USUAL_TEXT)), ..request })
    }
}

fn missing(field: &str) -> ApiError {
    ApiError::field(field, "it is missing")
}

fn wrong(field: &str, found: &Value, expected: &str) -> ApiError {
    const LONGEST: usize = 60;
    let found = found.to_string();
    let short: String = found.chars().take(LONGEST).collect();
    let dots = if short.len() < found.len() { "..." } else { "" };
    ApiError::field(field, format!("found {short}{dots}, expected {expected}"))
}

/// The object of a request.
struct Fields(Map<String, Value>);

impl Fields {
    /// Reads an object that has no field which is unknown or not followed; `own` are those of this kind of request.
    fn read(body: &[u8], own: &[&str]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            ApiError::new(400, format!("the body: found no JSON ({error}), expected an object"))
        })?;
        let Value::Object(mut fields) = value else {
            return Err(ApiError::new(400, "the body: expected a JSON object"));
        };
        // As the protocol has it, null is nothing.
        fields.retain(|_, value| !value.is_null());
        for (name, value) in &fields {
            let name = name.as_str();
            if own.contains(&name) || FOLLOWED.contains(&name) || IGNORED.contains(&name) {
                continue;
            }
            let Some((_, neutral)) = REFUSED.iter().find(|(known, _)| *known == name) else {
                return Err(ApiError::field(name, "this field is unknown here"));
            };
            if !neutral.iter().any(|neutral| is(value, neutral)) {
                return Err(ApiError::field(name, "this server does not have it"));
            }
        }
        Ok(Self(fields))
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    fn request(mut self, asked: Asked) -> Result<CompletionRequest, ApiError> {
        let model = self.take("model").ok_or_else(|| missing("model"))?;
        let Value::String(model) = model else { return Err(wrong("model", &model, "a name")) };
        if let Some(n) = self.take("n").filter(|n| n.as_u64() != Some(1)) {
            return Err(wrong("n", &n, "1: one answer to each request"));
        }
        let stream = self.flag("stream")?;
        Ok(CompletionRequest {
            model,
            asked,
            max_tokens: self.max_tokens()?,
            temperature: self.number("temperature", (0.0, HOTTEST))?.unwrap_or(1.0),
            top_p: self.top_p()?,
            top_k: self.count("top_k")?,
            seed: self.seed()?,
            stop: self.stop()?,
            counts_tokens: self.counts_tokens(stream)?,
            stream,
        })
    }

    fn flag(&mut self, name: &str) -> Result<bool, ApiError> {
        let Some(found) = self.take(name) else { return Ok(false) };
        found.as_bool().ok_or_else(|| wrong(name, &found, "true or false"))
    }

    fn number(&mut self, name: &str, (low, high): (f64, f64)) -> Result<Option<f64>, ApiError> {
        let Some(found) = self.take(name) else { return Ok(None) };
        let number = found.as_f64().filter(|number| (low..=high).contains(number));
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, &found, &format!("a number from {low} to {high}"))),
        }
    }

    fn count(&mut self, name: &str) -> Result<Option<usize>, ApiError> {
        let Some(found) = self.take(name) else { return Ok(None) };
        let count = found.as_u64().filter(|count| *count > 0);
        match count.and_then(|count| usize::try_from(count).ok()) {
            Some(count) => Ok(Some(count)),
            None => Err(wrong(name, &found, "a whole number of at least 1")),
        }
    }

    fn max_tokens(&mut self) -> Result<Option<usize>, ApiError> {
        let (newer, older) = ("max_completion_tokens", "max_tokens");
        match (self.count(newer)?, self.count(older)?) {
            (Some(one), Some(other)) if one != other => {
                let told = format!("found {other} beside {newer} = {one}, expected one of the two");
                Err(ApiError::field(older, told))
            }
            (one, other) => Ok(one.or(other)),
        }
    }

    fn top_p(&mut self) -> Result<f64, ApiError> {
        let found = self.number("top_p", (0.0, 1.0))?.unwrap_or(1.0);
        if found == 0.0 {
            return Err(wrong("top_p", &json!(0), "a number above 0 and at most 1"));
        }
        Ok(found)
    }

    fn seed(&mut self) -> Result<Option<u64>, ApiError> {
        let Some(found) = self.take("seed") else { return Ok(None) };
        let seed = found.as_u64().or_else(|| found.as_i64().map(i64::cast_unsigned));
        seed.map(Some).ok_or_else(|| wrong("seed", &found, "a whole number of 64 bits"))
    }

    fn stop(&mut self) -> Result<Vec<String>, ApiError> {
        let Some(found) = self.take("stop") else { return Ok(Vec::new()) };
        let texts: Option<Vec<String>> = match found.as_array() {
            Some(texts) => texts.iter().map(|it| it.as_str().map(str::to_owned)).collect(),
            None => found.as_str().map(|text| vec![text.to_owned()]),
        };
        let fits = |text: &String| !text.is_empty() && text.len() <= LONGEST_STOP;
        let texts = texts.filter(|texts| texts.len() <= MOST_STOPS && texts.iter().all(fits));
        texts.ok_or_else(|| {
            let expected = format!("at most {MOST_STOPS} texts, each of 1 to {LONGEST_STOP} bytes");
            wrong("stop", &found, &expected)
        })
    }

    fn counts_tokens(&mut self, stream: bool) -> Result<bool, ApiError> {
        const NAME: &str = "stream_options";
        let Some(found) = self.take(NAME) else { return Ok(false) };
        if !stream {
            return Err(ApiError::field(NAME, "it applies only with stream = true"));
        }
        let known = ["include_usage", "include_obfuscation"];
        let options = found.as_object().filter(|it| it.keys().all(|key| known.contains(&&**key)));
        let Some(options) = options else {
            return Err(wrong(NAME, &found, "an object with include_usage"));
        };
        match options.get("include_usage") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(counts)) => Ok(*counts),
            Some(other) => Err(wrong("stream_options.include_usage", other, "true or false")),
        }
    }
}

/// Whether a value is the one that is written so; numbers by what they are worth.
fn is(value: &Value, written: &str) -> bool {
    let other: Value = serde_json::from_str(written).unwrap_or_default();
    match (value.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        (_, _) => *value == other,
    }
}

fn messages_of(value: &Value) -> Result<Vec<Message>, ApiError> {
    let Some(list) = value.as_array() else {
        return Err(wrong("messages", value, "a list of messages"));
    };
    let messages: Vec<Message> =
        list.iter().enumerate().map(|(at, item)| message(at, item)).collect::<Result<_, _>>()?;
    match messages.last() {
        None => Err(ApiError::field("messages", "found none, expected at least one")),
        Some(last) if last.role == Role::Assistant => {
            let told = "found one of the assistant at the end, expected one that is answered";
            Err(ApiError::field("messages", told))
        }
        Some(_) => Ok(messages),
    }
}

fn message(at: usize, item: &Value) -> Result<Message, ApiError> {
    let field = |name: &str| format!("messages.{at}.{name}");
    let Some(object) = item.as_object() else {
        return Err(wrong(&format!("messages.{at}"), item, "a message with role and content"));
    };
    for (key, value) in object {
        let says_nothing = value.is_null() || *value == json!([]);
        match key.as_str() {
            "role" | "content" | "name" => {}
            "refusal" | "annotations" | "audio" | "tool_calls" | "function_call"
                if says_nothing => {}
            _ => return Err(ApiError::field(&field(key), "this server does not have it")),
        }
    }
    let role = match object.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        _ => {
            let found = object.get("role").unwrap_or(&Value::Null);
            return Err(wrong(&field("role"), found, "system, user or assistant"));
        }
    };
    let content = object.get("content").unwrap_or(&Value::Null);
    let part = |part: &Value| {
        let is_text = part["type"] == "text";
        part["text"].as_str().filter(|_| is_text).map(str::to_owned)
    };
    let text = match content.as_array() {
        Some(parts) => parts.iter().map(part).collect(),
        None => content.as_str().map(str::to_owned),
    };
    let text = text.ok_or_else(|| wrong(&field("content"), content, "a text, or parts of text"))?;
    Ok(Message::new(role, text))
}

fn prompt_of(value: &Value) -> Result<Asked, ApiError> {
    let token = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
    let tokens = |ids: &[Value]| ids.iter().map(token).collect::<Option<_>>().map(Asked::Tokens);
    // Clients that could send several send a list of one.
    let one = value.as_array().filter(|items| items.len() == 1).map(|items| &items[0]);
    let one = one.filter(|item| !item.is_number()).unwrap_or(value);
    let asked = match one.as_array() {
        Some(ids) => tokens(ids),
        None => one.as_str().map(|text| Asked::Text(text.to_owned())),
    };
    asked.ok_or_else(|| wrong("prompt", value, "one text, or the tokens of one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(more: &str) -> Result<CompletionRequest, ApiError> {
        let body =
            format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "hi"}}]{more}}}"#);
        CompletionRequest::chat(body.as_bytes())
    }

    #[test]
    fn fields_are_followed_and_defaults_are_those_of_the_protocol() {
        let plain = chat("").unwrap();
        let expected = CompletionRequest {
            model: "m".into(),
            asked: Asked::Messages(vec![Message::new(Role::User, "hi")]),
            max_tokens: None,
            temperature: 1.0,
            top_p: 1.0,
            top_k: None,
            seed: None,
            stop: Vec::new(),
            stream: false,
            counts_tokens: false,
        };
        assert_eq!(plain, expected);
        let all = chat(
            r#", "max_completion_tokens": 7, "max_tokens": 7, "temperature": 0, "top_p": 0.5, "top_k": 3, "seed": -1,
               "stop": ["a", "b"], "stream": true, "stream_options": {"include_usage": true}, "n": 1, "user": "x",
               "presence_penalty": 0.0, "logprobs": null, "tools": [], "response_format": {"type": "text"}"#,
        );
        let expected = CompletionRequest {
            max_tokens: Some(7),
            temperature: 0.0,
            top_p: 0.5,
            top_k: Some(3),
            seed: Some(u64::MAX),
            stop: vec!["a".into(), "b".into()],
            stream: true,
            counts_tokens: true,
            ..expected
        };
        assert_eq!(all.unwrap(), expected);
        let parts = br#"{"model": "m", "messages": [{"role": "developer", "content": "be brief"},
            {"role": "assistant", "content": "a", "refusal": null}, {"role": "user", "name": "x",
            "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}]}"#;
        let Asked::Messages(messages) = CompletionRequest::chat(parts).unwrap().asked else {
            panic!("no messages")
        };
        assert_eq!(messages[0], Message::new(Role::System, "be brief"));
        assert_eq!(messages[2], Message::new(Role::User, "bc"));
    }

    #[test]
    fn a_text_or_its_tokens_are_continued_and_sixteen_tokens_are_usual() {
        for (prompt, expected) in [
            (r#""once""#, Asked::Text("once".into())),
            (r#"["once"]"#, Asked::Text("once".into())),
            ("[1, 2]", Asked::Tokens(vec![1, 2])),
            ("[[1, 2]]", Asked::Tokens(vec![1, 2])),
        ] {
            let body = format!(r#"{{"model": "m", "prompt": {prompt}}}"#);
            let read = CompletionRequest::text(body.as_bytes()).unwrap();
            assert_eq!((read.asked, read.max_tokens), (expected, Some(16)));
        }
        for prompt in [r#"["a", "b"]"#, "[1, -1]", "7", "{}"] {
            let body = format!(r#"{{"model": "m", "prompt": {prompt}}}"#);
            let refused = CompletionRequest::text(body.as_bytes()).unwrap_err();
            assert_eq!(refused.param.as_deref(), Some("prompt"), "{prompt}");
        }
    }

    #[test]
    fn what_is_not_had_or_means_nothing_is_refused_with_its_field() {
        for (more, field, told) in [
            (r#", "n": 2"#, "n", "found 2, expected 1"),
            (r#", "temperature": 2.5"#, "temperature", "expected a number from 0 to 2"),
            (r#", "temperature": "1""#, "temperature", "expected a number"),
            (r#", "top_p": 0"#, "top_p", "above 0"),
            (r#", "max_tokens": 0"#, "max_tokens", "at least 1"),
            (r#", "max_tokens": 1, "max_completion_tokens": 2"#, "max_tokens", "one of the two"),
            (r#", "seed": 1.5"#, "seed", "a whole number of 64 bits"),
            (r#", "stop": ["a", "b", "c", "d", "e"]"#, "stop", "at most 4 texts"),
            (r#", "stop": """#, "stop", "1 to 256 bytes"),
            (r#", "stream": 1"#, "stream", "true or false"),
            (
                r#", "stream_options": {"include_usage": true}"#,
                "stream_options",
                "only with stream",
            ),
            (r#", "stream": true, "stream_options": {"x": 1}"#, "stream_options", "include_usage"),
            (r#", "tools": [{"type": "function"}]"#, "tools", "does not have it"),
            (r#", "response_format": {"type": "json_object"}"#, "response_format", "not have it"),
            (r#", "logprobs": true"#, "logprobs", "does not have it"),
            (r#", "presence_penalty": 0.5"#, "presence_penalty", "does not have it"),
            (r#", "temprature": 1"#, "temprature", "unknown here"),
        ] {
            let refused = chat(more).unwrap_err();
            assert_eq!((refused.status, refused.param.as_deref()), (400, Some(field)), "{more}");
            assert!(refused.message.contains(told), "{more}: {}", refused.message);
        }
    }

    #[test]
    fn messages_that_nobody_could_answer_are_refused_with_their_place() {
        for (messages, field, told) in [
            ("[]", "messages", "found none"),
            (r#""hi""#, "messages", "a list of messages"),
            (r#"[{"role": "tool", "content": "x"}]"#, "messages.0.role", "found \"tool\""),
            (r#"[{"role": "user"}]"#, "messages.0.content", "found null"),
            (
                r#"[{"role": "user", "content": [{"type": "image_url"}]}]"#,
                "messages.0.content",
                "parts of text",
            ),
            (
                r#"[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]"#,
                "messages",
                "one of the assistant at the end",
            ),
            (
                r#"[{"role": "user", "content": "x", "tool_call_id": "1"}]"#,
                "messages.0.tool_call_id",
                "does not have it",
            ),
        ] {
            let body = format!(r#"{{"model": "m", "messages": {messages}}}"#);
            let refused = CompletionRequest::chat(body.as_bytes()).unwrap_err();
            assert_eq!((refused.status, refused.param.as_deref()), (400, Some(field)));
            assert!(refused.message.contains(told), "{messages}: {}", refused.message);
        }
        for body in [&b"{"[..], b"[1]", b"{\"model\": \"\xff\"}", b"", b"{\"a\": \"\\ud800\"}"] {
            assert_eq!(CompletionRequest::chat(body).unwrap_err().status, 400, "{body:?}");
        }
        let nobody =
            CompletionRequest::chat(br#"{"messages": [{"role": "user", "content": "x"}]}"#);
        assert_eq!(nobody.unwrap_err().message, "model: it is missing");
    }
}
