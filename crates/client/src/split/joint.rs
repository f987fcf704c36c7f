//! One server step for all clients at once: their rows lie end to end, in client order.
//!
//! A step waits until every client that takes part has sent its frame. A client that leaves is not
//! waited for; one whose frame is refused is out of the round, and the others go on. The server's
//! gradient is the mean of the clients' own, so that a step is as long as one client's.
//!
//! Rows that are finite may still overflow on their way. Whose rows do is expelled, and the step is
//! computed again without them: the others' numbers are the same to the bit.

use std::collections::{BTreeMap, BTreeSet};

use fedra_wire::{ClientId, FrameKind, HiddenFrame};

use crate::error::{ClientError, Result};
use crate::split::turn::{Blocks, Crosses, Derived, Learner, Pass, Turn, check_squares};

/// The clients of a round that step together.
#[derive(Debug, Default)]
pub(crate) struct Joint {
    /// Who still takes part.
    here: BTreeSet<ClientId>,
    /// Frames that wait for the others'.
    waiting: BTreeMap<ClientId, Vec<u8>>,
    /// Answers that wait to be fetched.
    answers: BTreeMap<ClientId, Result<Vec<u8>>>,
    /// The pass whose gradient is awaited.
    pass: Option<Recorded>,
    /// Whether a step has been taken.
    pub begun: bool,
}

/// A pass of everybody's rows.
#[derive(Debug)]
struct Recorded {
    pass: Pass,
    /// Which of its rows are whose.
    spans: Vec<Span>,
}

/// A client's share of a pass.
#[derive(Clone, Debug)]
struct Span {
    client: ClientId,
    rows: usize,
    lengths: Vec<usize>,
}

impl Joint {
    /// A round of these clients.
    pub fn of(clients: impl IntoIterator<Item = ClientId>) -> Self {
        Self { here: clients.into_iter().collect(), ..Self::default() }
    }

    /// Takes a client's frame; says whether it takes part in the step.
    pub fn put(&mut self, client: ClientId, bytes: Vec<u8>) -> bool {
        if !self.here.contains(&client) || self.waiting.contains_key(&client) {
            return false;
        }
        self.waiting.insert(client, bytes);
        true
    }

    /// The answer to a client's frame, once it is there.
    pub fn fetch(&mut self, client: ClientId) -> Option<Result<Vec<u8>>> {
        self.answers.remove(&client)
    }

    /// A client takes no further part.
    pub fn leave(&mut self, client: ClientId) {
        self.here.remove(&client);
        self.waiting.remove(&client);
    }

    /// A client takes part, from its first frame on.
    pub fn enter(&mut self, client: ClientId) {
        self.here.insert(client);
        self.waiting.remove(&client);
        self.answers.remove(&client);
    }

    /// Whether everybody's frame is there.
    pub fn is_complete(&self) -> bool {
        !self.waiting.is_empty() && self.here.iter().all(|one| self.waiting.contains_key(one))
    }

    /// Takes the step that everybody has sent a frame for.
    pub fn run(&mut self, blocks: Blocks<'_>, turn: &mut Turn, learner: &mut Learner) {
        self.begun = true;
        let frames = std::mem::take(&mut self.waiting);
        let clients: Vec<ClientId> = frames.keys().copied().collect();
        let outcome = match self.pass.take() {
            None => self.forward(blocks, (turn, learner), &frames),
            Some(pass) => self.backward(blocks, (turn, learner), (pass, &frames)),
        };
        if let Err(error) = outcome {
            let reason = format!("the step of all clients failed: {error}");
            for client in clients.into_iter().filter(|client| self.here.contains(client)) {
                self.answers.entry(client).or_insert(Err(ClientError::peer(&reason)));
            }
        }
    }

    fn forward(
        &mut self,
        blocks: Blocks<'_>,
        (turn, learner): (&mut Turn, &Learner),
        frames: &BTreeMap<ClientId, Vec<u8>>,
    ) -> Result<()> {
        let (step, width) = (turn.step, blocks.model.width());
        loop {
            let (mut whole, mut all_lengths, mut spans) = (Vec::new(), Vec::new(), Vec::new());
            for (client, bytes) in frames {
                if !self.here.contains(client) {
                    continue;
                }
                match blocks.read(bytes, (&[FrameKind::Forward], step), None) {
                    Err(error) => self.expel(*client, error),
                    Ok(HiddenFrame { lengths, rows, .. }) => {
                        all_lengths.extend_from_slice(&lengths);
                        spans.push(Span { client: *client, rows: rows.len() / width, lengths });
                        whole.append(&mut rows.into_f32());
                    }
                }
            }
            if spans.is_empty() {
                return Ok(());
            }
            let entered = (blocks.tensor(&whole.into())?, all_lengths);
            let pass = turn.run(blocks, learner, entered)?;
            let rows = pass.output.tensor.to_host().into_owned();
            if self.expel_overflowing(&spans, (width, &rows)) {
                continue;
            }
            self.deal(FrameKind::Hidden, (step, 0.0), (width, &rows), &spans, blocks)?;
            if turn.crosses == Crosses::Nowhere {
                turn.step += 1;
                turn.taken += 1;
            } else {
                self.pass = Some(Recorded { pass, spans });
            }
            return Ok(());
        }
    }

