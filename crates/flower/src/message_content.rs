//! Messages of ours inside a message of Flower.
//!
//! A SuperLink's cost is per object, so a payload is one array of bytes, whatever parameters are in it,
//! and small payloads lie among the words. Several messages of ours travel in one of Flower's: what a
//! site lacks and what it is asked, for example.
//!
//! ```text
//! Message -> RecordDict -> "fedra": ConfigRecord { kind, index, metas, small payloads }
//!                       -> "payloads": ArrayRecord -> Array -> ArrayChunk...   one Array a large payload
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use fedra_net::{Limits, Message};
use serde::{Deserialize, Serialize};

use crate::error::{FlowerError, shortened};
use crate::exchange::{Store, fetch, fetch_pieces};
use crate::npy::Header;
use crate::object::{Kind, Objects, Parsed};
use crate::object_store::CONNECTIONS;
use crate::proto::{BytesList, ObjectTree, Scalar};
use crate::record::Fields;

/// The type of a message that carries a message content.
pub(crate) const MESSAGE_TYPE: &str = "query.fedra";
/// The record with our words.
const WORDS: &str = "fedra";
/// The record with large payloads.
const PAYLOADS: &str = "payloads";
/// The version of what is said here.
const VERSION: i64 = 1;
/// A payload of at most so many bytes lies among the words.
const SMALL: usize = 64 << 10;
/// Most messages of ours in one message content.
const MOST_MESSAGES: usize = 64;

/// What is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MessageContent {
    /// A node is asked who it is.
    Greeting,
    /// Messages of ours, in order; none where only that something came is to be said.
    Messages(Vec<Message>),
    /// A node is told why it cannot take part.
    Refusal(String),
}

/// Where the payloads of a message are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: u64,
    /// The length of each payload.
    payloads: Vec<u64>,
}

impl MessageContent {
    /// Its objects; what a message is to be made over.
    pub(crate) fn pack(&self) -> (Objects, ObjectTree) {
        self.pack_beside(&mut Vec::new())
    }

    /// The same beside others with which it may share payloads: each is hashed once.
    pub(crate) fn pack_beside(&self, packed: &mut Vec<Packed>) -> (Objects, ObjectTree) {
        let (kind, reason, messages) = match self {
            Self::Greeting => ("greeting", "", &[][..]),
            Self::Messages(messages) => ("messages", "", &messages[..]),
            Self::Refusal(reason) => ("refusal", reason.as_str(), &[][..]),
        };
        let mut objects = Objects::default();
        let (mut index, mut metas, mut small, mut arrays) = (vec![], vec![], vec![], vec![]);
        for message in messages {
            let lengths = message.payloads.iter().map(|payload| payload.len() as u64).collect();
            index.push(Entry { id: message.id, payloads: lengths });
            metas.push(message.meta.clone());
            for payload in &message.payloads {
                if payload.len() <= SMALL {
                    small.push(payload.clone());
                } else {
                    let known = packed.iter().position(|known| known.is_of(payload));
                    let place = known.unwrap_or_else(|| {
                        packed.push(Packed::new(payload));
                        packed.len() - 1
                    });
                    objects.include(&packed[place].objects);
                    arrays.push(packed[place].array.clone());
                }
            }
        }
        // Numbers and lists of numbers: JSON can write them.
        let index = serde_json::to_string(&index).unwrap_or_default();
        let fields = Fields::default()
            .with("version", Scalar::Sint(VERSION))
            .with("kind", Scalar::Text(kind.to_owned()))
            .with("reason", Scalar::Text(reason.to_owned()))
            .with("index", Scalar::Text(index))
            .with("metas", Scalar::BytesList(BytesList { vals: metas }))
            .with("small", Scalar::BytesList(BytesList { vals: small }));
        let words = objects.add(Kind::ConfigRecord, &[], vec![fields.encode()]);
        let mut records = vec![(WORDS.to_owned(), words)];
        if !arrays.is_empty() {
            let named =
                (0..).zip(arrays).map(|(place, array): (u32, _)| (place.to_string(), array));
            let record = pack_named(&mut objects, Kind::ArrayRecord, named.collect());
            records.push((PAYLOADS.to_owned(), record));
        }
        let content = pack_named(&mut objects, Kind::RecordDict, records);
        (objects, content)
    }
}

/// A large payload as an array of bytes.
pub(crate) struct Packed {
    payload: Bytes,
    objects: Objects,
    array: ObjectTree,
}

