//! Draws that belong to single rows: a row's hash follows from its own content and from nothing else.
//!
//! Where a row goes (train, validation, test, a client) must be the same whether or not any other row is
//! there: a guarantee about one row more or less is worth nothing if that row moves others. So nothing is
//! shuffled. A hash is a keyed digest of what the row says, whose it is and which of several equal rows it
//! is; the key comes from the experiment's seed and the purpose of the draw.
//!
//! ```text
//! identity = H(key, client, document, body, labels by name),  copy = how many equal ones come before it
//! hash     = H(key, purpose, identity, copy)                  as a number: uniform in [0, 1)
//! ```
//! Labels count by name and clients by name, so a site that has only its own rows draws the same.
//!
//! ```
//! use fedra_data::{Row, RowHashes, TableBuilder, Task};
//! let mut builder = TableBuilder::new(Task::Language);
//! for text in ["a", "b", "a"] {
//!     builder.push(Row::text(text))?;
//! }
//! let table = builder.finish();
//! let hashes = RowHashes::new(&table, 7);
//! assert_eq!(hashes.of("sample", &[0, 1])[1], hashes.of("sample", &[1])[0]);
//! assert_ne!(hashes.of("sample", &[0, 2])[0], hashes.of("sample", &[0, 2])[1]);
//! # Ok::<(), fedra_data::DataError>(())
//! ```

use std::collections::BTreeMap;

use fedra_seed::Seed;
use sha2::{Digest, Sha256};

use crate::{Body, Choice, Example, LabelSet, Labels, Message, Preference, Table};

/// What a row draws: uniform, ordered, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowHash([u8; 32]);

impl RowHash {
    /// As a number, uniform in [0, 1).
    pub fn unit(&self) -> f64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        (u64::from_be_bytes(first) >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

/// Draws for the rows of a table.
#[derive(Clone, Copy, Debug)]
pub struct RowHashes<'t> {
    table: &'t Table,
    key: [u8; 32],
}

impl<'t> RowHashes<'t> {
    /// Draws under a seed.
    pub fn new(table: &'t Table, seed: u64) -> Self {
        let mut key = [0; 32];
        for (number, part) in (0..).zip(key.chunks_exact_mut(8)) {
            part.copy_from_slice(&Seed(seed).of("rows").with(number).0.to_le_bytes());
        }
        Self { table, key }
    }

    /// The hashes of these rows, in their order. Equal rows are told apart by counting them.
    pub fn of(&self, purpose: &str, rows: &[usize]) -> Vec<RowHash> {
        let mut copies = BTreeMap::new();
        let hash = |&row: &usize| {
            let identity = self.row(&self.table.examples[row]);
            let copy = copies.entry(identity).or_insert(0);
            *copy += 1;
            self.hash(purpose, (identity, *copy - 1))
        };
        rows.iter().map(hash).collect()
    }

    /// The hash of the nth of several that are the same.
    pub(crate) fn hash(&self, purpose: &str, (identity, copy): (Identity, u64)) -> RowHash {
        let mut sum = Sum::new(&self.key, "lot");
        sum.text(purpose);
        sum.0.update(identity.0);
        sum.number(copy);
        RowHash(sum.finish(&self.key))
    }

    /// Who a row is, by all that it says.
    pub(crate) fn row(&self, example: &Example) -> Identity {
        let Example { body, labels, client, split: _, document, place: _ } = example;
        let mut sum = Sum::new(&self.key, "row");
        sum.option(client.as_deref());
        sum.option(document.as_deref());
        match body {
            Body::Text(text) => {
                sum.number(0);
                sum.text(text);
            }
            Body::Pair(first, second) => {
                sum.number(1);
                sum.text(first);
                sum.text(second);
            }
            Body::Words(words) => {
                sum.number(2);
                sum.texts(words.iter().map(String::as_str));
            }
            Body::Image(image) => {
                sum.number(3);
                sum.0.update(image.digest());
            }
            Body::Conversation(messages) => {
                sum.number(4);
                sum.messages(messages);
            }
        }
        sum.labels(labels, &self.table.labels);
        Identity(sum.finish(&self.key))
    }

