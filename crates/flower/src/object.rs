//! Objects: pieces of content that are named by their SHA-256.
//!
//! ```text
//! "<kind> <child,child,...> <length of the body>" 0x00 <body>
//! ```
//!
//! A name is the digest of everything after it, children included, so an object that was fetched by its
//! name is the one that was meant, no tree of objects can run in circles, and equal content is stored once.

use std::fmt::Display;

use bytes::Bytes;
use fedra_plan::Digest;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::error::{FlowerError, shortened};
use crate::proto::{Error, Message, Metadata, Nothing, ObjectTree};

/// Most bytes of one piece of an array.
pub(crate) const CHUNK: usize = 5 << 20;

/// What an object is; its head has the name of the variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Kind {
    Message,
    RecordDict,
    ArrayRecord,
    Array,
    ArrayChunk,
    MetricRecord,
    ConfigRecord,
}

/// An object that is to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) id: String,
    /// Its head and its body; large bodies are slices of what is sent, not copies.
    pub(crate) pieces: Vec<Bytes>,
}

impl Object {
    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }
}

/// Objects that travel together, each once, children before parents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    objects: Vec<Object>,
}

/// A message with all that it consists of.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) message: Message,
    /// Its name, which is that of its message.
    pub(crate) tree: ObjectTree,
    pub(crate) objects: Vec<Object>,
}

impl Objects {
    /// Adds an object over others that were added before.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        children: &[ObjectTree],
        body: Vec<Bytes>,
    ) -> ObjectTree {
        let mut unique: Vec<ObjectTree> = Vec::with_capacity(children.len());
        for child in children {
            if !unique.iter().any(|known| known.object_id == child.object_id) {
                unique.push(child.clone());
            }
        }
        let names: Vec<&str> = unique.iter().map(|child| child.object_id.as_str()).collect();
        let length: usize = body.iter().map(Bytes::len).sum();
        let head = format!("{kind:?} {} {length}\0", names.join(","));
        let pieces = [vec![Bytes::from(head)], body].concat();
        let id = digest(&pieces);
        self.put(Object { id: id.clone(), pieces });
        ObjectTree { object_id: id, children: unique }
    }

    /// Adds the pieces of an array's file: its header, and its bytes, which are not copied.
    pub(crate) fn add_chunks(&mut self, header: Vec<u8>, bytes: &Bytes) -> Vec<ObjectTree> {
        let first = bytes.len().min(CHUNK - header.len());
        let rest = (first..bytes.len()).step_by(CHUNK);
        let rest = rest.map(|start| vec![bytes.slice(start..bytes.len().min(start + CHUNK))]);
        let bodies = [vec![Bytes::from(header), bytes.slice(..first)]].into_iter().chain(rest);
        bodies.map(|body| self.add(Kind::ArrayChunk, &[], body)).collect()
    }

    fn put(&mut self, object: Object) {
        if !self.objects.iter().any(|known| known.id == object.id) {
            self.objects.push(object);
        }
    }

    /// Adds the objects of another one.
    pub(crate) fn include(&mut self, other: &Self) {
        other.objects.iter().for_each(|object| self.put(object.clone()));
    }

    /// The message over some content.
    pub(crate) fn seal(self, metadata: Metadata, content: &ObjectTree) -> OutgoingMessage {
        self.close(metadata, std::slice::from_ref(content), None)
    }

    /// A message that says what went wrong, and nothing else.
    pub(crate) fn failure(metadata: Metadata, error: Error) -> OutgoingMessage {
        Self::default().close(metadata, &[], Some(error))
    }

    fn close(
        mut self,
        metadata: Metadata,
        content: &[ObjectTree],
        error: Option<Error>,
    ) -> OutgoingMessage {
        use prost::Message as _;
        let nameless = Metadata { message_id: String::new(), ..metadata };
        let body =
            Message { metadata: Some(nameless.clone()), content: None, error: error.clone() };
        let tree = self.add(Kind::Message, content, vec![body.encode_to_vec().into()]);
        let metadata = Metadata { message_id: tree.object_id.clone(), ..nameless };
        let content = error.is_none().then_some(Nothing {});
        let message = Message { metadata: Some(metadata), content, error };
        OutgoingMessage { message, tree, objects: self.objects }
    }
}

/// An object that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) kind: Kind,
    pub(crate) children: Vec<String>,
    pub(crate) body: Bytes,
}

/// Reads an object and holds it against its name.
pub(crate) fn parse(id: &str, content: &Bytes) -> Result<Parsed, FlowerError> {
    let found = digest(std::slice::from_ref(content));
    if found != id {
        let reason = format!("found content of another name ({})", shortened(&found));
        return Err(FlowerError::object(id, reason));
    }
    read(id, content)
}

