//! Clients with too few training rows to learn anything from, gathered or left out.
//!
//! Natural clients come in all sizes: of the 38 departments of `MTSamples` some wrote two notes. A
//! client of two rows costs as much traffic as one of a thousand and is scored on nothing. The
//! choice is made after rows are dealt and split, so it counts what a client would really train on.

use serde::{Deserialize, Serialize};

use crate::{Division, Holding};

/// What becomes of small clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Small {
    /// They become one client, [`Small::TOGETHER`].
    #[default]
    Merge,
    /// Their rows are left out.
    Drop,
}

impl Small {
    /// The name of the client that small ones become.
    pub const TOGETHER: &'static str = "others";
}

impl Division {
    /// Merges or drops clients with fewer than `fewest` training rows, and says how many there
    /// were. A client of that name in the source joins the merged ones, whatever its size.
    ///
    /// ```
    /// use fedra_data::{Clinic, Partition, Shares, Small, Task};
    /// let table = Clinic::default().generate(Task::Concepts, 1)?;
    /// let mut division = Partition::Client.divide(&table, Shares::default(), 7)?;
    /// let small = division.without_small(200, Small::Merge);
    /// assert!(small > 1);
    /// assert_eq!(division.clients.len(), 8 - small + 1);
    /// # Ok::<(), fedra_data::DataError>(())
    /// ```
    pub fn without_small(&mut self, fewest: usize, small: Small) -> usize {
        let is_small = |holding: &Holding| holding.train.len() < fewest;
        let count = self.clients.iter().filter(|holding| is_small(holding)).count();
        if count == 0 {
            return 0;
        }
        let mut others = Holding { client: Small::TOGETHER.to_owned(), ..Holding::default() };
        let mut kept = Vec::new();
        for holding in std::mem::take(&mut self.clients) {
            match small {
                Small::Drop if is_small(&holding) => {}
                Small::Merge if is_small(&holding) || holding.client == Small::TOGETHER => {
                    others.absorb(holding);
                }
                Small::Drop | Small::Merge => kept.push(holding),
            }
        }
        if !others.is_empty() {
            // Last, where a reader looks for it.
            kept.push(others);
        }
        self.clients = kept;
        count
    }
}

impl Holding {
    fn absorb(&mut self, other: Self) {
        for (mine, more) in [
            (&mut self.train, other.train),
            (&mut self.validation, other.validation),
            (&mut self.test, other.test),
        ] {
            mine.extend(more);
            mine.sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division(sizes: &[(&str, usize)]) -> Division {
        let mut next = 0;
        let mut rows = |count: usize| {
            next += count;
            (next - count..next).collect::<Vec<usize>>()
        };
        let mut holding = |&(client, size): &(&str, usize)| Holding {
            client: client.to_owned(),
            train: rows(size),
            validation: rows(1),
            test: rows(1),
        };
        Division { clients: sizes.iter().map(&mut holding).collect(), central_test: vec![99] }
    }

    fn sizes(division: &Division) -> Vec<(&str, usize)> {
        division.clients.iter().map(|h| (h.client.as_str(), h.train.len())).collect()
    }

    #[test]
    fn small_clients_become_one_and_keep_every_row() {
        let mut it = division(&[("a", 2), ("b", 9), ("c", 5), ("d", 4)]);
        assert_eq!(it.without_small(5, Small::Merge), 2);
        assert_eq!(sizes(&it), [("b", 9), ("c", 5), ("others", 6)]);
        let others = &it.clients[2];
        assert_eq!(others.train, [0, 1, 22, 23, 24, 25]);
        assert_eq!((others.validation.len(), others.test.len()), (2, 2));
        assert_eq!(it.central_test, [99]);
    }

    #[test]
    fn dropping_leaves_the_others_as_they_were() {
        let mut it = division(&[("a", 2), ("b", 9)]);
        assert_eq!(it.without_small(5, Small::Drop), 1);
        assert_eq!(sizes(&it), [("b", 9)]);
        assert_eq!(it.without_small(5, Small::Merge), 0);
        assert_eq!(sizes(&it), [("b", 9)]);
        assert_eq!(it.without_small(10, Small::Drop), 1);
        assert!(it.clients.is_empty());
    }

    #[test]
    fn a_client_that_has_the_name_already_joins_them() {
        let mut it = division(&[("a", 2), ("others", 9)]);
        assert_eq!(it.without_small(5, Small::Merge), 1);
        assert_eq!(sizes(&it), [("others", 11)]);
    }
}
