//! Sessions that many threads use: one thread of its own runs the blocks, callers wait for answers.
//!
//! Steps of one row that wait at the same time become one batch, which reads the weights once for all.
//! The thread waits a moment for the steps of sessions that were active just now, so that clients that
//! write at the same pace meet. A long step (a prompt) runs alone, one between two batches: whoever
//! reads does not stop those who write.

use super::sessions::{DecodeSessions, DecodeStep, SessionKey};
use crate::join_on_drop::JoinOnDrop;
use crate::session_error::SessionError;
use fedra_compute::ThreadPool;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long ago a session may have been used to be waited for.
const RECENT: Duration = Duration::from_millis(250);
/// How often a resting server looks for sessions that have expired.
const SWEEP: Duration = Duration::from_secs(1);

/// How steps are gathered and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Longest wait for other sessions' steps.
    pub window: Duration,
    /// Most steps in a batch.
    pub most: usize,
    /// Threads that compute.
    pub threads: usize,
}

impl Default for Gathering {
    /// A millisecond is a tenth of a small model's step; all cores.
    fn default() -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self { window: Duration::from_millis(1), most: 64, threads }
    }
}

/// A handle on sessions that run on a thread of their own, which ends with it.
#[derive(Debug)]
pub struct SharedSessions {
    requests: Sender<Request>,
    _thread: JoinOnDrop,
}

/// What a caller wants.
enum Request {
    /// Something that costs nothing, and is done at once.
    Now(Box<dyn FnOnce(&mut Worker) + Send>),
    Decode(Waiting),
}

#[derive(Debug)]
struct Waiting {
    step: DecodeStep,
    answer: Sender<Result<Vec<f32>, SessionError>>,
}

/// What sessions take, and what was done for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionUsage {
    /// Open sessions.
    pub sessions: usize,
    /// Bytes of their caches.
    pub cache_bytes: usize,
    /// Steps that were run or refused.
    pub steps: u64,
    /// Batches that they came in.
    pub batches: u64,
}

impl SharedSessions {
    /// Starts the thread and its helpers.
    pub fn start(sessions: DecodeSessions, gathering: Gathering) -> io::Result<Self> {
        let pool = ThreadPool::new(gathering.threads)?;
        let (requests, inbox) = mpsc::channel();
        let thread = thread::Builder::new().name("decode".into()).spawn(move || {
            let mut worker = Worker::new(sessions, gathering, inbox);
            pool.install(|| worker.run());
        })?;
        Ok(Self { requests, _thread: JoinOnDrop(Some(thread)) })
    }

    /// See [`DecodeSessions::open`].
    pub fn open(&self, key: SessionKey) -> Result<(), SessionError> {
        self.ask_now(move |worker| worker.sessions.open(&key, Instant::now()))?
    }

    /// See [`DecodeSessions::close`].
    pub fn close(&self, key: SessionKey) -> Result<(), SessionError> {
        self.ask_now(move |worker| worker.sessions.close(&key))?
    }

    /// See [`DecodeSessions::position`].
    pub fn position(&self, key: SessionKey) -> Result<usize, SessionError> {
        self.ask_now(move |worker| worker.sessions.position(&key, Instant::now()))?
    }

    /// See [`DecodeSessions::decode`]; runs together with steps of other callers.
    pub fn decode(&self, step: DecodeStep) -> Result<Vec<f32>, SessionError> {
        self.ask(|answer| Request::Decode(Waiting { step, answer }))?
    }

    /// What sessions take.
    pub fn usage(&self) -> Result<SessionUsage, SessionError> {
        self.ask_now(|worker| SessionUsage {
            sessions: worker.sessions.count(),
            cache_bytes: worker.sessions.bytes(),
            steps: worker.steps,
            batches: worker.batches,
        })
    }

    fn ask_now<A: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Worker) -> A + Send + 'static,
    ) -> Result<A, SessionError> {
        self.ask(|answer| {
            Request::Now(Box::new(move |worker| {
                // Whoever no longer waits for an answer has gone away.
                let _gone = answer.send(run(worker));
            }))
        })
    }

    fn ask<A>(&self, request: impl FnOnce(Sender<A>) -> Request) -> Result<A, SessionError> {
        let (answer, waiting) = mpsc::channel();
        self.requests.send(request(answer)).map_err(|_| SessionError::ShutDown)?;
        waiting.recv().map_err(|_| SessionError::ShutDown)
    }
}

/// The thread.
struct Worker {
    sessions: DecodeSessions,
    gathering: Gathering,
    inbox: Receiver<Request>,
    short: VecDeque<Waiting>,
    long: VecDeque<Waiting>,
    steps: u64,
    batches: u64,
}

impl Worker {
    fn new(sessions: DecodeSessions, gathering: Gathering, inbox: Receiver<Request>) -> Self {
        let (short, long) = (VecDeque::new(), VecDeque::new());
        Self { sessions, gathering, inbox, short, long, steps: 0, batches: 0 }
    }

    /// Answers until all callers are gone.
    fn run(&mut self) {
        loop {
            if self.short.is_empty() && self.long.is_empty() {
                match self.inbox.recv_timeout(SWEEP) {
                    Ok(request) => self.receive(request),
                    Err(RecvTimeoutError::Timeout) => {
                        self.sessions.expire(Instant::now());
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            self.gather();
            let batch = self.short.len().min(self.gathering.most);
            let batch = self.short.drain(..batch).collect();
            self.decode(batch);
            if let Some(long) = self.long.pop_front() {
                self.decode(vec![long]);
            }
        }
    }

    /// Takes what has come, and waits a moment for active sessions if one of them is waiting.
    fn gather(&mut self) {
        while let Ok(request) = self.inbox.try_recv() {
            self.receive(request);
        }
        if self.short.is_empty() || !self.long.is_empty() {
            return;
        }
        let now = Instant::now();
        let recent = now.checked_sub(RECENT).unwrap_or(now);
        let active = self.sessions.used_since(recent).min(self.gathering.most);
        let until = now + self.gathering.window;
        while self.short.len() < active {
            let left = until.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left) {
                Ok(request) => self.receive(request),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Answers at once what costs nothing, and queues the rest.
    fn receive(&mut self, request: Request) {
        match request {
            Request::Now(run) => run(self),
            Request::Decode(waiting) if waiting.step.rows.len() > self.sessions.width() => {
                self.long.push_back(waiting);
            }
            Request::Decode(waiting) => self.short.push_back(waiting),
        }
    }

    fn decode(&mut self, batch: Vec<Waiting>) {
        if batch.is_empty() {
            return;
        }
        self.steps += batch.len() as u64;
        self.batches += 1;
        let (steps, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.step, waiting.answer)).unzip();
        for (found, answer) in
            self.sessions.decode_many(&steps, Instant::now()).into_iter().zip(answers)
        {
            let _gone = answer.send(found);
        }
    }
}
