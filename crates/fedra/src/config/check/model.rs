//! `[model]`: a fresh one by its sizes, a folder or GGUF file, or one of the hub.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fedra_data::{AnswerForm, LabelShape, Task};
use fedra_model::hf::Config;
use fedra_model::hf::companions::TOKENIZER;
use fedra_model::hf::config::{FILE, limit};
use fedra_model::peft::AdapterFolder;
use fedra_model::{Adapters, Head, ImageInput, Model, ModelError, Preset};
use fedra_plan::Role;

use super::values::{Result, at_least_one, existing};
use crate::config::ConfigError;
use crate::config::checked::{ModelSource, Vocabulary};
use crate::config::hub;
use crate::config::image_processor::image_processor;
use crate::config::raw_config::{Lora, LoraHead, Model as Written, RawConfig};
use crate::error::in_words;

/// The name of the small preset in files, beside those of [`Preset`].
const TINY_ENCODER: &str = "tiny-encoder";
/// The preset for images, unless the file names one.
const TINY_IMAGES: &str = "vit-tiny";
/// How much wider a preset is inside its feed-forward layers.
const INNER: usize = 4;
/// Pieces of a vocabulary that is grown, unless the file says otherwise.
const USUAL_VOCABULARY: usize = 1000;

/// What learns, and the images that it reads where it reads some.
pub(super) fn model(
    raw: &mut RawConfig,
    task: Task,
    tokens: usize,
    is_images: bool,
) -> Result<(ModelSource, Option<ImageInput>)> {
    let model = &mut raw.model;
    let mut adapters = model.lora.as_ref().map(Lora::adapters).transpose().map_err(about_lora)?;
    let given = model.lora.as_ref().and_then(|lora| lora.target_modules.clone());
    let has_roles = model.lora.as_ref().is_some_and(|lora| lora.roles != Lora::default().roles);
    ConfigError::excludes(
        "model.lora.roles",
        "model.lora.target_modules: both say what is adapted",
    )
    .when(given.is_some() && has_roles)?;
    // What it means follows from the model; the roles that it stands for are written down.
    let mut settle = |config: &Config, lora: &mut Option<Lora>| -> Result<Option<Adapters>> {
        let (Some(lora), Some(given)) = (lora, &given) else { return Ok(adapters.take()) };
        lora.roles = given.roles(config, adapted_head(config, task))?.into_iter().collect();
        lora.target_modules = None;
        Ok(Some(lora.adapters().map_err(about_lora)?))
    };
    if let Some(path) = &mut model.path {
        for (key, given) in [
            ("model.preset", model.preset.is_some()),
            ("model.vocabulary", model.vocabulary.is_some()),
            ("model.tokenizer", model.tokenizer.is_some()),
            ("model.blocks", model.blocks.is_some()),
            ("model.width", model.width.is_some()),
            ("model.heads", model.heads.is_some()),
            ("model.image_size", model.image_size.is_some()),
            ("model.patch", model.patch.is_some()),
            ("model.channels", model.channels.is_some()),
        ] {
            ConfigError::excludes(key, "model.path, whose folder has the whole model: remove one")
                .when(given)?;
        }
        let folder = place("model.path", path)?;
        let config = read_images(open_config(&folder)?, &folder)?;
        alike("model.path", &config, is_images)?;
        fits(&config, tokens)?;
        let mut adapters = settle(&config, &mut model.lora)?;
        if let Some(dir) = &mut model.adapter {
            let dir = place("model.adapter", dir)?;
            adapters = Some(open_adapters(&dir, &config, &mut model.lora)?);
        }
        carries(&config, task, adapters)?;
        return Ok((ModelSource::Folder(folder), config.image));
    }
    ConfigError::only("model.adapter", "with model.path").when(model.adapter.is_some())?;
    ConfigError::only("model.head", "with model.path: a preset has no trained head")
        .when(model.head.is_some())?;
    let name = model
        .preset
        .get_or_insert_with(|| if is_images { TINY_IMAGES } else { TINY_ENCODER }.to_owned());
    let name = name.clone();
    let preset = if name == TINY_ENCODER { Some(Preset::Tiny) } else { Preset::parse(&name) };
    let Some(preset) = preset else {
        let names = Preset::ALL.map(Preset::name);
        let expected = format!("{TINY_ENCODER} or one of {}", names.join(", "));
        return Err(ConfigError::new("model.preset", format!("{name:?}"), expected));
    };
    let mut config = preset.config();
    alike("model.preset", &config, is_images)?;
    let vocabulary = if is_images { Vocabulary::Absent } else { vocabulary(model)? };
    images(&mut config, model)?;
    for (key, size, most) in [
        ("model.blocks", model.blocks, limit::BLOCKS),
        ("model.width", model.width, limit::WIDTH / INNER),
        ("model.heads", model.heads, limit::HEADS),
        ("model.vocabulary", model.vocabulary, limit::VOCABULARY),
    ] {
        let Some(size) = size else { continue };
        at_least_one(key, Some(size))?;
        ConfigError::new(key, size, format_args!("at most {most}")).when(size > most)?;
    }
    if config.causal {
        decoder(&mut config, model, &name)?;
    } else {
        encoder(&mut config, model, tokens)?;
    }
    fits(&config, tokens)?;
    config.check().map_err(about_size)?;
    let adapters = settle(&config, &mut model.lora)?;
    carries(&config, task, adapters)?;
    let image = config.image;
    Ok((ModelSource::Fresh(Box::new(config), vocabulary), image))
}

