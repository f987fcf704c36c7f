//! One client's turn at the server's half: rows forward, gradients back, and the server's own step.
//!
//! A turn owns the numbers that it trains. What it knows of a batch is rows and lengths.

use std::ops::Range;

use fedra_compute::{Device, Gradients, Optimiser, Params, Tape, Tensor, Value};
use fedra_engine::{LocalRule, Schedule, StepPlace, TrainRequest};
use fedra_model::{Model, Packing, Reading};
use fedra_plan::{Crossing, Round, Scope, Side};
use fedra_wire::{ExpectedFrame, FrameKind, HiddenFrame, RowEncoding, RowValues};

use crate::correction::Correction;
use crate::dropout::RoundDropout;
use crate::error::{ClientError, Result};
use crate::split::rows::{rows_of, tensor_of};
use crate::trainer::optimiser;

/// Most rows of a frame: no batch of a sane client has more, and memory grows with them.
pub const MOST_ROWS: usize = 1 << 16;

/// What it takes to compute the server's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks<'a> {
    pub model: &'a Model,
    pub device: &'a Device,
    pub encoding: RowEncoding,
}

/// The numbers of the middle and what its optimiser remembers.
#[derive(Clone, Debug)]
pub(crate) struct Learner {
    pub params: Params,
    pub start: Params,
    pub optimiser: Optimiser,
}

/// How a client's turn goes.
#[derive(Debug)]
pub(crate) struct Turn {
    pub range: Range<usize>,
    /// What of the server's blocks learns.
    pub scope: Scope,
    /// Whether gradients come from the client, and whether they go back to it.
    pub crosses: Crosses,
    clips: bool,
    /// How far a step is pulled back to where the round began, if it is.
    proximal: Option<f32>,
    schedule: Schedule,
    dropout: RoundDropout,
    /// Sequences of this step so far.
    sequences: usize,
    round: Round,
    /// The client's steps in the round.
    steps: u64,
    /// Exchanges so far: a step has one for each part that its gradient is summed from.
    pub step: u32,
    /// Steps so far.
    pub taken: u32,
    /// The gradients of the parts of a step that is not complete.
    sum: Option<Gradients>,
    phase: Phase,
}

/// Where gradients cross in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crosses {
    /// Nowhere: all that learns is above the cut.
    Nowhere,
    /// Into the server alone: nothing below it learns.
    Upper,
    /// Through the server and back to the client.
    Both,
}

/// What a turn waits for.
#[derive(Debug)]
enum Phase {
    Rows,
    Gradient { pass: Box<Pass>, rows: usize },
    Factor { gradients: Gradients },
}

/// A forward pass that was recorded.
#[derive(Debug)]
pub(crate) struct Pass {
    pub tape: Tape,
    pub input: Value,
    pub output: Value,
}

/// What follows from the gradient by the output of a pass.
pub(crate) struct Derived {
    pub gradients: Gradients,
    /// The gradient by the rows that entered; empty where nobody asks.
    pub below: RowValues,
    pub squares: f64,
}

impl Derived {
    pub fn is_finite(&self) -> bool {
        self.squares.is_finite() && self.below.is_finite()
    }
}

impl Pass {
    /// Goes back through the blocks.
    pub fn derive(self, by_output: Tensor) -> Result<Derived> {
        let gradients = self.tape.backward(&[(&self.output, by_output)])?;
        let below = gradients.of_input(&self.input).map(rows_of);
        let squares = gradients.sum_of_squares();
        let below = below.unwrap_or_else(|| Vec::new().into());
        Ok(Derived { gradients, below, squares })
    }
}

impl Learner {
    /// Starts a round from these numbers.
    pub fn new(device: &Device, params: &Params, request: &TrainRequest) -> Result<Self> {
        let optimiser = optimiser(device, &request.work)?;
        Ok(Self { params: params.clone(), start: params.clone(), optimiser })
    }
}

