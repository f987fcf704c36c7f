//! Memory of a GPU, taken in large stretches and cut into pieces: after the first steps nothing is asked of the driver.
//!
//! All work is on one stream, so a piece that comes back may be handed out again at once: whoever wrote to it
//! before is done before anybody writes to it next.

use std::collections::{BTreeMap, BTreeSet};

/// What a piece's address and length are multiples of, in bytes.
const ALIGNED: u64 = 256;
/// Bytes of a stretch, at least.
pub(super) const STRETCH: u64 = 64 << 20;

/// Free pieces and what is in use.
#[derive(Debug, Default)]
pub(super) struct Arena {
    free: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Where stretches begin: pieces of two of them are never joined.
    stretches: BTreeSet<u64>,
    pub live: u64,
    pub peak: u64,
    pub held: u64,
    pub allocations: usize,
    /// The most that may be held, where somebody limits it.
    pub limit: Option<u64>,
}

/// Bytes that a piece of at least `bytes` takes.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGNED)
}

impl Arena {
    /// A piece of `length` bytes, which is rounded; `None` where a stretch must be added first.
    pub fn take(&mut self, length: u64) -> Option<u64> {
        let (stretch, address) = self.by_length.range((length, 0)..).next().copied()?;
        self.remove(address, stretch);
        if stretch > length {
            self.insert(address + length, stretch - length);
        }
        self.live += length;
        self.peak = self.peak.max(self.live);
        Some(address)
    }

    /// Bytes that may still be asked of the driver; `None` where nobody limits that.
    pub fn room(&self) -> Option<u64> {
        Some(self.limit?.saturating_sub(self.held))
    }

    /// A stretch from the driver.
    pub fn add(&mut self, address: u64, length: u64) {
        self.stretches.insert(address);
        self.held += length;
        self.allocations += 1;
        self.insert(address, length);
    }

    pub fn give_back(&mut self, mut address: u64, mut length: u64) {
        self.live -= length;
        let before = self.free.range(..address).next_back().map(|(at, length)| (*at, *length));
        if let Some((at, stretch)) = before
            && at + stretch == address
            && !self.stretches.contains(&address)
        {
            self.remove(at, stretch);
            (address, length) = (at, stretch + length);
        }
        let next = address + length;
        if let Some(&stretch) = self.free.get(&next)
            && !self.stretches.contains(&next)
        {
            self.remove(next, stretch);
            length += stretch;
        }
        self.insert(address, length);
    }

    fn insert(&mut self, address: u64, length: u64) {
        self.free.insert(address, length);
        self.by_length.insert((length, address));
    }

    fn remove(&mut self, address: u64, length: u64) {
        self.free.remove(&address);
        self.by_length.remove(&(length, address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_counts_what_is_held_and_not_what_is_in_use() {
        let mut arena = Arena::default();
        assert_eq!(arena.room(), None);
        arena.limit = Some(3 << 20);
        arena.add(1 << 20, 2 << 20);
        assert_eq!((arena.live, arena.room()), (0, Some(1 << 20)));
        arena.limit = Some(1 << 20);
        assert_eq!(arena.room(), Some(0));
    }

    #[test]
    fn pieces_never_overlap_and_neighbours_join_again() {
        let mut arena = Arena::default();
        let mut next = 1 << 20;
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut state = 7_u64;
        for _ in 0..3000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = state >> 33;
            if held.len() > 30 || (draw.is_multiple_of(3) && !held.is_empty()) {
                let (address, length) = held.swap_remove(draw as usize % held.len());
                arena.give_back(address, length);
                continue;
            }
            let length = rounded(draw % 9000);
            let address = arena.take(length).unwrap_or_else(|| {
                // Stretches lie side by side, as a driver may place them.
                arena.add(next, 32 << 10);
                next += 32 << 10;
                arena.take(length).expect("it was just added")
            });
            let apart = |(at, len): &(u64, u64)| address + length <= *at || at + len <= address;
            assert!(address.is_multiple_of(ALIGNED) && held.iter().all(apart));
            held.push((address, length));
        }
        for (address, length) in held {
            arena.give_back(address, length);
        }
        assert_eq!((arena.live, arena.free.len()), (0, arena.stretches.len()));
    }
}