impl Packed {
    fn new(payload: &Bytes) -> Self {
        let mut objects = Objects::default();
        let length = payload.len();
        let header = Header::new("|u1", &[length]).encode();
        let chunks = objects.add_chunks(header, payload);
        let array = pack_array(&mut objects, ("uint8", &[length]), &chunks);
        Self { payload: payload.clone(), objects, array }
    }

    /// Whether it is of these very bytes, not of others that are equal.
    fn is_of(&self, payload: &Bytes) -> bool {
        std::ptr::eq(&raw const self.payload[..], &raw const payload[..])
    }
}

/// An array over its pieces; equal pieces are listed once and named by their place.
pub(crate) fn pack_array(
    objects: &mut Objects,
    (kind, shape): (&str, &[usize]),
    chunks: &[ObjectTree],
) -> ObjectTree {
    let mut unique: Vec<ObjectTree> = Vec::new();
    let mut places = Vec::with_capacity(chunks.len());
    for chunk in chunks {
        let known = unique.iter().position(|known| known.object_id == chunk.object_id);
        places.push(known.unwrap_or_else(|| {
            unique.push(chunk.clone());
            unique.len() - 1
        }));
    }
    let body = serde_json::json!({
        "dtype": kind,
        "shape": shape,
        "stype": "numpy.ndarray",
        "arraychunk_ids": places,
    });
    objects.add(Kind::Array, &unique, vec![body.to_string().into()])
}

/// A record of others by name.
pub(crate) fn pack_named(
    objects: &mut Objects,
    kind: Kind,
    named: Vec<(String, ObjectTree)>,
) -> ObjectTree {
    let names: serde_json::Map<String, serde_json::Value> =
        named.iter().map(|(name, tree)| (name.clone(), tree.object_id.clone().into())).collect();
    let children: Vec<ObjectTree> = named.into_iter().map(|(_, tree)| tree).collect();
    let body = serde_json::Value::Object(names).to_string();
    objects.add(kind, &children, vec![body.into()])
}

/// The records of a message by name, each with its object.
pub(crate) fn records(
    store: &mut impl Store,
    run: u64,
    message_id: &str,
) -> Result<BTreeMap<String, String>, FlowerError> {
    let message = fetch(store, run, message_id)?.of(Kind::Message, message_id)?;
    let [content] = &message.children[..] else {
        let reason = format!("found {} contents, expected one", message.children.len());
        return Err(FlowerError::object(message_id, reason));
    };
    let dict = fetch(store, run, content)?.of(Kind::RecordDict, content)?;
    names(&dict, content)
}

/// What a record of others has under each name.
pub(crate) fn names(record: &Parsed, id: &str) -> Result<BTreeMap<String, String>, FlowerError> {
    let names: BTreeMap<String, String> =
        serde_json::from_slice(&record.body).map_err(|error| FlowerError::object(id, error))?;
    if let Some((name, _)) = names.iter().find(|(_, child)| !record.children.contains(child)) {
        let reason = format!("found {:?} under no child of it", shortened(name));
        return Err(FlowerError::object(id, reason));
    }
    Ok(names)
}

/// A message content whose words are here and whose large payloads are not yet.
pub(crate) struct Opened {
    content: MessageContent,
    /// The arrays of large payloads, in order: of which message, which of its payloads, and how long.
    due: Vec<(String, (usize, usize), usize)>,
    /// Bytes of all payloads.
    pub(crate) declared: u64,
}

impl Opened {
    /// Reads the words among some records; `None` where they are nobody's of ours.
    pub(crate) fn read(
        store: &mut impl Store,
        run: u64,
        (records, limits): (&BTreeMap<String, String>, Limits),
    ) -> Result<Option<Self>, FlowerError> {
        let Some(words) = records.get(WORDS) else { return Ok(None) };
        let wrong = |reason: String| FlowerError::object(words, reason);
        let record = fetch(store, run, words)?.of(Kind::ConfigRecord, words)?;
        let fields = Fields::decode(record.body).map_err(wrong)?;
        let version = fields.integer("version").map_err(wrong)?;
        if version != VERSION {
            return Err(wrong(format!(
                "found version {version}, expected {VERSION}: the other side is another version of fedra"
            )));
        }
        let arrays = match records.get(PAYLOADS) {
            None => BTreeMap::new(),
            Some(id) => names(&fetch(store, run, id)?.of(Kind::ArrayRecord, id)?, id)?,
        };
        Self::of_words(&fields, &arrays, limits).map(Some).map_err(wrong)
    }

