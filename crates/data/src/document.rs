//! What a partition places: rows that must stay together, and what they are mostly about.

use std::collections::BTreeMap;

use crate::row_hashes::{Identity, RowHash, RowHashes};
use crate::{Choice, Example, LabelSet, Labels, Split, Table};

/// Rows that travel together, the split they declare, and who they are: what their place follows from.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub rows: Vec<usize>,
    pub split: Option<Split>,
    /// Its name's digest, or that of its one row and which of several equal ones it is.
    identity: (Identity, u64),
}

impl Document {
    /// Its own draw for a purpose.
    pub(crate) fn hash(&self, hashes: &RowHashes<'_>, purpose: &str) -> RowHash {
        hashes.hash(purpose, self.identity)
    }

    /// Whether it may be drawn for a test or validation set: the source does not say otherwise.
    pub(crate) const fn is_free(&self) -> bool {
        matches!(self.split, None | Some(Split::Train))
    }
}

/// Rows grouped by client, document and declared split, in order of first appearance.
pub(crate) fn documents(examples: &[Example], hashes: &RowHashes<'_>) -> Vec<Document> {
    let mut found: Vec<Document> = Vec::new();
    let mut places = BTreeMap::new();
    let mut copies = BTreeMap::new();
    for (row, example) in examples.iter().enumerate() {
        let split = example.split;
        let Some(name) = &example.document else {
            let identity = hashes.row(example);
            // Counted by split: a row that is declared for a part moves none that is not.
            let copy = copies.entry((identity, split)).or_insert(0);
            found.push(Document { rows: vec![row], split, identity: (identity, *copy) });
            *copy += 1;
            continue;
        };
        let client = example.client.as_deref();
        let place = *places.entry((client, name.as_str(), split)).or_insert(found.len());
        if let Some(document) = found.get_mut(place) {
            document.rows.push(row);
            continue;
        }
        let identity = (hashes.document(client, name), 0);
        found.push(Document { rows: vec![row], split, identity });
    }
    found
}

/// All their rows, ascending.
pub(crate) fn rows_of(documents: Vec<Document>) -> Vec<usize> {
    let mut rows: Vec<usize> = documents.into_iter().flat_map(|document| document.rows).collect();
    rows.sort_unstable();
    rows
}

/// The one label that stands for a document: the class of most of its rows; one of several codes, by the
/// document's own draw; the commonest tag that is not `O`. How common a label is elsewhere plays no part.
pub(crate) fn theme(document: &Document, table: &Table, hashes: &RowHashes<'_>) -> Option<u32> {
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    for &row in &document.rows {
        match &table.examples[row].labels {
            Labels::One(label) | Labels::Choice(Choice { label, .. }) => {
                *votes.entry(*label).or_default() += 1;
            }
            Labels::Many(labels) => {
                let drawn = document.hash(hashes, "code").unit() * labels.len() as f64;
                if let Some(&code) = labels.get(drawn as usize) {
                    *votes.entry(code).or_default() += 1;
                }
            }
            Labels::PerWord(tags) => {
                for &tag in tags.iter().filter(|&&tag| is_start(&table.labels, tag)) {
                    *votes.entry(tag).or_default() += 1;
                }
            }
            Labels::Absent | Labels::Text(_) | Labels::Preference(_) => {}
        }
    }
    votes.into_iter().max_by_key(|&(label, count)| (count, std::cmp::Reverse(label))).map(|v| v.0)
}

/// Whether a tag is counted when spans are: not `O`, and not the inside of one.
pub(crate) fn is_start(labels: &LabelSet, tag: u32) -> bool {
    let name = labels.name(tag);
    name != "O" && !name.starts_with("I-")
}
