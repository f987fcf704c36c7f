//! Rows dealt to clients, and inside each client to training, validation and test.
//!
//! What is dealt is a *document*, not a row: sentences of one note or notes of one patient stay
//! together, at one client and in one part, because a test sentence whose neighbour was trained on
//! is not a test. A row without a document is a document of its own.
//!
//! ```text
//! table --central test--> [....]
//!   \--deal by client / iid / Dirichlet / shards / quantity--> client: [train | validation | test]
//! ```
//!
//! Splits that the source declares are kept: its test rows are the central test set and its
//! validation rows stay validation at the client that holds them. The central share is drawn only
//! where the source declares no test rows and the validation share only where it declares no
//! validation rows; both, and the clients' own test sets, come out of all the other rows, those
//! declared for training included.
//!
//! ```
//! use fedra_data::{Clinic, Partition, Shares, Task};
//! let table = Clinic::default().generate(Task::Concepts, 1)?;
//! let division = Partition::Client.divide(&table, Shares::default(), 7)?;
//! assert_eq!(division.clients.len(), 8);
//! # Ok::<(), fedra_data::DataError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::document::{Document, by_label, documents, rows_of};
use crate::{DataError, Dice, Example, Result, Split, Table};

/// How rows find their client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase", deny_unknown_fields)]
pub enum Partition {
    /// As the source says.
    Client,
    /// At random, in equal numbers.
    Iid {
        /// How many clients.
        clients: usize,
    },
    /// Label by label in shares drawn from Dirichlet(alpha): the smaller, the more one-sided
    /// (Hsu, Qi and Brown 2019; Yurochkin et al. 2019).
    Dirichlet {
        /// How many clients.
        clients: usize,
        /// The concentration.
        alpha: f64,
    },
    /// Sorted by label, cut into equal shards, and so many shards each (`McMahan` et al. 2017).
    Shards {
        /// How many clients.
        clients: usize,
        /// How many shards for each of them.
        shards: usize,
    },
    /// At random, in numbers drawn from Dirichlet(alpha).
    Quantity {
        /// How many clients.
        clients: usize,
        /// The concentration.
        alpha: f64,
    },
}

/// What share of the documents goes where, where the source does not say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shares {
    /// Of all documents, those that no client holds: the central test set.
    pub central: f64,
    /// Of a client's documents, those for its validation.
    pub validation: f64,
    /// Of a client's documents, those for its own test.
    pub test: f64,
}

impl Default for Shares {
    fn default() -> Self {
        Self { central: 0.1, validation: 0.1, test: 0.1 }
    }
}

/// A table divided: every row index stands in exactly one list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// The clients, by name in natural order (`c-2` before `c-10`).
    pub clients: Vec<Holding>,
    /// Rows that no client holds.
    pub central_test: Vec<usize>,
}

/// The rows of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The client.
    pub client: String,
    /// Rows learnt from.
    pub train: Vec<usize>,
    /// Rows decided on.
    pub validation: Vec<usize>,
    /// Rows reported on.
    pub test: Vec<usize>,
}

impl Holding {
    /// How many rows in all.
    pub fn len(&self) -> usize {
        self.train.len() + self.validation.len() + self.test.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All its rows.
    pub fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        self.train.iter().chain(&self.validation).chain(&self.test).copied()
    }
}

impl Partition {
    /// Divides a table. The same table, shares and seed give the same division.
    pub fn divide(&self, table: &Table, shares: Shares, seed: u64) -> Result<Division> {
        self.check(shares)?;
        let declared = |split| table.examples.iter().any(|e| e.split == Some(split));
        let has_test = declared(Split::Test);

        let (mut held, mut central) = (Vec::new(), Vec::new());
        for document in documents(&table.examples) {
            let is_test = document.split == Some(Split::Test);
            if is_test { central.push(document) } else { held.push(document) }
        }
        if !has_test {
            let mut dice = Dice::for_purpose(seed, "central");
            held = self
                .strata(held, &table.examples)
                .into_iter()
                .flat_map(|mut stratum| {
                    central.extend(set_aside(&mut stratum, shares.central, &mut dice));
                    stratum
                })
                .collect();
        }

        let mut dice = Dice::for_purpose(seed, "deal");
        let dealt = self.deal(held, table, &mut dice)?;
        let mut clients = Vec::with_capacity(dealt.len());
        for (client, documents) in dealt {
            let mut dice = Dice::for_purpose(seed, &format!("split {client}"));
            // What a client declares decides about that client: it need not know the others' rows.
            let has_validation = match self {
                Self::Client => documents.iter().any(|d| d.split == Some(Split::Validation)),
                Self::Iid { .. }
                | Self::Dirichlet { .. }
                | Self::Shards { .. }
                | Self::Quantity { .. } => declared(Split::Validation),
            };
            let validation = if has_validation { 0.0 } else { shares.validation };
            let inner = Shares { central: 0.0, validation, test: shares.test };
            clients.push(split_inside(client, documents, inner, &mut dice));
        }
        Ok(Division { clients, central_test: rows_of(central) })
    }

