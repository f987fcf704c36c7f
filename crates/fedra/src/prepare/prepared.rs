//! Everything a federation starts from: the model, its first weights and the clients' tokens.
//!
//! A preset has no tokenizer, so one is grown from the training text. That is a release: the
//! vocabulary names words of that text. It is harmless for the synthetic clinic and said aloud for
//! any other source.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use fedra_client::{EVALUATION_TOKENS, Evaluator, Shards, base_of};
use fedra_compute::{Device, Params};
use fedra_data::{
    AnswerForm, Encoded, LabelShape, Processor, Table, Task, TemplateOrigin, Tokenizer, Work,
    open_tokenizer,
};
use fedra_model::hf::config::Problem;
use fedra_model::hf::{Answers, Companions, Config, TrainedHead, WhyFresh};
use fedra_model::peft::AdapterFolder;
use fedra_model::{Adapters, Classifier, Head, Loaded, Model, Preset, Wanted, load_part_as};
use fedra_plan::{ByteCount, Digest, Layer, Layout, ParamId, Scope};

use crate::config::{ConfigError, Experiment, ModelSource, Source, Vocabulary, hub};
use crate::error::{Context, Result};
use crate::prepare::fingerprint::Sum;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::pretrained::{OpenedModel, RowReader};
use crate::prepare::row_cache::{RowCache, key_of_vocabulary};
use crate::prepare::{chat, classes, inputs, stored_weights};
use crate::process::available_bytes;

/// A model and its examples.
pub struct Prepared {
    /// The structure.
    pub model: Model,
    /// The weights before round 0, as far as they are held here.
    pub params: Params,
    /// Those of them that are stored in another format than f32: everybody has them and nobody changes them.
    pub base: Params,
    /// The digest of all of them, where only a part is held.
    pub first_weights: Option<Digest>,
    /// The tokenizer and what else stands beside the weights.
    pub companions: Companions,
    /// Everybody's examples as tokens.
    pub shards: Shards,
    /// The row of the data that each example of the central test set was, where it was one.
    pub central_rows: Vec<usize>,
    /// Public rows to measure blocks on, where clients may not.
    pub public: Vec<Encoded>,
    /// How a sequence head's outputs are read.
    pub problem: Option<Problem>,
    /// What a person should know before it runs: parts of a folder that were reinitialised or left
    /// aside, weights that will never learn. A line each.
    pub notes: Vec<String>,
}

/// A model with its first weights.
struct Opened {
    model: Model,
    params: Params,
    companions: Companions,
    reader: RowReader,
    first_weights: Option<Digest>,
}

/// Which parameters are read.
type ParamFilter<'a> = &'a dyn Fn(ParamId) -> bool;

/// Which part of a model is to be held, by its layout.
pub type PartHeld<'a> = &'a dyn Fn(&Layout) -> Result<Scope>;

