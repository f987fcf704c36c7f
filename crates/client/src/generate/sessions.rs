//! The server's half of cut decoders: many sessions over one copy of the middle blocks.
//!
//! A session is the keys and values of one sequence, known by its owner and a number. Whoever names
//! another owner's session is told what a stranger is told. A step may continue where the session is
//! or repeat the last step, whose answer may have been lost: it is then cut back and computed again,
//! which gives the same bits and needs no memory for old answers. Any other position is refused, so a
//! frame that arrives twice or late changes nothing. Time is an argument; nothing here has a clock.

use crate::Result;
use crate::session_error::SessionError;
use fedra_compute::{Device, Params, Tape, Tensor};
use fedra_model::{KeyValueCache, Model, ModelError, Packing};
use fedra_plan::Layer;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Sessions over some blocks of a decoder.
#[derive(Debug)]
pub struct DecodeSessions {
    device: Device,
    model: Model,
    /// The weights of these blocks, and no others.
    pub params: Params,
    /// The blocks that sessions run through.
    pub blocks: Range<usize>,
    limits: SessionLimits,
    sessions: BTreeMap<SessionKey, Session>,
}

/// Who a session belongs to, and which one it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionKey {
    /// Who opened it, as the connection proves it.
    pub owner: String,
    /// A number that the owner chose.
    pub id: u64,
}

/// What sessions may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Sessions of one owner.
    pub per_owner: usize,
    /// Sessions of all.
    pub total: usize,
    /// Bytes of all caches.
    pub cache_bytes: usize,
    /// Tokens of a sequence; the model's longest is a limit too.
    pub context: usize,
    /// How long a session may rest before it is dropped.
    pub idle: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            per_owner: 16,
            total: 1024,
            cache_bytes: 4 << 30,
            context: usize::MAX,
            idle: Duration::from_mins(10),
        }
    }
}

/// Rows of one session to run through the blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodeStep {
    /// The session.
    pub key: SessionKey,
    /// The position of the first row.
    pub position: usize,
    /// Hidden states in front of the blocks, row after row.
    pub rows: Vec<f32>,
    /// Which rows are wanted back.
    pub answer: Answer,
}

/// Which rows of a step are wanted back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Every one, because blocks behind the middle have a cache too.
    All,
    /// The last one, because only the head reads it.
    Last,
}

/// One sequence.
#[derive(Debug)]
struct Session {
    cache: KeyValueCache,
    /// Where the last step began.
    last: usize,
    used: Instant,
}

impl DecodeSessions {
    /// No session yet, over some blocks of a model; of the parameters only those of the blocks are
    /// kept. Refuses encoders and blocks that the model does not have.
    pub fn new(
        device: &Device,
        (model, params): (Model, &Params),
        blocks: Range<usize>,
        limits: SessionLimits,
    ) -> Result<Self> {
        KeyValueCache::new(device, &model, blocks.clone(), 0)?;
        let here = |layer: Layer| layer.block().is_some_and(|block| blocks.contains(&block.into()));
        let params = params.iter().filter(|(id, _)| here(id.layer));
        let params = params.map(|(id, tensor)| (id, tensor.clone())).collect();
        let device = device.clone();
        Ok(Self { device, model, params, blocks, limits, sessions: BTreeMap::new() })
    }

    /// Width of a row.
    pub fn width(&self) -> usize {
        self.model.width()
    }

    /// Open sessions.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Sessions that were used since a moment.
    pub fn used_since(&self, moment: Instant) -> usize {
        self.sessions.values().filter(|session| session.used >= moment).count()
    }

    /// Bytes of all caches.
    pub fn bytes(&self) -> usize {
        self.sessions.values().map(|session| session.cache.bytes()).sum()
    }

    /// Begins an empty session. It takes memory only as rows come.
    pub fn open(&mut self, key: &SessionKey, now: Instant) -> Result<(), SessionError> {
        self.expire(now);
        if self.sessions.contains_key(key) {
            return Err(SessionError::open(key.id));
        }
        let (limits, all) = (self.limits, self.sessions.len());
        let theirs = self.sessions.keys().filter(|other| other.owner == key.owner).count();
        for (whose, found, limit) in
            [("your", theirs, limits.per_owner), ("all", all, limits.total)]
        {
            if found >= limit {
                return Err(SessionError::Busy(format!(
                    "{whose} sessions: found {found} open, expected fewer than {limit}; close one \
                     or wait"
                )));
            }
        }
        let cache = KeyValueCache::new(&self.device, &self.model, self.blocks.clone(), 0)
            .map_err(|error| SessionError::refused(key.id, error))?;
        self.sessions.insert(key.clone(), Session { cache, last: 0, used: now });
        Ok(())
    }