    fn of_words(
        fields: &Fields,
        named: &BTreeMap<String, String>,
        limits: Limits,
    ) -> Result<Self, String> {
        let index: Vec<Entry> =
            serde_json::from_str(fields.text("index")?).map_err(|error| error.to_string())?;
        let (metas, small) = (fields.bytes_list("metas")?, fields.bytes_list("small")?);
        if index.len() > MOST_MESSAGES || metas.len() != index.len() {
            let (found, metas) = (index.len(), metas.len());
            return Err(format!("found {found} messages and {metas} texts for them"));
        }
        let declared = index.iter().flat_map(|entry| &entry.payloads);
        let declared = declared.fold(0_u64, |sum, length| sum.saturating_add(*length));
        if declared > limits.bytes {
            return Err(format!("found {declared} bytes, expected at most {}", limits.bytes));
        }
        let (mut messages, mut small, mut due) = (vec![], small.into_iter(), vec![]);
        for (Entry { id, payloads: lengths }, meta) in index.into_iter().zip(metas) {
            if meta.len() > limits.meta || lengths.len() > limits.payloads {
                let (meta, payloads) = (meta.len(), lengths.len());
                return Err(format!("found {meta} bytes of JSON and {payloads} payloads"));
            }
            let mut payloads = Vec::with_capacity(lengths.len());
            for length in lengths {
                // Within the limit, so within the address space.
                let length = length as usize;
                if length > SMALL {
                    let array = named.get(&due.len().to_string());
                    let array = array.ok_or("found no array for a payload")?;
                    due.push((array.clone(), (messages.len(), payloads.len()), length));
                    payloads.push(Bytes::new());
                } else {
                    let payload = small.next().filter(|payload| payload.len() == length);
                    payloads.push(payload.ok_or("found no such small payload")?);
                }
            }
            messages.push(Message { id, meta, payloads });
        }
        let content = match fields.text("kind")? {
            "greeting" => MessageContent::Greeting,
            "refusal" => MessageContent::Refusal(fields.text("reason")?.to_owned()),
            "messages" => MessageContent::Messages(messages),
            other => return Err(format!("found the kind {:?}", shortened(other))),
        };
        Ok(Self { content, due, declared })
    }

    /// The numbers of the messages of ours in it.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        match &self.content {
            MessageContent::Messages(messages) => {
                messages.iter().map(|message| message.id).collect()
            }
            MessageContent::Greeting | MessageContent::Refusal(_) => Vec::new(),
        }
    }

    /// Fetches what is still due.
    pub(crate) fn finish(
        self,
        store: &mut impl Store,
        run: u64,
    ) -> Result<MessageContent, FlowerError> {
        let Self { content, due, .. } = self;
        let MessageContent::Messages(mut messages) = content else { return Ok(content) };
        for (array, (message, payload), length) in due {
            messages[message].payloads[payload] = fetch_bytes(store, run, (&array, length))?;
        }
        Ok(MessageContent::Messages(messages))
    }
}

/// An array as it describes itself.
#[derive(Debug, Deserialize)]
pub(crate) struct ArrayWords {
    pub(crate) arraychunk_ids: Vec<usize>,
}

/// The bytes of one array, whose number is known.
fn fetch_bytes(
    store: &mut impl Store,
    run: u64,
    (id, length): (&str, usize),
) -> Result<Bytes, FlowerError> {
    // A payload has its own checksum, which whoever opens it looks at.
    let (header, bytes) = fetch_array(store, run, (id, length, true))?;
    if header != Header::new("|u1", &[length]) || bytes.len() != length {
        let (kind, found) = (shortened(&header.kind), bytes.len());
        let reason = format!("found {found} bytes of {kind}, expected {length} of |u1");
        return Err(FlowerError::object(id, reason));
    }
    Ok(bytes)
}

