//! A model of ours as a GGUF file, in the layout of the format's own converter: names, metadata, the rotary order of
//! rows, norms with 1 added, projections that lie together.

use crate::gguf_writer::{GgufFile, GgufTensor, Value};
use fedra_compute::Params;
use fedra_model::{LongRope, Model, NormKind, Positions, RopeScaling};
use fedra_plan::{Layer, ParamId, Part, Role};
use std::collections::BTreeMap;

/// Families, what the format calls them, and whether it turns neighbouring rows of queries and keys.
pub const ARCHITECTURES: [(&str, &str, bool); 11] = [
    ("llama", "llama", true),
    ("mistral", "llama", true),
    ("qwen2", "qwen2", false),
    ("qwen3", "qwen3", false),
    ("gemma", "gemma", false),
    ("gemma2", "gemma2", false),
    ("gemma3_text", "gemma3", false),
    ("phi3", "phi3", false),
    ("olmo2", "olmo2", false),
    ("smollm3", "smollm3", true),
    ("gpt2", "gpt2", false),
];

/// The file of a decoder with a language head, in F32 and without a tokenizer.
pub fn file(model: &Model, params: &Params) -> GgufFile {
    let config = model.config();
    let known = ARCHITECTURES.iter().find(|(family, ..)| *family == config.family.model_type);
    let &(_, architecture, is_interleaved) = known.expect("a decoder");
    let mut file =
        GgufFile::new().with("general.architecture", Value::Text(architecture.to_owned()));
    let mut put = |key: &str, value| {
        file = std::mem::replace(&mut file, GgufFile::new())
            .with(&format!("{architecture}.{key}"), value);
    };
    let count = |number: usize| Value::U32(number as u32);
    let number = |number: f64| Value::F32(number as f32);
    put("block_count", count(config.num_hidden_layers));
    put("context_length", count(config.max_position_embeddings));
    put("embedding_length", count(config.hidden_size));
    put("feed_forward_length", count(config.intermediate_size));
    put("attention.head_count", count(config.num_attention_heads));
    let (mut divisors, mut factors) = (Vec::new(), Vec::new());
    if let Positions::Rotary(rope) = &config.positions {
        put("attention.head_count_kv", count(config.kv_heads()));
        put("attention.key_length", count(config.head_width()));
        put("attention.value_length", count(config.head_width()));
        put("attention.layer_norm_rms_epsilon", number(config.norm.epsilon));
        put("rope.dimension_count", count(config.head_width()));
        put("rope.freq_base", number(rope.theta));
        if let Some(local) = rope.local_theta {
            put("rope.freq_base_swa", number(local));
        }
        match rope.scaling.clone() {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                put("rope.scaling.type", Value::Text("linear".into()));
                put("rope.scaling.factor", number(factor));
            }
            RopeScaling::Yarn { factor, original, fast, slow, .. } => {
                put("rope.scaling.type", Value::Text("yarn".into()));
                put("rope.scaling.factor", number(factor));
                put("rope.scaling.original_context_length", count(original as usize));
                put("rope.scaling.yarn_beta_fast", number(fast));
                put("rope.scaling.yarn_beta_slow", number(slow));
            }
            RopeScaling::Llama3 { factor, low, high, original } => {
                divisors = bands(rope.theta, config.head_width(), [factor, low, high, original]);
            }
            RopeScaling::LongRope(LongRope { short, long, original, attention }) => {
                put("rope.scaling.original_context_length", count(original));
                put("rope.scaling.attn_factor", number(attention));
                factors =
                    vec![("rope_factors_long.weight", long), ("rope_factors_short.weight", short)];
            }
            RopeScaling::Dynamic { .. } => panic!("no file has it"),
        }
    } else {
        put("attention.layer_norm_epsilon", number(config.norm.epsilon));
    }
    if let Some(cap) = config.score_cap {
        put("attn_logit_softcapping", number(cap));
    }
    if let Some(cap) = config.logit_cap {
        put("final_logit_softcapping", number(cap));
    }
    if let Some(window) = &config.window {
        put("attention.sliding_window", count(window.distance + 1));
        // Gemma 2 has a rule that needs no key.
        if architecture == "gemma3" {
            let flags = window.blocks.iter().map(|near| u8::from(*near));
            let mut list = 7u32.to_le_bytes().to_vec();
            list.extend((window.blocks.len() as u64).to_le_bytes());
            list.extend(flags);
            put("attention.sliding_window_pattern", Value::Raw(9, list));
        }
    }
    for (name, token) in [
        ("bos", config.bos_token_id),
        ("eos", config.eos_token_ids.first().copied()),
        ("padding", config.pad_token_id),
    ] {
        if let Some(token) = token {
            file = file.with(&format!("tokenizer.ggml.{name}_token_id"), Value::U32(token));
        }
    }
    for (name, (shape, values)) in tensors(model, params, (architecture, is_interleaved)) {
        file.tensors.push(GgufTensor::f32(&name, &shape, &values));
    }
    if !divisors.is_empty() {
        file.tensors.push(GgufTensor::f32("rope_freqs.weight", &[divisors.len()], &divisors));
    }
    for (name, factors) in factors {
        let factors: Vec<f32> = factors.iter().map(|factor: &f64| *factor as f32).collect();
        file.tensors.push(GgufTensor::f32(name, &[factors.len()], &factors));
    }
    file
}

