//! Which parameters a configuration, a head and adapters make, and their shapes.

use crate::config::{
    AttentionBias, ClassifierLayers, Config, NormKind, NormPlace, Positions, QkNorm,
};
use crate::error::ModelError;
use crate::head::Head;
use crate::lora::Adapters;
use fedra_plan::{Layer, Layout, ParamId, Part, Role, Shape};

/// The layout of a model.
pub fn of(config: &Config, head: Head, adapters: Option<&Adapters>) -> Result<Layout, ModelError> {
    config.check()?;
    if let (true, Head::Tokens { .. } | Head::Language) = (config.image.is_some(), head) {
        let expected = "one that classifies whole images, or none";
        return Err(ModelError::structure(
            "head of a model of images",
            &format!("{head:?}"),
            &expected,
        ));
    }
    let mut list = List { parameters: Vec::new(), norm: config.norm.kind };
    list.embedding(config);
    for block in 0..config.num_hidden_layers {
        list.block(Layer::Block(block as u16), config);
    }
    list.head(config, head);
    if let Head::Sequence { classes: 0, .. } | Head::Tokens { classes: 0 } = head {
        return Err(ModelError::structure("number of classes", &0, &"at least 1"));
    }
    if let Some(adapters) = adapters {
        let is_vocabulary = head == Head::Language && config.causal;
        let vocabulary = Shape::matrix(config.vocab_size, config.hidden_size);
        adapt(&mut list, adapters, is_vocabulary.then_some(vocabulary))?;
    }
    Ok(Layout::new(list.parameters)?)
}

/// Puts adapters beside the weights that they correct. A decoder's output vocabulary has this shape, also where its
/// weight is the token embedding: the adapter corrects what the head reads, and no embedding.
fn adapt(
    list: &mut List,
    adapters: &Adapters,
    vocabulary: Option<Shape>,
) -> Result<(), ModelError> {
    let adapted = |id: &ParamId| {
        id.part == Part::Weight && id.layer.block().is_some() && adapters.roles().contains(&id.role)
    };
    let mut weights: Vec<_> =
        list.parameters.iter().filter(|(id, _)| adapted(id)).copied().collect();
    if let Some(shape) = vocabulary.filter(|_| adapters.adapts_head()) {
        let id = ParamId::new(Layer::Head, Adapters::HEAD, Part::Weight);
        let is_tied = list.parameters.iter().all(|(other, _)| *other != id);
        if is_tied && adapters.has_magnitudes() {
            let found = format!("{} with magnitudes (DoRA)", Adapters::HEAD);
            let expected = "no magnitudes where the output vocabulary is the token embedding";
            return Err(ModelError::structure("LoRA role", &found, &expected));
        }
        weights.push((id, shape));
    }
    for role in adapters.roles() {
        if !weights.iter().any(|(id, _)| id.role == *role) {
            let expected = if *role == Adapters::HEAD {
                "a decoder that answers in text: no other model has an output vocabulary to adapt"
            } else {
                "a projection that the model has"
            };
            return Err(ModelError::structure("LoRA role", role, &expected));
        }
    }
    for (ParamId { layer, role, .. }, shape) in weights {
        let &[outputs, inputs] = shape.dims() else { continue };
        // A correction of a higher rank than the matrix would be larger than the matrix itself.
        if adapters.rank() > outputs.min(inputs) {
            let smaller = outputs.min(inputs);
            let expected = format!(
                "at most {smaller}, the smaller side of {} ({outputs} x {inputs})",
                ParamId::new(layer, role, Part::Weight)
            );
            return Err(ModelError::structure("LoRA rank", &adapters.rank(), &expected));
        }
        let (a, b) =
            (Shape::matrix(adapters.rank(), inputs), Shape::matrix(outputs, adapters.rank()));
        list.parameters.push((ParamId::new(layer, role, Part::LoraA), a));
        list.parameters.push((ParamId::new(layer, role, Part::LoraB), b));
        if adapters.has_magnitudes() {
            list.vector(layer, role, Part::Magnitude, outputs);
        }
    }
    Ok(())
}

/// Parameters collected so far.
struct List {
    parameters: Vec<(ParamId, Shape)>,
    norm: NormKind,
}

impl List {
    fn embedding(&mut self, config: &Config) {
        let (layer, width) = (Layer::Embedding, config.embedding_width());
        if let Some(image) = config.image {
            self.projection(layer, Role::Patch, (width, image.patch_inputs()), true);
            self.vector(layer, Role::ClassToken, Part::Weight, width);
            if image.distillation {
                self.vector(layer, Role::DistillationToken, Part::Weight, width);
            }
            if image.registers > 0 {
                self.matrix(layer, Role::RegisterToken, (image.registers, width));
            }
            return self.matrix(layer, Role::Position, (image.positions(), width));
        }
        self.matrix(layer, Role::Token, (config.vocab_size, width));
        if let Positions::Learned { offset } = config.positions {
            self.matrix(layer, Role::Position, (config.max_position_embeddings + offset, width));
        }
        if config.type_vocab_size > 0 {
            self.matrix(layer, Role::Segment, (config.type_vocab_size, width));
        }
        if config.embedding_norm {
            self.norm(layer, Role::EmbeddingNorm, width);
        }
        if config.embedding_size.is_some() {
            self.projection(layer, Role::EmbeddingProjection, (config.hidden_size, width), true);
        }
    }