/// An array and its data, of at most so many bytes.
pub(crate) fn fetch_array(
    store: &mut impl Store,
    run: u64,
    (id, most, has_checksum): (&str, usize, bool),
) -> Result<(Header, Bytes), FlowerError> {
    let wrong = |reason: String| FlowerError::object(id, reason);
    let array = fetch(store, run, id)?.of(Kind::Array, id)?;
    let words: ArrayWords =
        serde_json::from_slice(&array.body).map_err(|error| wrong(error.to_string()))?;
    let mut header = None;
    let mut bytes = Vec::new();
    for places in words.arraychunk_ids.chunks(CONNECTIONS) {
        let chunk = |place: &usize| {
            let chunk = array.children.get(*place);
            chunk.map(String::as_str).ok_or_else(|| wrong(format!("found no piece {place}")))
        };
        let ids: Vec<&str> = places.iter().map(chunk).collect::<Result<_, _>>()?;
        let pieces = fetch_pieces(store, run, (&ids, has_checksum))?;
        for (id, piece) in ids.into_iter().zip(pieces) {
            let body = piece.of(Kind::ArrayChunk, id)?.body;
            let begin = if header.is_none() {
                let (found, begin) = Header::decode(&body).map_err(wrong)?;
                header = Some(found);
                begin
            } else {
                0
            };
            // Exactly: a vector that doubles would hold half a model for nothing.
            bytes.reserve_exact(body.len() - begin);
            bytes.extend_from_slice(&body[begin..]);
            if bytes.len() > most {
                return Err(wrong(format!("found more than {most} bytes")));
            }
        }
    }
    let header = header.ok_or_else(|| wrong("found no piece".to_owned()))?;
    Ok((header, bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::CHUNK;
    use crate::proto::{Metadata, PulledObject};

    /// Objects in memory.
    #[derive(Default)]
    struct ObjectStore(BTreeMap<String, Bytes>);

    impl Store for ObjectStore {
        fn pull_objects(&mut self, _: u64, ids: &[&str]) -> Result<Vec<PulledObject>, FlowerError> {
            let pulled = |id: &&str| {
                let content = self.0.get(*id).cloned();
                let found = content.is_some();
                PulledObject { found, available: found, content: content.unwrap_or_default() }
            };
            Ok(ids.iter().map(pulled).collect())
        }

        fn pause(&mut self, _wait: std::time::Duration, id: &str) -> Result<(), FlowerError> {
            Err(FlowerError::Unfinished { id: id.to_owned() })
        }
    }

    fn stored(content: &MessageContent) -> (ObjectStore, String) {
        let (objects, content) = content.pack();
        let message = objects.seal(Metadata::default(), &content);
        let mut store = ObjectStore::default();
        for object in &message.objects {
            store.0.insert(object.id.clone(), object.pieces.concat().into());
        }
        (store, message.tree.object_id.clone())
    }

    fn read(
        store: &mut ObjectStore,
        id: &str,
        limits: Limits,
    ) -> Result<MessageContent, FlowerError> {
        let records = records(store, 1, id)?;
        Opened::read(store, 1, (&records, limits))?.expect("it has our words").finish(store, 1)
    }

    #[test]
    fn an_envelope_comes_back_in_few_objects() {
        let large = Bytes::from((0..CHUNK + 99).map(|at| at as u8).collect::<Vec<_>>());
        let zeros = Bytes::from(vec![0; 3 * CHUNK]);
        let message =
            |id, payloads| Message { id, meta: Bytes::from(format!("{{\"n\":{id}}}")), payloads };
        let content = MessageContent::Messages(vec![
            message(0, vec![large.clone()]),
            message(7, vec![Bytes::from_static(b"mask"), Bytes::new(), large, zeros]),
        ]);
        let (mut store, id) = stored(&content);
        // Words, dictionary, message, record, two arrays, their pieces: equal ones once.
        assert_eq!(store.0.len(), 3 + 1 + 2 + 2 + 3);
        let limits = Limits::of_bytes(64 << 20);
        assert_eq!(read(&mut store, &id, limits).unwrap(), content);
        let told = read(&mut store, &id, Limits::of_bytes(1 << 20)).unwrap_err().to_string();
        assert!(told.contains("expected at most 1048576"), "{told}");
        for plain in [
            MessageContent::Greeting,
            MessageContent::Refusal("no".to_owned()),
            MessageContent::Messages(vec![]),
        ] {
            let (mut store, id) = stored(&plain);
            assert_eq!(store.0.len(), 3);
            assert_eq!(read(&mut store, &id, limits).unwrap(), plain);
        }
    }

    #[test]
    fn an_envelope_that_was_tampered_with_is_an_error() {
        let payload = Bytes::from(vec![3; SMALL + 1]);
        let message = Message { id: 1, meta: Bytes::from_static(b"{}"), payloads: vec![payload] };
        let content = MessageContent::Messages(vec![message]);
        let limits = Limits::of_bytes(1 << 20);
        let (whole, id) = stored(&content);
        for name in whole.0.keys() {
            let (mut store, _) = stored(&content);
            let content = store.0[name].clone();
            store.0.insert(name.clone(), content.slice(..content.len() - 1));
            assert!(read(&mut store, &id, limits).is_err(), "{name} cut short");
            store.0.remove(name);
            let told = read(&mut store, &id, limits).unwrap_err().to_string();
            assert!(told.contains("no longer has it"), "{told}");
        }
    }
}
