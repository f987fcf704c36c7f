//! The client's half of a cut model: embedding and first blocks below, last blocks and head above.
//!
//! Two tapes, one for each end. Between them rows leave and come back, so the backward pass crosses
//! where the forward pass did. Whatever is not crossed is not sent: where nothing below an end
//! learns, no gradient leaves it.

use std::ops::Range;

use fedra_compute::{Device, Dropout, Gradients, Params, Tape, Tensor, Value};
use fedra_engine::{RowPrivacy, SplitConfig};
use fedra_model::{Batch, Model, Reading};
use fedra_plan::{Crossing, Plan, Side};
use fedra_seed::{SecretKey, Seed};
use fedra_wire::{ExpectedFrame, FrameKind, HiddenFrame, RowEncoding, RowValues};

use crate::error::{ClientError, Result};
use crate::labelled_batch::LabelledBatch;
use crate::objective::Objective;
use crate::split::accounted::AccountedNoise;
use crate::split::noise::{Occasion, Perturbation};
use crate::split::peer::Peer;
use crate::split::rows::{Scaled, rows_of, tensor_of};

/// A client's ends with a connection to the middle.
pub(crate) struct ClientSegments<'a> {
    pub(super) model: &'a Model,
    pub(super) device: &'a Device,
    /// The server's blocks.
    pub middle: Range<usize>,
    pub(super) encoding: RowEncoding,
    noise: RowNoise,
    /// Names this connection among all of the client's whose noise begins at the same seed.
    occasion: Seed,
    peer: Box<dyn Peer + 'a>,
    pub(super) step: u32,
}

/// What is done to rows before they leave.
#[derive(Clone, Debug)]
pub(crate) enum RowNoise {
    None,
    /// An empirical perturbation.
    Perturbed(Perturbation),
    /// Noise that a ledger counts.
    Accounted(AccountedNoise),
}

impl RowNoise {
    /// The noise of a split; a secret key is needed where a ledger counts it.
    pub fn of(split: &SplitConfig, seed: Seed, key: impl FnOnce() -> SecretKey) -> Result<Self> {
        Ok(match (split.noise, split.privacy) {
            (None, RowPrivacy::Empirical) => Self::None,
            (Some(noise), RowPrivacy::Empirical) => Self::Perturbed(Perturbation::new(noise, seed)),
            (noise, RowPrivacy::Accounted { .. }) => {
                Self::Accounted(AccountedNoise::new(noise, key())?)
            }
        })
    }

    /// Hidden states as they leave, in this step of the connection.
    fn hidden(
        &self,
        (rows, width): (RowValues, usize),
        (occasion, step): (Occasion<'_>, u32),
    ) -> (RowValues, Scaled) {
        if matches!(self, Self::None) {
            return (rows, Scaled::Nothing);
        }
        let before = rows.into_f32();
        let mut rows = before.clone();
        let factors = match self {
            Self::None => Vec::new(),
            Self::Perturbed(noise) => noise.hidden((&mut rows, width), occasion),
            Self::Accounted(noise) => noise.hidden((&mut rows, width), step),
        };
        (rows.into(), Scaled::Rows { before, factors })
    }

    /// The same of gradients.
    fn gradient(
        &self,
        (rows, width): (RowValues, usize),
        (occasion, step): (Occasion<'_>, u32),
    ) -> RowValues {
        if matches!(self, Self::None) {
            return rows;
        }
        let mut rows = rows.into_f32();
        match self {
            Self::None => {}
            Self::Perturbed(noise) => noise.gradient((&mut rows, width), occasion),
            Self::Accounted(noise) => noise.gradient((&mut rows, width), step),
        }
        rows.into()
    }
}

/// A batch on its way through both halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing<'a> {
    pub batch: &'a Batch,
    /// Names each sequence's example, for noise that is drawn once.
    pub examples: &'a [u64],
}

/// A batch of a step.
#[derive(Clone, Copy)]
pub(crate) struct StepPart<'a> {
    pub question: &'a LabelledBatch,
    /// Names each sequence's example.
    pub examples: &'a [u64],
    /// What is minimised, and what the sum over all batches of the step is divided by.
    pub loss: (&'a Objective, StepDivisor),
    /// What is dropped at the client's ends.
    pub dropout: Option<&'a Dropout>,
    /// Batches of the step behind this one.
    pub follow: usize,
}

/// What the loss of a step is divided by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepDivisor {
    /// The weights of all its targets.
    pub targets: f64,
    /// Its sequences: what counts where each of them must count for itself.
    pub sequences: usize,
}