    fn block(&mut self, layer: Layer, config: &Config) {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let head = config.head_width();
        let (queries, keys) = (config.num_attention_heads * head, config.kv_heads() * head);
        let before = matches!(
            config.norm_place,
            NormPlace::Before | NormPlace::Around | NormPlace::AfterResidual
        );
        let behind = matches!(config.norm_place, NormPlace::After | NormPlace::Around);
        if before && !(config.first_norm_skipped && layer == Layer::Block(0)) {
            self.norm(layer, Role::AttentionNorm, width);
        }
        if behind {
            self.norm(layer, Role::AttentionOutputNorm, width);
            self.norm(layer, Role::MlpOutputNorm, width);
        }
        if config.layer_scale {
            self.vector(layer, Role::AttentionScale, Part::Weight, width);
            self.vector(layer, Role::MlpScale, Part::Weight, width);
        }
        let has_bias = matches!(config.attention_bias, AttentionBias::Qkv | AttentionBias::All);
        self.projection(layer, Role::Query, (queries, width), has_bias);
        self.projection(layer, Role::Key, (keys, width), has_bias);
        self.projection(layer, Role::Value, (keys, width), has_bias);
        let has_bias = matches!(config.attention_bias, AttentionBias::Output | AttentionBias::All);
        self.projection(layer, Role::Output, (width, queries), has_bias);
        match config.qk_norm {
            QkNorm::None => {}
            QkNorm::PerHead => {
                self.norm(layer, Role::QueryNorm, head);
                self.norm(layer, Role::KeyNorm, head);
            }
            QkNorm::Whole => {
                self.norm(layer, Role::QueryNorm, queries);
                self.norm(layer, Role::KeyNorm, keys);
            }
        }
        if before {
            self.norm(layer, Role::MlpNorm, width);
        }
        if config.mlp.gated {
            self.projection(layer, Role::Gate, (inner, width), config.mlp_bias);
        }
        self.projection(layer, Role::Up, (inner, width), config.mlp_bias);
        self.projection(layer, Role::Down, (width, inner), config.mlp_bias);
    }

    fn head(&mut self, config: &Config, head: Head) {
        let (layer, width) = (Layer::Head, config.hidden_size);
        if config.has_final_norm() {
            self.norm(layer, Role::FinalNorm, width);
        }
        let classifies = matches!(head, Head::Sequence { .. } | Head::Tokens { .. });
        let is_transformed = classifies && config.classifier.layers == ClassifierLayers::Transform;
        if is_transformed || head == Head::Language && config.language.transform.is_some() {
            let narrow = config.embedding_width();
            let has_bias = config.language.transform_bias;
            self.projection(layer, Role::Transform, (narrow, width), has_bias);
            self.norm(layer, Role::TransformNorm, narrow);
        }
        match head {
            Head::Bare => {}
            Head::Sequence { classes, pooler } => {
                if pooler && config.classifier.has_dense() {
                    self.projection(layer, Role::Pooler, (width, width), true);
                }
                let width = config.classifier_width();
                self.projection(layer, Role::Classifier, (classes, width), config.classifier.bias);
            }
            Head::Tokens { classes } => {
                self.projection(layer, Role::Classifier, (classes, width), true);
            }
            Head::Language => {
                if !config.tie_word_embeddings {
                    self.matrix(layer, Role::Vocabulary, (config.vocab_size, width));
                }
                if config.language.bias {
                    self.vector(layer, Role::Vocabulary, Part::Bias, config.vocab_size);
                }
            }
        }
    }

    fn matrix(&mut self, layer: Layer, role: Role, (rows, cols): (usize, usize)) {
        self.parameters.push((ParamId::new(layer, role, Part::Weight), Shape::matrix(rows, cols)));
    }

    fn vector(&mut self, layer: Layer, role: Role, part: Part, len: usize) {
        self.parameters.push((ParamId::new(layer, role, part), Shape::vector(len)));
    }

    fn projection(&mut self, layer: Layer, role: Role, shape: (usize, usize), has_bias: bool) {
        self.matrix(layer, role, shape);
        if has_bias {
            self.vector(layer, role, Part::Bias, shape.0);
        }
    }

    fn norm(&mut self, layer: Layer, role: Role, width: usize) {
        self.vector(layer, role, Part::Weight, width);
        match self.norm {
            NormKind::Layer => self.vector(layer, role, Part::Bias, width),
            NormKind::LayerUnbiased | NormKind::Rms | NormKind::RmsPlusOne => {}
        }
    }
}
