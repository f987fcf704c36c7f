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
use crate::split::{ClientSegments, Passing};

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
        self.probe_counted(params, probe, (client, examples), (None, &Meter::unwatched()))
    }

    /// The same, counted; it may be stopped. Where the model is cut, examples have names, for noise that is
    /// drawn once for each.
    pub(crate) fn probe_counted(
        &self,
        params: &Params,
        probe: Probe,
        (client, examples): (&str, &[Encoded]),
        (cut, meter): (Option<Cut<'_, '_>>, &Meter<'_>),
    ) -> Result<BlockScores> {
        if examples.is_empty() {
            return Err(ClientError::nothing(client, "example to probe with"));
        }
        let given = (examples, meter);
        let scores = match (probe, cut) {
            (Probe::Attention { side, tokens }, None) => {
                self.attention(params, (probe, side, tokens), given)?.means()
            }
            (Probe::Attention { side, tokens }, Some(cut)) => {
                self.attention_across(params, (probe, side, tokens), (given, cut))?
            }
            (Probe::GradientNorm, cut) => {
                let norms = self.norms(params, (given, cut))?;
                norms.into_iter().map(|[gradient, _]| gradient).collect()
            }
            (Probe::RelativeGradient, cut) => {
                let norms = self.norms(params, (given, cut))?;
                norms.into_iter().map(|[gradient, weights]| gradient / weights.max(TINY)).collect()
            }
        };
        Ok(BlockScores::new(probe, scores)?)
    }

    /// Looks at examples, a batch at a time.
    fn each_batch(
        &self,
        (examples, meter): (&[Encoded], &Meter<'_>),
        mut look: impl FnMut(&LabelledBatch, &[usize]) -> Result<()>,
    ) -> Result<()> {
        let places: Vec<usize> = (0..examples.len()).collect();
        for chosen in places.chunks(BATCH) {
            meter.check()?;
            meter.advance(chosen.len() as u64);
            look(&LabelledBatch::gather(self.model, examples, chosen)?, chosen)?;
        }
        Ok(())
    }

    /// The mean attention that counts, for each block of a cut model.
    fn attention_across(
        &self,
        params: &Params,
        watched: (Probe, AttentionSide, RelevantTokens),
        (given, cut): ((&[Encoded], &Meter<'_>), Cut<'_, '_>),
    ) -> Result<Vec<f64>> {
        let mut scores = vec![0.0; self.model.blocks()];
        self.each_batch(given, |question, chosen| {
            let relevant = self.relevant(watched, given.0, chosen)?;
            let names = cut.names(chosen);
            let passing = Passing { batch: &question.batch, examples: &names };
            let received = cut.ends.received_attention(params, passing, relevant.queries())?;
            for (sum, received) in scores.iter_mut().zip(received) {
                let of_batch = relevant.scores(question.batch.packing(), &received)?;
                *sum += of_batch.into_iter().sum::<f64>();
            }
            Ok(())
        })?;
        Ok(scores.into_iter().map(|sum| sum / given.0.len() as f64).collect())
    }

    /// For each block the norm of the gradient of the mean loss, and of its weights.
    fn norms(
        &self,
        params: &Params,
        (given, mut cut): ((&[Encoded], &Meter<'_>), Option<Cut<'_, '_>>),
    ) -> Result<Vec<[f64; 2]>> {
        let layout = self.model.layout();
        let middle = cut.as_ref().map_or(0..0, |cut| cut.ends.middle.clone());
        let is_own = |block: &u16| !middle.contains(&usize::from(*block));
        let own = Scope::of_blocks(layout, (0..layout.blocks()).filter(is_own));
        let (mut sum, mut is_empty) = (Gradients::default(), true);
        self.each_batch(given, |question, chosen| {
            if question.is_of_pairs() {
                let reason =
                    "the gradient of a preference is that of its own loss: probe by attention";
                let probe = Probe::GradientNorm.to_string();
                return Err(ClientError::Probe { probe, reason });
            }
            if question.targets_counted() == 0 {
                return Ok(());
            }
            let share = chosen.len() as f32 / given.0.len() as f32;
            sum.add(match &mut cut {
                None => {
                    let mut tape = Tape::new(self.device);
                    let (batch, targets) = (&question.batch, question.targets());
                    let loss = self.model.loss(&mut tape, params.training(&own), batch, targets)?;
                    tape.backward(&[(&loss, Tensor::scalar(self.device, share))])?
                }
                Some(cut) => {
                    let names = cut.names(chosen);
                    let passing = Passing { batch: &question.batch, examples: &names };
                    cut.ends.trace((params, &own), (question, passing), share)?
                }
            })?;
            is_empty = false;
            Ok(())
        })?;
        let mut squares = vec![[0.0; 2]; self.model.blocks()];
        for (id, gradient) in sum.iter() {
            if let Some(block) = id.layer.block() {
                squares[usize::from(block)][0] += gradient.values().sum_of_squares();
            }
        }
        for id in &own {
            if let Some(block) = id.layer.block() {
                squares[usize::from(block)][1] += params.get(id)?.sum_of_squares();
            }
        }
        let mut norms: Vec<[f64; 2]> = squares.into_iter().map(|two| two.map(f64::sqrt)).collect();
        if let Some(cut) = cut.filter(|_| !is_empty) {
            norms[middle].copy_from_slice(&cut.ends.norms_of_middle()?);
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
        watched: (Probe, AttentionSide, RelevantTokens),
        given: (&[Encoded], &Meter<'_>),
    ) -> Result<BlockProbe> {
        let mut watching = BlockProbe::new(Relevant::All);
        self.each_batch(given, |question, chosen| {
            watching.set_relevant(self.relevant(watched, given.0, chosen)?);
            let mut tape = Tape::new(self.device);
            let weights = params.frozen();
            Ok(self.model.probe_blocks(&mut tape, weights, &question.batch, &mut watching)?)
        })?;
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
}

/// The rest of a cut model, and the places by which noise knows the examples.
pub(crate) struct Cut<'a, 'e> {
    pub places: &'a [usize],
    pub ends: &'a mut ClientSegments<'e>,
}

impl Cut<'_, '_> {
    fn names(&self, chosen: &[usize]) -> Vec<u64> {
        chosen.iter().map(|&number| self.places[number] as u64).collect()
    }
}

/// The places of the examples that a client looks at to measure blocks, a batch at a time.
pub fn probed_batches(examples: usize, most: usize, seed: Seed) -> Vec<Vec<usize>> {
    let places = sample(examples, most, seed);
    places.chunks(BATCH).map(<[usize]>::to_vec).collect()
}
