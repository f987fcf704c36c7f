//! The conversation between a server and its clients, local or remote, and the bytes that it costs.
//!
//! It says what is asked and answered, never how an answer comes about or travels.

pub(crate) mod bytes;
pub(crate) mod fleet;
pub(crate) mod progress;
pub(crate) mod server_segment;