/// What one batch of a step gives a client.
pub(crate) struct CutStep {
    /// Absent where rows are accounted: it is what the examples say.
    pub loss: Option<f32>,
    /// Of the client's own parameters.
    pub gradients: Gradients,
    /// The squared norm of the server's gradients.
    pub elsewhere: f64,
}

impl<'a> ClientSegments<'a> {
    /// The ends of a model whose middle is behind a peer.
    pub fn new(
        (model, device): (&'a Model, &'a Device),
        (split, plan): (&SplitConfig, &Plan),
        (occasion, noise): (Seed, RowNoise),
        peer: Box<dyn Peer + 'a>,
    ) -> Option<Self> {
        let blocks = plan.cut().server_blocks()?;
        Some(Self {
            model,
            device,
            middle: usize::from(blocks.start)..usize::from(blocks.end),
            encoding: split.encoding,
            noise,
            occasion,
            peer,
            step: 0,
        })
    }

    /// Whether a ledger answers for what leaves: then nothing else may tell of single examples.
    pub fn are_accounted(&self) -> bool {
        matches!(self.noise, RowNoise::Accounted(_))
    }

    /// Hidden states behind the middle, for an answer that nothing is learnt from.
    pub fn answer(&mut self, params: &Params, passing: Passing<'_>) -> Result<Tensor> {
        let mut tape = Tape::new(self.device);
        let hidden = self.lower(&mut tape, params.frozen(), passing.batch)?;
        let (answer, _) = self.send_hidden(FrameKind::Score, &hidden.tensor, passing)?;
        self.step += 1;
        self.tensor(&answer.rows)
    }

    /// The loss of a batch, the gradients of the client's own parameters, and the server's part.
    pub fn learn(
        &mut self,
        (params, plan): (&Params, &Plan),
        part: StepPart<'_>,
    ) -> Result<CutStep> {
        let StepPart { question, examples, loss: (objective, divisor), dropout, follow } = part;
        let own = plan.trained_by(Side::Client);
        let weights = params.training(&own);
        let crossed = plan.gradient_crossings();
        let into_client = crossed.iter().any(|at| matches!(at, Crossing::IntoClient { .. }));
        let into_server = crossed.iter().any(|at| matches!(at, Crossing::IntoServer { .. }));

        let passing = Passing { batch: &question.batch, examples };
        let mut below = Tape::new(self.device).with_dropout(dropout.cloned());
        let hidden = self.lower(&mut below, weights, passing.batch)?;
        let (answer, scaled) = self.send_hidden(FrameKind::Forward, &hidden.tensor, passing)?;

        let mut above = Tape::new(self.device).with_dropout(dropout.cloned());
        let received = self.tensor(&answer.rows)?;
        let received = if into_client { above.input(received) } else { above.constant(received) };
        let start = (received.clone(), self.middle.end);
        let by_sequence = question.weights_by_sequence();
        let targets = if self.are_accounted() {
            // The mean over sequences of the mean over each one's own targets: so the gradient of a
            // sequence depends on no other one, whatever their labels.
            objective.part_by_sequence(question, &by_sequence, divisor.sequences.max(1) as f64)
        } else {
            objective.part(question, divisor.targets)
        };
        let loss = self.model.loss_from(&mut above, weights, start, passing.batch, targets)?;
        let found = loss.tensor.item();
        if !found.is_finite() && !self.are_accounted() {
            let (loss, gradients) = (Some(found), Gradients::default());
            return Ok(CutStep { loss, gradients, elsewhere: 0.0 });
        }
        let seed = [(&loss, Tensor::scalar(self.device, 1.0))];
        let mut gradients = above.backward(&seed)?;
        let mut elsewhere = 0.0;
        if into_client {
            let by_answer = gradients.of_input(&received).map(rows_of);
            let rows = by_answer.unwrap_or_else(|| vec![0.0; answer.rows.len()].into());
            let back = self.send_gradient(rows, passing, (into_server, follow))?;
            elsewhere = back.number;
            if into_server {
                let rows = scaled.undone(back.rows, self.model.width());
                gradients.add(below.backward(&[(&hidden, self.tensor(&rows)?)])?)?;
            }
        }
        self.step += 1;
        if !self.are_accounted() {
            return Ok(CutStep { loss: Some(found), gradients, elsewhere });
        }
        // That a loss is no number tells of its examples, and so would a client that stops there.
        let gradients = if found.is_finite() { gradients } else { Gradients::default() };
        Ok(CutStep { loss: None, gradients, elsewhere })
    }

