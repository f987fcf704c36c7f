//! One server step for all clients at once: their rows lie end to end, in client order.
//!
//! A step waits until every client that takes part has sent its frame. A client that leaves is not
//! waited for; one whose frame is refused is out of the round, and the others go on. The server's
//! gradient is the mean of the clients' own, so that a step is as long as one client's.

use std::collections::{BTreeMap, BTreeSet};

use fedra_wire::{ClientId, FrameKind, HiddenFrame};

use crate::error::{ClientError, Result};
use crate::split::turn::{Blocks, Learner, Pass, Turn};

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
}

/// A pass of everybody's rows.
#[derive(Debug)]
struct Recorded {
    pass: Pass,
    /// How many of its rows are whose.
    spans: Vec<(ClientId, usize)>,
}

impl Joint {
    /// A round of these clients.
    pub fn of(clients: impl IntoIterator<Item = ClientId>) -> Self {
        Self { here: clients.into_iter().collect(), ..Self::default() }
    }

    /// Takes a client's frame.
    pub fn put(&mut self, client: ClientId, bytes: Vec<u8>) -> Result<()> {
        if !self.here.contains(&client) || self.waiting.contains_key(&client) {
            let reason = format!("client {client} takes no part in this step");
            return Err(ClientError::Peer { reason });
        }
        self.waiting.insert(client, bytes);
        Ok(())
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

    /// Whether everybody's frame is there.
    pub fn is_complete(&self) -> bool {
        !self.waiting.is_empty() && self.here.iter().all(|one| self.waiting.contains_key(one))
    }

    /// Takes the step that everybody has sent a frame for.
    pub fn run(&mut self, blocks: Blocks<'_>, turn: &mut Turn, learner: &mut Learner) {
        let frames = std::mem::take(&mut self.waiting);
        let clients: Vec<ClientId> = frames.keys().copied().collect();
        let outcome = match self.pass.take() {
            None => self.forward(blocks, (turn, learner), &frames),
            Some(pass) => self.backward(blocks, (turn, learner), (pass, &frames)),
        };
        if let Err(error) = outcome {
            let reason = format!("the step of all clients failed: {error}");
            for client in clients.into_iter().filter(|client| self.here.contains(client)) {
                let reason = reason.clone();
                self.answers.entry(client).or_insert(Err(ClientError::Peer { reason }));
            }
        }
    }

    fn forward(
        &mut self,
        blocks: Blocks<'_>,
        (turn, learner): (&mut Turn, &Learner),
        frames: &BTreeMap<ClientId, Vec<u8>>,
    ) -> Result<()> {
        let mut whole = HiddenFrame::of_rows(FrameKind::Forward, turn.step, (0, Vec::new()));
        let mut spans = Vec::new();
        for (client, bytes) in frames {
            match blocks.read(bytes, (FrameKind::Forward, turn.step), None) {
                Err(error) => self.expel(*client, error),
                Ok(mut frame) => {
                    spans.push((*client, frame.rows.len() / frame.width));
                    whole.width = frame.width;
                    whole.lengths.append(&mut frame.lengths);
                    whole.rows.append(&mut frame.rows);
                }
            }
        }
        if spans.is_empty() {
            return Ok(());
        }
        let rows = blocks.tensor(&whole.rows)?;
        let pass = turn.run(blocks, learner, (rows, whole.lengths))?;
        let rows = pass.output.tensor.to_host().into_owned();
        let step = turn.step;
        self.deal(FrameKind::Hidden, (step, 0.0), (whole.width, &rows), &spans, blocks)?;
        if turn.crosses == super::turn::Crosses::Nowhere {
            turn.step += 1;
        } else {
            self.pass = Some(Recorded { pass, spans });
        }
        Ok(())
    }

    fn backward(
        &mut self,
        blocks: Blocks<'_>,
        (turn, learner): (&mut Turn, &mut Learner),
        (recorded, frames): (Recorded, &BTreeMap<ClientId, Vec<u8>>),
    ) -> Result<()> {
        let Recorded { pass, spans } = recorded;
        let width = blocks.model.width();
        let mut whole = Vec::new();
        let mut present = Vec::new();
        for (client, rows) in &spans {
            let read = frames
                .get(client)
                .map(|bytes| blocks.read(bytes, (FrameKind::Backward, turn.step), Some(*rows)));
            match read {
                Some(Ok(mut frame)) => {
                    whole.append(&mut frame.rows);
                    present.push(*client);
                }
                // Nothing is learnt from rows whose client has left.
                None => whole.resize(whole.len() + rows * width, 0.0),
                Some(Err(error)) => {
                    whole.resize(whole.len() + rows * width, 0.0);
                    self.expel(*client, error);
                }
            }
        }
        if present.is_empty() {
            return Ok(());
        }
        let Pass { tape, input, output } = pass;
        let mut gradients = tape.backward(&[(&output, blocks.tensor(&whole)?)])?;
        let below = gradients.of_input(&input).map(|one| one.to_host().into_owned());
        gradients.scale(1.0 / present.len() as f32);
        let number = (turn.step, gradients.sum_of_squares());
        let rows = below.unwrap_or_default();
        turn.learn(learner, &mut gradients)?;
        let mut spans = spans;
        if rows.is_empty() {
            for (_, rows) in &mut spans {
                *rows = 0;
            }
        }
        self.deal(FrameKind::Gradient, number, (width, &rows), &spans, blocks)
    }

    /// Gives every client that is still here its rows.
    fn deal(
        &mut self,
        kind: FrameKind,
        (step, number): (u32, f64),
        (width, rows): (usize, &[f32]),
        spans: &[(ClientId, usize)],
        blocks: Blocks<'_>,
    ) -> Result<()> {
        let mut rest = rows;
        for (client, count) in spans {
            let (own, others) = rest.split_at(count * width);
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