impl ModelSource {
    /// The shape of the model.
    pub(super) fn config(&self) -> Result<Config> {
        match self {
            Self::Fresh(config, _) => Ok(config.as_ref().clone()),
            Self::Folder(path) => read_images(open_config(path)?, path),
        }
    }
}

/// Refuses texts for a model of images, and images for one of texts.
fn alike(key: &str, config: &Config, is_images: bool) -> Result<()> {
    let images = Preset::ALL.into_iter().filter(|preset| preset.config().image.is_some());
    let names: Vec<&str> = images.map(Preset::name).collect();
    let expected = format!(
        "a model of images (the presets {}, or a folder of ViT, DeiT or DINOv2): rows are images",
        names.join(" and ")
    );
    ConfigError::new(key, "a model of texts", expected)
        .when(is_images && config.image.is_none())?;
    let hint = "data.source = \"images\" or \"idx\", or data.columns.image, reads images";
    ConfigError::new(key, "a model of images", "a model of texts: rows are texts")
        .with_hint(hint)
        .when(!is_images && config.image.is_some())
}

/// The configuration of a folder for the images that its processor makes.
fn read_images(config: Config, path: &Path) -> Result<Config> {
    let Some(image) = config.image else { return Ok(config) };
    let (_, (height, width)) = image_processor(path, image)
        .map_err(|error| ConfigError::sentence("model.path", error.in_words()))?;
    let resized = config.resized(height, width);
    resized.map_err(|error| ConfigError::sentence("model.path", in_words(&error)))
}

/// The images of a preset in the sizes that are written.
fn images(config: &mut Config, model: &Written) -> Result<()> {
    let Some(image) = config.image else { return Ok(()) };
    let mut image = image;
    for (key, size, most) in [
        ("model.image_size", model.image_size, 1024),
        ("model.patch", model.patch, 1024),
        ("model.channels", model.channels, 3),
    ] {
        at_least_one(key, size)?;
        let size = size.unwrap_or(1);
        ConfigError::new(key, size, format_args!("at most {most}")).when(size > most)?;
    }
    if let Some(size) = model.image_size {
        (image.height, image.width) = (size, size);
    }
    if let Some(patch) = model.patch {
        (image.patch_height, image.patch_width) = (patch, patch);
    }
    image.channels = model.channels.unwrap_or(image.channels);
    ConfigError::new("model.channels", image.channels, "1 (grey) or 3 (colour)")
        .when(image.channels == 2)?;
    let (size, patch) = (image.height, image.patch_height);
    let key = if model.patch.is_some() { "model.patch" } else { "model.image_size" };
    let found = format_args!("patches of {patch} pixels in images of {size}");
    ConfigError::new(key, found, "a size that patches divide")
        .when(!size.is_multiple_of(patch) || patch > size)?;
    *config = config.clone().with_image(image);
    Ok(())
}