    /// How many clients it makes; `None` when the source decides.
    pub fn clients(&self) -> Option<usize> {
        match *self {
            Self::Client => None,
            Self::Iid { clients }
            | Self::Dirichlet { clients, .. }
            | Self::Shards { clients, .. }
            | Self::Quantity { clients, .. } => Some(clients),
        }
    }

    fn check(&self, shares: Shares) -> Result<()> {
        if self.clients() == Some(0) {
            return Err(DataError::setting("clients", &0, "at least 1"));
        }
        match *self {
            Self::Dirichlet { alpha, .. } | Self::Quantity { alpha, .. } => {
                if !(alpha > 0.0 && alpha.is_finite()) {
                    return Err(DataError::setting("alpha", &alpha, "a number above 0"));
                }
            }
            Self::Shards { shards: 0, .. } => {
                return Err(DataError::setting("shards", &0, "at least 1"));
            }
            Self::Client | Self::Iid { .. } | Self::Shards { .. } => {}
        }
        let Shares { central, validation, test } = shares;
        for (name, share) in [("central", central), ("validation", validation), ("test", test)] {
            if !(0.0..1.0).contains(&share) {
                return Err(DataError::setting(name, &share, "a share from 0 to below 1"));
            }
        }
        if validation + test >= 1.0 {
            let found = validation + test;
            return Err(DataError::setting("validation + test", &found, "a sum below 1"));
        }
        Ok(())
    }

    /// What each give their share to the central test set: every client where clients are given,
    /// so that none of them vanishes into it, or else all documents together.
    fn strata(&self, held: Vec<Document>, examples: &[Example]) -> Vec<Vec<Document>> {
        if self.clients().is_some() {
            return vec![held];
        }
        let mut strata: BTreeMap<Option<String>, Vec<Document>> = BTreeMap::new();
        for document in held {
            let client = examples[document.rows[0]].client.clone();
            strata.entry(client).or_default().push(document);
        }
        strata.into_values().collect()
    }

    /// Documents by client, in the natural order of their names.
    fn deal(
        &self,
        mut held: Vec<Document>,
        table: &Table,
        dice: &mut Dice,
    ) -> Result<Vec<(String, Vec<Document>)>> {
        let Some(count) = self.clients() else {
            return by_column(held, &table.examples);
        };
        if held.len() < count {
            let expected = format!("at most the {} documents there are to deal", held.len());
            return Err(DataError::setting("clients", &count, expected));
        }
        dice.shuffle(&mut held);
        let mut hands: Vec<Vec<Document>> = match *self {
            Self::Client => unreachable!("it has no count of clients"),
            Self::Iid { .. } => cut(held, &vec![1.0; count]),
            Self::Quantity { alpha, .. } => {
                let weights = dice.dirichlet(alpha, count);
                cut(held, &weights)
            }
            Self::Dirichlet { alpha, .. } => {
                let mut hands: Vec<Vec<Document>> = (0..count).map(|_| Vec::new()).collect();
                for group in by_label(held, table) {
                    let weights = dice.dirichlet(alpha, count);
                    for (hand, part) in hands.iter_mut().zip(cut(group, &weights)) {
                        hand.extend(part);
                    }
                }
                hands
            }
            Self::Shards { shards, .. } => {
                let sorted: Vec<Document> = by_label(held, table).into_iter().flatten().collect();
                let mut pieces = cut(sorted, &vec![1.0; count * shards]);
                dice.shuffle(&mut pieces);
                let mut hands: Vec<Vec<Document>> = (0..count).map(|_| Vec::new()).collect();
                for (position, piece) in pieces.into_iter().enumerate() {
                    hands[position % count].extend(piece);
                }
                hands
            }
        };
        leave_none_empty(&mut hands);
        let named = hands.into_iter().enumerate();
        Ok(named.map(|(number, hand)| (format!("client-{}", number + 1), hand)).collect())
    }
}