/// Shape and values of every tensor.
fn tensors(
    model: &Model,
    params: &Params,
    (architecture, is_interleaved): (&str, bool),
) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
    let is_joined = ["phi3", "gpt2"].contains(&architecture);
    let config = model.config();
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)> = BTreeMap::new();
    for (id, shape) in model.layout().iter() {
        let mut values = params.get(id).unwrap().to_host().into_owned();
        let width = values.len() / shape.dims()[0];
        if is_interleaved && matches!(id.role, Role::Query | Role::Key) {
            values = interleaved(&values, width, config.head_width());
        }
        let module = name(id, is_joined, architecture == "phi3");
        if config.norm.kind == NormKind::RmsPlusOne && module.contains("norm") {
            for value in &mut values {
                *value += 1.0;
            }
        }
        // Those that lie together follow each other in a layout too.
        let (whole, all) = tensors.entry(module).or_default();
        match whole.first_mut() {
            Some(rows) => *rows += shape.dims()[0],
            None => whole.extend(shape.dims()),
        }
        all.extend(values);
    }
    tensors
}

/// What the frequencies of Llama 3 are divided by, in f32 and as its authors wrote it.
fn bands(theta: f64, head: usize, [factor, low, high, original]: [f64; 4]) -> Vec<f32> {
    let divisor = |pair: usize| {
        let wavelength =
            std::f32::consts::TAU * (theta as f32).powf(2.0 * pair as f32 / head as f32);
        if f64::from(wavelength) < original / high {
            return 1.0;
        }
        if f64::from(wavelength) > original / low {
            return factor as f32;
        }
        let smooth = (original as f32 / wavelength - low as f32) / (high - low) as f32;
        1.0 / ((1.0 - smooth) / factor as f32 + smooth)
    };
    (0..head / 2).map(divisor).collect()
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

fn name(id: ParamId, is_joined: bool, has_gate_with_up: bool) -> String {
    let module = match id.role {
        Role::Query | Role::Key | Role::Value if is_joined => "attn_qkv",
        Role::Gate if has_gate_with_up => "ffn_up",
        Role::Token => "token_embd",
        Role::Position => "position_embd",
        Role::FinalNorm => "output_norm",
        Role::Vocabulary => "output",
        Role::AttentionNorm => "attn_norm",
        Role::Query => "attn_q",
        Role::Key => "attn_k",
        Role::Value => "attn_v",
        Role::Output => "attn_output",
        Role::QueryNorm => "attn_q_norm",
        Role::KeyNorm => "attn_k_norm",
        Role::AttentionOutputNorm => "post_attention_norm",
        Role::MlpNorm => "ffn_norm",
        Role::Gate => "ffn_gate",
        Role::Up => "ffn_up",
        Role::Down => "ffn_down",
        Role::MlpOutputNorm => "post_ffw_norm",
        Role::Segment
        | Role::EmbeddingNorm
        | Role::EmbeddingProjection
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
    let part = if id.part == Part::Bias { "bias" } else { "weight" };
    match id.layer {
        Layer::Block(block) => format!("blk.{block}.{module}.{part}"),
        Layer::Embedding | Layer::Head => format!("{module}.{part}"),
    }
}
