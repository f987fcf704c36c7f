//! The sizes and tokens that all families have.

use crate::config::Config;
use crate::config_json::fields::{Fields, INITIALIZER_RANGE, limit};
use crate::config_json::labels::Labels;
use crate::error::ModelError;

/// The sizes and tokens that all families have, over the properties of one.
pub(super) fn read(fields: &Fields<'_>, properties: Config) -> Result<Config, ModelError> {
    let hidden_size = fields.size("hidden_size", 1..=limit::WIDTH)?;
    let num_attention_heads = fields.size("num_attention_heads", 1..=limit::HEADS)?;
    if fields.get("head_dim").is_none() && !hidden_size.is_multiple_of(num_attention_heads) {
        let expected =
            format!("a divisor of {}, which is {hidden_size}", fields.key("hidden_size"));
        return Err(fields.refuse("num_attention_heads", expected));
    }
    fields.refuse_quantised()?;
    let vocab_size = fields.size("vocab_size", 1..=limit::VOCABULARY)?;
    Ok(Config {
        vocab_size,
        hidden_size,
        num_hidden_layers: fields.size("num_hidden_layers", 1..=limit::BLOCKS)?,
        num_attention_heads,
        intermediate_size: fields.size("intermediate_size", 1..=limit::WIDTH)?,
        max_position_embeddings: fields.size("max_position_embeddings", 1..=limit::POSITIONS)?,
        initializer_range: fields.positive_or("initializer_range", INITIALIZER_RANGE)?,
        pad_token_id: fields.padding_or(properties.pad_token_id, vocab_size)?,
        labels: Labels::read(fields)?,
        original: fields.object.clone(),
        ..properties
    })
}
