//! Objects to and from a SuperLink, whoever asks for them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::FlowerError;
use crate::object::{Letter, Object, Parsed, parse, read, shortened};
use crate::proto::{Node, PullObject, PulledObject, PushObject, PushedObject};
use crate::superlink::{CALL, SuperLink};

/// How long an object that was announced may take to come: as long as whoever pushes it may pause.
pub(crate) const ANNOUNCED: Duration = Duration::from_mins(3);
/// It is looked for again after a part of the time for which it did not come, within bounds: each look takes
/// the SuperLink some 5 ms, which it then lacks for the bytes that are awaited.
const PART_OF_WAIT: u32 = 5;
const FIRST_LOOK: Duration = Duration::from_millis(60);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// Connections for objects. While one waits for the SuperLink another is written or read.
pub(crate) const CONNECTIONS: usize = 3;

/// A SuperLink's objects of one run.
pub(crate) trait Store {
    /// Asks for objects, in their order.
    fn pull_objects(&mut self, run: u64, ids: &[&str]) -> Result<Vec<PulledObject>, FlowerError>;

    /// Waits before objects that were announced are looked for again; an error where something else is
    /// to be done meanwhile.
    fn pause(&mut self, wait: Duration, id: &str) -> Result<(), FlowerError>;

    /// Brings objects; `false` when the session in which they were announced is over.
    fn push_objects(
        &mut self,
        run: u64,
        objects: &[&Object],
        session: &str,
    ) -> Result<bool, FlowerError>;
}

/// A SuperLink's objects as a node or a coordinator reaches them.
pub(crate) struct Shelf {
    links: Vec<SuperLink>,
    node: Node,
    pull: &'static str,
    push: &'static str,
}

impl Shelf {
    /// The objects that whoever calls over this link may reach, by the paths of the two calls.
    pub(crate) fn new(
        link: &SuperLink,
        node: Node,
        (pull, push): (&'static str, &'static str),
    ) -> Self {
        let links = (0..CONNECTIONS).map(|_| link.beside(CALL)).collect();
        Self { links, node, pull, push }
    }

    /// Makes a call for each of the items, over all connections; stops at the first error.
    fn each<T: Sync, R: Send>(
        &mut self,
        items: &[T],
        call: impl Fn(&mut SuperLink, &T) -> Result<R, FlowerError> + Sync,
    ) -> Result<Vec<R>, FlowerError> {
        let next = Mutex::new(items.iter().enumerate());
        let work = |link: &mut SuperLink| -> Result<Vec<(usize, R)>, FlowerError> {
            let mut done = Vec::new();
            loop {
                let item = next.lock().map_or(None, |mut items| items.next());
                let Some((place, item)) = item else { return Ok(done) };
                match call(link, item) {
                    Ok(result) => done.push((place, result)),
                    Err(error) => {
                        // Nobody begins another one.
                        if let Ok(mut items) = next.lock() {
                            items.by_ref().for_each(drop);
                        }
                        return Err(error);
                    }
                }
            }
        };
        let Some((first, others)) = self.links.split_first_mut() else { return Ok(Vec::new()) };
        let others = &mut others[..items.len().saturating_sub(1).min(CONNECTIONS - 1)];
        let mut done = std::thread::scope(|scope| {
            let threads: Vec<_> =
                others.iter_mut().map(|link| scope.spawn(|| work(link))).collect();
            let mut done = work(first)?;
            for thread in threads {
                match thread.join() {
                    Ok(more) => done.extend(more?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok::<_, FlowerError>(done)
        })?;
        done.sort_by_key(|(place, _)| *place);
        Ok(done.into_iter().map(|(_, result)| result).collect())
    }

    /// Asks for objects, in their order.
    pub(crate) fn pull_objects(
        &mut self,
        run_id: u64,
        ids: &[&str],
    ) -> Result<Vec<PulledObject>, FlowerError> {
        let (node, path) = (Some(self.node), self.pull);
        self.each(ids, |link, id| {
            link.call(path, &PullObject { node, run_id, object_id: (*id).to_owned() })
        })
    }

    /// Brings objects; `false` when the session in which they were announced is over.
    pub(crate) fn push_objects(
        &mut self,
        run_id: u64,
        objects: &[&Object],
        session: &str,
    ) -> Result<bool, FlowerError> {
        let (node, path) = (Some(self.node), self.push);
        let stored = self.each(objects, |link, object| {
            let (object_id, session_id) = (object.id.clone(), session.to_owned());
            let request = PushObject { node, run_id, object_id, session_id };
            link.call_with::<PushedObject>(path, &request, (PushObject::CONTENT, &object.pieces))
        })?;
        Ok(stored.into_iter().all(|object| object.stored))
    }
}

/// Fetches an object by its name; waits until it is there.
pub(crate) fn fetch(store: &mut impl Store, run: u64, id: &str) -> Result<Parsed, FlowerError> {
    let mut found = fetch_contents(store, run, &[id])?;
    let missing = || FlowerError::Object { id: shortened(id), reason: "found nothing".to_owned() };
    parse(id, &found.pop().ok_or_else(missing)?)
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
            let wrong = |reason: &str| FlowerError::Object {
                id: shortened(ids[place]),
                reason: reason.to_owned(),
            };
            if !found {
                return Err(wrong("the SuperLink does not know it any more"));
            }
            if available {
                contents[place] = Some(content);
            } else if begun.elapsed() >= ANNOUNCED {
                return Err(wrong("it was announced and did not come"));
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

/// Brings those objects of a letter that the SuperLink lacks; `false` when the session is over before
/// all are there. Adds up the bytes.
pub(crate) fn upload(
    store: &mut impl Store,
    (run, session): (u64, &str),
    letter: &Letter,
    (lacking, sent): (&[String], &mut usize),
) -> Result<bool, FlowerError> {
    let lacking: Vec<&Object> =
        letter.objects.iter().filter(|object| lacking.contains(&object.id)).collect();
    // The message itself comes last: whoever finds it finds the rest.
    let (message, rest): (Vec<&Object>, Vec<&Object>) =
        lacking.iter().partition(|object| object.id == letter.id());
    for objects in [rest, message] {
        if !store.push_objects(run, &objects, session)? {
            return Ok(false);
        }
    }
    *sent += lacking.iter().map(|object| object.len()).sum::<usize>();
    Ok(true)
}