    /// Who the rows of a document are together: its name says it, so that a row more or less of a document
    /// leaves the others where they are.
    pub(crate) fn document(&self, client: Option<&str>, name: &str) -> Identity {
        let mut sum = Sum::new(&self.key, "document");
        sum.option(client);
        sum.text(name);
        Identity(sum.finish(&self.key))
    }
}

/// A keyed digest of a row or of a document's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity([u8; 32]);

/// Values that cannot run into each other: each has its length before it. The key has one length and goes
/// in before and after, which makes it an HMAC without its pads.
struct Sum(Sha256);

impl Sum {
    fn new(key: &[u8; 32], kind: &str) -> Self {
        let mut sum = Self(Sha256::new().chain_update(key));
        sum.text(kind);
        sum
    }

    fn finish(self, key: &[u8; 32]) -> [u8; 32] {
        Sha256::new().chain_update(key).chain_update(self.0.finalize()).finalize().into()
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn texts<'s>(&mut self, texts: impl ExactSizeIterator<Item = &'s str>) {
        self.number(texts.len() as u64);
        texts.for_each(|text| self.text(text));
    }

    fn option(&mut self, text: Option<&str>) {
        self.texts(text.into_iter().collect::<Vec<_>>().into_iter());
    }

    /// Labels by name: their numbers follow from which others there are.
    fn labels(&mut self, labels: &Labels, set: &LabelSet) {
        let name = |label: &u32| set.name(*label);
        match labels {
            Labels::One(label) => {
                self.number(0);
                self.text(name(label));
            }
            Labels::Many(several) => {
                self.number(1);
                self.texts(several.iter().map(name));
            }
            Labels::PerWord(tags) => {
                self.number(2);
                self.texts(tags.iter().map(name));
            }
            Labels::Absent => self.number(3),
            Labels::Choice(Choice { label, candidates }) => {
                self.number(4);
                self.text(name(label));
                self.number(candidates.len() as u64);
                for (label, text) in candidates {
                    self.text(name(label));
                    self.text(text);
                }
            }
            Labels::Text(text) => {
                self.number(5);
                self.text(text);
            }
            Labels::Preference(Preference { chosen, rejected }) => {
                self.number(6);
                self.messages(chosen);
                self.messages(rejected);
            }
        }
    }

    fn messages(&mut self, messages: &[Message]) {
        self.number(messages.len() as u64);
        for message in messages {
            self.text(message.role.name());
            self.text(&message.content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Row, TableBuilder, Task};

    fn table(rows: Vec<Row>) -> Table {
        let mut builder = TableBuilder::new(Task::Diagnosis);
        for row in rows {
            builder.push(row).expect("legal");
        }
        builder.finish()
    }

    #[test]
    fn lots_follow_every_part_of_a_row_but_its_place_and_its_split() {
        let row = || Row::text("x").with_labels(["a", "b"]).with_client("c");
        let in_document = |name: &str| Row { document: Some(name.to_owned()), ..row() };
        let rows = vec![
            row(),
            row().with_client("d"),
            row().with_labels(["a"]),
            row().with_labels(["ab"]),
            Row { body: Body::Text("y".into()), ..row() },
            in_document("1"),
            in_document("2"),
            row().with_labels(["b", "z"]),
        ];
        let all = table(rows.clone());
        let hashes = RowHashes::new(&all, 1);
        let found: Vec<RowHash> = (0..rows.len()).map(|row| hashes.of("p", &[row])[0]).collect();
        for (place, hash) in found.iter().enumerate() {
            assert!(!found[..place].contains(hash), "row {place}");
        }
        let split = Row { split: Some(crate::Split::Train), ..row() };
        // Fewer labels in the set, another place, a declared split.
        let other = table(vec![Row::text("z").with_labels(["b"]), split]);
        assert_eq!(RowHashes::new(&other, 1).of("p", &[1])[0], found[0]);
        assert_ne!(RowHashes::new(&all, 2).of("p", &[0])[0], found[0]);
        assert_ne!(hashes.of("q", &[0])[0], found[0]);
    }

    #[test]
    fn lots_are_uniform() {
        let rows = (0..4000).map(|number| Row::text(format!("{}", number / 2)));
        let all = table(rows.collect());
        let rows: Vec<usize> = (0..4000).collect();
        let mut tenths = [0; 10];
        for hash in RowHashes::new(&all, 3).of("p", &rows) {
            tenths[(hash.unit() * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (320..480).contains(count)), "{tenths:?}");
    }
}