    /// How many rows a session has: where its owner may go on.
    pub fn position(&mut self, key: &SessionKey, now: Instant) -> Result<usize, SessionError> {
        self.expire(now);
        let session = self.session(key)?;
        session.used = now;
        Ok(session.cache.len())
    }

    /// Ends a session.
    pub fn close(&mut self, key: &SessionKey) -> Result<(), SessionError> {
        let closed = self.sessions.remove(key);
        closed.map(drop).ok_or(SessionError::Unknown { id: key.id })
    }

    /// Drops sessions that have rested too long; returns which.
    pub fn expire(&mut self, now: Instant) -> Vec<SessionKey> {
        let idle = self.limits.idle;
        let rested = |session: &Session| now.saturating_duration_since(session.used) > idle;
        let gone: Vec<_> =
            self.sessions.iter().filter(|(_, s)| rested(s)).map(|(key, _)| key.clone()).collect();
        for key in &gone {
            self.sessions.remove(key);
        }
        gone
    }

    /// One step.
    pub fn decode(&mut self, step: &DecodeStep, now: Instant) -> Result<Vec<f32>, SessionError> {
        let mut answers = self.decode_many(std::slice::from_ref(step), now);
        answers.pop().unwrap_or(Err(SessionError::Unknown { id: step.key.id }))
    }

    /// Steps of several sessions; those of one row run together as one batch. A step that is refused
    /// fails alone, and the bits are those of steps that run alone. Steps of one session run in order.
    pub fn decode_many(
        &mut self,
        steps: &[DecodeStep],
        now: Instant,
    ) -> Vec<Result<Vec<f32>, SessionError>> {
        self.expire(now);
        let mut answers: Vec<Option<Result<Vec<f32>, SessionError>>> = vec![None; steps.len()];
        let mut left: Vec<usize> = (0..steps.len()).collect();
        while !left.is_empty() {
            // The first step of each session that is still to be taken.
            let mut seen = BTreeSet::new();
            let (now_due, later) = left.into_iter().partition(|&i| seen.insert(&steps[i].key));
            left = later;
            self.take(steps, now_due, &mut answers, now);
        }
        let taken = |answer: Option<_>| answer.expect("every step was taken once");
        answers.into_iter().map(taken).collect()
    }

    /// Steps of different sessions.
    fn take(
        &mut self,
        steps: &[DecodeStep],
        due: Vec<usize>,
        answers: &mut [Option<Result<Vec<f32>, SessionError>>],
        now: Instant,
    ) {
        let mut together = Vec::new();
        for number in due {
            let step = &steps[number];
            match self.admit(step, now) {
                Err(error) => answers[number] = Some(Err(error)),
                // Long steps would make the short ones wait for each other's attention.
                Ok(()) if step.rows.len() > self.width() => {
                    answers[number] = Some(self.run_one(step));
                }
                Ok(()) => together.push(number),
            }
        }
        match self.run(&together.iter().map(|&number| &steps[number]).collect::<Vec<_>>()) {
            Ok(rows) => {
                for (number, rows) in together.into_iter().zip(rows) {
                    answers[number] = Some(self.accept(&steps[number], rows));
                }
            }
            // The caches are as they were: whatever is wrong with one is found alone.
            Err(_) => {
                for number in together {
                    answers[number] = Some(self.run_one(&steps[number]));
                }
            }
        }
    }