/// Reads an object.
pub(crate) fn read(id: &str, content: &Bytes) -> Result<Parsed, FlowerError> {
    let wrong = |reason: &dyn Display| FlowerError::object(id, reason);
    let end = content.iter().position(|byte| *byte == 0);
    let end = end.ok_or_else(|| wrong(&"found no end of its head"))?;
    let head = std::str::from_utf8(&content[..end]);
    let head = head.map_err(|_| wrong(&"found a head that is no text"))?;
    let parts: Vec<&str> = head.split(' ').collect();
    let [name, children, length] = &parts[..] else {
        return Err(wrong(&"found a head that is not kind, children and length"));
    };
    let kind = serde_json::from_value((*name).into())
        .map_err(|_| wrong(&format!("found the kind {:?}", shortened(name))))?;
    let children: Vec<String> =
        children.split(',').filter(|child| !child.is_empty()).map(str::to_owned).collect();
    let body = content.slice(end + 1..);
    if length.parse() != Ok(body.len()) {
        let found = body.len();
        return Err(wrong(&format!("found {found} bytes, expected {}", shortened(length))));
    }
    if let Some(child) = children.iter().find(|child| !is_name(child)) {
        return Err(wrong(&format!("found the child {:?}, expected a digest", shortened(child))));
    }
    Ok(Parsed { kind, children, body })
}

impl Parsed {
    /// The same, if it is of this kind.
    pub(crate) fn of(self, kind: Kind, id: &str) -> Result<Self, FlowerError> {
        if self.kind == kind {
            return Ok(self);
        }
        Err(FlowerError::object(id, format!("found {:?}, expected {kind:?}", self.kind)))
    }
}

fn is_name(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn digest(pieces: &[Bytes]) -> String {
    let sum = pieces.iter().fold(Sha256::new(), Sha256::chain_update);
    Digest::from_bytes(sum.finalize().into()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_comes_back_by_its_name_alone() {
        let mut objects = Objects::default();
        let body = Bytes::from_static(b"some bytes");
        let leaf = objects.add(Kind::ArrayChunk, &[], vec![body.slice(..4), body.slice(4..)]);
        let again = objects.add(Kind::ArrayChunk, &[], vec![body.clone()]);
        assert_eq!(leaf, again, "equal content is one object");
        let over =
            objects.add(Kind::Array, &[leaf.clone(), again], vec![Bytes::from_static(b"{}")]);
        assert_eq!(objects.objects.len(), 2);
        assert_eq!(&objects.objects[1].pieces.concat()[..6], b"Array ");
        let read = parse(&over.object_id, &objects.objects[1].pieces.concat().into()).unwrap();
        assert_eq!(read.children, [&*leaf.object_id]);
        let read = parse(&leaf.object_id, &objects.objects[0].pieces.concat().into()).unwrap();
        assert_eq!(read, Parsed { kind: Kind::ArrayChunk, children: vec![], body });
        assert_eq!(&objects.objects[0].pieces.concat()[..14], b"ArrayChunk  10");
        assert!(read.of(Kind::Array, &leaf.object_id).is_err());
    }

    #[test]
    fn chunks_of_a_file_have_the_names_of_objects_of_their_own() {
        let bytes: Bytes = (0..18 * CHUNK as u64).map(|place| (place >> 9) as u8).collect();
        let (mut objects, mut alone) = (Objects::default(), Objects::default());
        let header = b"a header".to_vec();
        let chunks = objects.add_chunks(header.clone(), &bytes);
        let file = [&header[..], &bytes].concat();
        let expected: Vec<ObjectTree> = file
            .chunks(CHUNK)
            .map(|chunk| alone.add(Kind::ArrayChunk, &[], vec![Bytes::copy_from_slice(chunk)]))
            .collect();
        assert_eq!(chunks, expected);
        assert_eq!(chunks.len(), 19);
        for (one, other) in objects.objects.iter().zip(&alone.objects) {
            assert_eq!(one.pieces.concat(), other.pieces.concat());
        }
    }

    #[test]
    fn a_hostile_object_is_an_error() {
        let told = |content: &[u8]| {
            let content = Bytes::copy_from_slice(content);
            parse(&digest(std::slice::from_ref(&content)), &content).unwrap_err().to_string()
        };
        assert!(told(b"").contains("no end of its head"));
        assert!(told(b"Array 5").contains("no end of its head"));
        assert!(told(b"Array\0").contains("not kind, children and length"));
        assert!(told(b"\xff  0\0").contains("no text"));
        assert!(told(b"Pickle  0\0").contains("found the kind \"Pickle\""));
        assert!(told(b"Array  9\0short").contains("found 5 bytes, expected 9"));
        assert!(told(b"Array  99999999999999999999999999\0").contains("found 0 bytes"));
        assert!(told(b"Array me 0\0").contains("expected a digest"));
        let other = parse(&"0".repeat(64), &Bytes::from_static(b"Array  0\0")).unwrap_err();
        assert!(other.to_string().contains("content of another name"), "{other}");
    }
}
