//! The connections over which a node or a coordinator moves objects.

use std::sync::Mutex;

use crate::error::FlowerError;
use crate::object::{Object, OutgoingMessage};
use crate::proto::{Node, PullObject, PulledObject, PushObject, PushedObject};
use crate::superlink::{CALL, SuperLink};

/// How many there are. While one waits for the SuperLink another is written or read.
pub(crate) const CONNECTIONS: usize = 3;

/// A SuperLink's objects as a node or a coordinator reaches them.
pub(crate) struct ObjectStore {
    links: Vec<SuperLink>,
    node: Node,
    pull: &'static str,
    push: &'static str,
}

impl ObjectStore {
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

    /// Brings those objects of a message that the SuperLink lacks, and says how many bytes they have; `None` when
    /// the session in which they were announced has ended before all are there.
    pub(crate) fn upload(
        &mut self,
        (run, session): (u64, &str),
        message: &OutgoingMessage,
        lacking: &[String],
    ) -> Result<Option<usize>, FlowerError> {
        let lacking: Vec<&Object> =
            message.objects.iter().filter(|object| lacking.contains(&object.id)).collect();
        // The message itself comes last: whoever finds it finds the rest.
        let (message, rest): (Vec<&Object>, Vec<&Object>) =
            lacking.iter().partition(|object| object.id == message.tree.object_id);
        for objects in [rest, message] {
            if !self.push_objects(run, &objects, session)? {
                return Ok(None);
            }
        }
        Ok(Some(lacking.iter().map(|object| object.len()).sum()))
    }

    fn push_objects(
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
