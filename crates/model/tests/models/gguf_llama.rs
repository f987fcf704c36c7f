//! A model of ours as a GGUF file: names, metadata and rotary order are the file's.

use crate::gguf_writer::{GgufFile, GgufTensor, Value};
use fedra_compute::Params;
use fedra_model::{Model, Positions};
use fedra_plan::{Layer, ParamId, Role};

/// The file of a decoder with a language head, in F32 and without a tokenizer.
pub fn file(model: &Model, params: &Params) -> GgufFile {
    let config = model.config();
    let Positions::Rotary(rope) = &config.positions else { panic!("a decoder") };
    let count = |number: usize| Value::U32(number as u32);
    let mut file = GgufFile::new()
        .with("general.architecture", Value::Text("llama".into()))
        .with("llama.block_count", count(config.num_hidden_layers))
        .with("llama.context_length", count(config.max_position_embeddings))
        .with("llama.embedding_length", count(config.hidden_size))
        .with("llama.feed_forward_length", count(config.intermediate_size))
        .with("llama.attention.head_count", count(config.num_attention_heads))
        .with("llama.attention.head_count_kv", count(config.kv_heads()))
        .with("llama.attention.key_length", count(config.head_width()))
        .with("llama.attention.value_length", count(config.head_width()))
        .with("llama.rope.dimension_count", count(config.head_width()))
        .with("llama.rope.freq_base", Value::F32(rope.theta as f32))
        .with("llama.attention.layer_norm_rms_epsilon", Value::F32(config.norm.epsilon as f32));
    for (id, shape) in model.layout().iter() {
        let values = params.get(id).unwrap().to_host().into_owned();
        let values = if matches!(id.role, Role::Query | Role::Key) {
            interleaved(&values, shape.dims()[1], config.head_width())
        } else {
            values
        };
        file.tensors.push(GgufTensor::f32(&name(id), shape.dims(), &values));
    }
    file
}

/// Rotary pairs half a head apart to pairs side by side, as a converter writes them.
fn interleaved(values: &[f32], width: usize, head: usize) -> Vec<f32> {
    let row = |row: usize| &values[row * width..][..width];
    let heads = values.len() / width / head;
    let rows = (0..heads).flat_map(|number| {
        (0..head / 2).flat_map(move |pair| [pair, pair + head / 2].map(|r| number * head + r))
    });
    rows.flat_map(row).copied().collect()
}

fn name(id: ParamId) -> String {
    let part = match id.role {
        Role::Token => "token_embd",
        Role::FinalNorm => "output_norm",
        Role::Vocabulary => "output",
        Role::AttentionNorm => "attn_norm",
        Role::Query => "attn_q",
        Role::Key => "attn_k",
        Role::Value => "attn_v",
        Role::Output => "attn_output",
        Role::MlpNorm => "ffn_norm",
        Role::Gate => "ffn_gate",
        Role::Up => "ffn_up",
        Role::Down => "ffn_down",
        Role::Position
        | Role::Segment
        | Role::EmbeddingNorm
        | Role::EmbeddingProjection
        | Role::AttentionOutputNorm
        | Role::MlpOutputNorm
        | Role::QueryNorm
        | Role::KeyNorm
        | Role::Pooler
        | Role::Transform
        | Role::TransformNorm
        | Role::Patch
        | Role::ClassToken
        | Role::DistillationToken
        | Role::RegisterToken
        | Role::AttentionScale
        | Role::MlpScale
        | Role::Classifier => panic!("{id} is no decoder's"),
    };
    match id.site {
        Layer::Block(block) => format!("blk.{block}.{part}.weight"),
        Layer::Embedding | Layer::Head => format!("{part}.weight"),
    }
}
