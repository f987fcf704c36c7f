//! A decoder that writes text, opened with its adapters, its tokenizer and what its folder says about text.

use std::path::Path;

use fedra_compute::{Device, Seed};
use fedra_data::Tokenizer;
use fedra_model::hf::TrainedHead;
use fedra_model::peft::AdapterFolder;
use fedra_model::{
    Classifier, Head, Loaded, Model, Wanted, WeightStorage, load_part_as, open_checkpoint,
};
use fedra_plan::Layout;

use crate::apply::trained_model::ModelFolders;
use crate::error::{Result, refuse};
use crate::prepare::generation_config::GenerationConfig;
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
        let base = Self::open_base(folders, device)?;
        match &folders.adapter {
            None => Ok(base),
            Some(adapter) => base.with_adapter(adapter, (folders, device)),
        }
    }

    /// Opens the model under adapters.
    pub fn open_base(folders: &ModelFolders, device: &Device) -> Result<Self> {
        let Pretrained { tokenizer, .. } = Pretrained::open(&folders.model)?;
        let checkpoint = open_checkpoint(&folders.model)?;
        let (head, classifier) = (Head::Language, Classifier::Stored);
        let wanted = Wanted { head, classifier, adapters: None };
        let stored = |layout: &Layout| WeightStorage::of_all(folders.weights, layout);
        let how = (device, Seed(0));
        let mut loaded = load_part_as(&checkpoint, wanted, how, |_| true, stored)?;
        // As in training: a chat template finds the names of special tokens there.
        loaded.companions = loaded.companions.completed(loaded.model.config()).into_owned();
        let generation = GenerationConfig::of(&folders.model, &loaded)?;
        Ok(Self { loaded, tokenizer, generation })
    }

    /// The same model, which `folders` names, with adapters over it. Both have the same numbers below them: those of
    /// the base are in memory once.
    pub fn with_adapter(
        &self,
        adapter: &Path,
        (folders, device): (&ModelFolders, &Device),
    ) -> Result<Self> {
        let Loaded { model, params, companions, report } = &self.loaded;
        let opened = AdapterFolder::open(adapter, model.config())?;
        if !matches!(opened.trained_head(), TrainedHead::Absent) {
            refuse!(
                "{}: found adapters with a head that classifies, expected those of a decoder that writes text\n\
                 hint: fedra predict labels texts",
                adapter.display()
            );
        }
        let adapters = Some(opened.adapters().clone());
        let model = Model::new(model.config().clone(), Head::Language, adapters)?;
        let storage = WeightStorage::of_all(folders.weights, model.layout());
        let model = model.stored_as(storage);
        let mut params = params.clone();
        opened.load((&model, &mut params), &Classifier::Stored, device)?;
        let model = model.settled(&mut params)?;
        let companions = companions.clone().beside_adapters(adapter)?;
        let report = report.clone();
        let loaded = Loaded { model, params, companions, report };
        let Pretrained { tokenizer, .. } = Pretrained::open(&folders.model)?;
        Ok(Self { loaded, tokenizer, generation: self.generation.clone() })
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
