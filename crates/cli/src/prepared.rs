//! Everything a federation starts from: the model, its first weights and the clients' tokens.
//!
//! A preset has no tokenizer, so one is grown from the training text. That is a release: the
//! vocabulary names words of that text. It is harmless for the synthetic clinic and said aloud for
//! any other source.

use anyhow::{Context, Result};
use fedra_client::Shards;
use fedra_compute::{Device, Params, Seed};
use fedra_data::{Encoder, LabelShape, Task, Tokenizer, WordTokenizer, open_tokenizer};
use fedra_model::hf::config::Problem;
use fedra_model::hf::{Companions, Config};
use fedra_model::{Adapters, Head, Model, load};

use crate::console;
use crate::experiment::{Complaint, Experiment, ModelSource, Source};
use crate::holdings::Holdings;

/// A model and its examples.
pub struct Prepared {
    /// The structure.
    pub model: Model,
    /// The weights before round 0.
    pub params: Params,
    /// The tokenizer and what else stands beside the weights.
    pub companions: Companions,
    /// Everybody's examples as tokens.
    pub shards: Shards,
    /// How a sequence head's outputs are read.
    pub problem: Option<Problem>,
}

impl Prepared {
    /// Opens or makes the model, and encodes the rows for it.
    pub fn of(experiment: &Experiment, holdings: &Holdings, device: &Device) -> Result<Self> {
        let seed = Seed(experiment.draft.seed).of("weights");
        let (task, classes) = (experiment.task, holdings.table.labels.len());
        let adapters = match &experiment.draft.model.lora {
            None => None,
            Some(lora) => Some(Adapters::new(lora.rank, lora.alpha, lora.roles.iter().copied())?),
        };
        let tokenizer: Box<dyn Tokenizer>;
        let (model, params, companions) = match &experiment.model {
            ModelSource::Fresh(config, vocabulary) => {
                let head = head(task, classes, Family::Encoder)?;
                let grown = grow(experiment, holdings, *vocabulary)?;
                let mut config = config.clone();
                if let Config::Bert(bert) = config.as_mut() {
                    bert.vocab_size = grown.vocabulary_size();
                }
                let companions = Companions::with_tokenizer(grown.to_json()?.into_bytes())?;
                tokenizer = Box::new(grown);
                let model = Model::new(*config, head, adapters).context("model")?;
                let params = model.fresh_params(device, seed)?;
                (model, params, companions)
            }
            ModelSource::Folder(path) => {
                let family = match Config::open(path)? {
                    Config::Bert(_) => Family::Encoder,
                    Config::Llama(_) => Family::Decoder,
                };
                tokenizer = open_tokenizer(path).context("model.path")?;
                let loaded = load(path, head(task, classes, family)?, adapters, (device, seed))
                    .context("model.path")?;
                (loaded.model, loaded.params, loaded.companions)
            }
        };
        let longest = experiment.draft.data.max_tokens.unwrap_or(model.longest());
        let encoder = Encoder::new(tokenizer.as_ref(), longest)?;
        let shards = Shards::encode(&encoder, &holdings.table, &holdings.division)?;
        let problem = match task.shape() {
            LabelShape::One => Some(Problem::SingleLabel),
            LabelShape::Many => Some(Problem::MultiLabel),
            LabelShape::PerWord | LabelShape::Absent => None,
        };
        Ok(Self { model, params, companions, shards, problem })
    }
}

enum Family {
    Encoder,
    Decoder,
}

/// The head that answers a task. An encoder's sequence head has a pooler, as other libraries expect.
fn head(task: Task, classes: usize, family: Family) -> Result<Head> {
    Ok(match (task.shape(), family) {
        (LabelShape::PerWord, Family::Encoder | Family::Decoder) => Head::Tokens { classes },
        (LabelShape::One | LabelShape::Many, Family::Encoder) => {
            Head::Sequence { classes, pooler: true }
        }
        (LabelShape::One | LabelShape::Many, Family::Decoder) => {
            Head::Sequence { classes, pooler: false }
        }
        (LabelShape::Absent, Family::Decoder) => Head::Language,
        (LabelShape::Absent, Family::Encoder) => {
            let expected = "a task with labels, or a decoder in model.path";
            return Err(Complaint::new("data.task", "\"language\"", expected).into());
        }
    })
}

fn grow(experiment: &Experiment, holdings: &Holdings, limit: usize) -> Result<WordTokenizer> {
    if !matches!(experiment.source, Source::Clinic(_)) {
        console::say(
            "note: the vocabulary is grown from all clients' training text, so it names words of \
             it;\n      a folder in model.path brings a vocabulary of its own",
        );
    }
    let rows = holdings.division.clients.iter().flat_map(|holding| &holding.train);
    let texts: Vec<String> = rows.map(|&row| holdings.table.examples[row].body.to_text()).collect();
    WordTokenizer::grow(texts.iter().map(String::as_str), limit).context("model.vocabulary")
}