impl Turn {
    /// A turn for a request whose plan has a cut, to a client that takes so many steps.
    pub fn new(request: &TrainRequest, steps: u64) -> Result<Self> {
        let plan = &request.plan;
        let Some(blocks) = plan.cut().server_blocks() else {
            let reason = "found a plan without a cut, expected one of a cut model";
            return Err(ClientError::peer(reason));
        };
        let crossed = plan.gradient_crossings();
        let back = crossed.iter().any(|at| matches!(at, Crossing::IntoServer { .. }));
        let crosses = match (crossed.is_empty(), back) {
            (true, _) => Crosses::Nowhere,
            (false, false) => Crosses::Upper,
            (false, true) => Crosses::Both,
        };
        let proximal = match request.work.local {
            LocalRule::Proximal { mu } => Some(mu),
            LocalRule::Plain | LocalRule::ControlVariate | LocalRule::Dynamic { .. } => None,
        };
        Ok(Self {
            range: usize::from(blocks.start)..usize::from(blocks.end),
            scope: plan.trained_by(Side::Server),
            crosses,
            clips: request.work.clip.is_some(),
            proximal,
            schedule: request.work.schedule,
            dropout: RoundDropout::new(&request.work, request.seed, plan),
            sequences: 0,
            round: request.round,
            steps,
            step: 0,
            taken: 0,
            sum: None,
            phase: Phase::Rows,
        })
    }

    /// The same turn before its first frame.
    pub fn again(&self) -> Self {
        Self {
            range: self.range.clone(),
            scope: self.scope.clone(),
            crosses: self.crosses,
            clips: self.clips,
            proximal: self.proximal,
            schedule: self.schedule,
            dropout: self.dropout,
            sequences: 0,
            round: self.round,
            steps: self.steps,
            step: 0,
            taken: 0,
            sum: None,
            phase: Phase::Rows,
        }
    }

    /// Answers a frame.
    pub fn exchange(
        &mut self,
        blocks: Blocks<'_>,
        learner: &mut Learner,
        bytes: &[u8],
    ) -> Result<Vec<u8>> {
        match std::mem::replace(&mut self.phase, Phase::Rows) {
            Phase::Rows => self.forward(blocks, learner, bytes),
            Phase::Gradient { pass, rows } => self.backward(blocks, learner, (*pass, rows), bytes),
            Phase::Factor { gradients } => self.factor(blocks, learner, (gradients, bytes)),
        }
    }

    /// Whether the next frame begins a step.
    pub const fn is_between_steps(&self) -> bool {
        matches!(self.phase, Phase::Rows) && self.sum.is_none()
    }

    fn forward(&mut self, blocks: Blocks<'_>, learner: &Learner, bytes: &[u8]) -> Result<Vec<u8>> {
        let frame = blocks.read(bytes, (&[FrameKind::Forward], self.step), None)?;
        let rows = blocks.tensor(&frame.rows)?;
        let sequences = frame.lengths.len();
        let pass = self.run(blocks, learner, (rows, frame.lengths))?;
        self.sequences += sequences;
        let rows = rows_of(&pass.output.tensor);
        let width = frame.width;
        let answer = HiddenFrame::of_rows(FrameKind::Hidden, self.step, (width, rows));
        if self.crosses == Crosses::Nowhere {
            // Nobody says where a step ends, and nothing here learns: each exchange is one.
            (self.step, self.taken, self.sequences) = (self.step + 1, self.taken + 1, 0);
        } else {
            self.phase = Phase::Gradient { pass: Box::new(pass), rows: frame.rows.len() / width };
        }
        Ok(answer.encode(blocks.encoding)?)
    }

    /// Runs rows through the blocks, recorded as far as something learns.
    pub fn run(
        &self,
        blocks: Blocks<'_>,
        learner: &Learner,
        (rows, lengths): (Tensor, Vec<usize>),
    ) -> Result<Pass> {
        let places = self.sequences..self.sequences + lengths.len();
        let mut tape = self.dropout.tape(Tape::new(blocks.device), self.taken, places);
        let input = match self.crosses {
            Crosses::Both => tape.input(rows),
            Crosses::Nowhere | Crosses::Upper => tape.constant(rows),
        };
        let packing = Packing::new(lengths)?;
        let weights = learner.params.training(&self.scope);
        let range = self.range.clone();
        let (start, all) = (input.clone(), &Reading::All);
        let output = blocks.model.run_blocks(&mut tape, weights, start, &packing, range, all)?;
        Ok(Pass { tape, input, output })
    }

