//! Messages in pieces: what travels on every stream, whatever it is for.
//!
//! A message is a few words of JSON and any number of binary payloads. JSON, because requests are made
//! of values that already have such a form (work, encodings, seeds) and that people may want to read;
//! binary beside it, because parameters are large and have an encoding of their own.
//!
//! ```text
//! Head { id, meta, lengths: [300000, 12] }  Chunk 262144  Chunk 37856  Chunk 12
//! ```
//!
//! A declared length is a limit and never an allocation: memory grows with the bytes that came. A chunk
//! belongs to one payload, is not empty and ends no later than its payload does, so every stream of
//! frames is either one sequence of messages or an error.

use bytes::Bytes;
use serde::Serialize;

/// Most bytes of a chunk.
pub const CHUNK: usize = 256 << 10;

/// Most bytes of a frame as it is encoded: a chunk, or a head with its meta and lengths.
pub(crate) const MOST_FRAME: usize = MOST_META + (64 << 10);

/// Most bytes of a message's JSON.
const MOST_META: usize = 1 << 20;

/// One piece of a message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Frame {
    /// What it is.
    #[prost(oneof = "FrameBody", tags = "1, 2")]
    pub part: Option<FrameBody>,
}

/// The two kinds of frames.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum FrameBody {
    /// Begins a message.
    #[prost(message, tag = "1")]
    Head(Head),
    /// The next bytes of its payloads.
    #[prost(bytes = "bytes", tag = "2")]
    Chunk(Bytes),
}

/// The beginning of a message.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Head {
    /// Which request it is, or which one it answers.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// JSON.
    #[prost(bytes = "bytes", tag = "2")]
    pub meta: Bytes,
    /// The length of each payload.
    #[prost(uint64, repeated, tag = "3")]
    pub lengths: Vec<u64>,
}

/// A whole message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Which request it is, or which one it answers.
    pub id: u64,
    /// JSON.
    pub meta: Bytes,
    /// Binary payloads.
    pub payloads: Vec<Bytes>,
}

impl Message {
    /// Words alone.
    pub fn of(id: u64, words: &impl Serialize) -> Self {
        // Values that travel have string keys and finite numbers only, which JSON can write.
        let meta = serde_json::to_vec(words).unwrap_or_default().into();
        Self { id, meta, payloads: Vec::new() }
    }

    /// One payload alone.
    pub(crate) fn of_payload(id: u64, payload: Vec<u8>) -> Self {
        Self { id, meta: Bytes::new(), payloads: vec![payload.into()] }
    }

    /// Bytes of its payloads together.
    pub fn payload_bytes(&self) -> u64 {
        self.payloads.iter().map(|payload| payload.len() as u64).sum()
    }
}

/// The frames of a message, in order; payloads are not copied.
pub fn frames(message: Message) -> impl Iterator<Item = Frame> {
    let Message { id, meta, payloads } = message;
    let lengths = payloads.iter().map(|payload| payload.len() as u64).collect();
    let head = Frame { part: Some(FrameBody::Head(Head { id, meta, lengths })) };
    let chunks = payloads.into_iter().flat_map(|payload| {
        let starts = (0..payload.len()).step_by(CHUNK);
        starts.map(move |start| payload.slice(start..payload.len().min(start + CHUNK)))
    });
    [head].into_iter().chain(chunks.map(|chunk| Frame { part: Some(FrameBody::Chunk(chunk)) }))
}

/// What a message may weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of JSON.
    pub meta: usize,
    /// Most payloads.
    pub payloads: usize,
    /// Most bytes of all payloads together.
    pub bytes: u64,
}

impl Limits {
    /// For messages whose payloads are at most so large together.
    pub const fn of_bytes(bytes: u64) -> Self {
        Self { meta: MOST_META, payloads: 64, bytes }
    }
}

/// Puts messages together again.
#[derive(Debug)]
pub struct Assembler {
    limits: Limits,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    message: Message,
    /// The lengths of the payloads that are still to come, the next one last.
    due: Vec<usize>,
    /// The payload that is coming in.
    current: Vec<u8>,
}

impl Assembler {
    /// Nothing received yet.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, open: None }
    }

    /// Takes a frame; a message once it is whole.
    pub fn push(&mut self, frame: Frame) -> Result<Option<Message>, FrameError> {
        let refuse = |reason: String| Err(FrameError(reason));
        let mut open = match (frame.part, self.open.take()) {
            (None, _) => {
                return refuse(
                    "found a frame without content, expected a head or a chunk".to_owned(),
                );
            }
            (Some(FrameBody::Head(head)), None) => self.begin(head)?,
            (Some(FrameBody::Head(Head { id, .. })), Some(Open { message, .. })) => {
                let open = message.id;
                return refuse(format!(
                    "found the head of message {id}, expected the rest of message {open}"
                ));
            }
            (Some(FrameBody::Chunk(_)), None) => {
                return refuse("found a chunk, expected the head of a message".to_owned());
            }
            (Some(FrameBody::Chunk(chunk)), Some(mut open)) => {
                open.take(&chunk)?;
                open
            }
        };
        open.close_full();
        if open.due.is_empty() {
            return Ok(Some(open.message));
        }
        self.open = Some(open);
        Ok(None)
    }

    /// Whether a message has begun that is not whole yet.
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// What the payloads of the message that is coming in were declared to weigh; 0 between messages.
    pub fn declared(&self) -> u64 {
        let Some(open) = &self.open else { return 0 };
        let due: u64 = open.due.iter().map(|length| *length as u64).sum();
        open.message.payload_bytes() + due
    }

    fn begin(&self, head: Head) -> Result<Open, FrameError> {
        let Head { id, meta, lengths } = head;
        let total = lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
        for (what, found, most) in [
            ("bytes of JSON", meta.len() as u64, self.limits.meta as u64),
            ("payloads", lengths.len() as u64, self.limits.payloads as u64),
            ("bytes of payloads", total, self.limits.bytes),
        ] {
            if found > most {
                let found = format!("a message declares {found} {what}, expected at most {most}");
                return Err(FrameError(found));
            }
        }
        // Within the limit, so within the address space.
        let due = lengths.iter().rev().map(|length| *length as usize).collect();
        let message = Message { id, meta, payloads: Vec::new() };
        Ok(Open { message, due, current: Vec::new() })
    }
}