/// An encoder in the sizes that are written.
fn encoder(bert: &mut Config, model: &Written, tokens: usize) -> Result<()> {
    bert.num_hidden_layers = model.blocks.unwrap_or(bert.num_hidden_layers);
    bert.hidden_size = model.width.unwrap_or(bert.hidden_size);
    bert.intermediate_size = INNER * bert.hidden_size;
    bert.num_attention_heads = model.heads.unwrap_or(bert.num_attention_heads);
    let (width, heads) = (bert.hidden_size, bert.num_attention_heads);
    let expected = format_args!("a multiple of the {heads} attention heads");
    ConfigError::new("model.width", width, expected).when(!width.is_multiple_of(heads))?;
    if bert.image.is_some() {
        return Ok(());
    }
    // Positions that no example reaches would be parameters that never learn.
    bert.max_position_embeddings = bert.max_position_embeddings.min(tokens);
    Ok(())
}

/// A decoder, of which the number of blocks may be another one; it keeps the rows of its embedding,
/// however few pieces the vocabulary has.
fn decoder(llama: &mut Config, model: &Written, name: &str) -> Result<()> {
    for (key, size) in [("model.width", model.width), ("model.heads", model.heads)] {
        let fixed = format_args!("the preset {name:?}, which has its own");
        ConfigError::excludes(key, fixed).when(size.is_some())?;
    }
    llama.num_hidden_layers = model.blocks.unwrap_or(llama.num_hidden_layers);
    Ok(())
}

/// The vocabulary of a preset.
fn vocabulary(model: &mut Written) -> Result<Vocabulary> {
    let Some(path) = &mut model.tokenizer else {
        return Ok(Vocabulary::Grown(*model.vocabulary.get_or_insert(USUAL_VOCABULARY)));
    };
    ConfigError::excludes("model.vocabulary", "model.tokenizer, which has its own")
        .when(model.vocabulary.is_some())?;
    if let Some(folder) = hub::pinned("model.tokenizer", path)? {
        return Ok(Vocabulary::Declared(folder));
    }
    *path = tokenizer_folder(&existing("model.tokenizer", path)?)?;
    Ok(Vocabulary::Declared(path.clone()))
}

/// Where the files behind a path are. The path becomes one that means the same from any folder and at any time.
fn place(key: &str, path: &mut PathBuf) -> Result<PathBuf> {
    if let Some(folder) = hub::pinned(key, path)? {
        return Ok(folder);
    }
    *path = existing(key, path)?;
    Ok(path.clone())
}

/// The folder of a tokenizer, which may be named by its main file. What stands beside that file
/// belongs to the tokenizer, so a file under another name would say less than it means.
fn tokenizer_folder(path: &Path) -> Result<PathBuf> {
    if path.is_dir() {
        return Ok(path.to_owned());
    }
    if let Some(folder) =
        path.parent().filter(|_| path.file_name().is_some_and(|it| it == TOKENIZER))
    {
        return Ok(folder.to_owned());
    }
    let expected = format_args!("a folder with a {TOKENIZER}, or that file");
    Err(ConfigError::new("model.tokenizer", path.display(), expected))
}

/// A refusal of sizes, which a model's own file has under other names.
fn about_size(error: ModelError) -> ConfigError {
    let ModelError::Config { key, found, expected, .. } = error else {
        return ConfigError::sentence("model", error);
    };
    let own = match key.as_str() {
        "num_hidden_layers" => "model.blocks",
        "hidden_size" => "model.width",
        "num_attention_heads" => "model.heads",
        other => return ConfigError::new("model", format!("{other} = {found}"), expected),
    };
    ConfigError::new(own, found, expected)
}

