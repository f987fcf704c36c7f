//! Windows of attention in `config.json`: `sliding_window`, and `layer_types` or a family's own rule for the blocks
//! that have one.

use serde_json::{Map, Value, json};

use crate::config::{Config, Window};
use crate::config_json::fields::{Fields, limit};
use crate::error::ModelError;

/// What the library calls a block with a window, and one without.
const KINDS: [&str; 2] = ["sliding_attention", "full_attention"];

/// The windows of a decoder. A token sees itself and those before it, as many as the window is wide.
pub(super) fn read(
    fields: &Fields<'_>,
    config: &Config,
    usual: Option<usize>,
    has_window: impl Fn(usize) -> bool,
) -> Result<Option<Window>, ModelError> {
    let width = match (fields.is_null("sliding_window"), usual) {
        (true, _) => return Ok(None),
        (false, None) if fields.get("sliding_window").is_none() => return Ok(None),
        (false, usual) => {
            fields.size_or("sliding_window", 1..=limit::POSITIONS, usual.unwrap_or(1))?
        }
    };
    Ok(Some(Window { distance: width - 1, blocks: blocks(fields, config, has_window)? }))
}

/// Which blocks have a window: as listed, or by the family's rule.
pub(super) fn blocks(
    fields: &Fields<'_>,
    config: &Config,
    has_window: impl Fn(usize) -> bool,
) -> Result<Vec<bool>, ModelError> {
    let count = config.num_hidden_layers;
    let Some(listed) = fields.get("layer_types") else {
        return Ok((0..count).map(has_window).collect());
    };
    let is_local = |kind: &Value| match kind.as_str() {
        Some(kind) if kind == KINDS[0] => Some(true),
        Some(kind) if kind == KINDS[1] => Some(false),
        Some(_) | None => None,
    };
    let list: Option<Vec<bool>> =
        listed.as_array().and_then(|list| list.iter().map(is_local).collect());
    // A list may be longer than a model that was made shallower.
    list.filter(|list| list.len() >= count).map(|list| list[..count].to_vec()).ok_or_else(|| {
        let [local, global] = KINDS;
        fields.refuse(
            "layer_types",
            format!("{local:?} or {global:?} for each of the {count} blocks"),
        )
    })
}

/// What [`read`] reads.
pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    let width = config.window.as_ref().map(|window| window.distance + 1);
    object.insert("sliding_window".into(), json!(width));
    write_types(config, object);
}

/// The kind of each block.
pub(super) fn write_types(config: &Config, object: &mut Map<String, Value>) {
    let is_local = |block| config.window.as_ref().is_some_and(|window| window.is_of(block));
    let kind = |block| if is_local(block) { KINDS[0] } else { KINDS[1] };
    let kinds: Vec<&str> = (0..config.num_hidden_layers).map(kind).collect();
    object.insert("layer_types".into(), json!(kinds));
}
