//! From hidden states to logits and losses: what a [`Head`] computes, and from which rows.

use crate::batch::Batch;
use crate::config::{ClassifierLayers, Pooling};
use crate::error::ModelError;
use crate::head::Head;
use crate::model::Model;
use crate::packing::Packing;
use crate::reading::Reading;
use fedra_compute::{
    DropoutPlace, Logits, LossWeights, Projection, RowWeights, Tape, Value, Weights,
};
use fedra_plan::{Layer, ParamId, Part, Role};

/// What the answers should have been.
#[derive(Clone, Copy, Debug)]
pub enum Targets<'a> {
    /// One class per sequence, or per token; `None` is not counted.
    Classes(&'a [Option<u32>]),
    /// A row of zeros and ones per sequence: several labels at once.
    Labels(&'a [f32]),
}

/// Targets and what each of them counts in the loss.
///
/// Targets alone make the mean over those that are counted; for a vocabulary and for classes those
/// are the ones that are not `None`, for labels every zero and one.
#[derive(Clone, Copy, Debug)]
pub struct Weighted<'a> {
    /// What the answers should have been.
    pub targets: Targets<'a>,
    /// What each counts; weights by row have one for each row of targets.
    pub weights: LossWeights<'a>,
}

impl<'a> From<Targets<'a>> for Weighted<'a> {
    fn from(targets: Targets<'a>) -> Self {
        let counted = match targets {
            Targets::Classes(classes) => classes.iter().flatten().count(),
            Targets::Labels(labels) => labels.len(),
        };
        Self { targets, weights: LossWeights::mean(counted) }
    }
}

