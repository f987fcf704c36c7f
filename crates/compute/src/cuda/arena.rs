//! Memory of a GPU, taken in large stretches and cut into pieces: after the first steps nothing is asked of the driver.
//!
//! Pieces belong to lanes (see [`super::lane`]). All work of a lane is on one stream, so a piece that comes back may be
//! handed out there again at once: whoever wrote to it before is done before anybody writes to it next.

use std::collections::{BTreeMap, BTreeSet};

/// What a piece's address and length are multiples of, in bytes.
const ALIGNED: u64 = 256;
/// Bytes of a stretch, at least.
pub(super) const STRETCH: u64 = 64 << 20;

/// The free pieces of all lanes, and what is in use.
#[derive(Debug, Default)]
pub(super) struct Arena {
    lanes: BTreeMap<usize, Free>,
    pub live: u64,
    pub peak: u64,
    pub held: u64,
    pub allocations: usize,
    /// The most that may be held, where somebody limits it.
    pub limit: Option<u64>,
}

/// The free pieces of one lane.
#[derive(Debug, Default)]
struct Free {
    by_address: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// Where stretches begin: pieces of two of them are never joined.
    stretches: BTreeSet<u64>,
}

/// Bytes that a piece of at least `bytes` takes.
pub(super) fn rounded(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGNED)
}

impl Arena {
    /// A piece of a lane, of `length` bytes, which is rounded; `None` where a stretch must be added first.
    pub fn take(&mut self, lane: usize, length: u64) -> Option<u64> {
        let address = self.lanes.entry(lane).or_default().take(length)?;
        self.live += length;
        self.peak = self.peak.max(self.live);
        Some(address)
    }

    /// A piece of any lane, with the lane that it goes back to. Nobody may be at work.
    pub fn take_of_any(&mut self, length: u64) -> Option<(usize, u64)> {
        let lanes: Vec<usize> = self.lanes.keys().copied().collect();
        lanes.into_iter().find_map(|lane| Some((lane, self.take(lane, length)?)))
    }

    /// Bytes that may still be asked of the driver; `None` where nobody limits that.
    pub fn room(&self) -> Option<u64> {
        Some(self.limit?.saturating_sub(self.held))
    }

    /// A stretch from the driver, for a lane.
    pub fn add(&mut self, lane: usize, address: u64, length: u64) {
        self.held += length;
        self.allocations += 1;
        let free = self.lanes.entry(lane).or_default();
        free.stretches.insert(address);
        free.insert(address, length);
    }

    /// Back to the lane that it was taken of.
    pub fn give_back(&mut self, lane: usize, address: u64, length: u64) {
        self.live -= length;
        self.lanes.entry(lane).or_default().give_back(address, length);
    }
}

impl Free {
    fn take(&mut self, length: u64) -> Option<u64> {
        let (stretch, address) = self.by_length.range((length, 0)..).next().copied()?;
        self.remove(address, stretch);
        if stretch > length {
            self.insert(address + length, stretch - length);
        }
        Some(address)
    }

    fn give_back(&mut self, mut address: u64, mut length: u64) {
        let before =
            self.by_address.range(..address).next_back().map(|(at, length)| (*at, *length));
        if let Some((at, stretch)) = before
            && at + stretch == address
            && !self.stretches.contains(&address)
        {
            self.remove(at, stretch);
            (address, length) = (at, stretch + length);
        }
        let next = address + length;
        if let Some(&stretch) = self.by_address.get(&next)
            && !self.stretches.contains(&next)
        {
            self.remove(next, stretch);
            length += stretch;
        }
        self.insert(address, length);
    }

    fn insert(&mut self, address: u64, length: u64) {
        self.by_address.insert(address, length);
        self.by_length.insert((length, address));
    }

    fn remove(&mut self, address: u64, length: u64) {
        self.by_address.remove(&address);
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
        arena.add(0, 1 << 20, 2 << 20);
        assert_eq!((arena.live, arena.room()), (0, Some(1 << 20)));
        arena.limit = Some(1 << 20);
        assert_eq!(arena.room(), Some(0));
    }

    #[test]
    fn pieces_never_overlap_and_neighbours_join_again() {
        let mut arena = Arena::default();
        let mut next = 1 << 20;
        let mut held: Vec<(usize, u64, u64)> = Vec::new();
        let mut state = 7_u64;
        for _ in 0..3000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = state >> 33;
            if held.len() > 30 || (draw.is_multiple_of(3) && !held.is_empty()) {
                let (lane, address, length) = held.swap_remove(draw as usize % held.len());
                arena.give_back(lane, address, length);
                continue;
            }
            let (lane, length) = (draw as usize % 2, rounded(draw % 9000));
            let (lane, address) = arena.take(lane, length).map_or_else(
                || {
                    if draw.is_multiple_of(5)
                        && let Some(taken) = arena.take_of_any(length)
                    {
                        return taken;
                    }
                    // Stretches lie side by side, as a driver may place them.
                    arena.add(lane, next, 32 << 10);
                    next += 32 << 10;
                    (lane, arena.take(lane, length).expect("it was just added"))
                },
                |address| (lane, address),
            );
            let apart =
                |(_, at, len): &(usize, u64, u64)| address + length <= *at || at + len <= address;
            assert!(address.is_multiple_of(ALIGNED) && held.iter().all(apart));
            held.push((lane, address, length));
        }
        for (lane, address, length) in held {
            arena.give_back(lane, address, length);
        }
        assert_eq!(arena.live, 0);
        for free in arena.lanes.values() {
            assert_eq!(free.by_address.len(), free.stretches.len());
        }
    }
}
