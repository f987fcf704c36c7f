//! Rows divided among clients, and inside each client into training, validation and test.
//!
//! What is placed is a *document*, not a row: sentences of one note or notes of one patient stay
//! together, at one client and in one part, because a test sentence whose neighbour was trained on
//! is not a test. A row without a document is a document of its own.
//!
//! ```text
//! table --central test--> [....]
//!   \--by client / iid / Dirichlet / shards / quantity--> client: [train | validation | test]
//! ```
//!
//! Where a document goes follows from its own draws ([`RowHashes`]) and from nothing else in the table: one
//! row more or less moves no other. So shares are expectations, not counts, and a part may come out empty.
//! The exception is `shards`, which sorts and counts.
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

use std::collections::BTreeMap;

use fedra_seed::index_at;
use serde::{Deserialize, Serialize};

use crate::document::{Document, documents, rows_of, theme};
use crate::row_hashes::RowHashes;
use crate::{DataError, Dice, Example, Result, Split, Table};

/// How rows find their client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase", deny_unknown_fields)]
pub enum Partition {
    /// As the source says.
    Client,
    /// At random, each client with the same chance.
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
    /// At random, with chances drawn from Dirichlet(alpha).
    Quantity {
        /// How many clients.
        clients: usize,
        /// The concentration.
        alpha: f64,
    },
}