impl Model {
    /// The loss of a batch, from token ids: the whole of a training step's forward pass.
    pub fn loss<'t>(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        batch: &Batch,
        targets: impl Into<Weighted<'t>>,
    ) -> Result<Value, ModelError> {
        let hidden = self.embed(tape, weights, batch)?;
        self.loss_from(tape, weights, (hidden, 0), batch, targets)
    }

    /// The loss from the hidden states in front of block `first` on.
    pub fn loss_from<'t>(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        (hidden, first): (Value, usize),
        batch: &Batch,
        targets: impl Into<Weighted<'t>>,
    ) -> Result<Value, ModelError> {
        let (reading, kept) = self.reading(batch, targets.into())?;
        let hidden = self.read_from(tape, weights, (hidden, first), batch.packing(), &reading)?;
        self.head_loss(tape, weights, &hidden, kept.as_weighted())
    }

    /// The head's logits for a batch: one row per sequence or per token.
    pub fn logits(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        batch: &Batch,
    ) -> Result<Value, ModelError> {
        let hidden = self.embed(tape, weights, batch)?;
        self.logits_from(tape, weights, (hidden, 0), batch)
    }

    /// The head's logits from the hidden states in front of block `first` on.
    pub fn logits_from(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        (hidden, first): (Value, usize),
        batch: &Batch,
    ) -> Result<Value, ModelError> {
        let reading = match self.head() {
            Head::Sequence { .. } if !self.reads_means() => Reading::Rows(self.answer_rows(batch)),
            Head::Sequence { .. } | Head::Bare | Head::Tokens { .. } | Head::Language => {
                Reading::All
            }
        };
        let hidden = self.read_from(tape, weights, (hidden, first), batch.packing(), &reading)?;
        self.head_logits(tape, weights, &hidden)
    }

    /// The rows that the head reads, behind the last block.
    fn read_from(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        (hidden, first): (Value, usize),
        packing: &Packing,
        reading: &Reading,
    ) -> Result<Value, ModelError> {
        let range = first..self.blocks();
        let hidden = self.run_blocks(tape, weights, hidden, packing, range, reading)?;
        match reading {
            // No block was left to drop the others.
            Reading::Rows(rows) if first == self.blocks() => Ok(tape.rows(&hidden, rows)?),
            Reading::All | Reading::Rows(_) => Ok(hidden),
        }
    }

    /// The loss of hidden states that the last block has left, one row per target.
    pub fn head_loss<'t>(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        hidden: &Value,
        targets: impl Into<Weighted<'t>>,
    ) -> Result<Value, ModelError> {
        let Weighted { targets, weights: counted } = targets.into();
        let classes = match targets {
            Targets::Classes(classes) => classes,
            Targets::Labels(labels) => {
                let logits = self.head_logits(tape, weights, hidden)?;
                return Ok(tape.multi_label(&logits, labels, counted)?);
            }
        };
        if self.head() == Head::Language {
            let hidden = self.before_vocabulary(tape, weights, hidden)?;
            let vocabulary = self.output_vocabulary(weights)?;
            let soft_cap = self.config().logit_cap.map(|cap| cap as f32);
            if vocabulary.lora.is_some() {
                let corrected = (&vocabulary, soft_cap);
                return Ok(tape.corrected_cross_entropy(&hidden, corrected, classes, counted)?);
            }
            let Projection { weight, bias, .. } = &vocabulary;
            let vocabulary = Logits { soft_cap, ..Logits::new(weight, bias.as_ref()) };
            return Ok(tape.vocabulary_cross_entropy(&hidden, vocabulary, classes, counted)?);
        }
        let logits = self.head_logits(tape, weights, hidden)?;
        Ok(tape.cross_entropy(&logits, classes, counted)?)
    }

    /// The head's logits of hidden states that the last block has left.
    pub fn head_logits(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        hidden: &Value,
    ) -> Result<Value, ModelError> {
        let parts = self.parts(weights, Layer::Head);
        match self.head() {
            Head::Bare => self.behind_blocks(tape, weights, hidden),
            Head::Sequence { .. } | Head::Tokens { .. } => {
                let mut features = self.behind_blocks(tape, weights, hidden)?;
                features = match (self.head(), self.config().classifier.pooling) {
                    (Head::Sequence { .. }, Pooling::Mean) => tape.sequence_means(&features)?,
                    (Head::Sequence { .. }, Pooling::FirstAndPatches) => {
                        let image = self.config().image;
                        let skipped = image.map_or(1, |image| image.tokens() - image.patches());
                        tape.first_and_mean(&features, skipped)?
                    }
                    (_, _) => features,
                };
                features = match (self.config().classifier.layers, self.head()) {
                    (ClassifierLayers::Dense(activation), Head::Sequence { pooler: true, .. }) => {
                        let pooler = parts.projection(Role::Pooler)?;
                        tape.linear_activated(&features, &pooler, activation)?
                    }
                    (ClassifierLayers::Transform, _) => {
                        self.transformed(tape, weights, features)?
                    }
                    (ClassifierLayers::None | ClassifierLayers::Dense(_), _) => features,
                };
                let features = tape.dropped(features, (Layer::Head, DropoutPlace::Classifier))?;
                Ok(tape.linear(&features, &[parts.projection(Role::Classifier)?])?)
            }
            Head::Language => {
                let hidden = self.before_vocabulary(tape, weights, hidden)?;
                let logits = tape.linear(&hidden, &[self.output_vocabulary(weights)?])?;
                match self.config().logit_cap {
                    Some(cap) => Ok(tape.soft_capped(logits, cap as f32)?),
                    None => Ok(logits),
                }
            }
        }
    }

    /// The row of each sequence that a sequence head reads.
    pub fn answer_rows(&self, batch: &Batch) -> Vec<u32> {
        let packing = batch.packing();
        match (self.config().classifier.pooling, self.config().pad_token_id) {
            (Pooling::First, _) => packing.first_rows(),
            (Pooling::Mean | Pooling::FirstAndPatches, _) => (0..packing.tokens() as u32).collect(),
            (Pooling::Last, None) => packing.last_rows(),
            (Pooling::Last, Some(padding)) => batch.last_rows_without(padding),
        }
    }

    /// Whether a sequence's classifier reads a mean of its rows.
    fn reads_means(&self) -> bool {
        let is_sequence = matches!(self.head(), Head::Sequence { .. });
        let pooling = self.config().classifier.pooling;
        is_sequence && matches!(pooling, Pooling::Mean | Pooling::FirstAndPatches)
    }

    /// Which rows the head will read, and the targets of just those.
    fn reading<'a>(
        &self,
        batch: &Batch,
        given: Weighted<'a>,
    ) -> Result<(Reading, ReadTargets<'a>), ModelError> {
        let packing = batch.packing();
        let expected = match self.head() {
            Head::Sequence { .. } if self.reads_means() => {
                return Ok((Reading::All, ReadTargets::As(given)));
            }
            Head::Sequence { .. } => {
                return Ok((Reading::Rows(self.answer_rows(batch)), ReadTargets::As(given)));
            }
            Head::Tokens { .. } | Head::Language => "one class per token",
            Head::Bare => "a head",
        };
        match given.targets {
            Targets::Classes(classes) if self.head() != Head::Bare => {
                if classes.len() != packing.tokens() {
                    let found = format!("{} for {} tokens", classes.len(), packing.tokens());
                    return Err(ModelError::batch("number of targets", &found, &expected));
                }
                if let RowWeights::PerRow(weights) = given.weights.rows
                    && weights.len() != classes.len()
                {
                    let (found, expected) = (weights.len(), classes.len());
                    return Err(ModelError::batch("number of weights", &found, &expected));
                }
                Ok(self.labelled_rows(packing, classes, given))
            }
            Targets::Classes(_) | Targets::Labels(_) => {
                let found = format!("{:?}", self.head());
                Err(ModelError::batch("head for these targets", &found, &expected))
            }
        }
    }

    /// An encoder's last block only needs to produce the rows that carry a target, if every sequence
    /// has one; a decoder's rows depend on their order, so it produces all.
    fn labelled_rows<'a>(
        &self,
        packing: &Packing,
        classes: &[Option<u32>],
        given: Weighted<'a>,
    ) -> (Reading, ReadTargets<'a>) {
        let rows: Vec<u32> =
            (0..classes.len() as u32).filter(|&row| classes[row as usize].is_some()).collect();
        if self.is_decoder()
            || 2 * rows.len() > classes.len()
            || packing.spans_of_rows(&rows).is_err()
        {
            return (Reading::All, ReadTargets::As(given));
        }
        let classes = rows.iter().map(|&row| classes[row as usize]).collect();
        let kept = match given.weights.rows {
            RowWeights::PerRow(weights) => {
                Some(rows.iter().map(|&row| weights[row as usize]).collect())
            }
            RowWeights::Uniform | RowWeights::PerSequence(_) => None,
        };
        (
            Reading::Rows(rows),
            ReadTargets::Rows { classes, row_weights: kept, weights: given.weights },
        )
    }

    /// Hidden states behind the last norm, where one stands behind the blocks.
    fn behind_blocks(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        hidden: &Value,
    ) -> Result<Value, ModelError> {
        if !self.config().has_final_norm() {
            return Ok(hidden.clone());
        }
        self.blocks_of().norm(tape, self.parts(weights, Layer::Head), hidden, Role::FinalNorm)
    }

    /// What stands between the last block and the vocabulary.
    fn before_vocabulary(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        hidden: &Value,
    ) -> Result<Value, ModelError> {
        let hidden = self.behind_blocks(tape, weights, hidden)?;
        self.transformed(tape, weights, hidden)
    }

    /// The dense layer and the norm in front of the vocabulary, where there are some.
    fn transformed(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        hidden: Value,
    ) -> Result<Value, ModelError> {
        let Some(activation) = self.config().language.transform else { return Ok(hidden) };
        let parts = self.parts(weights, Layer::Head);
        let x = tape.linear_activated(&hidden, &parts.projection(Role::Transform)?, activation)?;
        self.blocks_of().norm(tape, parts, &x, Role::TransformNorm)
    }

    /// The output vocabulary: its own weight, or the token embedding's, with its bias and adapter.
    fn output_vocabulary(&self, weights: Weights<'_>) -> Result<Projection, ModelError> {
        let head = self.parts(weights, Layer::Head);
        let own = ParamId::new(Layer::Head, Role::Vocabulary, Part::Weight);
        let weight = if self.layout().contains(own) {
            head.weight(Role::Vocabulary)?
        } else {
            self.parts(weights, Layer::Embedding).weight(Role::Token)?
        };
        head.projection_of(Role::Vocabulary, weight)
    }
}

/// Targets as given, or those of the rows that are read.
enum ReadTargets<'a> {
    As(Weighted<'a>),
    Rows { classes: Vec<Option<u32>>, row_weights: Option<Vec<f32>>, weights: LossWeights<'a> },
}

impl ReadTargets<'_> {
    fn as_weighted(&self) -> Weighted<'_> {
        match self {
            Self::As(given) => *given,
            Self::Rows { classes, row_weights, weights } => {
                let rows = row_weights.as_deref().map_or(weights.rows, RowWeights::PerRow);
                let weights = LossWeights { rows, ..*weights };
                Weighted { targets: Targets::Classes(classes), weights }
            }
        }
    }
}
