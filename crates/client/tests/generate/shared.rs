//! Sessions behind a thread: many callers, one batch, the same text.

use crate::tiny::{Tiny, WIDTH, all_tokens, cut, greedy, key, random_tokens, rows, step};
use fedra_client::generate::{
    Answer, CachedDecoder, DecodePeer, DecodeStep, Gathering, SessionError, SessionKey,
    SessionLimits, SharedSessions,
};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

fn start(tiny: &Tiny, window: Duration) -> Arc<SharedSessions> {
    let gathering = Gathering { window, most: 16, threads: 2 };
    let sessions = tiny.sessions(1, 1, SessionLimits::default());
    Arc::new(SharedSessions::start(sessions, gathering).unwrap())
}

/// A session of sessions that many threads share, closed when it is dropped.
struct SharedPeer {
    sessions: Arc<SharedSessions>,
    key: SessionKey,
}

impl SharedPeer {
    fn open(sessions: Arc<SharedSessions>, key: SessionKey) -> fedra_client::Result<Self> {
        sessions.open(key.clone())?;
        Ok(Self { sessions, key })
    }
}

impl DecodePeer for SharedPeer {
    fn decode(
        &mut self,
        position: usize,
        rows: &[f32],
        answer: Answer,
    ) -> fedra_client::Result<Vec<f32>> {
        let step = DecodeStep { key: self.key.clone(), position, rows: rows.to_vec(), answer };
        Ok(self.sessions.decode(step)?)
    }

    fn position(&mut self) -> fedra_client::Result<usize> {
        Ok(self.sessions.position(self.key.clone())?)
    }
}

impl Drop for SharedPeer {
    fn drop(&mut self) {
        // A session that is gone already has nothing left to close.
        let _closed = self.sessions.close(self.key.clone());
    }
}

#[test]
fn clients_that_write_at_once_get_the_text_of_clients_that_write_alone() {
    const CLIENTS: u64 = 8;
    let tiny = Tiny::new();
    // Long enough for whoever is late on a busy machine: tokens of all who write meet before it ends.
    let shared = start(&tiny, Duration::from_millis(500));
    let together = Barrier::new(CLIENTS as usize);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (tiny, shared, together) = (&tiny, Arc::clone(&shared), &together);
            scope.spawn(move || {
                let prompt = random_tokens(client, 3 + client as usize);
                let name = format!("client-{client}");
                let peer = SharedPeer::open(shared, key(&name, 1)).unwrap();
                let given = (&tiny.model, &tiny.params);
                let peer = Box::new(peer);
                let decoder = CachedDecoder::cut(&tiny.device, given, &cut(1, 1), peer).unwrap();
                together.wait();
                let found = all_tokens(decoder, &prompt, greedy(25));
                assert_eq!(found, all_tokens(tiny.whole(), &prompt, greedy(25)), "{name}");
            });
        }
    });
    let usage = shared.usage().unwrap();
    assert_eq!((usage.sessions, usage.cache_bytes), (0, 0), "peers close their sessions");
    assert_eq!(usage.steps, CLIENTS * 25);
    // Prompts run alone; if no two tokens had met, there were as many batches as steps.
    assert!(usage.batches < usage.steps / 2, "{usage:?}");
}

#[test]
fn a_lone_client_is_not_kept_waiting() {
    let tiny = Tiny::new();
    let shared = start(&tiny, Duration::from_mins(10));
    shared.open(key("a", 1)).unwrap();
    for position in 0..5 {
        shared.decode(step(&key("a", 1), position, rows(1, 1))).unwrap();
    }
    assert_eq!(shared.position(key("a", 1)), Ok(5));
}

#[test]
fn refusals_reach_the_caller_and_the_thread_goes_on() {
    let tiny = Tiny::new();
    let shared = start(&tiny, Duration::ZERO);
    shared.open(key("a", 1)).unwrap();
    let refused = shared.decode(step(&key("b", 1), 0, rows(1, 1))).unwrap_err();
    assert_eq!(refused, SessionError::Unknown { id: 1 });
    let refused = shared.decode(step(&key("a", 1), 0, vec![0.0; 3])).unwrap_err();
    let expected = format!("session 1: found 3 numbers, expected rows of {WIDTH}, at least one");
    assert_eq!(refused.to_string(), expected);
    shared.decode(step(&key("a", 1), 0, rows(1, 4))).unwrap();
    shared.close(key("a", 1)).unwrap();
    assert_eq!(shared.position(key("a", 1)), Err(SessionError::Unknown { id: 1 }));
}
