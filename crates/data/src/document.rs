//! What a partition deals: rows that must stay together, and what they are mostly about.

use std::collections::BTreeMap;

use crate::{Choice, Example, LabelSet, Labels, Split, Table};

/// Rows that travel together, and the split they declare.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub rows: Vec<usize>,
    pub split: Option<Split>,
}

/// Rows grouped by client, document and declared split, in order of first appearance.
pub(crate) fn documents(examples: &[Example]) -> Vec<Document> {
    let mut found: Vec<Document> = Vec::new();
    let mut places = BTreeMap::new();
    for (row, example) in examples.iter().enumerate() {
        let Some(name) = &example.document else {
            found.push(Document { rows: vec![row], split: example.split });
            continue;
        };
        let key = (example.client.as_deref(), name.as_str(), example.split);
        let place = *places.entry(key).or_insert(found.len());
        match found.get_mut(place) {
            Some(document) => document.rows.push(row),
            None => found.push(Document { rows: vec![row], split: example.split }),
        }
    }
    found
}

/// All their rows, ascending.
pub(crate) fn rows_of(documents: Vec<Document>) -> Vec<usize> {
    let mut rows: Vec<usize> = documents.into_iter().flat_map(|document| document.rows).collect();
    rows.sort_unstable();
    rows
}

/// Documents grouped by what they are mostly about, groups in label order.
pub(crate) fn by_label(held: Vec<Document>, table: &Table) -> Vec<Vec<Document>> {
    let counts = table.label_counts();
    let mut groups: BTreeMap<Option<u32>, Vec<Document>> = BTreeMap::new();
    for document in held {
        groups.entry(theme(&document, table, &counts)).or_default().push(document);
    }
    groups.into_values().collect()
}

/// The one label that stands for a document: the class of most of its rows; the rarest of several
/// codes, since common ones say little; the commonest tag that is not `O`.
fn theme(document: &Document, table: &Table, counts: &[usize]) -> Option<u32> {
    let mut votes: BTreeMap<u32, usize> = BTreeMap::new();
    for &row in &document.rows {
        match &table.examples[row].labels {
            Labels::One(label) | Labels::Choice(Choice { label, .. }) => {
                *votes.entry(*label).or_default() += 1;
            }
            Labels::Many(labels) => {
                if let Some(&rarest) = labels.iter().min_by_key(|&&l| (counts[l as usize], l)) {
                    *votes.entry(rarest).or_default() += 1;
                }
            }
            Labels::PerWord(tags) => {
                for &tag in tags.iter().filter(|&&tag| is_start(&table.labels, tag)) {
                    *votes.entry(tag).or_default() += 1;
                }
            }
            Labels::Absent | Labels::Text(_) => {}
        }
    }
    votes.into_iter().max_by_key(|&(label, count)| (count, std::cmp::Reverse(label))).map(|v| v.0)
}

/// Whether a tag is counted when spans are: not `O`, and not the inside of one.
pub(crate) fn is_start(labels: &LabelSet, tag: u32) -> bool {
    let name = labels.name(tag);
    name != "O" && !name.starts_with("I-")
}
