//! `[model]`: a fresh one by its sizes, or a folder or GGUF file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fedra_model::hf::companions::TOKENIZER;
use fedra_model::hf::config::limit;
use fedra_model::hf::{BertConfig, Config, LlamaConfig};
use fedra_model::peft::AdapterFolder;
use fedra_model::{Adapters, Head, Model, ModelError, Preset};
use fedra_plan::Role;

use super::values::{Result, at_least_one, existing};
use crate::complaint::Complaint;
use crate::experiment::checked::{ModelSource, Vocabulary};
use crate::experiment::draft::{Draft, Lora, Model as Written};

/// The name of the small preset in files, beside those of [`Preset`].
const TINY_ENCODER: &str = "tiny-encoder";
/// How much wider a preset is inside its feed-forward layers.
const INNER: usize = 4;
/// Pieces of a vocabulary that is grown, unless the file says otherwise.
const USUAL_VOCABULARY: usize = 1000;

/// What learns.
pub(super) fn model(draft: &mut Draft, tokens: usize) -> Result<ModelSource> {
    let model = &mut draft.model;
    let mut adapters = match &model.lora {
        None => None,
        Some(lora) => Some(
            Adapters::new(lora.rank, lora.alpha, lora.roles.iter().copied())
                .map_err(|error| about_lora(&error))?,
        ),
    };
    if let Some(path) = &mut model.path {
        if let Some(preset) = &model.preset {
            let expected = "no preset beside model.path";
            return Err(Complaint::new("model.preset", format!("{preset:?}"), expected));
        }
        for (key, given) in [
            ("model.vocabulary", model.vocabulary.map(|size| size.to_string())),
            ("model.tokenizer", model.tokenizer.as_ref().map(|path| path.display().to_string())),
            ("model.blocks", model.blocks.map(|size| size.to_string())),
            ("model.width", model.width.map(|size| size.to_string())),
            ("model.heads", model.heads.map(|size| size.to_string())),
        ] {
            if let Some(given) = given {
                return Err(Complaint::new(key, given, "nothing: the model in model.path decides"));
            }
        }
        *path = existing("model.path", path)?;
        let config = open_config(path)?;
        fits(&config, tokens)?;
        if let Some(dir) = &mut model.adapter {
            *dir = existing("model.adapter", dir)?;
            adapters = Some(open_adapters(dir, &config, &mut model.lora)?);
        }
        carries(&config, adapters)?;
        return Ok(ModelSource::Folder(path.clone()));
    }
    if let Some(dir) = &model.adapter {
        let expected = "it only beside model.path: it adapts the model there";
        return Err(Complaint::new("model.adapter", dir.display(), expected));
    }
    let name = model.preset.get_or_insert_with(|| TINY_ENCODER.to_owned()).clone();
    let preset = if name == TINY_ENCODER { Some(Preset::Tiny) } else { Preset::parse(&name) };
    let Some(preset) = preset else {
        let names = Preset::ALL.map(Preset::name);
        let expected = format!("{TINY_ENCODER} or one of {}", names.join(", "));
        return Err(Complaint::new("model.preset", format!("{name:?}"), expected));
    };
    let mut config = preset.config();
    if model.head.is_some() {
        let expected = "it only beside model.path: a preset has no trained head";
        return Err(Complaint::new("model.head", "a choice", expected));
    }
    let vocabulary = vocabulary(model)?;
    for (key, size, most) in [
        ("model.blocks", model.blocks, limit::BLOCKS),
        ("model.width", model.width, limit::WIDTH / INNER),
        ("model.heads", model.heads, limit::HEADS),
        ("model.vocabulary", model.vocabulary, limit::VOCABULARY),
    ] {
        at_least_one(key, size)?;
        if let Some(size) = size.filter(|size| *size > most) {
            return Err(Complaint::new(key, size, format!("at most {most}")));
        }
    }
    match &mut config {
        Config::Bert(bert) => encoder(bert, model, tokens)?,
        Config::Llama(llama) => decoder(llama, model, &name)?,
    }
    fits(&config, tokens)?;
    config.check().map_err(|error| shape(&error.to_string()))?;
    carries(&config, adapters)?;
    Ok(ModelSource::Fresh(Box::new(config), vocabulary))
}

/// An encoder in the sizes that are written.
fn encoder(bert: &mut BertConfig, model: &Written, tokens: usize) -> Result<()> {
    bert.num_hidden_layers = model.blocks.unwrap_or(bert.num_hidden_layers);
    bert.hidden_size = model.width.unwrap_or(bert.hidden_size);
    bert.intermediate_size = INNER * bert.hidden_size;
    bert.num_attention_heads = model.heads.unwrap_or(bert.num_attention_heads);
    if !bert.hidden_size.is_multiple_of(bert.num_attention_heads) {
        let (width, heads) = (bert.hidden_size, bert.num_attention_heads);
        let expected = format!("a multiple of the {heads} attention heads");
        return Err(Complaint::new("model.width", width, expected));
    }
    // Positions that no example reaches would be parameters that never learn.
    bert.max_position_embeddings = bert.max_position_embeddings.min(tokens);
    Ok(())
}

/// A decoder, of which the number of blocks may be another one; it keeps the rows of its embedding,
/// however few pieces the vocabulary has.
fn decoder(llama: &mut LlamaConfig, model: &Written, name: &str) -> Result<()> {
    for (key, size) in [("model.width", model.width), ("model.heads", model.heads)] {
        if let Some(size) = size {
            let expected = format!("nothing: the preset {name:?} decides");
            return Err(Complaint::new(key, size, expected));
        }
    }
    llama.num_hidden_layers = model.blocks.unwrap_or(llama.num_hidden_layers);
    Ok(())
}

