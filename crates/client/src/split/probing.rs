//! A client measures all blocks of a cut model: its own ends itself, the middle by asking.
//!
//! Rows leave as they do in training, with the same noise; which tokens are relevant stays here.

use fedra_compute::{Gradients, Params, Tape, Tensor};
use fedra_model::Queries;
use fedra_plan::Scope;
use fedra_wire::{ExpectedFrame, FrameKind, HiddenFrame, RowEncoding};

use crate::error::{ClientError, Result};
use crate::labelled_batch::LabelledBatch;
use crate::split::client_segments::{ClientSegments, Passing};
use crate::split::rows::rows_of;
use crate::split::survey::NORMS;

impl ClientSegments<'_> {
    /// By block of the whole model, the share of its sequence's attention that each token of a batch
    /// receives.
    pub fn received_attention(
        &mut self,
        params: &Params,
        passing: Passing<'_>,
        from: Queries,
    ) -> Result<Vec<Vec<f32>>> {
        let (middle, packing) = (self.middle.clone(), passing.batch.packing());
        let weights = params.frozen();
        let mut tape = Tape::new(self.device);
        let hidden = self.model.embed(&mut tape, weights, passing.batch)?;
        let below = (hidden, 0..middle.start);
        let (hidden, mut all) =
            self.model.received_attention(&mut tape, weights, below, packing, from)?;
        let kind = match from {
            Queries::All => FrameKind::Watch,
            Queries::Last => FrameKind::WatchLast,
        };
        let (answer, _) = self.send_hidden(kind, &hidden.tensor, passing)?;
        self.step += 1;
        let told = self.ask(passing.batch.packing().tokens())?;
        all.extend(told.chunks_exact(passing.batch.packing().tokens()).map(<[f32]>::to_vec));

        let mut tape = Tape::new(self.device);
        let hidden = tape.constant(self.tensor(&answer.rows)?);
        let above = (hidden, middle.end..self.model.blocks());
        let (_, above) = self.model.received_attention(&mut tape, weights, above, packing, from)?;
        all.extend(above);
        Ok(all)
    }

    /// The gradients of a share of a batch's loss by the client's own blocks; the server keeps those of
    /// its own until it is asked ([`ClientSegments::norms_of_middle`]).
    pub fn trace(
        &mut self,
        (params, own): (&Params, &Scope),
        (question, passing): (&LabelledBatch, Passing<'_>),
        share: f32,
    ) -> Result<Gradients> {
        let weights = params.training(own);
        let mut below = Tape::new(self.device);
        let hidden = self.lower(&mut below, weights, passing.batch)?;
        let (answer, scaled) = self.send_hidden(FrameKind::Trace, &hidden.tensor, passing)?;
        self.step += 1;

        let mut above = Tape::new(self.device);
        let received = above.input(self.tensor(&answer.rows)?);
        let (batch, start) = (passing.batch, (received.clone(), self.middle.end));
        let loss = self.model.loss_from(&mut above, weights, start, batch, question.targets())?;
        let mut gradients = above.backward(&[(&loss, Tensor::scalar(self.device, share))])?;
        let by_answer = gradients.of_input(&received).map(rows_of);
        let rows = by_answer.unwrap_or_else(|| vec![0.0; answer.rows.len()].into());
        let back = self.send_gradient(rows, passing, (true, 0))?.rows;
        self.step += 1;
        if self.middle.start > 0 {
            let back = scaled.undone(back, self.model.width());
            gradients.add(below.backward(&[(&hidden, self.tensor(&back)?)])?)?;
        }
        Ok(gradients)
    }

    /// For each of the server's blocks the norm of the gradients that were traced, and that of its
    /// weights.
    pub fn norms_of_middle(&mut self) -> Result<Vec<[f64; NORMS]>> {
        let told = self.ask(NORMS)?;
        Ok(told.chunks_exact(NORMS).map(|two| [f64::from(two[0]), f64::from(two[1])]).collect())
    }

    /// What the server saw: so many numbers for each of its blocks.
    fn ask(&mut self, width: usize) -> Result<Vec<f32>> {
        let question = HiddenFrame::of_number(FrameKind::Ask, self.step, 0.0);
        let bytes = self.exchange(question.encode(self.encoding)?)?;
        let blocks = self.middle.len();
        let expected = ExpectedFrame {
            kinds: &[FrameKind::Told],
            encoding: RowEncoding::F32,
            step: Some(self.step),
            width,
            rows: Some(blocks),
            most_rows: 0,
            longest: 0,
        };
        let told = HiddenFrame::decode(&bytes, &expected)?.rows.into_f32();
        self.step += 1;
        if told.len() != blocks * width {
            let found = told.len() / width.max(1);
            let reason = format!("the server reported {found} blocks, expected {blocks}");
            return Err(ClientError::peer(reason));
        }
        Ok(told)
    }
}