/// What share of the documents goes where, where the source does not say: the chance with which each of
/// them goes there.
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
        let hashes = RowHashes::new(table, seed);
        let declared = |split| table.examples.iter().any(|e| e.split == Some(split));
        let central_share = if declared(Split::Test) { 0.0 } else { shares.central };
        let is_central = |document: &Document| {
            let is_test = document.split == Some(Split::Test);
            is_test
                || document.is_free() && document.hash(&hashes, "central").unit() < central_share
        };
        let all = documents(&table.examples, &hashes);
        let (central, held): (Vec<_>, Vec<_>) = all.into_iter().partition(is_central);

        let placed = match self.clients() {
            None => by_column((held, &central), &table.examples)?,
            Some(count) => self.assign(held, (table, &hashes), (count, seed))?,
        };
        let mut clients = Vec::with_capacity(placed.len());
        for (client, documents) in placed {
            // What a client declares decides about that client: it need not know the others' rows.
            let has_validation = if *self == Self::Client {
                documents.iter().any(|d| d.split == Some(Split::Validation))
            } else {
                declared(Split::Validation)
            };
            let validation = if has_validation { 0.0 } else { shares.validation };
            let inner = Shares { central: 0.0, validation, test: shares.test };
            clients.push(split_inside(client, documents, inner, &hashes));
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

    /// Documents by simulated client, by their draws.
    fn assign(
        &self,
        held: Vec<Document>,
        (table, hashes): (&Table, &RowHashes<'_>),
        (count, seed): (usize, u64),
    ) -> Result<Vec<(String, Vec<Document>)>> {
        if held.len() < count {
            let expected = format!("at most the {} documents of the data", held.len());
            return Err(DataError::setting("clients", &count, expected));
        }
        let hands: Vec<Vec<Document>> = match *self {
            Self::Client => unreachable!("it has no count of clients"),
            Self::Iid { .. } => {
                let chances = vec![1.0; count];
                assigned(held, count, |document| chosen(document, hashes, &chances))
            }
            Self::Quantity { alpha, .. } => {
                let chances = Dice::for_purpose(seed, "quantity").dirichlet(alpha, count);
                assigned(held, count, |document| chosen(document, hashes, &chances))
            }
            Self::Dirichlet { alpha, .. } => {
                // By a label's name: its number follows from which others there are.
                let chances_of = |label: Option<u32>| {
                    let name = label.map(|label| format!("label {}", table.labels.name(label)));
                    let purpose = name.as_deref().unwrap_or("no label");
                    Dice::for_purpose(seed, purpose).dirichlet(alpha, count)
                };
                let mut known = BTreeMap::new();
                assigned(held, count, |document| {
                    let label = theme(document, table, hashes);
                    let chances = known.entry(label).or_insert_with(|| chances_of(label));
                    chosen(document, hashes, chances)
                })
            }
            Self::Shards { shards, .. } => {
                let mut sorted = held;
                sorted.sort_by_cached_key(|document| {
                    (theme(document, table, hashes), document.hash(hashes, "client"))
                });
                let mut pieces = cut(sorted, count * shards);
                Dice::for_purpose(seed, "shards").shuffle(&mut pieces);
                let mut hands: Vec<Vec<Document>> = (0..count).map(|_| Vec::new()).collect();
                for (position, piece) in pieces.into_iter().enumerate() {
                    hands[position % count].extend(piece);
                }
                hands
            }
        };
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

fn split_inside(
    client: String,
    documents: Vec<Document>,
    shares: Shares,
    hashes: &RowHashes<'_>,
) -> Holding {
    let (mut train, mut validation, mut test) = (Vec::new(), Vec::new(), Vec::new());
    for document in documents {
        // One draw for both, so that both shares are of what there was before either was taken.
        let hash = document.hash(hashes, "split").unit();
        let part = if !document.is_free() {
            &mut validation
        } else if hash < shares.test {
            &mut test
        } else if hash < shares.test + shares.validation {
            &mut validation
        } else {
            &mut train
        };
        part.push(document);
    }
    Holding { client, train: rows_of(train), validation: rows_of(validation), test: rows_of(test) }
}

/// Documents by the client that their rows name, in the natural order of names. A client all of whose
/// documents went to the central test set is still one.
fn by_column(
    (held, central): (Vec<Document>, &[Document]),
    examples: &[Example],
) -> Result<Vec<(String, Vec<Document>)>> {
    let client_of = |document: &Document| examples[document.rows[0]].client.clone();
    let drawn = central.iter().filter(|document| document.is_free());
    let mut clients: BTreeMap<String, Vec<Document>> =
        drawn.filter_map(client_of).map(|client| (client, Vec::new())).collect();
    for document in held {
        let Some(client) = client_of(&document) else {
            let row = document.rows[0];
            let place = &examples[row].place;
            let at = place.get().map_or_else(|| format!("row {}", row + 1), |_| place.to_string());
            let found = format!("\"client\", and {at} names none");
            let expected = "a client in every row (data.columns.client names the column), or a partition by \
                            \"iid\", \"dirichlet\", \"shards\" or \"quantity\"";
            return Err(DataError::setting("partition.by", &found, expected));
        };
        clients.entry(client).or_default().push(document);
    }
    let mut placed: Vec<_> = clients.into_iter().collect();
    placed.sort_by(|(a, _), (b, _)| natural(a).cmp(&natural(b)).then(a.cmp(b)));
    Ok(placed)
}

/// A key under which `hospital-2` stands before `hospital-10`.
fn natural(name: &str) -> (&str, u64) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (stem, name[stem.len()..].parse().unwrap_or(0))
}

/// Documents at the clients to which they are assigned.
fn assigned(
    documents: Vec<Document>,
    clients: usize,
    mut client_of: impl FnMut(&Document) -> usize,
) -> Vec<Vec<Document>> {
    let mut hands: Vec<Vec<Document>> = (0..clients).map(|_| Vec::new()).collect();
    for document in documents {
        hands[client_of(&document)].push(document);
    }
    hands
}

/// The client that a document draws.
fn chosen(document: &Document, hashes: &RowHashes<'_>, chances: &[f64]) -> usize {
    index_at(document.hash(hashes, "client").unit(), chances)
}

/// Documents cut in order into equal parts, as far as they come out even.
fn cut(documents: Vec<Document>, parts: usize) -> Vec<Vec<Document>> {
    let count = documents.len();
    let mut left = documents.into_iter();
    let until = |part: usize| (part * count + parts / 2) / parts;
    (0..parts).map(|part| left.by_ref().take(until(part + 1) - until(part)).collect()).collect()
}
