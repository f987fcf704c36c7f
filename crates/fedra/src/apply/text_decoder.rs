//! A decoder that writes text, opened with its adapters, its tokenizer and what its folder says about text.

use fedra_compute::{Device, Seed};
use fedra_data::Tokenizer;
use fedra_model::hf::TrainedHead;
use fedra_model::peft::AdapterFolder;
use fedra_model::{Classifier, Head, Loaded, Wanted, WeightStorage, load_part_as, open_checkpoint};
use fedra_plan::Layout;

use crate::apply::generation_config::GenerationConfig;
use crate::apply::trained_model::ModelFolders;
use crate::error::{Result, refuse};
use crate::prepare::pretrained::Pretrained;

/// A decoder.
pub struct TextDecoder {
    /// Model and numbers.
    pub loaded: Loaded,
    /// What cuts texts.
    pub tokenizer: Tokenizer,
    /// What ends a text, and what holds for its tokens.
    pub generation: GenerationConfig,
}

impl TextDecoder {
    /// Opens a whole model, with adapters over it where there are some.
    pub fn open(folders: &ModelFolders, device: &Device) -> Result<Self> {
        let Pretrained { tokenizer, .. } = Pretrained::open(&folders.model)?;
        let checkpoint = open_checkpoint(&folders.model)?;
        let opened = folders.adapter.as_ref();
        let opened = opened.map(|it| AdapterFolder::open(it, checkpoint.config())).transpose()?;
        let adapters = opened.as_ref().map(|opened| opened.adapters().clone());
        let wanted = Wanted { head: Head::Language, classifier: Classifier::Stored, adapters };
        let stored = |layout: &Layout| WeightStorage::of_all(folders.weights, layout);
        let how = (device, Seed(0));
        let mut loaded = load_part_as(&checkpoint, wanted, how, |_| true, stored)?;
        if let (Some(opened), Some(adapter)) = (&opened, &folders.adapter) {
            if !matches!(opened.trained_head(), TrainedHead::Absent) {
                refuse!(
                    "{}: found adapters with a head that classifies, expected those of a decoder that writes text\n\
                     hint: fedra predict labels texts",
                    adapter.display()
                );
            }
            opened.load((&loaded.model, &mut loaded.params), &Classifier::Stored, device)?;
        }
        let generation = GenerationConfig::of(&folders.model, &loaded)?;
        Ok(Self { loaded, tokenizer, generation })
    }
}

/// The prompt between what the tokenizer puts in front of a text and nothing: what it puts behind
/// would end the text.
pub fn prompt_tokens(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>> {
    let mut tokens = tokenizer.templates().single.before().clone();
    tokens.extend(tokenizer.pieces(text)?);
    if tokens.is_empty() {
        refuse!(
            "prompt: found no token, expected at least one: this tokenizer adds no start token"
        );
    }
    Ok(tokens)
}
