//! A model's structure: blocks, head, adapters, and the layout that follows from them.

use crate::batch::Batch;
use crate::block::Blocks;
use crate::config::Config;
use crate::error::ModelError;
use crate::head::Head;
use crate::layout;
use crate::lora::{Adapters, Magnitudes};
use crate::packing::Packing;
use crate::parts::Parts;
use crate::probe::{BlockProbe, Queries, Relevant, watch_received};
use crate::reading::Reading;
use crate::weight_storage::WeightStorage;
use fedra_compute::{Params, Span, Tape, Value, Weights, magnitude_factors};
use fedra_plan::{Layer, Layout, ParamId, Part};
use std::ops::Range;

/// Structure without numbers.
///
/// ```
/// use fedra_compute::{Device, Seed, Tape, Tensor};
/// use fedra_model::{Batch, Head, Model, Preset, Targets};
/// use fedra_plan::Scope;
///
/// let device = Device::cpu();
/// let head = Head::Sequence { classes: 3, pooler: false };
/// let model = Model::new(Preset::Tiny.config(), head, None)?;
/// let params = model.fresh_params(&device, Seed(1))?;
/// let scope = Scope::of_blocks(model.layout(), [3]);
///
/// let batch = Batch::new(&[&[1, 2, 3][..], &[4, 5]])?;
/// let mut tape = Tape::new(&device);
/// let targets = Targets::Classes(&[Some(0), Some(2)]);
/// let loss = model.loss(&mut tape, params.training(&scope), &batch, targets)?;
/// let gradients = tape.backward(&[(&loss, Tensor::scalar(&device, 1.0))])?;
/// assert_eq!(gradients.iter().len(), scope.len());
/// # Ok::<(), fedra_model::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    blocks: Blocks,
    head: Head,
    adapters: Option<Adapters>,
    layout: Layout,
    storage: WeightStorage,
}

impl Model {
    /// The structure that a configuration, a head and adapters make together.
    pub fn new(config: Config, head: Head, adapters: Option<Adapters>) -> Result<Self, ModelError> {
        let layout = layout::of(&config, head, adapters.as_ref())?;
        let storage = WeightStorage::default();
        Ok(Self { blocks: Blocks::new(config), head, adapters, layout, storage })
    }

    /// The same structure, some of whose weights are stored in another format than f32.
    #[must_use]
    pub fn stored_as(self, storage: WeightStorage) -> Self {
        Self { storage, ..self }
    }

    /// How its weights are stored.
    pub fn storage(&self) -> &WeightStorage {
        &self.storage
    }

    /// The same structure with at most this many blocks; all its parameters are in this layout too.
    pub fn shallow(&self, blocks: usize) -> Result<Self, ModelError> {
        let num_hidden_layers = blocks.min(self.blocks());
        let config = Config { num_hidden_layers, ..self.config().clone() };
        let shallow = Self::new(config, self.head, self.adapters.clone())?;
        Ok(shallow.stored_as(self.storage.clone()))
    }

    /// The same structure with adapters of a lower rank.
    pub fn with_rank(&self, rank: usize) -> Result<Self, ModelError> {
        let adapters = self.adapters.clone().map(|adapters| adapters.with_rank(rank));
        let narrow = Self::new(self.config().clone(), self.head, adapters)?;
        Ok(narrow.stored_as(self.storage.clone()))
    }

    /// The same structure without adapters; all its parameters are in this layout too.
    pub fn without_adapters(&self) -> Result<Self, ModelError> {
        let plain = Self::new(self.config().clone(), self.head, None)?;
        Ok(plain.stored_as(self.storage.clone()))
    }

    /// The same structure for parameters that train no more: magnitudes of adapted rows are divided by the norms that
    /// the rows have, which would take a pass over all adapted weights for every token that is written. It can neither
    /// be trained nor saved.
    pub fn settled(&self, params: &mut Params) -> Result<Self, ModelError> {
        let Some(adapters) =
            self.adapters.as_ref().filter(|it| it.magnitudes() == Magnitudes::Norms)
        else {
            return Ok(self.clone());
        };
        for id in self.layout.ids().filter(|id| id.part == Part::Magnitude) {
            let Some(magnitude) = params.find(id) else { continue };
            let part = |part| params.get(ParamId { part, ..id });
            let low_rank = (part(Part::LoraA)?, part(Part::LoraB)?, adapters.scale());
            let factors = magnitude_factors(part(Part::Weight)?, low_rank, magnitude);
            params.insert(id, factors);
        }
        Ok(Self { adapters: Some(adapters.clone().with_factors()), ..self.clone() })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        self.blocks.config()
    }

    pub(crate) fn blocks_of(&self) -> &Blocks {
        &self.blocks
    }

    /// The head.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The adapters, if it has any.
    pub fn adapters(&self) -> Option<&Adapters> {
        self.adapters.as_ref()
    }