impl Open {
    fn take(&mut self, chunk: &[u8]) -> Result<(), FrameError> {
        let length = self.due.last().copied().unwrap_or(0);
        let left = length - self.current.len();
        if chunk.is_empty() || chunk.len() > left.min(CHUNK) {
            let (found, most) = (chunk.len(), left.min(CHUNK));
            let found = format!("found a chunk of {found} bytes, expected 1 to {most}");
            return Err(FrameError(found));
        }
        if self.current.capacity() - self.current.len() < chunk.len() {
            // Doubled as bytes come in, and never more than was declared.
            let more = self.current.len().max(chunk.len()).min(left);
            self.current.reserve_exact(more);
        }
        self.current.extend_from_slice(chunk);
        Ok(())
    }

    /// Moves payloads that are whole to the message; an empty one is whole at once.
    fn close_full(&mut self) {
        while self.due.last() == Some(&self.current.len()) {
            self.due.pop();
            self.message.payloads.push(std::mem::take(&mut self.current).into());
        }
    }
}

/// Frames that make no message: what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FrameError(String);

#[cfg(test)]
mod tests {
    use super::*;

    fn message(lengths: &[usize]) -> Message {
        let payload = |length: &usize| Bytes::from(vec![*length as u8; *length]);
        let payloads = lengths.iter().map(payload).collect();
        Message { id: 7, meta: Bytes::from_static(b"{}"), payloads }
    }

    fn assembled(parts: impl IntoIterator<Item = Frame>) -> Result<Vec<Message>, FrameError> {
        let mut assembler = Assembler::new(Limits::of_bytes(1 << 20));
        let pushed = parts.into_iter().map(|frame| assembler.push(frame));
        pushed.filter_map(Result::transpose).collect()
    }

    #[test]
    fn a_message_comes_back_whatever_its_payloads() {
        let cases: &[&[usize]] = &[&[], &[0], &[0, 0, 3], &[5, 0], &[CHUNK], &[CHUNK + 1, 2, 0]];
        for lengths in cases {
            let sent = message(lengths);
            assert_eq!(assembled(frames(sent.clone())), Ok(vec![sent.clone()]), "{lengths:?}");
            let twice = frames(sent.clone()).chain(frames(sent.clone()));
            assert_eq!(assembled(twice), Ok(vec![sent.clone(), sent]), "{lengths:?}");
        }
    }

    #[test]
    fn frames_in_any_other_order_are_an_error() {
        let frames: Vec<Frame> = frames(message(&[CHUNK + 1, 2])).collect();
        let order = |order: &[usize]| assembled(order.iter().map(|place| frames[*place].clone()));
        let told = |places: &[usize]| order(places).unwrap_err().to_string();
        assert_eq!(told(&[1]), "found a chunk, expected the head of a message");
        assert_eq!(told(&[0, 0]), "found the head of message 7, expected the rest of message 7");
        assert_eq!(told(&[0, 1, 1]), "found a chunk of 262144 bytes, expected 1 to 1");
        assert_eq!(told(&[0, 1, 3]), "found a chunk of 2 bytes, expected 1 to 1");
        assert_eq!(told(&[0, 1, 2, 3, 3]), "found a chunk, expected the head of a message");
        assert!(assembled([Frame { part: None }]).is_err());
        let empty = Frame { part: Some(FrameBody::Chunk(Bytes::new())) };
        let endless = [frames[0].clone(), empty];
        let told = assembled(endless).unwrap_err().to_string();
        assert_eq!(told, "found a chunk of 0 bytes, expected 1 to 262144");
    }

    #[test]
    fn a_declared_length_takes_no_memory() {
        let head = |lengths: &[u64]| {
            let head = Head { id: 1, meta: Bytes::new(), lengths: lengths.to_vec() };
            Frame { part: Some(FrameBody::Head(head)) }
        };
        for lengths in [&[(1 << 20) + 1][..], &[u64::MAX, u64::MAX], &[1 << 60]] {
            let refused = assembled([head(lengths)]).unwrap_err();
            assert!(refused.to_string().contains("expected at most 1048576"), "{refused}");
        }
        let told = assembled([head(&[0; 65])]).unwrap_err().to_string();
        assert_eq!(told, "a message declares 65 payloads, expected at most 64");
        let mut assembler = Assembler::new(Limits::of_bytes(1 << 40));
        assert_eq!(assembler.push(head(&[1 << 40])), Ok(None));
        let chunk = Frame { part: Some(FrameBody::Chunk(Bytes::from(vec![1; 10]))) };
        assert_eq!(assembler.push(chunk), Ok(None));
        assert!(assembler.open.is_some_and(|open| open.current.capacity() < 100));
    }
}