/// `total` split in proportion to weights by largest remainder; at least one each where there is
/// enough for all.
pub(crate) fn apportion(total: usize, weights: &[f64]) -> Vec<usize> {
    let floor = usize::from(total >= weights.len());
    let free = total - floor * weights.len();
    let sum: f64 = weights.iter().sum();
    let exact: Vec<f64> = weights.iter().map(|weight| free as f64 * weight / sum).collect();
    let mut counts: Vec<usize> = exact.iter().map(|share| share.floor() as usize).collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    by_remainder.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()).then(a.cmp(&b)));
    let left = free - counts.iter().sum::<usize>().min(free);
    for &index in by_remainder.iter().cycle().take(left) {
        counts[index] += 1;
    }
    counts.into_iter().map(|count| count + floor).collect()
}

/// Takes a share of the documents that are declared neither test nor validation, leaving at least
/// one of them.
fn set_aside(held: &mut Vec<Document>, share: f64, dice: &mut Dice) -> Vec<Document> {
    let may_go = |document: &Document| match document.split {
        None | Some(Split::Train) => true,
        Some(Split::Validation | Split::Test) => false,
    };
    let mut free: Vec<usize> = (0..held.len()).filter(|&i| may_go(&held[i])).collect();
    dice.shuffle(&mut free);
    let wanted = (share * free.len() as f64).round() as usize;
    free.truncate(wanted.min(free.len().saturating_sub(1)));
    let chosen: BTreeSet<usize> = free.into_iter().collect();
    let (mut taken, mut kept) = (Vec::new(), Vec::new());
    for (index, document) in held.drain(..).enumerate() {
        if chosen.contains(&index) { taken.push(document) } else { kept.push(document) }
    }
    *held = kept;
    taken
}

fn split_inside(
    client: String,
    documents: Vec<Document>,
    shares: Shares,
    dice: &mut Dice,
) -> Holding {
    let (validation, mut rest): (Vec<_>, Vec<_>) =
        documents.into_iter().partition(|d| d.split == Some(Split::Validation));
    // Both shares are of what there was before either was taken.
    let test = set_aside(&mut rest, shares.test, dice);
    let drawn = set_aside(&mut rest, shares.validation / (1.0 - shares.test), dice);
    let validation = validation.into_iter().chain(drawn).collect();
    Holding { client, train: rows_of(rest), validation: rows_of(validation), test: rows_of(test) }
}

fn by_column(held: Vec<Document>, examples: &[Example]) -> Result<Vec<(String, Vec<Document>)>> {
    let mut clients: BTreeMap<String, Vec<Document>> = BTreeMap::new();
    for document in held {
        let row = document.rows[0];
        let Some(client) = examples[row].client.clone() else {
            let at = examples[row].place.get();
            let at =
                at.map_or_else(|| format!("row {}", row + 1), |_| examples[row].place.to_string());
            let found = format!("\"client\", and {at} names none");
            let expected = "a client in every row (data.columns.client names the column), or rows dealt \
                            by \"iid\", \"dirichlet\", \"shards\" or \"quantity\"";
            return Err(DataError::setting("partition.by", &found, expected));
        };
        clients.entry(client).or_default().push(document);
    }
    let mut dealt: Vec<_> = clients.into_iter().collect();
    dealt.sort_by(|(a, _), (b, _)| natural(a).cmp(&natural(b)).then(a.cmp(b)));
    Ok(dealt)
}

/// A key under which `hospital-2` stands before `hospital-10`.
fn natural(name: &str) -> (&str, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0))
}

/// Documents cut in order into parts of these weights.
fn cut(documents: Vec<Document>, weights: &[f64]) -> Vec<Vec<Document>> {
    let total: f64 = weights.iter().sum();
    let count = documents.len() as f64;
    let mut left = documents.into_iter();
    let (mut reached, mut given) = (0.0, 0_usize);
    let mut parts: Vec<Vec<Document>> = Vec::with_capacity(weights.len());
    for weight in weights {
        reached += weight / total;
        let until = (reached * count).round() as usize;
        parts.push(left.by_ref().take(until.saturating_sub(given)).collect());
        given = given.max(until);
    }
    if let Some(last) = parts.last_mut() {
        last.extend(left);
    }
    parts
}

/// An empty hand takes one document from the fullest; there are at least as many as hands.
fn leave_none_empty(hands: &mut [Vec<Document>]) {
    while let Some(empty) = hands.iter().position(Vec::is_empty) {
        let fullest = (0..hands.len())
            .max_by_key(|&i| (hands[i].len(), std::cmp::Reverse(i)))
            .expect("there is an empty hand, so there are hands");
        let document = hands[fullest].pop().expect("the fullest hand holds more than one");
        hands[empty].push(document);
    }
}