    /// Expels those whose rows are no numbers behind the blocks; whether there was one.
    fn expel_overflowing(&mut self, spans: &[Span], (width, rows): (usize, &[f32])) -> bool {
        let (mut rest, mut any) = (rows, false);
        for span in spans {
            let (own, others) = rest.split_at(span.rows * width);
            rest = others;
            if let Some(found) = own.iter().find(|value| !value.is_finite()) {
                let reason =
                    format!("its rows are {found} behind the blocks, expected finite numbers");
                self.expel(span.client, ClientError::peer(reason));
                any = true;
            }
        }
        any
    }

    fn backward(
        &mut self,
        blocks: Blocks<'_>,
        (turn, learner): (&mut Turn, &mut Learner),
        (recorded, frames): (Recorded, &BTreeMap<ClientId, Vec<u8>>),
    ) -> Result<()> {
        let Recorded { pass, mut spans } = recorded;
        let mut given = BTreeMap::new();
        for span in &spans {
            let Some(bytes) = frames.get(&span.client) else { continue };
            match blocks.read(bytes, (&[FrameKind::Backward], turn.step), Some(span.rows)) {
                Ok(frame) => {
                    given.insert(span.client, frame.rows.into_f32());
                }
                Err(error) => self.expel(span.client, error),
            }
        }
        if given.is_empty() {
            return Ok(());
        }
        let entered = pass.input.tensor.clone();
        let mut derived = pass.derive(blocks.tensor(&spread(blocks, &spans, &given).into())?)?;
        if !derived.is_finite() {
            let entered = entered.to_host();
            let (mut rest, mut good) = (&entered[..], Vec::new());
            let (mut rows, mut lengths) = (Vec::new(), Vec::new());
            for span in spans {
                let (own, others) = rest.split_at(span.rows * blocks.model.width());
                rest = others;
                let Some(gradient) = given.get(&span.client) else { continue };
                let alone = (blocks.tensor(&own.to_vec().into())?, span.lengths.clone());
                let gradient = blocks.tensor(&gradient.clone().into())?;
                let derived = turn.run(blocks, learner, alone)?.derive(gradient)?;
                if derived.is_finite() {
                    lengths.extend_from_slice(&span.lengths);
                    rows.extend_from_slice(own);
                    good.push(span);
                    continue;
                }
                given.remove(&span.client);
                let reason = "its gradient overflows in the blocks, expected finite numbers";
                self.expel(span.client, ClientError::peer(reason));
            }
            if good.is_empty() {
                return Ok(());
            }
            spans = good;
            let pass = turn.run(blocks, learner, (blocks.tensor(&rows.into())?, lengths))?;
            derived = pass.derive(blocks.tensor(&spread(blocks, &spans, &given).into())?)?;
            check_squares(derived.squares)?;
        }
        let Derived { mut gradients, below, .. } = derived;
        let below = below.into_f32();
        gradients.scale(1.0 / given.len() as f32);
        let number = (turn.step, gradients.sum_of_squares());
        turn.learn(learner, &mut gradients)?;
        if below.is_empty() {
            for span in &mut spans {
                span.rows = 0;
            }
        }
        self.deal(FrameKind::Gradient, number, (blocks.model.width(), &below), &spans, blocks)
    }

    /// Gives every client that is still here its rows.
    fn deal(
        &mut self,
        kind: FrameKind,
        (step, number): (u32, f64),
        (width, rows): (usize, &[f32]),
        spans: &[Span],
        blocks: Blocks<'_>,
    ) -> Result<()> {
        let mut rest = rows;
        for Span { client, rows, .. } in spans {
            let (own, others) = rest.split_at(rows * width);
            rest = others;
            if !self.here.contains(client) {
                continue;
            }
            let frame = HiddenFrame::of_rows(kind, step, (width, own.to_vec()));
            let bytes = HiddenFrame { number, ..frame }.encode(blocks.encoding)?;
            self.answers.insert(*client, Ok(bytes));
        }
        Ok(())
    }

    fn expel(&mut self, client: ClientId, error: ClientError) {
        self.here.remove(&client);
        self.answers.insert(client, Err(error));
    }
}

/// The gradients of everybody's rows; nothing is learnt from rows whose client has left.
fn spread(blocks: Blocks<'_>, spans: &[Span], given: &BTreeMap<ClientId, Vec<f32>>) -> Vec<f32> {
    let mut whole = Vec::new();
    for span in spans {
        match given.get(&span.client) {
            Some(rows) => whole.extend_from_slice(rows),
            None => whole.resize(whole.len() + span.rows * blocks.model.width(), 0.0),
        }
    }
    whole
}
