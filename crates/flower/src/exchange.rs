//! Objects to and from a SuperLink, whoever asks for them.

use std::time::{Duration, Instant};

use crate::error::FlowerError;
use crate::object::{Letter, Object, Parsed, parse, shortened};
use crate::proto::PulledObject;

/// How long an object that was announced may take to come: as long as whoever pushes it may pause.
pub(crate) const ANNOUNCED: Duration = Duration::from_mins(3);
/// It is looked for again after a part of the time for which it did not come, within bounds.
const PART_OF_WAIT: u32 = 10;
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// A SuperLink's objects of one run, as a node or a coordinator reaches them.
pub(crate) trait Store {
    /// Asks for an object.
    fn pull_object(&mut self, run: u64, id: &str) -> Result<PulledObject, FlowerError>;

    /// Waits before an object that was announced is looked for again; an error where something else is to
    /// be done meanwhile.
    fn pause(&mut self, wait: Duration, id: &str) -> Result<(), FlowerError>;

    /// Brings an object; `false` when the session in which it was announced is over.
    fn push_object(
        &mut self,
        run: u64,
        object: &Object,
        session: &str,
    ) -> Result<bool, FlowerError>;
}

/// Fetches an object by its name; waits until it is there.
pub(crate) fn fetch(store: &mut impl Store, run: u64, id: &str) -> Result<Parsed, FlowerError> {
    let begun = Instant::now();
    loop {
        let PulledObject { found, available, content } = store.pull_object(run, id)?;
        let wrong =
            |reason: &str| FlowerError::Object { id: shortened(id), reason: reason.to_owned() };
        if !found {
            return Err(wrong("the SuperLink does not know it any more"));
        }
        if available {
            return parse(id, &content);
        }
        if begun.elapsed() >= ANNOUNCED {
            return Err(wrong("it was announced and did not come"));
        }
        store.pause(next_look(begun), id)?;
    }
}

/// After how long to look again for what has been awaited since then.
pub(crate) fn next_look(begun: Instant) -> Duration {
    (begun.elapsed() / PART_OF_WAIT).clamp(FIRST_LOOK, LONGEST_LOOK)
}

/// Brings those objects of a letter that the SuperLink lacks, children first; `false` when the session
/// is over before all are there. Adds up the bytes.
pub(crate) fn upload(
    store: &mut impl Store,
    (run, session): (u64, &str),
    letter: &Letter,
    (lacking, sent): (&[String], &mut usize),
) -> Result<bool, FlowerError> {
    for object in letter.objects.iter().filter(|object| lacking.contains(&object.id)) {
        if !store.push_object(run, object, session)? {
            return Ok(false);
        }
        *sent += object.len();
    }
    Ok(true)
}