impl Prepared {
    /// Opens or makes the model, and encodes the rows for it. A trained head may number the rows'
    /// labels anew. For a party that holds only a part of the model, the rest is read one layer at a
    /// time, for its digest, and never held.
    pub fn of(
        experiment: &Experiment,
        mut holdings: PartitionedData,
        how: (&Device, Option<PartHeld<'_>>),
        work: &Work<'_>,
    ) -> Result<Self> {
        let mut notes = Vec::new();
        let is_grown = matches!(experiment.model, ModelSource::Fresh(_, Vocabulary::Grown(_)));
        if is_grown && !matches!(experiment.source, Source::Clinic(_)) {
            let problem = "[privacy] needs model.path or model.tokenizer: a vocabulary built from clients' rows \
                           reveals their words, and the privacy guarantee does not cover that";
            ConfigError::sentence("model", problem).when(experiment.recipe.privacy.is_some())?;
            notes.push(
                "the vocabulary is built from all clients' training text and reveals words of it; model.path or \
                 model.tokenizer provides another vocabulary"
                    .to_owned(),
            );
        }
        check_labels(experiment)?;
        let opened = match &experiment.model {
            ModelSource::Fresh(config, vocabulary) => {
                let from = (&holdings, work, &mut notes);
                fresh(experiment, from, (config, vocabulary), how)?
            }
            ModelSource::Folder(path) => {
                let table = &mut holdings.table;
                open(experiment, path, (table, &mut notes), how)?
            }
        };
        let Opened { model, params, mut companions, reader, first_weights } = opened;
        let rows = match reader {
            RowReader::Tokenizer(tokenizer) => {
                let end = model.config().eos_token_ids.first().copied();
                // A saved model names its special tokens, and what was trained is written with the same names.
                companions = companions.completed(model.config()).into_owned();
                let chat = chat::of_experiment(experiment, (&companions, &tokenizer), end)?;
                if let Some(template) = &chat
                    && *template.origin() != TemplateOrigin::Model
                {
                    companions = companions.with_chat_template(template.source());
                }
                let from = (experiment, &holdings, work);
                let chat = chat.as_ref().map(|template| (template, &companions));
                inputs::texts(from, (&model, Arc::new(*tokenizer), chat), &mut notes)?
            }
            RowReader::Processor(processor) => {
                let from = (experiment, &holdings, work);
                inputs::images(from, (&model, &processor), &mut notes)?
            }
        };
        let (shards, public) = rows;
        let problem = problem(experiment.task);
        notes.extend(stored_weights::note(model.storage(), model.layout()));
        let base = base_of(&params);
        let central_rows = holdings.division.central_test;
        Ok(Self {
            model,
            params,
            base,
            first_weights,
            companions,
            shards,
            central_rows,
            public,
            problem,
            notes,
        })
    }
}

/// Refuses to find out from clients' rows, under a guarantee, which labels there are: the model would name
/// them.
fn check_labels(experiment: &Experiment) -> Result<(), ConfigError> {
    let data = &experiment.raw.data;
    let from_rows = !matches!(experiment.source, Source::Clinic(_))
        && data.labels.is_none()
        && data.answers.is_none();
    let has_labels = experiment.task.shape() != LabelShape::Absent
        && experiment.task.answer_form() == AnswerForm::Labels;
    let expected = "the names of all labels with [privacy]: names found in clients' rows would be released with the model";
    ConfigError::missing("data.labels", expected)
        .when(experiment.recipe.privacy.is_some() && from_rows && has_labels)
}

/// A preset with fresh weights and a vocabulary of its own.
fn fresh(
    experiment: &Experiment,
    (holdings, work, notes): (&PartitionedData, &Work<'_>, &mut Vec<String>),
    (config, vocabulary): (&Config, &Vocabulary),
    (device, part): (&Device, Option<PartHeld<'_>>),
) -> Result<Opened> {
    let head = head(experiment.task, holdings.table.labels.len(), config)?;
    let mut config = config.clone();
    let (reader, companions) = if let Some(image) = config.image {
        let processor = Processor::usual((image.height, image.width), image.channels);
        let companions = Companions::with_processor(processor.json().into())?;
        (RowReader::Processor(processor), companions)
    } else {
        let (tokenizer, companions) =
            vocabulary_of(experiment, (holdings, work, notes), vocabulary)?;
        if !config.causal || is_sized(experiment) {
            config.vocab_size = tokenizer.vocabulary_size();
        }
        if is_sized(experiment) && matches!(vocabulary, Vocabulary::Declared(_)) {
            // Its own tokens are those of a vocabulary that is grown.
            (config.bos_token_id, config.eos_token_ids) =
                (None, chat::ends(&companions, &tokenizer)?);
        }
        (RowReader::Tokenizer(Box::new(tokenizer)), companions)
    };
    let model = Model::new(config, head, adapters(experiment)?).context("model")?;
    let storage = stored_weights::storage(experiment, model.layout())?;
    let model = model.stored_as(storage);
    let seed = experiment.seed.of("weights");
    let Some(part) = part else {
        check_room(&model, device)?;
        let params = model.fresh_params(device, seed)?;
        return Ok(Opened { model, params, companions, reader, first_weights: None });
    };
    let held = part(model.layout())?;
    let made = |keep: ParamFilter<'_>| Ok(model.fresh_part(&Device::cpu(), seed, keep)?);
    let first_weights = Some(digest_by_layer(model.layout(), &made)?);
    let params = model.fresh_part(device, seed, |id| held.contains(id))?;
    Ok(Opened { model, params, companions, reader, first_weights })
}

/// Whether a decoder has as many rows in its embedding as its vocabulary has pieces: the one that is no known
/// model's shape.
fn is_sized(experiment: &Experiment) -> bool {
    experiment.raw.model.preset.as_deref() == Some(Preset::TinyDecoder.name())
}

/// The tokenizer of a preset for texts, and the files that say it.
fn vocabulary_of(
    experiment: &Experiment,
    from: (&PartitionedData, &Work<'_>, &mut Vec<String>),
    vocabulary: &Vocabulary,
) -> Result<(Tokenizer, Companions)> {
    let (tokenizer, companions) = match vocabulary {
        Vocabulary::Grown(limit) => {
            (grown_vocabulary(experiment, from, *limit)?, Companions::default())
        }
        Vocabulary::Declared(path) => (
            open_tokenizer(path).context("model.tokenizer")?,
            Companions::open(path).context("model.tokenizer")?,
        ),
        Vocabulary::Absent => {
            let expected = "a tokenizer: the model reads texts";
            return Err(ConfigError::missing("model.tokenizer", expected).into());
        }
    };
    let companions = match companions.tokenizer() {
        Some(_) => companions,
        None => Companions::with_tokenizer(tokenizer.json().into())?,
    };
    Ok((tokenizer, companions))
}

/// Refuses fresh weights that do not fit into memory, before the system ends the process for them.
fn check_room(model: &Model, device: &Device) -> Result<(), ConfigError> {
    let (weights, free) = (fresh_bytes(model), available_bytes().unwrap_or(u64::MAX));
    let expected = format_args!(
        "at most the {} of free memory; `fedra plan` needs no weights",
        ByteCount(free)
    );
    ConfigError::new("model.preset", format_args!("a model of {weights} of weights"), expected)
        .when(device.has_numbers() && weights.0 > free)
}

/// What the weights of a model take.
pub fn fresh_bytes(model: &Model) -> ByteCount {
    let layout = model.layout();
    model.storage().bytes(layout, &Scope::everything(layout))
}

/// A folder or a GGUF file with its tokenizer, and with a head for the task.
fn open(
    experiment: &Experiment,
    path: &Path,
    (table, notes): (&mut Table, &mut Vec<String>),
    (device, part): (&Device, Option<PartHeld<'_>>),
) -> Result<Opened> {
    let OpenedModel { checkpoint, reader } = OpenedModel::open(path).context("model.path")?;
    let adapter = match &experiment.raw.model.adapter {
        Some(dir) => {
            let opened = AdapterFolder::open(&hub::folder_of(dir), checkpoint.config());
            Some(opened.context("model.adapter")?)
        }
        None => None,
    };
    let (task, choice) = (experiment.task, experiment.raw.model.head);
    let classifier = if let Some(answers) = head(task, 1, checkpoint.config())?.answers() {
        let opened = (&checkpoint, adapter.as_ref());
        let declared = experiment.raw.data.labels.as_deref();
        classes::settle(opened, (answers, choice), (table, declared), notes)?
    } else {
        ConfigError::new("model.head", "a choice", "no such key for a task without labels")
            .when(choice.is_some())?;
        Classifier::Stored
    };
    let has_own_head = |adapter: &&AdapterFolder| adapter.trained_head() != TrainedHead::Absent;
    let trained = match adapter.as_ref().filter(has_own_head) {
        Some(adapter) => adapter.problem(),
        None => checkpoint.config().labels.as_ref().and_then(|labels| labels.problem),
    };
    if let (Classifier::Rows(_), Some(trained), Some(read)) = (&classifier, trained, problem(task))
        && trained != read
    {
        let (trained, read) = (trained.name(), read.name());
        notes.push(format!("the folder's head was trained for {trained} and is read as {read}"));
    }
    let head = head(task, table.labels.len(), checkpoint.config())?;
    let in_base = match adapter.as_ref().filter(has_own_head) {
        Some(_) => Classifier::Fresh(WhyFresh::Asked),
        None => classifier.clone(),
    };
    let wanted = Wanted { head, classifier: in_base, adapters: adapters(experiment)? };
    let how = (device, experiment.seed.of("weights"));
    let layout = Model::new(checkpoint.config().clone(), head, wanted.adapters.clone())?;
    let layout = layout.layout().clone();
    let storage = stored_weights::storage(experiment, &layout)?;
    // Adapters of a folder are written over weights that have to be there.
    let part = part.filter(|_| adapter.is_none());
    let (held, first_weights) = match part {
        None => (None, None),
        Some(part) => {
            let read = |keep: ParamFilter<'_>| {
                let stored = |_: &Layout| storage.clone();
                let how = (&Device::cpu(), how.1);
                let loaded = load_part_as(&checkpoint, wanted.clone(), how, keep, stored);
                Ok(loaded.context("model.path")?.params)
            };
            (Some(part(&layout)?), Some(digest_by_layer(&layout, &read)?))
        }
    };
    let is_held = |id| held.as_ref().is_none_or(|held| held.contains(id));
    let loaded = load_part_as(&checkpoint, wanted, how, is_held, |_| storage.clone());
    let loaded = loaded.context("model.path")?;
    let Loaded { model, mut params, mut companions, mut report } = loaded;
    if let Some(dir) = &experiment.raw.model.adapter {
        companions = companions.beside_adapters(&hub::folder_of(dir)).context("model.adapter")?;
    }
    if let Some(adapter) = &adapter {
        let taken = adapter.load((&model, &mut params), &classifier, device);
        let taken = taken.context("model.adapter")?;
        report.fresh.retain(|fresh| !taken.contains(&fresh.id));
        report.classifier = classifier;
    }
    notes.extend(report.lines());
    Ok(Opened { model, params, companions, reader, first_weights })
}

/// Refuses a GPU whose memory has no room for the weights that were sent there.
pub(crate) fn check_weights(device: &Device) -> Result<()> {
    device.check().context("the model does not fit on the device")
}

/// What scores a model on these examples.
pub(crate) fn evaluator<'a>(
    model: &'a Model,
    device: &'a Device,
    shards: &'a Shards,
) -> Evaluator<'a> {
    let (task, labels) = (shards.task, &shards.labels);
    Evaluator { model, device, task, labels, tokens: EVALUATION_TOKENS }
}

/// The digest of all weights, of which one layer after another is there.
fn digest_by_layer(
    layout: &Layout,
    read: &dyn Fn(ParamFilter<'_>) -> Result<Params>,
) -> Result<Digest> {
    let mut digest = Sum::new();
    let blocks = (0..layout.blocks()).map(Layer::Block);
    for layer in [Layer::Embedding].into_iter().chain(blocks).chain([Layer::Head]) {
        digest.params(&read(&|id| id.layer == layer)?);
    }
    Ok(digest.end())
}

/// How a sequence head's outputs are read.
fn problem(task: Task) -> Option<Problem> {
    match task.shape() {
        LabelShape::One if task.answer_form() == AnswerForm::Text => None,
        LabelShape::One => Some(Problem::SingleLabel),
        LabelShape::Many => Some(Problem::MultiLabel),
        LabelShape::PerWord | LabelShape::Absent => None,
    }
}

fn adapters(experiment: &Experiment) -> Result<Option<Adapters>> {
    let Some(lora) = &experiment.raw.model.lora else { return Ok(None) };
    Ok(Some(lora.adapters()?))
}

/// The head that answers a task. An encoder's sequence head has a pooler, as other libraries expect.
fn head(task: Task, classes: usize, config: &Config) -> Result<Head> {
    let expected = "a task with labels, or a decoder";
    ConfigError::new("data.task", format_args!("{:?}", task.name()), expected)
        .when(task.answer_form() == AnswerForm::Text && !config.causal)?;
    Ok(match (task.answer_form(), task.shape()) {
        (AnswerForm::Text, _) | (_, LabelShape::Absent) => Head::Language,
        (AnswerForm::Labels, LabelShape::PerWord) => config.head(Answers::Tokens, classes),
        (AnswerForm::Labels, LabelShape::One | LabelShape::Many) => {
            config.head(Answers::Sequences, classes)
        }
    })
}

/// A vocabulary from the training rows, or from the cache if one grew from the same.
fn grown_vocabulary(
    experiment: &Experiment,
    (holdings, work, notes): (&PartitionedData, &Work<'_>, &mut Vec<String>),
    limit: usize,
) -> Result<Tokenizer> {
    let texts = training_texts(holdings);
    let Some(cache) = RowCache::of(experiment) else {
        return grow(&texts, work, limit);
    };
    let key = key_of_vocabulary(&texts, limit);
    if let Some(json) = cache.text(key) {
        return Ok(Tokenizer::from_json(Path::new("tokenizer.json"), json)?);
    }
    let grown = grow(&texts, work, limit)?;
    notes.extend(cache.unkept(cache.keep_text(key, grown.json())));
    Ok(grown)
}

/// The text of every training row.
pub(crate) fn training_texts(holdings: &PartitionedData) -> Vec<Cow<'_, str>> {
    let rows = holdings.division.clients.iter().flat_map(|holding| &holding.train);
    rows.map(|&row| holdings.table.examples[row].body.as_text()).collect()
}

/// A vocabulary from training text.
pub(crate) fn grow(texts: &[Cow<'_, str>], work: &Work<'_>, limit: usize) -> Result<Tokenizer> {
    Tokenizer::grow_with(work, texts, limit).context("model.vocabulary")
}
