//! Pairs of symbols merged in the order in which they were learnt.
//!
//! The text may be a word or a whole document (`SentencePiece` does not cut), so candidates wait in
//! a heap and symbols in a linked list: n log n for a text of n letters, not n squared.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The vocabulary and what merges into what.
pub(super) struct Merger {
    /// Looked up, never iterated.
    pub vocabulary: HashMap<String, u32>,
    /// For a pair of symbols, its rank and what it becomes.
    pub merges: HashMap<(u32, u32), (u32, u32)>,
    /// The tokens of single bytes, where letters outside the vocabulary fall back to them.
    pub byte_tokens: Option<Vec<Option<u32>>>,
    pub unknown: Unknown,
    pub whole_words: WholeWords,
}

/// What a letter outside the vocabulary becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// Nothing.
    Dropped,
    /// A token for each.
    Each(u32),
    /// A token for each run of them.
    Fused(u32),
}

/// Whether a word that is in the vocabulary is taken whole, whatever the merges say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WholeWords {
    Taken,
    Merged,
}

/// A symbol in the list; merged ones go away.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    before: Option<usize>,
    after: Option<usize>,
    is_gone: bool,
}

impl Merger {
    /// The numbers of a part's pieces.
    pub fn merge(&self, part: &str, out: &mut Vec<u32>) {
        if part.is_empty() {
            return;
        }
        if self.whole_words == WholeWords::Taken
            && let Some(&id) = self.vocabulary.get(part)
        {
            return out.push(id);
        }
        let mut symbols = self.symbols(part);
        let mut heap = BinaryHeap::new();
        for left in 0..symbols.len() {
            heap.extend(self.candidate(&symbols, left));
        }
        while let Some(Reverse((_, left, merged))) = heap.pop() {
            // A candidate is stale when either symbol has meanwhile become something else.
            let Some(Reverse((_, _, now))) = self.candidate(&symbols, left) else { continue };
            if now != merged {
                continue;
            }
            let Some(right) = symbols[left].after else { continue };
            let after = symbols[right].after;
            symbols[right].is_gone = true;
            (symbols[left].id, symbols[left].after) = (merged, after);
            if let Some(after) = after {
                symbols[after].before = Some(left);
            }
            if let Some(before) = symbols[left].before {
                heap.extend(self.candidate(&symbols, before));
            }
            heap.extend(self.candidate(&symbols, left));
        }
        out.extend(symbols.iter().filter(|symbol| !symbol.is_gone).map(|symbol| symbol.id));
    }

    /// What a symbol and the next would become, first by rank and then by place.
    fn candidate(&self, symbols: &[Symbol], left: usize) -> Option<Reverse<(u32, usize, u32)>> {
        let symbol = symbols[left];
        if symbol.is_gone {
            return None;
        }
        let &(rank, merged) = self.merges.get(&(symbol.id, symbols[symbol.after?].id))?;
        Some(Reverse((rank, left, merged)))
    }

    fn symbols(&self, part: &str) -> Vec<Symbol> {
        let mut ids: Vec<u32> = Vec::with_capacity(part.len());
        let mut after_unknown = false;
        for letter in part.chars() {
            let mut buffer = [0; 4];
            let letter: &str = letter.encode_utf8(&mut buffer);
            let was_unknown = std::mem::take(&mut after_unknown);
            if let Some(&id) = self.vocabulary.get(letter) {
                ids.push(id);
            } else if let Some(bytes) = self.bytes(letter) {
                ids.extend(bytes);
            } else {
                match self.unknown {
                    Unknown::Dropped => {}
                    Unknown::Fused(_) if was_unknown => {}
                    Unknown::Each(id) | Unknown::Fused(id) => ids.push(id),
                }
                after_unknown = true;
            }
        }
        let last = ids.len().saturating_sub(1);
        let symbol = |(place, id): (usize, u32)| Symbol {
            id,
            before: place.checked_sub(1),
            after: (place < last).then_some(place + 1),
            is_gone: false,
        };
        ids.into_iter().enumerate().map(symbol).collect()
    }

    /// A letter as the tokens of its bytes, if each has one.
    fn bytes(&self, letter: &str) -> Option<Vec<u32>> {
        let tokens = self.byte_tokens.as_ref()?;
        letter.bytes().map(|byte| tokens[usize::from(byte)]).collect()
    }
}

/// The name of a byte's token.
pub(super) fn byte_name(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// The byte that a token names.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}
