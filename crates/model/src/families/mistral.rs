//! Mistral (Jiang et al. 2023, <https://arxiv.org/abs/2310.06825>): LLaMA whose tokens may see a window only.

use serde_json::{Map, Value};

use super::{decoder, windows};
use crate::config::Config;
use crate::config_json::fields::Fields;
use crate::error::ModelError;
use crate::family::Family;

pub(crate) static FAMILY: Family = decoder::family(
    ("mistral", "Mistral", "Mistral"),
    &[&decoder::OUTSIDE, &decoder::BLOCK, &decoder::NORMS],
);

pub(super) fn read(fields: &Fields<'_>) -> Result<Config, ModelError> {
    let config = decoder::read(fields, decoder::plain(&FAMILY))?;
    let window = windows::read(fields, &config, Some(4096), |_| true)?;
    Ok(Config { window, ..config })
}

pub(super) fn write(config: &Config, object: &mut Map<String, Value>) {
    decoder::write(config, object);
    windows::write(config, object);
    object.remove("layer_types");
}
