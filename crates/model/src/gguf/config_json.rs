//! What a file says the model is, as the `config.json` of a folder, which is then checked as one.

use serde_json::{Map, Value, json};

use super::architecture::{Architecture, Positions, Score, Windows};
use super::metadata::Metadata;
use super::reader::Reader;
use super::rope;
use crate::error::ModelError;
use crate::families;
use crate::hf::Config;

/// The embedding, whose first dimension is the vocabulary.
const TOKENS: &str = "token_embd.weight";
/// The output vocabulary; a file without one shares the embedding.
const OUTPUT: &str = "output.weight";

/// Sizes that every file has, and their keys in a folder.
const SIZES: [(&str, &str); 5] = [
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("attention.head_count", "num_attention_heads"),
    ("feed_forward_length", "intermediate_size"),
    ("context_length", "max_position_embeddings"),
];

/// Numbers that some files have.
const NUMBERS: [(&str, &str); 4] = [
    ("rope.freq_base", "rope_theta"),
    ("rope.freq_base_swa", "rope_local_base_freq"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
];

/// Tokens; a file without one has none.
const SPECIAL: [(&str, &str); 3] = [
    ("tokenizer.ggml.bos_token_id", "bos_token_id"),
    ("tokenizer.ggml.eos_token_id", "eos_token_id"),
    ("tokenizer.ggml.padding_token_id", "pad_token_id"),
];

/// What a file says the model is, checked as a `config.json` is.
pub(super) fn config(reader: &Reader) -> Result<Config, ModelError> {
    let metadata = reader.metadata();
    let architecture = Architecture::of(metadata)?;
    if metadata.text("general.type")?.is_some_and(|kind| kind != "model") {
        return Err(metadata.refuse("general.type", "\"model\""));
    }
    refuse_others(metadata, architecture)?;
    let file = File { reader, metadata, architecture };
    let config = Config::parse(reader.path(), json!(file.object()?).to_string().as_bytes())?;
    let head = config.head_width() as u64;
    for key in ["rope.dimension_count", "attention.value_length"] {
        let key = architecture.key(key);
        if metadata.count(&key)?.is_some_and(|found| found != head) {
            return Err(metadata.refuse(&key, format!("{head}, the width of a head")));
        }
    }
    Ok(config)
}

/// Refuses what would need other code than the families'.
fn refuse_others(metadata: &Metadata, architecture: &Architecture) -> Result<(), ModelError> {
    let experts = architecture.key("expert_count");
    if metadata.count(&experts)?.is_some_and(|experts| experts > 0) {
        return Err(metadata.refuse(&experts, "0: one feed-forward layer per block"));
    }
    let causal = architecture.key("attention.causal");
    if metadata.flag(&causal)? == Some(false) {
        return Err(metadata.refuse(&causal, "true: a decoder"));
    }
    Ok(())
}

struct File<'f> {
    reader: &'f Reader,
    metadata: &'f Metadata,
    architecture: &'static Architecture,
}

impl File<'_> {
    fn object(&self) -> Result<Map<String, Value>, ModelError> {
        let Self { reader, metadata, architecture } = self;
        let window = self.window()?;
        let model_type = match (architecture.windows, window) {
            (Windows::OtherFamily(other), Some(_)) => other,
            (Windows::OtherFamily(_) | Windows::Own { .. } | Windows::Refused, _) => {
                architecture.model_type
            }
        };
        let family = families::by_type(model_type).expect("the table names families");
        let Some((_, tokens)) = reader.info(TOKENS) else {
            let expected = "a token embedding";
            return Err(ModelError::tensor(reader.path(), TOKENS, "no such tensor", expected));
        };
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| {
            object.insert(family.key(key).to_owned(), value);
        };
        put("model_type", json!(model_type));
        put("vocab_size", json!(tokens[0]));
        put("tie_word_embeddings", json!(reader.info(OUTPUT).is_none()));
        for (theirs, ours) in SIZES {
            put(ours, json!(self.count(theirs)?));
        }
        for (theirs, ours) in NUMBERS {
            if let Some(number) = metadata.number(&architecture.key(theirs))? {
                put(ours, json!(number));
            }
        }
        for (theirs, ours) in SPECIAL {
            put(ours, json!(metadata.count(theirs)?));
        }
        if architecture.positions == Positions::Learned {
            put("layer_norm_epsilon", json!(self.number("attention.layer_norm_epsilon")?));
            return Ok(object);
        }
        put("rms_norm_eps", json!(self.number("attention.layer_norm_rms_epsilon")?));
        put("num_key_value_heads", json!(self.optional("attention.head_count_kv")?));
        let (width, heads) = (self.count("embedding_length")?, self.count("attention.head_count")?);
        let usual = width.checked_div(heads).unwrap_or(0);
        let head = self.optional("attention.key_length")?.unwrap_or(usual);
        put("head_dim", json!(head));
        for (theirs, ours) in
            [("blk.0.attn_output.bias", "attention_bias"), ("blk.0.ffn_down.bias", "mlp_bias")]
        {
            if reader.info(theirs).is_some() {
                put(ours, json!(true));
            }
        }
        if let Score::Scalar { largest } = architecture.score {
            let is_largest = self.count("block_count")? == largest;
            put("query_pre_attn_scalar", json!(if is_largest { usual } else { head }));
        }
        if window.is_some() || matches!(architecture.windows, Windows::Own { .. }) {
            put("sliding_window", json!(window));
        }
        if let Some(kinds) = self.kinds()?.filter(|_| window.is_some()) {
            put("layer_types", json!(kinds));
        }
        if let Some(scaling) = rope::scaling(reader, architecture, head)? {
            put("rope_scaling", scaling);
        }
        Ok(object)
    }

    /// The width of a window, where there is one.
    fn window(&self) -> Result<Option<u64>, ModelError> {
        let key = self.architecture.key("attention.sliding_window");
        let found = self.metadata.count(&key)?;
        let wide = found.filter(|width| *width > 0);
        match self.architecture.windows {
            Windows::Own { absent } if found.is_none() => Ok(absent),
            Windows::Own { .. } | Windows::OtherFamily(_) => Ok(wide),
            Windows::Refused if wide.is_none() => Ok(None),
            Windows::Refused => {
                Err(self.metadata.refuse(&key, "nothing: attention over the whole text"))
            }
        }
    }

    /// The kind of each block, where the file says which have a window: all but each n-th, or a list.
    fn kinds(&self) -> Result<Option<Vec<&'static str>>, ModelError> {
        let key = self.architecture.key("attention.sliding_window_pattern");
        let blocks = self.count("block_count")?;
        let listed = if let Ok(listed) = self.metadata.flags(&key) {
            listed
        } else {
            let every = self.metadata.count(&key)?.unwrap_or(0);
            let is_near = |block| every == 0 || block % every < every - 1;
            Some((0..blocks.min(1 << 16)).map(is_near).collect())
        };
        let kind = |near| if near { "sliding_attention" } else { "full_attention" };
        Ok(listed.map(|listed| listed.into_iter().map(kind).collect()))
    }

    fn count(&self, key: &str) -> Result<u64, ModelError> {
        let found = self.optional(key)?;
        let refuse = || self.metadata.refuse(&self.architecture.key(key), "a whole number");
        found.ok_or_else(refuse)
    }

    fn optional(&self, key: &str) -> Result<Option<u64>, ModelError> {
        self.metadata.count(&self.architecture.key(key))
    }

    fn number(&self, key: &str) -> Result<f64, ModelError> {
        let key = self.architecture.key(key);
        self.metadata.number(&key)?.ok_or_else(|| self.metadata.refuse(&key, "a number"))
    }
}
