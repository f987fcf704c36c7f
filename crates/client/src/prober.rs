//! What a client measures before a round decides which blocks learn.
//!
//! Attention is watched while it passes by and nothing trains; a gradient norm costs a backward
//! pass. Either looks at the client's first examples only, as many as the round asks for.

use fedra_compute::{Device, Gradients, Params, Tape, Tensor};
use fedra_data::{Encoded, LabelSet, Target};
use fedra_model::{BlockProbe, Model, Relevant};
use fedra_plan::{AttentionSide, BlockScores, Probe, RelevantTokens, Scope};
use fedra_seed::Seed;

use crate::error::{ClientError, Result};
use crate::examples::sample;
use crate::labelled_batch::LabelledBatch;
use crate::meter::Meter;
use crate::split::{Ends, Passing};

/// Examples in a batch of a probe.
const BATCH: usize = 16;

/// A norm below this is that of a block without weights.
const TINY: f64 = 1e-12;

/// Measures the blocks of a model.
#[derive(Clone, Copy, Debug)]
pub struct Prober<'a> {
    /// The structure.
    pub model: &'a Model,
    /// Who computes.
    pub device: &'a Device,
    /// The names of labels: `O` marks tokens that are no entity.
    pub labels: &'a LabelSet,
}

impl Prober<'_> {
    /// One score for each block.
    pub fn probe(
        &self,
        params: &Params,
        probe: Probe,
        (client, examples): (&str, &[Encoded]),
    ) -> Result<BlockScores> {
        self.probe_counted(params, probe, (client, examples), &Meter::unwatched())
    }

    /// The same, counted; it may be stopped.
    pub(crate) fn probe_counted(
        &self,
        params: &Params,
        probe: Probe,
        (client, examples): (&str, &[Encoded]),
        meter: &Meter<'_>,
    ) -> Result<BlockScores> {
        if examples.is_empty() {
            let client = client.to_owned();
            return Err(ClientError::Nothing { client, what: "example to probe with" });
        }
        let scores = match probe {
            Probe::Attention { side, tokens } => {
                self.attention(params, (probe, side, tokens), (examples, meter))?.means()
            }
            Probe::GradientNorm => self.gradient_norms(params, (examples, meter))?,
            Probe::RelativeGradient => {
                let norms = self.gradient_norms(params, (examples, meter))?;
                norms.into_iter().zip(self.norms(params)?).map(|(g, w)| g / w.max(TINY)).collect()
            }
        };
        Ok(BlockScores::new(probe, scores)?)
    }

    /// One score for each block of a model that is cut. `places` names the examples, for noise that is
    /// drawn once for each.
    pub(crate) fn probe_cut(
        &self,
        params: &Params,
        probe: Probe,
        (client, examples): (&str, &[Encoded]),
        (places, ends, meter): (&[usize], &mut Ends<'_>, &Meter<'_>),
    ) -> Result<BlockScores> {
        if examples.is_empty() {
            let client = client.to_owned();
            return Err(ClientError::Nothing { client, what: "example to probe with" });
        }
        let scores = match probe {
            Probe::Attention { side, tokens } => {
                let mut scores = vec![0.0; self.model.blocks()];
                for chosen in chunks(examples.len()) {
                    meter.check()?;
                    meter.advance(chosen.len() as u64);
                    let question = LabelledBatch::gather(self.model, examples, &chosen)?;
                    let relevant = self.relevant((probe, side, tokens), examples, &chosen)?;
                    let names = names(places, &chosen);
                    let passing = Passing { batch: &question.batch, examples: &names };
                    let received = ends.received_attention(params, passing, relevant.queries())?;
                    for (sum, received) in scores.iter_mut().zip(received) {
                        let of_batch = relevant.scores(question.batch.packing(), &received)?;
                        *sum += of_batch.into_iter().sum::<f64>();
                    }
                }
                scores.into_iter().map(|sum| sum / examples.len() as f64).collect()
            }
            Probe::GradientNorm => {
                let norms = self.norms_across(params, examples, (places, ends, meter))?;
                norms.into_iter().map(|[gradient, _]| gradient).collect()
            }
            Probe::RelativeGradient => {
                let norms = self.norms_across(params, examples, (places, ends, meter))?;
                norms.into_iter().map(|[gradient, weights]| gradient / weights.max(TINY)).collect()
            }
        };
        Ok(BlockScores::new(probe, scores)?)
    }

    /// For each block of a cut model the norm of the gradient of the mean loss, and of its weights.
    fn norms_across(
        &self,
        params: &Params,
        examples: &[Encoded],
        (places, ends, meter): (&[usize], &mut Ends<'_>, &Meter<'_>),
    ) -> Result<Vec<[f64; 2]>> {
        let (layout, middle) = (self.model.layout(), ends.middle());
        let is_own = |block: &u16| !middle.contains(&usize::from(*block));
        let own = Scope::of_blocks(layout, (0..layout.blocks()).filter(is_own));
        let mut sum = Gradients::default();
        let mut asked = false;
        for chosen in chunks(examples.len()) {
            meter.check()?;
            meter.advance(chosen.len() as u64);
            let question = LabelledBatch::gather(self.model, examples, &chosen)?;
            if question.targets_counted() == 0 {
                continue;
            }
            let names = names(places, &chosen);
            let passing = Passing { batch: &question.batch, examples: &names };
            let share = chosen.len() as f32 / examples.len() as f32;
            sum.add(ends.trace((params, &own), (&question, passing), share)?)?;
            asked = true;
        }
        let mut squares = vec![[0.0; 2]; self.model.blocks()];
        for (id, gradient) in sum.iter() {
            if let Some(block) = id.site.block() {
                squares[usize::from(block)][0] += gradient.values().sum_of_squares();
            }
        }
        for id in &own {
            if let Some(block) = id.site.block() {
                squares[usize::from(block)][1] += params.get(id)?.sum_of_squares();
            }
        }
        let mut norms: Vec<[f64; 2]> = squares.into_iter().map(|two| two.map(f64::sqrt)).collect();
        if asked {
            norms[middle].copy_from_slice(&ends.norms_of_middle()?);
        }
        Ok(norms)
    }

    /// How much of the attention that counts passes through each head, for each block; nothing for
    /// a probe of something else.
    pub(crate) fn heads(
        &self,
        params: &Params,
        probe: Probe,
        (examples, meter): (&[Encoded], &Meter<'_>),
    ) -> Result<Vec<Vec<f64>>> {
        let Probe::Attention { side, tokens } = probe else { return Ok(Vec::new()) };
        Ok(self.attention(params, (probe, side, tokens), (examples, meter))?.heads().to_vec())
    }

    fn attention(
        &self,
        params: &Params,
        (probe, side, tokens): (Probe, AttentionSide, RelevantTokens),
        (examples, meter): (&[Encoded], &Meter<'_>),
    ) -> Result<BlockProbe> {
        let mut watching = BlockProbe::new(Relevant::All);
        for chosen in chunks(examples.len()) {
            meter.check()?;
            meter.advance(chosen.len() as u64);
            let question = LabelledBatch::gather(self.model, examples, &chosen)?;
            watching.set_relevant(self.relevant((probe, side, tokens), examples, &chosen)?);
            let mut tape = Tape::new(self.device);
            let weights = params.frozen();
            self.model.probe_blocks(&mut tape, weights, &question.batch, &mut watching)?;
        }
        Ok(watching)
    }

    /// Which attention counts in a batch.
    fn relevant(
        &self,
        (probe, side, tokens): (Probe, AttentionSide, RelevantTokens),
        examples: &[Encoded],
        chosen: &[usize],
    ) -> Result<Relevant> {
        let refuse = |reason| ClientError::Probe { probe: probe.to_string(), reason };
        match (side, tokens) {
            (AttentionSide::Key, RelevantTokens::Cls) => Ok(Relevant::First),
            (AttentionSide::Key, RelevantTokens::All) => Ok(Relevant::All),
            (AttentionSide::Key, RelevantTokens::Entities) => {
                let marks = self.entities(examples, chosen);
                marks.map(Relevant::Marked).ok_or_else(|| refuse("the task labels no tokens"))
            }
            (AttentionSide::Query, RelevantTokens::All) => Ok(Relevant::FromLast),
            (AttentionSide::Query, RelevantTokens::Cls | RelevantTokens::Entities) => {
                Err(refuse("the query side is measured over all content tokens"))
            }
        }
    }

    /// Which tokens of a batch carry a label other than `O`.
    fn entities(&self, examples: &[Encoded], chosen: &[usize]) -> Option<Vec<bool>> {
        let outside = self.labels.index("O");
        let mut marks = Vec::new();
        for &index in chosen {
            let Target::PerToken(labels) = &examples[index].target else { return None };
            marks.extend(labels.iter().map(|label| label.is_some() && *label != outside));
        }
        Some(marks)
    }

    /// For each block the norm of its parameters.
    fn norms(&self, params: &Params) -> Result<Vec<f64>> {
        let mut squares = vec![0.0; self.model.blocks()];
        for id in self.model.layout().ids() {
            if let Some(block) = id.site.block() {
                squares[usize::from(block)] += params.get(id)?.sum_of_squares();
            }
        }
        Ok(squares.into_iter().map(f64::sqrt).collect())
    }

    /// For each block the norm of the gradient of the mean loss.
    fn gradient_norms(
        &self,
        params: &Params,
        (examples, meter): (&[Encoded], &Meter<'_>),
    ) -> Result<Vec<f64>> {
        let layout = self.model.layout();
        let scope = Scope::of_blocks(layout, 0..layout.blocks());
        let mut sum = Gradients::default();
        for chosen in chunks(examples.len()) {
            meter.check()?;
            meter.advance(chosen.len() as u64);
            let question = LabelledBatch::gather(self.model, examples, &chosen)?;
            if question.targets_counted() == 0 {
                continue;
            }
            let mut tape = Tape::new(self.device);
            let weights = params.training(&scope);
            let loss = self.model.loss(&mut tape, weights, &question.batch, question.targets())?;
            let share = chosen.len() as f32 / examples.len() as f32;
            sum.add(tape.backward(&[(&loss, Tensor::scalar(self.device, share))])?)?;
        }
        let mut squares = vec![0.0; self.model.blocks()];
        for (id, gradient) in sum.iter() {
            if let Some(block) = id.site.block() {
                squares[usize::from(block)] += gradient.values().sum_of_squares();
            }
        }
        Ok(squares.into_iter().map(f64::sqrt).collect())
    }
}

/// What noise knows the examples of a batch by.
fn names(places: &[usize], chosen: &[usize]) -> Vec<u64> {
    chosen.iter().map(|&number| places[number] as u64).collect()
}

/// The places of the examples that a client looks at to measure blocks, a batch at a time.
pub fn probed_batches(examples: usize, most: usize, seed: Seed) -> Vec<Vec<usize>> {
    let places = sample(examples, most, seed);
    places.chunks(BATCH).map(<[usize]>::to_vec).collect()
}

/// The places of so many examples, a batch at a time.
pub(crate) fn chunks(count: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..count).step_by(BATCH).map(move |first| (first..count.min(first + BATCH)).collect())
}
