//! Objects to and from a SuperLink, whoever asks for them.

use std::time::{Duration, Instant};

use crate::error::FlowerError;
use crate::object::{Letter, Object, Parsed, parse, shortened};
use crate::proto::PulledObject;

/// How long an object that was announced may take to come: as long as whoever pushes it may pause.
const ANNOUNCED: Duration = Duration::from_mins(3);
/// The waits between looks; the last one is kept.
const LOOKS: [u64; 6] = [30, 60, 120, 250, 500, 1000];

/// A SuperLink's objects of one run, as a node or a coordinator reaches them.
pub(crate) trait Store {
    /// Asks for an object.
    fn pull_object(&mut self, run: u64, id: &str) -> Result<PulledObject, FlowerError>;

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
    let until = Instant::now() + ANNOUNCED;
    let mut looks = LOOKS.into_iter();
    let mut wait = LOOKS[0];
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
        if Instant::now() >= until {
            return Err(wrong("it was announced and did not come"));
        }
        wait = looks.next().unwrap_or(wait);
        std::thread::sleep(Duration::from_millis(wait));
    }
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