    /// Checks a step and cuts its session back if it repeats the last one.
    fn admit(&mut self, step: &DecodeStep, now: Instant) -> Result<(), SessionError> {
        let (id, width) = (step.key.id, self.width());
        let (limit, cache_limit) =
            (self.limits.context.min(self.model.longest()), self.limits.cache_bytes);
        let everything = self.bytes();
        let session = self.session(&step.key)?;
        let rows = step.rows.len() / width;
        if rows == 0 || step.rows.len() != rows * width {
            let found = step.rows.len();
            let reason = format!("found {found} numbers, expected rows of {width}, at least one");
            return Err(SessionError::refused(id, reason));
        }
        let (found, expected) = (step.position, session.cache.len());
        if found != expected && found != session.last {
            let reason = format!("found a step at position {found}, expected {expected}");
            return Err(SessionError::refused(id, reason));
        }
        check_finite(id, &step.rows, width, "in front of")?;
        let tokens = found.saturating_add(rows);
        if tokens > limit {
            let reason = format!("found {tokens} tokens, expected at most {limit}");
            return Err(SessionError::refused(id, reason));
        }
        let more = tokens.saturating_sub(expected);
        let found = everything - session.cache.bytes() + session.cache.bytes_with(more);
        if more > 0 && found > cache_limit {
            return Err(SessionError::Busy(format!(
                "session {id}: found {found} bytes of caches needed by all sessions, expected at \
                 most {cache_limit}; try again later"
            )));
        }
        session.used = now;
        session.cache.truncate(step.position);
        session.last = step.position;
        Ok(())
    }

    fn run_one(&mut self, step: &DecodeStep) -> Result<Vec<f32>, SessionError> {
        let rows = self.run(&[step]).map_err(|error| SessionError::refused(step.key.id, error))?;
        let rows = rows.into_iter().next().unwrap_or_default();
        self.accept(step, rows)
    }

    /// Runs admitted steps of different sessions as one batch.
    fn run(&mut self, steps: &[&DecodeStep]) -> Result<Vec<Vec<f32>>, ModelError> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let width = self.width();
        let lengths: Vec<usize> = steps.iter().map(|step| step.rows.len() / width).collect();
        let offsets = steps.iter().map(|step| step.position).collect();
        let packing = Packing::new(lengths.clone())?.with_offsets(offsets)?;
        // Caches come in the order of sessions, rows in the order of steps.
        let places: BTreeMap<&SessionKey, usize> =
            steps.iter().enumerate().map(|(place, step)| (&step.key, place)).collect();
        let mut caches: Vec<(usize, &mut KeyValueCache)> = self
            .sessions
            .iter_mut()
            .filter_map(|(key, session)| Some((*places.get(key)?, &mut session.cache)))
            .collect();
        caches.sort_unstable_by_key(|(place, _)| *place);
        let mut caches: Vec<_> = caches.into_iter().map(|(_, cache)| cache).collect();
        let rows: Vec<f32> = steps.iter().flat_map(|step| &step.rows).copied().collect();
        let hidden = Tensor::from_slice(&self.device, packing.tokens(), width, &rows)?;
        let mut tape = Tape::new(&self.device);
        let given = (tape.constant(hidden), &packing);
        let hidden = self.model.decode(&mut tape, self.params.frozen(), given, &mut caches)?;
        let mut all = &hidden.tensor.to_host()[..];
        let mut each = Vec::with_capacity(steps.len());
        for length in lengths {
            let (now, later) = all.split_at(length * width);
            each.push(now.to_vec());
            all = later;
        }
        Ok(each)
    }

    /// The answer of a step that was run; one that is no number undoes the step.
    fn accept(&mut self, step: &DecodeStep, rows: Vec<f32>) -> Result<Vec<f32>, SessionError> {
        let width = self.width();
        if let Err(error) = check_finite(step.key.id, &rows, width, "behind") {
            self.session(&step.key)?.cache.truncate(step.position);
            return Err(error);
        }
        Ok(match step.answer {
            Answer::All => rows,
            Answer::Last => rows[rows.len() - width..].to_vec(),
        })
    }

    fn session(&mut self, key: &SessionKey) -> Result<&mut Session, SessionError> {
        self.sessions.get_mut(key).ok_or(SessionError::Unknown { id: key.id })
    }
}

fn check_finite(
    id: u64,
    rows: &[f32],
    width: usize,
    place: &'static str,
) -> Result<(), SessionError> {
    let Some(at) = rows.iter().position(|x| !x.is_finite()) else { return Ok(()) };
    let (found, row) = (rows[at], at / width);
    let reason = format!("found {found} in row {row} {place} the blocks, expected finite numbers");
    Err(SessionError::refused(id, reason))
}