    /// Every parameter and its shape.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        usize::from(self.layout.blocks())
    }

    /// Attention heads of a block.
    pub fn heads(&self) -> usize {
        self.config().num_attention_heads
    }

    /// Width of the hidden states.
    pub fn width(&self) -> usize {
        self.config().hidden_size
    }

    /// Longest sequence.
    pub fn longest(&self) -> usize {
        self.config().max_position_embeddings
    }

    /// The longest text whose tokens have the rotary positions of short ones, where long texts have others.
    pub fn longest_short_text(&self) -> Option<usize> {
        self.config().longest_short_text()
    }

    /// Rows of the token embedding.
    pub fn vocabulary(&self) -> usize {
        self.config().vocab_size
    }

    /// Whether a token sees only those before it.
    pub fn is_decoder(&self) -> bool {
        self.config().causal
    }

    /// Hidden states in front of `range.start` to those behind `range.end - 1`.
    ///
    /// `reading` applies to the last block of the model, when it is in the range.
    pub fn run_blocks(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        hidden: Value,
        packing: &Packing,
        range: Range<usize>,
        reading: &Reading,
    ) -> Result<Value, ModelError> {
        self.blocks_with(tape, weights, (hidden, range), packing, reading, None)
    }

    /// The attention score of every block, from token ids; nothing is trained.
    pub fn probe_blocks(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        batch: &Batch,
        probe: &mut BlockProbe,
    ) -> Result<(), ModelError> {
        let hidden = self.embed(tape, weights, batch)?;
        let all = (hidden, 0..self.blocks());
        let mut watched = probe.watch(batch.packing())?;
        self.blocks_with(tape, weights, all, batch.packing(), &Reading::All, Some(&mut watched))?;
        probe.record(&watched);
        Ok(())
    }

    /// Hidden states behind a range of blocks, and by block the share of its sequence's attention that
    /// each token receives.
    ///
    /// Whoever computes this need not know which tokens are relevant: [`Relevant::scores`] makes
    /// scores of it elsewhere.
    pub fn received_attention(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        hidden: (Value, Range<usize>),
        packing: &Packing,
        from: Queries,
    ) -> Result<(Value, Vec<Vec<f32>>), ModelError> {
        let mut watched = watch_received(packing, from);
        let probe = Some(&mut watched);
        let behind = self.blocks_with(tape, weights, hidden, packing, &Reading::All, probe)?;
        Ok((behind, watched.received.unwrap_or_default()))
    }

    /// The attention of every block as it is: by sequence, head, query and key.
    ///
    /// That is heads times the square of the length, for each block and sequence.
    pub fn attention_patterns(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        batch: &Batch,
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let hidden = self.embed(tape, weights, batch)?;
        let all = (hidden, 0..self.blocks());
        let mut watched = BlockProbe::new(Relevant::All).watch(batch.packing())?;
        watched.patterns = Some(Vec::new());
        self.blocks_with(tape, weights, all, batch.packing(), &Reading::All, Some(&mut watched))?;
        Ok(watched.patterns.unwrap_or_default())
    }

    fn blocks_with(
        &self,
        tape: &mut Tape,
        weights: Weights<'_>,
        (mut hidden, range): (Value, Range<usize>),
        packing: &Packing,
        reading: &Reading,
        mut probe: Option<&mut fedra_compute::AttentionProbe>,
    ) -> Result<Value, ModelError> {
        self.check_packing(packing)?;
        self.check_range(&range)?;
        let ends: Vec<usize> =
            packing.lengths().iter().zip(packing.offsets()).map(|(l, o)| l + o).collect();
        let is_long =
            |sequence: usize| self.longest_short_text().is_some_and(|it| ends[sequence] > it);
        let (spans, positions) = (packing.spans(), self.blocks.turns(packing, is_long));
        hidden = hidden.in_sequences(&packing.boundaries())?;
        for block in range {
            let (spans_read, reading) = match reading {
                Reading::Rows(rows) if block + 1 == self.blocks() => {
                    (self.spans_read(packing, rows)?, reading)
                }
                Reading::All | Reading::Rows(_) => (spans.clone(), &Reading::All),
            };
            let parts = self.parts(weights, Layer::Block(block as u16));
            let probe = probe.as_deref_mut();
            let how = (&spans_read[..], reading, &positions[..]);
            hidden = self.blocks.run(tape, parts, &hidden, how, probe)?;
        }
        Ok(hidden)
    }

    /// The queries of the last block. A causal mask counts on from a sequence's first query, so a
    /// decoder's rows are refused where they might leave a gap.
    fn spans_read(&self, packing: &Packing, rows: &[u32]) -> Result<Vec<Span>, ModelError> {
        let spans = packing.spans_of_rows(rows)?;
        if self.is_decoder() && rows.len() != packing.sequences() {
            let what = "number of rows read from a decoder";
            return Err(ModelError::batch(what, &rows.len(), &packing.sequences()));
        }
        Ok(spans)
    }

    pub(crate) fn parts<'a>(&'a self, weights: Weights<'a>, layer: Layer) -> Parts<'a> {
        Parts::of(&self.layout, weights, layer, self.adapters.as_ref())
    }

    /// Refuses a sequence that ends behind the last position.
    pub(crate) fn check_packing(&self, packing: &Packing) -> Result<(), ModelError> {
        let ends = packing.lengths().iter().zip(packing.offsets());
        let longest =
            ends.map(|(length, offset)| offset.saturating_add(*length)).max().unwrap_or(0);
        if longest > self.longest() {
            let expected = format!("at most {}", self.longest());
            return Err(ModelError::batch("length of sequence", &longest, &expected));
        }
        Ok(())
    }

    /// Refuses blocks that the model does not have.
    pub(crate) fn check_range(&self, range: &Range<usize>) -> Result<(), ModelError> {
        if range.start > range.end || range.end > self.blocks() {
            let (found, expected) = (format!("{range:?}"), format!("inside 0..{}", self.blocks()));
            return Err(ModelError::structure("block range", &found, &expected));
        }
        Ok(())
    }
}
