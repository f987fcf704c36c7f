//! Which parameters a configuration, a head and adapters make, and their shapes.

use crate::error::ModelError;
use crate::head::Head;
use crate::hf::{BertConfig, Config, LlamaConfig};
use crate::lora::Adapters;
use fedra_plan::{Layer, Layout, ParamId, Part, Role, Shape};

/// The layout of a model.
pub fn of(config: &Config, head: Head, adapters: Option<&Adapters>) -> Result<Layout, ModelError> {
    config.check()?;
    let mut list = List(Vec::new());
    match config {
        Config::Bert(config) => bert(&mut list, config, head),
        Config::Llama(config) => llama(&mut list, config, head),
    }
    if let Head::Sequence { classes: 0, .. } | Head::Tokens { classes: 0 } = head {
        return Err(ModelError::structure("number of classes", &0, &"at least 1"));
    }
    if let Some(adapters) = adapters {
        adapt(&mut list, adapters)?;
    }
    Ok(Layout::new(list.0)?)
}

fn bert(list: &mut List, config: &BertConfig, head: Head) {
    let (width, inner) = (config.hidden_size, config.intermediate_size);
    list.matrix(Layer::Embedding, Role::Token, config.vocab_size, width);
    list.matrix(Layer::Embedding, Role::Position, config.max_position_embeddings, width);
    if config.type_vocab_size > 0 {
        list.matrix(Layer::Embedding, Role::Segment, config.type_vocab_size, width);
    }
    list.layer_norm(Layer::Embedding, Role::EmbeddingNorm, width);
    for site in blocks(config.num_hidden_layers) {
        for role in [Role::Query, Role::Key, Role::Value, Role::Output] {
            list.affine(site, role, width, width);
        }
        list.layer_norm(site, Role::AttentionNorm, width);
        list.affine(site, Role::Up, inner, width);
        list.affine(site, Role::Down, width, inner);
        list.layer_norm(site, Role::MlpNorm, width);
    }
    match head {
        Head::Bare => {}
        Head::Sequence { classes, pooler } => {
            if pooler {
                list.affine(Layer::Head, Role::Pooler, width, width);
            }
            list.affine(Layer::Head, Role::Classifier, classes, width);
        }
        Head::Tokens { classes } => list.affine(Layer::Head, Role::Classifier, classes, width),
        Head::Language => {
            list.affine(Layer::Head, Role::Transform, width, width);
            list.layer_norm(Layer::Head, Role::TransformNorm, width);
            list.vector(Layer::Head, Role::Vocabulary, Part::Bias, config.vocab_size);
        }
    }
}

fn llama(list: &mut List, config: &LlamaConfig, head: Head) {
    let (width, inner) = (config.hidden_size, config.intermediate_size);
    let queries = config.num_attention_heads * config.head_dim;
    let keys = config.num_key_value_heads * config.head_dim;
    list.matrix(Layer::Embedding, Role::Token, config.vocab_size, width);
    for site in blocks(config.num_hidden_layers) {
        list.vector(site, Role::AttentionNorm, Part::Weight, width);
        list.matrix(site, Role::Query, queries, width);
        list.matrix(site, Role::Key, keys, width);
        list.matrix(site, Role::Value, keys, width);
        list.matrix(site, Role::Output, width, queries);
        list.vector(site, Role::MlpNorm, Part::Weight, width);
        list.matrix(site, Role::Gate, inner, width);
        list.matrix(site, Role::Up, inner, width);
        list.matrix(site, Role::Down, width, inner);
    }
    list.vector(Layer::Head, Role::FinalNorm, Part::Weight, width);
    match head {
        Head::Bare => {}
        // As in the library: a sequence head has no bias, a token head has one.
        Head::Sequence { classes, .. } => {
            list.matrix(Layer::Head, Role::Classifier, classes, width);
        }
        Head::Tokens { classes } => list.affine(Layer::Head, Role::Classifier, classes, width),
        Head::Language if config.tie_word_embeddings => {}
        Head::Language => list.matrix(Layer::Head, Role::Vocabulary, config.vocab_size, width),
    }
}

fn adapt(list: &mut List, adapters: &Adapters) -> Result<(), ModelError> {
    let adapted = |id: &ParamId| {
        id.part == Part::Weight && id.site.block().is_some() && adapters.roles().contains(&id.role)
    };
    let weights: Vec<_> = list.0.iter().filter(|(id, _)| adapted(id)).copied().collect();
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
        list.0.push((ParamId::new(site, role, Part::LoraA), a));
        list.0.push((ParamId::new(site, role, Part::LoraB), b));
    }
    Ok(())
}

fn blocks(count: usize) -> impl Iterator<Item = Layer> {
    (0..count).map(|block| Layer::Block(block as u16))
}

/// Parameters collected so far.
struct List(Vec<(ParamId, Shape)>);

impl List {
    fn matrix(&mut self, site: Layer, role: Role, rows: usize, cols: usize) {
        self.0.push((ParamId::new(site, role, Part::Weight), Shape::matrix(rows, cols)));
    }

    fn vector(&mut self, site: Layer, role: Role, part: Part, len: usize) {
        self.0.push((ParamId::new(site, role, part), Shape::vector(len)));
    }

    /// A matrix with a bias.
    fn affine(&mut self, site: Layer, role: Role, outputs: usize, inputs: usize) {
        self.matrix(site, role, outputs, inputs);
        self.vector(site, role, Part::Bias, outputs);
    }

    fn layer_norm(&mut self, site: Layer, role: Role, width: usize) {
        self.vector(site, role, Part::Weight, width);
        self.vector(site, role, Part::Bias, width);
    }
}
