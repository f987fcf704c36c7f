//! What a model has that no family here has, for the error about an unknown `model_type`.

use serde_json::{Map, Value};

const RELATIVE: &str = "relative positions";
const EXPERTS: &str = "a mixture of experts";
const ENCODER_DECODER: &str = "an encoder and a decoder";
const SIDE_BY_SIDE: &str = "attention and feed-forward layers side by side";
const BIASES: &str = "positions as biases of attention";
const IMAGES_AND_TEXT: &str = "images beside text";
const RECURRENT: &str = "recurrent layers";

/// Published kinds of models by what they have.
const KNOWN: [(&str, &[&str]); 7] = [
    (RELATIVE, &["deberta", "deberta-v2", "mpnet", "xlnet", "funnel"]),
    (
        EXPERTS,
        &[
            "mixtral",
            "qwen2_moe",
            "qwen3_moe",
            "olmoe",
            "phimoe",
            "gpt_oss",
            "deepseek_v2",
            "deepseek_v3",
            "granitemoe",
            "dbrx",
            "llama4",
            "llama4_text",
        ],
    ),
    (
        ENCODER_DECODER,
        &[
            "t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "led", "marian", "m2m_100",
            "whisper",
        ],
    ),
    (SIDE_BY_SIDE, &["gpt_neox", "gptj", "falcon", "phi", "cohere", "cohere2"]),
    (BIASES, &["bloom", "mpt"]),
    (
        IMAGES_AND_TEXT,
        &["gemma3", "llava", "mllama", "paligemma", "qwen2_vl", "qwen2_5_vl", "qwen3_vl"],
    ),
    (RECURRENT, &["mamba", "mamba2", "rwkv", "recurrent_gemma", "jamba", "bamba"]),
];

/// Keys that say as much of a kind that is not listed: a flag, or a number above the given one.
const KEYS: [(&str, &str, f64); 6] = [
    ("is_encoder_decoder", ENCODER_DECODER, 0.0),
    ("relative_attention", RELATIVE, 0.0),
    ("num_local_experts", EXPERTS, 1.0),
    ("num_experts", EXPERTS, 1.0),
    ("n_routed_experts", EXPERTS, 1.0),
    ("alibi", BIASES, 0.0),
];

/// What a model of this kind has that is missing here.
pub(super) fn property(model_type: &str, object: &Map<String, Value>) -> Option<&'static str> {
    let listed = KNOWN.iter().find(|(_, kinds)| kinds.contains(&model_type));
    let says = |(key, _, above): &&(&str, &str, f64)| {
        let value = object.get(*key).unwrap_or(&Value::Null);
        value.as_bool() == Some(true) || value.as_f64().is_some_and(|number| number > *above)
    };
    listed.map(|(property, _)| *property).or_else(|| Some(KEYS.iter().find(says)?.1))
}
