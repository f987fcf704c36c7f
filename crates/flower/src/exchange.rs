//! Objects from a SuperLink: what was announced is awaited.

use std::time::{Duration, Instant};

use crate::error::FlowerError;
use crate::object::{Parsed, parse, read};
use crate::proto::PulledObject;

/// How long an object that was announced may take to come: as long as whoever pushes it may pause.
pub(crate) const ANNOUNCED: Duration = Duration::from_mins(3);
/// It is looked for again after a part of the time for which it did not come, within bounds: each look takes
/// the SuperLink some 5 ms, which it then lacks for the bytes that are awaited.
const PART_OF_WAIT: u32 = 5;
const FIRST_LOOK: Duration = Duration::from_millis(60);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// A SuperLink's objects of one run.
pub(crate) trait Store {
    /// Asks for objects, in their order.
    fn pull_objects(&mut self, run: u64, ids: &[&str]) -> Result<Vec<PulledObject>, FlowerError>;

    /// Waits before objects that were announced are looked for again; an error where something else is
    /// to be done meanwhile.
    fn pause(&mut self, wait: Duration, id: &str) -> Result<(), FlowerError>;
}

/// Fetches an object by its name; waits until it is there.
pub(crate) fn fetch(store: &mut impl Store, run: u64, id: &str) -> Result<Parsed, FlowerError> {
    let mut found = fetch_contents(store, run, &[id])?;
    parse(id, &found.pop().ok_or_else(|| FlowerError::object(id, "found nothing"))?)
}

/// Fetches pieces of an array, in their order; waits until they are there. They are not held against
/// their names where what they are pieces of has a checksum of its own.
pub(crate) fn fetch_pieces(
    store: &mut impl Store,
    run: u64,
    (ids, has_checksum): (&[&str], bool),
) -> Result<Vec<Parsed>, FlowerError> {
    let contents = fetch_contents(store, run, ids)?;
    let parsed = if has_checksum { read } else { parse };
    ids.iter().zip(contents).map(|(id, content)| parsed(id, &content)).collect()
}

fn fetch_contents(
    store: &mut impl Store,
    run: u64,
    ids: &[&str],
) -> Result<Vec<bytes::Bytes>, FlowerError> {
    let begun = Instant::now();
    let mut contents = vec![None; ids.len()];
    loop {
        let due: Vec<usize> = (0..ids.len()).filter(|place| contents[*place].is_none()).collect();
        let names: Vec<&str> = due.iter().map(|place| ids[*place]).collect();
        let pulled = store.pull_objects(run, &names)?;
        for (place, PulledObject { found, available, content }) in due.into_iter().zip(pulled) {
            let wrong = |reason: &str| FlowerError::object(ids[place], reason);
            if !found {
                return Err(wrong("the SuperLink no longer has it"));
            }
            if available {
                contents[place] = Some(content);
            } else if begun.elapsed() >= ANNOUNCED {
                return Err(wrong("it was announced but did not arrive"));
            }
        }
        if contents.iter().all(Option::is_some) {
            return Ok(contents.into_iter().flatten().collect());
        }
        let late = contents.iter().position(Option::is_none).map_or("", |place| ids[place]);
        store.pause(next_look(begun), late)?;
    }
}

/// After how long to look again for what has been awaited since then.
pub(crate) fn next_look(begun: Instant) -> Duration {
    (begun.elapsed() / PART_OF_WAIT).clamp(FIRST_LOOK, LONGEST_LOOK)
}