/// The vocabulary of a preset.
fn vocabulary(model: &mut Written) -> Result<Vocabulary> {
    match (&mut model.tokenizer, model.vocabulary) {
        (None, size) => {
            let size = size.unwrap_or(USUAL_VOCABULARY);
            model.vocabulary = Some(size);
            Ok(Vocabulary::Grown(size))
        }
        (Some(path), None) => {
            *path = tokenizer_folder(&existing("model.tokenizer", path)?)?;
            Ok(Vocabulary::Declared(path.clone()))
        }
        (Some(_), Some(size)) => {
            let expected = "nothing beside model.tokenizer: the tokenizer decides";
            Err(Complaint::new("model.vocabulary", size, expected))
        }
    }
}

/// The folder of a tokenizer, which may be named by its main file. What stands beside that file
/// belongs to the tokenizer, so a file under another name would say less than it means.
fn tokenizer_folder(path: &Path) -> Result<PathBuf> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    match path.parent() {
        Some(folder) if path.file_name().is_some_and(|name| name == TOKENIZER) => {
            Ok(folder.to_owned())
        }
        Some(_) | None => {
            let expected = format!("a folder with a {TOKENIZER}, or that file");
            Err(Complaint::new("model.tokenizer", path.display(), expected))
        }
    }
}

/// A complaint about a size that a file of a model would have under another name.
fn shape(error: &str) -> Complaint {
    let complaint = Complaint::worded(error);
    let key = match complaint.key().rsplit(": ").next().unwrap_or_default() {
        "num_hidden_layers" => "model.blocks".to_owned(),
        "hidden_size" => "model.width".to_owned(),
        "num_attention_heads" => "model.heads".to_owned(),
        "" => "model".to_owned(),
        other => format!("model: {other}"),
    };
    complaint.about(key)
}

/// The shape of a model.
pub(super) fn config(model: &ModelSource) -> Result<Config> {
    match model {
        ModelSource::Fresh(config, _) => Ok(config.as_ref().clone()),
        ModelSource::Folder(path) => open_config(path),
    }
}

fn open_config(path: &Path) -> Result<Config> {
    let file = path.join(fedra_model::hf::config::FILE);
    if !path.is_file() && !file.is_file() {
        let found = format!("no {} in {}", fedra_model::hf::config::FILE, path.display());
        let expected = "a folder in Hugging Face layout, or a GGUF file";
        return Err(Complaint::new("model.path", found, expected));
    }
    fedra_model::open_config(path).map_err(|error| {
        let complaint = Complaint::worded(&error.to_string());
        let within = format!("model.path: {}", complaint.key());
        complaint.about(within)
    })
}

/// The adapters of a folder, which decide what `model.lora` is.
fn open_adapters(dir: &Path, config: &Config, lora: &mut Option<Lora>) -> Result<Adapters> {
    let folder = AdapterFolder::open(dir, config).map_err(|error| {
        let complaint = Complaint::worded(&error.to_string());
        let within = format!("model.adapter: {}", complaint.key());
        complaint.about(within)
    })?;
    let adapters = folder.adapters();
    let roles = adapters.roles().iter().copied().collect();
    // How they are averaged is no property of a folder.
    let mean = lora.as_ref().map(|given| given.mean).unwrap_or_default();
    let head = lora.as_ref().map(|given| given.head).unwrap_or_default();
    let stored = Lora { rank: adapters.rank(), alpha: adapters.alpha(), roles, mean, head };
    let is_same = |given: &Lora| {
        let roles: BTreeSet<Role> = given.roles.iter().copied().collect();
        (given.rank, given.alpha) == (stored.rank, stored.alpha) && roles == *adapters.roles()
    };
    if lora.as_ref().is_some_and(|given| !is_same(given)) {
        let roles: Vec<String> = stored.roles.iter().map(ToString::to_string).collect();
        let expected = format!(
            "nothing: model.adapter decides (rank {}, alpha {}, {})",
            stored.rank,
            stored.alpha,
            roles.join(" and ")
        );
        return Err(Complaint::new("model.lora", "other adapters", expected));
    }
    *lora = Some(stored);
    Ok(adapters.clone())
}

/// Whether the model has the projections that adapters are for, each large enough for their rank.
fn carries(config: &Config, adapters: Option<Adapters>) -> Result<()> {
    let Some(adapters) = adapters else { return Ok(()) };
    match Model::new(config.clone(), Head::Bare, Some(adapters)) {
        Ok(_) => Ok(()),
        Err(error) => Err(about_lora(&error)),
    }
}

/// A refusal of adapters, under the key that they stand under.
fn about_lora(error: &ModelError) -> Complaint {
    let complaint = Complaint::worded(&error.to_string());
    let key = match complaint.key() {
        "LoRA role" => "roles",
        other => other.trim_start_matches("LoRA "),
    };
    let key = key.to_owned();
    complaint.about(key).within("model.lora")
}

fn fits(config: &Config, tokens: usize) -> Result<()> {
    let longest = config.positions();
    if tokens > longest {
        let expected = format!("at most the {longest} positions of the model");
        return Err(Complaint::new("data.max_tokens", tokens, expected));
    }
    Ok(())
}
