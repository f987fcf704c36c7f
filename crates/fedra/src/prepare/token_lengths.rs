//! How long examples are, in tokens of the model that reads them, and how many of them are cut.
//!
//! `fedra init`, `fedra data`, `fedra plan` and `fedra run` all count here, on examples that were
//! encoded as training encodes them, so none of them promises what another takes back.

use fedra_client::{Examples, Shards};
use fedra_data::{Encoded, Encoder, LabelShape, Target, Task, Tokenizer, Work, open_tokenizer};
use fedra_model::hf::{Companions, Config};

use crate::config::{Experiment, ModelSource, Vocabulary};
use crate::error::{Context, Result};
use crate::prepare::chat;
use crate::prepare::inputs::answer_rules;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::prepared::{grow, training_texts};
use crate::prepare::pretrained::Pretrained;
use crate::prepare::turn_totals::TurnTotals;
use crate::text::grid::{counted, grouped};

/// The lengths of all examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenLengths {
    /// Tokens of each example before it was cut, ascending. Where words have labels, a word that was
    /// cut away counts as one token.
    lengths: Vec<usize>,
    /// Examples that lost something.
    pub cut: usize,
    /// Most tokens of an example, as the experiment says.
    pub limit: usize,
    /// Most tokens that the model can read.
    pub positions: usize,
    /// Whether lengths are exact.
    is_exact: bool,
    /// What becomes of turns, where rows are conversations and were looked at for it.
    pub turns: Option<TurnTotals>,
}

impl TokenLengths {
    /// Those of examples that were encoded to at most `limit` tokens, for a model that reads `positions`.
    pub fn of(shards: &Shards, limit: usize, positions: usize) -> Self {
        let clients = shards.clients.iter();
        let parts = clients.flat_map(|shard| [&shard.train, &shard.validation, &shard.test]);
        let encoded = || parts.clone().chain([&shards.central_test]).flat_map(Examples::encoded);
        let whole = |example: &Encoded| match &example.target {
            // Of two answers, the longer one counts.
            Target::Preference(pair) => {
                pair.chosen.max(example.ids.len() - pair.chosen) + example.dropped.div_ceil(2)
            }
            Target::One(_)
            | Target::Many(_)
            | Target::PerToken(_)
            | Target::Choice(_)
            | Target::Text(_) => example.ids.len() + example.dropped,
        };
        let mut lengths: Vec<usize> = encoded().map(whole).collect();
        lengths.sort_unstable();
        // What a chat template writes behind the last answer is left out, too, and is not missed.
        let by_turns = matches!(shards.task, Task::Chat | Task::Preference);
        let is_cut =
            |example: &&Encoded| example.dropped > 0 && (!by_turns || whole(example) > limit);
        let cut = encoded().filter(is_cut).count();
        let is_inexact =
            shards.task.shape() == LabelShape::PerWord || shards.task == Task::Preference;
        let is_exact = cut == 0 || !is_inexact;
        Self { lengths, cut, limit, positions, is_exact, turns: None }
    }

    /// Those of an experiment's rows, by its model's tokenizer and without its weights.
    pub fn of_experiment(experiment: &Experiment, holdings: &PartitionedData) -> Result<Self> {
        if experiment.image.is_some() {
            return Ok(Self::of_images(experiment, holdings));
        }
        let (tokenizer, config, companions): (Tokenizer, Config, Companions) =
            match &experiment.model {
                ModelSource::Fresh(config, Vocabulary::Grown(limit)) => {
                    let grown = grow(&training_texts(holdings), &Work::default(), *limit)?;
                    (grown, Config::clone(config), Companions::default())
                }
                ModelSource::Fresh(config, Vocabulary::Declared(path)) => {
                    let tokenizer = open_tokenizer(path).context("model.tokenizer")?;
                    let companions = Companions::open(path).context("model.tokenizer")?;
                    (tokenizer, Config::clone(config), companions)
                }
                ModelSource::Fresh(_, Vocabulary::Absent) => {
                    return Ok(Self::of_images(experiment, holdings));
                }
                ModelSource::Folder(path) => {
                    let Pretrained { checkpoint, tokenizer } =
                        Pretrained::open(path).context("model.path")?;
                    (tokenizer, checkpoint.config().clone(), checkpoint.companions().clone())
                }
            };
        let positions = config.max_position_embeddings;
        let limit = experiment.max_tokens;
        let encoder = Encoder::new(&tokenizer, limit)?;
        let mut encoder = encoder.with_rules(answer_rules(experiment, &config));
        let end = config.eos_token_ids.first().copied();
        let chat = chat::of_experiment(experiment, (&companions, &tokenizer), end)?;
        if let Some(template) = &chat {
            encoder = encoder.with_chat(template);
        }
        let shards = Shards::encode(&encoder, &holdings.table, &holdings.division)?;
        let mut lengths = Self::of(&shards, limit, positions);
        lengths.turns = match chat {
            Some(_) if experiment.task == Task::Chat => Some(TurnTotals::of(&encoder, holdings)?),
            Some(_) | None => None,
        };
        Ok(lengths)
    }

    /// Those of images, which all become as many tokens.
    fn of_images(experiment: &Experiment, holdings: &PartitionedData) -> Self {
        let tokens = experiment.max_tokens;
        let lengths = vec![tokens; Shards::used(&holdings.division).len()];
        Self { lengths, cut: 0, limit: tokens, positions: tokens, is_exact: true, turns: None }
    }

    /// The number of tokens that a share of the examples does not pass.
    pub fn of_share(&self, share: f64) -> usize {
        let place = (share * self.lengths.len() as f64).ceil() as usize;
        let place = place.clamp(1, self.lengths.len().max(1)) - 1;
        self.lengths.get(place).copied().unwrap_or(0)
    }

    /// How many examples there are.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// The middle, the end of most and the longest, in words.
    pub fn in_words(&self) -> String {
        let at = |share| grouped(self.of_share(share) as u64);
        let how = if self.is_exact { "" } else { " (words that are cut count once)" };
        format!("median {}, 95 % up to {}, longest {}{how}", at(0.5), at(0.95), at(1.0))
    }

    /// How many examples are cut, and what it would take not to; `None` where none is.
    pub fn note(&self) -> Option<String> {
        if self.cut == 0 {
            return None;
        }
        let cut = cut_rows((self.cut as u64, self.lengths.len() as u64), self.limit);
        let at = |share| grouped(self.of_share(share) as u64);
        let or_more = if self.is_exact { "" } else { " or more" };
        let more = if self.positions > self.limit {
            format!("; the model reads up to {}", grouped(self.positions as u64))
        } else {
            String::new()
        };
        Some(format!(
            "note: {cut} (data.max_tokens): 95 % have up to {}{or_more}, the longest has {}{or_more}{more}",
            at(0.95),
            at(1.0),
        ))
    }
}

/// How many of all rows are cut to how many tokens: what every command says of them.
pub fn cut_rows((cut, all): (u64, u64), limit: usize) -> String {
    let verb = if cut == 1 { "is" } else { "are" };
    format!(
        "{} of {} {verb} cut to {} tokens",
        grouped(cut),
        counted(all, "row"),
        grouped(limit as u64)
    )
}
