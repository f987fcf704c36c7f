//! A SuperLink that answers from a script: for what a real one does rarely, and for what it never should.

use std::sync::Mutex;

use prost::Message;

use crate::http::Endpoint;
use crate::listener::listen;

/// A status and a body.
pub(crate) use crate::listener::Answer as Scene;

/// What a SuperLink says of itself.
pub(crate) fn described(version: &str) -> Scene {
    (200, format!("{{\"info\": {{\"version\": {version:?}}}}}").into_bytes())
}

/// A reply that is well.
pub(crate) fn well(reply: &impl Message) -> Scene {
    (200, reply.encode_to_vec())
}

/// Serves as long as the test runs: each path with its body gets what the script says.
pub(crate) fn serve(script: impl FnMut(&str, &[u8]) -> Scene + Send + 'static) -> Endpoint {
    let script = Mutex::new(script);
    let address = listen(|socket| socket, move |path, body| (script.lock().unwrap())(path, body));
    Endpoint::new(&format!("http://{address}"), None).unwrap()
}