fn open_config(path: &Path) -> Result<Config> {
    let missing = format_args!(
        "found no {FILE} in {}, expected a folder in Hugging Face layout, or a GGUF file",
        path.display()
    );
    ConfigError::sentence("model.path", missing)
        .when(!path.is_file() && !path.join(FILE).is_file())?;
    fedra_model::open_config(path)
        .map_err(|error| ConfigError::sentence("model.path", in_words(&error)))
}

/// The adapters of a folder, which decide what `model.lora` is.
fn open_adapters(dir: &Path, config: &Config, lora: &mut Option<Lora>) -> Result<Adapters> {
    let folder = AdapterFolder::open(dir, config)
        .map_err(|error| ConfigError::sentence("model.adapter", in_words(&error)))?;
    let adapters = folder.adapters();
    let roles = adapters.roles().iter().copied().collect();
    // How they are averaged is no property of a folder.
    let mean = lora.as_ref().map(|given| given.mean).unwrap_or_default();
    // A head with an adapter does not learn whole.
    let usual = if adapters.adapts_head() { LoraHead::Frozen } else { LoraHead::default() };
    let head = lora.as_ref().map_or(usual, |given| given.head);
    let (rank, alpha) = (adapters.rank(), adapters.alpha());
    let dora = adapters.has_magnitudes();
    let stored = Lora { rank, alpha, dora, roles, mean, head, ..Lora::default() };
    let is_other = |given: &Lora| {
        let untold = Lora { mean: given.mean, head: given.head, ..Lora::default() };
        if *given == untold {
            return false;
        }
        let roles: BTreeSet<Role> = given.roles.iter().copied().collect();
        (given.rank, given.plain_alpha(), given.dora) != (stored.rank, stored.alpha, dora)
            || roles != *adapters.roles()
    };
    let roles: Vec<String> = stored.roles.iter().map(ToString::to_string).collect();
    let expected = format!(
        "those of model.adapter (rank {}, alpha {}, {}{}), or neither rank, alpha nor roles",
        stored.rank,
        stored.alpha,
        roles.join(" and "),
        if dora { ", dora = true" } else { "" }
    );
    ConfigError::new("model.lora", "other adapters", expected)
        .when(lora.as_ref().is_some_and(is_other))?;
    *lora = Some(stored);
    Ok(adapters.clone())
}

/// Whether the model has the projections that adapters are for, each large enough for their rank.
fn carries(config: &Config, task: Task, adapters: Option<Adapters>) -> Result<()> {
    let Some(adapters) = adapters else { return Ok(()) };
    let head = adapted_head(config, task);
    Model::new(config.clone(), head, Some(adapters)).map(drop).map_err(about_lora)
}

/// The head as far as adapters are concerned: a decoder's vocabulary may have one, where the task is answered in text.
fn adapted_head(config: &Config, task: Task) -> Head {
    let in_text = task.answer_form() == AnswerForm::Text || task.shape() == LabelShape::Absent;
    if in_text && config.causal { Head::Language } else { Head::Bare }
}

/// A refusal of adapters, under the key that they stand under.
fn about_lora(error: ModelError) -> ConfigError {
    let ModelError::Structure { what, found, expected } = error else {
        return ConfigError::sentence("model.lora", error);
    };
    let key = match what {
        "LoRA rank" => "model.lora.rank",
        "LoRA alpha" => "model.lora.alpha",
        "LoRA role" | "LoRA roles" => "model.lora.roles",
        _ => "model.lora",
    };
    ConfigError::new(key, found, expected)
}

fn fits(config: &Config, tokens: usize) -> Result<()> {
    if config.image.is_some() {
        return Ok(());
    }
    let longest = config.max_position_embeddings;
    let expected = format_args!("at most the {longest} positions of the model");
    ConfigError::new("data.max_tokens", tokens, expected).when(tokens > longest)
}