    fn backward(
        &mut self,
        blocks: Blocks<'_>,
        learner: &mut Learner,
        (pass, rows): (Pass, usize),
        bytes: &[u8],
    ) -> Result<Vec<u8>> {
        let frame = blocks.read(bytes, (&[FrameKind::Backward], self.step), Some(rows))?;
        let Derived { mut gradients, below, mut squares } =
            pass.derive(blocks.tensor(&frame.rows)?)?;
        if let Some(mut sum) = self.sum.take() {
            sum.add(gradients)?;
            squares = sum.sum_of_squares();
            gradients = sum;
        }
        check_squares(squares)?;
        let answer = HiddenFrame {
            number: squares,
            ..HiddenFrame::of_rows(FrameKind::Gradient, self.step, (frame.width, below))
        };
        let answer = answer.encode(blocks.encoding)?;
        if frame.number > 0.0 {
            // More parts of this step are to come.
            self.sum = Some(gradients);
            self.step += 1;
        } else if self.clips {
            self.phase = Phase::Factor { gradients };
        } else {
            self.learn(learner, &mut gradients)?;
        }
        Ok(answer)
    }

    fn factor(
        &mut self,
        blocks: Blocks<'_>,
        learner: &mut Learner,
        (mut gradients, bytes): (Gradients, &[u8]),
    ) -> Result<Vec<u8>> {
        let frame = blocks.read(bytes, (&[FrameKind::Step], self.step), Some(0))?;
        if !(0.0..=1.0).contains(&frame.number) {
            let reason = format!("a step is scaled by {}, expected 0 to 1", frame.number);
            return Err(ClientError::peer(reason));
        }
        let step = self.step;
        if frame.number < 1.0 {
            gradients.scale(frame.number as f32);
        }
        self.learn(learner, &mut gradients)?;
        Ok(HiddenFrame::of_number(FrameKind::Done, step, 0.0).encode(blocks.encoding)?)
    }

    /// Takes a step with gradients and counts it.
    pub fn learn(&mut self, learner: &mut Learner, gradients: &mut Gradients) -> Result<()> {
        if let Some(mu) = self.proximal {
            Correction::Proximal { mu }.apply(gradients, (&learner.params, &learner.start))?;
        }
        let place = StepPlace { round: self.round, step: self.taken, steps: self.steps };
        learner.optimiser.schedule(self.schedule.factor(place))?;
        learner.optimiser.step(&mut learner.params, gradients)?;
        (self.step, self.taken, self.sequences) = (self.step + 1, self.taken + 1, 0);
        Ok(())
    }
}

/// Finite rows may still be large enough that their product is not; nobody may learn from that.
pub(crate) fn check_squares(squares: f64) -> Result<()> {
    if squares.is_finite() {
        return Ok(());
    }
    Err(ClientError::peer(format!(
        "the server's gradient has the squared norm {squares}, expected a finite number"
    )))
}

impl Blocks<'_> {
    /// Reads a frame from a client and trusts nothing in it.
    pub fn read(
        &self,
        bytes: &[u8],
        (kinds, step): (&[FrameKind], u32),
        rows: Option<usize>,
    ) -> Result<HiddenFrame> {
        let expected = ExpectedFrame {
            kinds,
            encoding: self.encoding,
            step: Some(step),
            width: self.model.width(),
            rows,
            most_rows: MOST_ROWS,
            longest: self.model.longest(),
        };
        let frame = HiddenFrame::decode(bytes, &expected)?;
        let found = frame.rows.len() / self.model.width();
        match rows {
            Some(expected) if found != expected => {
                Err(ClientError::peer(format!("a frame of {found} rows, expected {expected}")))
            }
            Some(_) | None => Ok(frame),
        }
    }

    /// Rows as a tensor.
    pub fn tensor(&self, rows: &RowValues) -> Result<Tensor> {
        tensor_of(self.device, rows, self.model.width())
    }
}