    /// Tells the server by what it multiplies its gradients before its step.
    pub fn scale_step(&mut self, factor: f64) -> Result<()> {
        // It belongs to the step that has just been counted.
        let step = self.step - 1;
        let frame = HiddenFrame::of_number(FrameKind::Step, step, factor).encode(self.encoding)?;
        self.receive(frame, (&[FrameKind::Done], step), Some(0)).map(drop)
    }

    pub(super) fn lower(
        &self,
        tape: &mut Tape,
        weights: fedra_compute::Weights<'_>,
        batch: &Batch,
    ) -> Result<Value> {
        let hidden = self.model.embed(tape, weights, batch)?;
        let (range, all) = (0..self.middle.start, &Reading::All);
        Ok(self.model.run_blocks(tape, weights, hidden, batch.packing(), range, all)?)
    }

    pub(super) fn send_hidden(
        &mut self,
        kind: FrameKind,
        hidden: &Tensor,
        passing: Passing<'_>,
    ) -> Result<(HiddenFrame, Scaled)> {
        let (width, lengths) = (self.model.width(), passing.batch.packing().lengths());
        let occasion = (self.occasion(passing), self.step);
        let (rows, scaled) = self.noise.hidden((rows_of(hidden), width), occasion);
        let (step, lengths, count) = (self.step, lengths.to_vec(), rows.len() / width);
        let frame = HiddenFrame { kind, step, lengths, width, rows, number: 0.0 };
        let bytes = frame.encode(self.encoding)?;
        drop(frame);
        let answer = self.receive(bytes, (&[FrameKind::Hidden], self.step), Some(count))?;
        self.check_rows(&answer, count)?;
        Ok((answer, scaled))
    }

    pub(super) fn send_gradient(
        &mut self,
        rows: RowValues,
        passing: Passing<'_>,
        (comes_back, follow): (bool, usize),
    ) -> Result<HiddenFrame> {
        let width = self.model.width();
        let occasion = (self.occasion(passing), self.step);
        let rows = self.noise.gradient((rows, width), occasion);
        let count = rows.len() / width;
        let frame = HiddenFrame::of_rows(FrameKind::Backward, self.step, (width, rows));
        let frame = HiddenFrame { number: follow as f64, ..frame };
        let bytes = frame.encode(self.encoding)?;
        let back = self.receive(bytes, (&[FrameKind::Gradient], self.step), Some(count))?;
        if comes_back {
            self.check_rows(&back, count)?;
        }
        Ok(back)
    }

    pub(super) fn receive(
        &mut self,
        frame: Vec<u8>,
        (kinds, step): (&[FrameKind], u32),
        rows: Option<usize>,
    ) -> Result<HiddenFrame> {
        let bytes = self.exchange(frame)?;
        let expected = ExpectedFrame {
            kinds,
            encoding: self.encoding,
            step: Some(step),
            width: self.model.width(),
            rows,
            most_rows: 0,
            longest: self.model.longest(),
        };
        Ok(HiddenFrame::decode(&bytes, &expected)?)
    }

    pub(super) fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        let answer = self.peer.exchange(frame)?;
        if let RowNoise::Accounted(noise) = &mut self.noise {
            noise.hear(&answer);
        }
        Ok(answer)
    }

    fn check_rows(&self, frame: &HiddenFrame, expected: usize) -> Result<()> {
        let found = frame.rows.len() / self.model.width();
        if found == expected {
            return Ok(());
        }
        Err(ClientError::peer(format!("the server answered {found} rows, expected {expected}")))
    }

    fn occasion<'p>(&self, passing: Passing<'p>) -> Occasion<'p> {
        let message = self.occasion.with(u64::from(self.step));
        Occasion { message, examples: passing.examples, lengths: passing.batch.packing().lengths() }
    }

    pub(super) fn tensor(&self, rows: &RowValues) -> Result<Tensor> {
        tensor_of(self.device, rows, self.model.width())
    }
}
