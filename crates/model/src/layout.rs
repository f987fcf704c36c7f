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
        adapt(&mut list, adapters)?;
    }
    Ok(Layout::new(list.parameters)?)
}

fn adapt(list: &mut List, adapters: &Adapters) -> Result<(), ModelError> {
    let adapted = |id: &ParamId| {
        id.part == Part::Weight && id.site.block().is_some() && adapters.roles().contains(&id.role)
    };
    let weights: Vec<_> = list.parameters.iter().filter(|(id, _)| adapted(id)).copied().collect();
    for role in adapters.roles() {
        if !weights.iter().any(|(id, _)| id.role == *role) {
            let expected = "a projection that the model has";
            return Err(ModelError::structure("LoRA role", role, &expected));
        }
    }
    for (ParamId { site, role, .. }, shape) in weights {
        let &[outputs, inputs] = shape.dims() else { continue };
        // A correction of a higher rank than the matrix would be larger than the matrix itself.
        if adapters.rank() > outputs.min(inputs) {
            let smaller = outputs.min(inputs);
            let expected = format!(
                "at most {smaller}, the smaller side of {} ({outputs} x {inputs})",
                ParamId::new(site, role, Part::Weight)
            );
            return Err(ModelError::structure("LoRA rank", &adapters.rank(), &expected));
        }
        let (a, b) =
            (Shape::matrix(adapters.rank(), inputs), Shape::matrix(outputs, adapters.rank()));
        list.parameters.push((ParamId::new(site, role, Part::LoraA), a));
        list.parameters.push((ParamId::new(site, role, Part::LoraB), b));
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
        let (site, width) = (Layer::Embedding, config.embedding_width());
        if let Some(image) = config.image {
            self.projection(site, Role::Patch, (width, image.patch_inputs()), true);
            self.vector(site, Role::ClassToken, Part::Weight, width);
            if image.distillation {
                self.vector(site, Role::DistillationToken, Part::Weight, width);
            }
            if image.registers > 0 {
                self.matrix(site, Role::RegisterToken, (image.registers, width));
            }
            return self.matrix(site, Role::Position, (image.positions(), width));
        }
        self.matrix(site, Role::Token, (config.vocab_size, width));
        if let Positions::Learned { offset } = config.positions {
            self.matrix(site, Role::Position, (config.max_position_embeddings + offset, width));
        }
        if config.type_vocab_size > 0 {
            self.matrix(site, Role::Segment, (config.type_vocab_size, width));
        }
        if config.embedding_norm {
            self.norm(site, Role::EmbeddingNorm, width);
        }
        if config.embedding_size.is_some() {
            self.projection(site, Role::EmbeddingProjection, (config.hidden_size, width), true);
        }
    }

    fn block(&mut self, site: Layer, config: &Config) {
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        let head = config.head_width();
        let (queries, keys) = (config.num_attention_heads * head, config.kv_heads() * head);
        let before = matches!(
            config.norm_place,
            NormPlace::Before | NormPlace::Around | NormPlace::AfterResidual
        );
        let behind = matches!(config.norm_place, NormPlace::After | NormPlace::Around);
        if before && !(config.first_norm_skipped && site == Layer::Block(0)) {
            self.norm(site, Role::AttentionNorm, width);
        }
        if behind {
            self.norm(site, Role::AttentionOutputNorm, width);
            self.norm(site, Role::MlpOutputNorm, width);
        }
        if config.layer_scale {
            self.vector(site, Role::AttentionScale, Part::Weight, width);
            self.vector(site, Role::MlpScale, Part::Weight, width);
        }
        let has_bias = matches!(config.attention_bias, AttentionBias::Qkv | AttentionBias::All);
        self.projection(site, Role::Query, (queries, width), has_bias);
        self.projection(site, Role::Key, (keys, width), has_bias);
        self.projection(site, Role::Value, (keys, width), has_bias);
        let has_bias = matches!(config.attention_bias, AttentionBias::Output | AttentionBias::All);
        self.projection(site, Role::Output, (width, queries), has_bias);
        match config.qk_norm {
            QkNorm::None => {}
            QkNorm::PerHead => {
                self.norm(site, Role::QueryNorm, head);
                self.norm(site, Role::KeyNorm, head);
            }
            QkNorm::Whole => {
                self.norm(site, Role::QueryNorm, queries);
                self.norm(site, Role::KeyNorm, keys);
            }
        }
        if before {
            self.norm(site, Role::MlpNorm, width);
        }
        if config.mlp.gated {
            self.projection(site, Role::Gate, (inner, width), config.mlp_bias);
        }
        self.projection(site, Role::Up, (inner, width), config.mlp_bias);
        self.projection(site, Role::Down, (width, inner), config.mlp_bias);
    }

    fn head(&mut self, config: &Config, head: Head) {
        let (site, width) = (Layer::Head, config.hidden_size);
        if config.has_final_norm() {
            self.norm(site, Role::FinalNorm, width);
        }
        let classifies = matches!(head, Head::Sequence { .. } | Head::Tokens { .. });
        let is_transformed = classifies && config.classifier.layers == ClassifierLayers::Transform;
        if is_transformed || head == Head::Language && config.language.transform.is_some() {
            let narrow = config.embedding_width();
            let has_bias = config.language.transform_bias;
            self.projection(site, Role::Transform, (narrow, width), has_bias);
            self.norm(site, Role::TransformNorm, narrow);
        }
        match head {
            Head::Bare => {}
            Head::Sequence { classes, pooler } => {
                if pooler && config.classifier.has_dense() {
                    self.projection(site, Role::Pooler, (width, width), true);
                }
                let width = config.classifier_width();
                self.projection(site, Role::Classifier, (classes, width), config.classifier.bias);
            }
            Head::Tokens { classes } => {
                self.projection(site, Role::Classifier, (classes, width), true);
            }
            Head::Language => {
                if !config.tie_word_embeddings {
                    self.matrix(site, Role::Vocabulary, (config.vocab_size, width));
                }
                if config.language.bias {
                    self.vector(site, Role::Vocabulary, Part::Bias, config.vocab_size);
                }
            }
        }
    }

    fn matrix(&mut self, site: Layer, role: Role, (rows, cols): (usize, usize)) {
        self.parameters.push((ParamId::new(site, role, Part::Weight), Shape::matrix(rows, cols)));
    }

    fn vector(&mut self, site: Layer, role: Role, part: Part, len: usize) {
        self.parameters.push((ParamId::new(site, role, part), Shape::vector(len)));
    }

    fn projection(&mut self, site: Layer, role: Role, shape: (usize, usize), has_bias: bool) {
        self.matrix(site, role, shape);
        if has_bias {
            self.vector(site, role, Part::Bias, shape.0);
        }
    }

    fn norm(&mut self, site: Layer, role: Role, width: usize) {
        self.vector(site, role, Part::Weight, width);
        match self.norm {
            NormKind::Layer => self.vector(site, role, Part::Bias, width),
            NormKind::LayerUnbiased | NormKind::Rms | NormKind::RmsPlusOne => {}
        }
    }
}
