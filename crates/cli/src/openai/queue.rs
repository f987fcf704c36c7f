//! Requests that wait to be answered: a bounded queue.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fedra::apply::completions::CompletionRequest;
use fedra_net::Responder;

/// A request that was checked.
pub struct Job {
    /// Of all requests, from 0.
    pub number: u64,
    pub request: CompletionRequest,
    pub responder: Responder,
}

/// Why a request does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Enough others wait.
    Full,
    /// The server stops.
    Closed,
}

pub struct Queue {
    /// Most that are answered or wait at a time.
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Those that are being answered.
    busy: usize,
    /// Requests so far.
    count: u64,
    is_closed: bool,
}

impl Queue {
    /// For so many answers at a time, and so many requests that wait.
    pub fn new(parallel: usize, waiting: usize) -> Self {
        Self { most: parallel + waiting, state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a request wait.
    pub fn add(
        &self,
        request: CompletionRequest,
        responder: Responder,
    ) -> Result<(), (Turned, Responder)> {
        let mut state = self.state();
        if state.is_closed {
            return Err((Turned::Closed, responder));
        }
        if state.busy + state.jobs.len() >= self.most {
            // Whoever hung up waits for nothing.
            state.jobs.retain(|job| !job.responder.is_gone());
        }
        if state.busy + state.jobs.len() >= self.most {
            return Err((Turned::Full, responder));
        }
        let number = state.count;
        state.count += 1;
        state.jobs.push_back(Job { number, request, responder });
        self.changed.notify_one();
        Ok(())
    }

    /// The next request, once there is one; none when the queue is closed.
    pub fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                if !job.responder.is_gone() {
                    state.busy += 1;
                    return Some(job);
                }
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// One of the requests was answered.
    pub fn done(&self) {
        let mut state = self.state();
        state.busy = state.busy.saturating_sub(1);
    }

    /// Takes no request any more; those that wait are handed out, and whoever answers them sees that it ends.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }
}
