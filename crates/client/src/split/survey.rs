//! What the server measures of its blocks for a client that ranks all of them: where they look, and
//! how large their gradients are. Nothing is learnt.
//!
//! Which tokens are relevant is the client's secret, because labels say it. So the server tells for
//! every token how much attention it receives, and the client adds up what counts.
//!
//! ```text
//! Score                 -> Hidden                     answers alone
//! Watch | WatchLast     -> Hidden,    Ask -> Told     by block, the attention that each token receives
//! Trace -> Hidden,  Backward -> Gradient,  ...  Ask -> Told     by block, two norms: gradient, weights
//! ```

use std::ops::Range;

use fedra_compute::{Gradients, Params, Tape};
use fedra_model::{Packing, Queries, Reading};
use fedra_plan::{Layer, Scope};
use fedra_wire::{FrameKind, HiddenFrame, RowEncoding};

use crate::error::{ClientError, Result};
use crate::split::rows::rows_of;
use crate::split::turn::{Blocks, Pass};

/// Numbers of a row that tells of gradients: the norm of the gradient and that of the weights.
pub(crate) const NORMS: usize = 2;

/// What a connection that trains nothing has seen so far.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Where the blocks looked in the last batch: tokens, and block by block what they received.
    received: Option<(usize, Vec<f32>)>,
    /// A forward pass whose gradient is awaited, and its rows.
    pass: Option<(Pass, usize)>,
    /// Gradients of all batches.
    gradients: Option<Gradients>,
    step: u32,
}

impl Survey {
    /// Answers a client's frame with the given numbers of the server's blocks.
    pub fn exchange(
        &mut self,
        blocks: Blocks<'_>,
        (hosted, range): (&Params, Range<usize>),
        bytes: &[u8],
    ) -> Result<Vec<u8>> {
        let step = self.step;
        self.step = step.saturating_add(1);
        if let Some((pass, rows)) = self.pass.take() {
            let frame = blocks.read(bytes, (&[FrameKind::Backward], step), Some(rows))?;
            return self.measure_gradient(blocks, (pass, frame));
        }
        let kinds = [
            FrameKind::Score,
            FrameKind::Watch,
            FrameKind::WatchLast,
            FrameKind::Trace,
            FrameKind::Ask,
        ];
        let frame = blocks.read(bytes, (&kinds, step), None)?;
        if frame.kind == FrameKind::Ask {
            return self.tell(blocks, (hosted, range), step);
        }
        if frame.kind == FrameKind::Trace {
            return self.trace(blocks, (hosted, range), frame);
        }
        let mut tape = Tape::new(blocks.device);
        let hidden = tape.constant(blocks.tensor(&frame.rows)?);
        let (packing, weights) = (Packing::new(frame.lengths)?, hosted.frozen());
        let behind = if frame.kind == FrameKind::Score {
            let all = &Reading::All;
            blocks.model.run_blocks(&mut tape, weights, hidden, &packing, range, all)?
        } else {
            let last = frame.kind == FrameKind::WatchLast;
            let from = if last { Queries::Last } else { Queries::All };
            let start = (hidden, range);
            let (behind, received) =
                blocks.model.received_attention(&mut tape, weights, start, &packing, from)?;
            self.received = Some((packing.tokens(), received.concat()));
            behind
        };
        let rows = (frame.width, rows_of(&behind.tensor));
        Ok(HiddenFrame::of_rows(FrameKind::Hidden, step, rows).encode(blocks.encoding)?)
    }

    fn trace(
        &mut self,
        blocks: Blocks<'_>,
        (hosted, range): (&Params, Range<usize>),
        frame: HiddenFrame,
    ) -> Result<Vec<u8>> {
        let mut tape = Tape::new(blocks.device);
        let input = tape.input(blocks.tensor(&frame.rows)?);
        let packing = Packing::new(frame.lengths)?;
        let scope = scope_of(blocks, &range);
        let (weights, all) = (hosted.training(&scope), &Reading::All);
        let start = input.clone();
        let output = blocks.model.run_blocks(&mut tape, weights, start, &packing, range, all)?;
        let rows = (frame.width, rows_of(&output.tensor));
        self.pass = Some((Pass { tape, input, output }, packing.tokens()));
        Ok(HiddenFrame::of_rows(FrameKind::Hidden, frame.step, rows).encode(blocks.encoding)?)
    }

    fn measure_gradient(
        &mut self,
        blocks: Blocks<'_>,
        (pass, frame): (Pass, HiddenFrame),
    ) -> Result<Vec<u8>> {
        let Pass { tape, input, output } = pass;
        let gradients = tape.backward(&[(&output, blocks.tensor(&frame.rows)?)])?;
        let by_input = gradients.of_input(&input).map(rows_of);
        let rows = by_input.unwrap_or_else(|| vec![0.0; frame.rows.len()].into());
        self.gradients.get_or_insert_default().add(gradients)?;
        let rows = (frame.width, rows);
        Ok(HiddenFrame::of_rows(FrameKind::Gradient, frame.step, rows).encode(blocks.encoding)?)
    }

    fn tell(
        &mut self,
        blocks: Blocks<'_>,
        (hosted, range): (&Params, Range<usize>),
        step: u32,
    ) -> Result<Vec<u8>> {
        let rows = match (self.received.take(), self.gradients.take()) {
            (Some(received), _) => received,
            (None, Some(gradients)) => (NORMS, norms(blocks, (hosted, range), &gradients)?),
            (None, None) => {
                let reason = "asked what was seen before anything was watched";
                return Err(ClientError::peer(reason));
            }
        };
        Ok(HiddenFrame::of_rows(FrameKind::Told, step, rows).encode(RowEncoding::F32)?)
    }
}

/// By block, the norm of its gradient and of its weights.
fn norms(
    blocks: Blocks<'_>,
    (hosted, range): (&Params, Range<usize>),
    gradients: &Gradients,
) -> Result<Vec<f32>> {
    let mut squares = vec![[0.0_f64; NORMS]; range.len()];
    let place = |layer: Layer| match layer {
        Layer::Block(block) => usize::from(block).checked_sub(range.start),
        Layer::Embedding | Layer::Head => None,
    };
    for (id, gradient) in gradients.iter() {
        if let Some(sum) = place(id.layer).and_then(|at| squares.get_mut(at)) {
            sum[0] += gradient.values().sum_of_squares();
        }
    }
    for id in &scope_of(blocks, &range) {
        if let Some(sum) = place(id.layer).and_then(|at| squares.get_mut(at)) {
            sum[1] += hosted.get(id)?.sum_of_squares();
        }
    }
    Ok(squares.into_iter().flatten().map(|square| square.sqrt() as f32).collect())
}

fn scope_of(blocks: Blocks<'_>, range: &Range<usize>) -> Scope {
    Scope::of_blocks(blocks.model.layout(), range.start as u16..range.end as u16)
}
