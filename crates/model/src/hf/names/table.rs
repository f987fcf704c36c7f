//! The tables: which module of the library holds which role.

use fedra_plan::{Layer, ParamId, Part, Role};

/// One module of a model.
#[derive(Debug)]
pub struct Row {
    pub place: Place,
    pub role: Role,
    /// The module's path, after the prefixes of the backbone and of the block.
    pub module: &'static str,
    kind: Kind,
}

/// Where a module sits, which decides its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Embedding,
    Block,
    /// After the blocks, yet inside what the library calls the base model.
    BackboneHead,
    Head,
}

/// Which parameters a module has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A matrix that is looked up: weight.
    Lookup,
    /// A matrix that is multiplied: weight, adapters.
    Linear,
    /// The same with a bias.
    Affine,
    /// A norm's scale: weight.
    Scale,
    /// A norm's scale and shift: weight, bias.
    Norm,
    /// A bias alone.
    Bias,
}

impl Row {
    const fn new(place: Place, role: Role, module: &'static str, kind: Kind) -> Self {
        Self { place, role, module, kind }
    }

    /// Whether this module holds the parameter.
    pub fn is(&self, id: ParamId) -> bool {
        let here = match self.place {
            Place::Embedding => id.site == Layer::Embedding,
            Place::Block => matches!(id.site, Layer::Block(_)),
            Place::BackboneHead | Place::Head => id.site == Layer::Head,
        };
        let has_part = match self.kind {
            Kind::Lookup | Kind::Scale => id.part == Part::Weight,
            Kind::Linear => id.part != Part::Bias,
            Kind::Affine => true,
            Kind::Norm => matches!(id.part, Part::Weight | Part::Bias),
            Kind::Bias => id.part == Part::Bias,
        };
        here && has_part && self.role == id.role
    }

    pub fn is_norm(&self) -> bool {
        self.kind == Kind::Norm
    }
}

pub const BERT: &[Row] = &[
    Row::new(Place::Embedding, Role::Token, "embeddings.word_embeddings", Kind::Lookup),
    Row::new(Place::Embedding, Role::Position, "embeddings.position_embeddings", Kind::Lookup),
    Row::new(Place::Embedding, Role::Segment, "embeddings.token_type_embeddings", Kind::Lookup),
    Row::new(Place::Embedding, Role::EmbeddingNorm, "embeddings.LayerNorm", Kind::Norm),
    Row::new(Place::Block, Role::Query, "attention.self.query", Kind::Affine),
    Row::new(Place::Block, Role::Key, "attention.self.key", Kind::Affine),
    Row::new(Place::Block, Role::Value, "attention.self.value", Kind::Affine),
    Row::new(Place::Block, Role::Output, "attention.output.dense", Kind::Affine),
    Row::new(Place::Block, Role::AttentionNorm, "attention.output.LayerNorm", Kind::Norm),
    Row::new(Place::Block, Role::Up, "intermediate.dense", Kind::Affine),
    Row::new(Place::Block, Role::Down, "output.dense", Kind::Affine),
    Row::new(Place::Block, Role::MlpNorm, "output.LayerNorm", Kind::Norm),
    Row::new(Place::BackboneHead, Role::Pooler, "pooler.dense", Kind::Affine),
    Row::new(Place::Head, Role::Classifier, "classifier", Kind::Affine),
    Row::new(Place::Head, Role::Transform, "cls.predictions.transform.dense", Kind::Affine),
    Row::new(Place::Head, Role::TransformNorm, "cls.predictions.transform.LayerNorm", Kind::Norm),
    // Its weight is the token embedding.
    Row::new(Place::Head, Role::Vocabulary, "cls.predictions", Kind::Bias),
];

pub const LLAMA: &[Row] = &[
    Row::new(Place::Embedding, Role::Token, "embed_tokens", Kind::Lookup),
    Row::new(Place::Block, Role::AttentionNorm, "input_layernorm", Kind::Scale),
    Row::new(Place::Block, Role::Query, "self_attn.q_proj", Kind::Linear),
    Row::new(Place::Block, Role::Key, "self_attn.k_proj", Kind::Linear),
    Row::new(Place::Block, Role::Value, "self_attn.v_proj", Kind::Linear),
    Row::new(Place::Block, Role::Output, "self_attn.o_proj", Kind::Linear),
    Row::new(Place::Block, Role::MlpNorm, "post_attention_layernorm", Kind::Scale),
    Row::new(Place::Block, Role::Gate, "mlp.gate_proj", Kind::Linear),
    Row::new(Place::Block, Role::Up, "mlp.up_proj", Kind::Linear),
    Row::new(Place::Block, Role::Down, "mlp.down_proj", Kind::Linear),
    Row::new(Place::BackboneHead, Role::FinalNorm, "norm", Kind::Scale),
    Row::new(Place::Head, Role::Vocabulary, "lm_head", Kind::Linear),
    Row::new(Place::Head, Role::Classifier, "score", Kind::Affine),
];
