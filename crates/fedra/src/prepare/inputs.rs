//! Everybody's rows as a model takes them: texts as tokens, images as pixels.

use std::sync::Arc;

use fedra_client::{Shards, Writing};
use fedra_data::{
    AnswerRules, ChatTemplate, EncodeRows, Encoded, Encoder, Example, ImageEncoder, Processor,
    Target, Task, Tokenizer, Work,
};
use fedra_model::Model;
use fedra_model::hf::{Companions, Config};
use fedra_plan::{ByteCount, Digest};

use crate::config::{ConfigError, Experiment, ModelSource};
use crate::error::Result;
use crate::prepare::chat;
use crate::prepare::partitioned_data::PartitionedData;
use crate::prepare::public_text;
use crate::prepare::row_cache::{RowCache, key_of_sequences};
use crate::text::grid::grouped;

/// What rows are made for: an experiment, its rows, and who follows the work.
pub(super) type Asked<'a> = (&'a Experiment, &'a PartitionedData, &'a Work<'a>);
/// Everybody's examples, and public rows.
pub(super) type Rows = (Shards, Vec<Encoded>);

/// Images as pixels.
pub(super) fn images(
    (experiment, holdings, work): Asked<'_>,
    (model, processor): (&Model, &Processor),
    notes: &mut Vec<String>,
) -> Result<Rows> {
    let Some(image) = model.config().image else {
        return Err(ConfigError::new("model", "a model of texts", "a model of images").into());
    };
    let shape = [image.channels, image.height, image.width];
    let encoder = ImageEncoder::new(processor, shape, image.tokens())
        .with_augment(experiment.raw.data.augment);
    let shards = Shards::encode_with(work, &encoder, (&holdings.table, &holdings.division))?;
    let bytes = Shards::used(&holdings.division).len() * image.pixels();
    if bytes as u64 > MANY_PIXELS {
        notes.push(format!("prepared images take {} of memory", ByteCount(bytes as u64)));
    }
    let public = public_text::rows(experiment, (&encoder, &holdings.table.labels))?;
    Ok((shards, public))
}

/// Bytes of prepared images from which on a person should know of them.
const MANY_PIXELS: u64 = 1 << 30;

/// Texts as tokens.
pub(super) fn texts(
    (experiment, holdings, work): Asked<'_>,
    (model, tokenizer, chat): (&Model, Arc<Tokenizer>, Option<(&ChatTemplate, &Companions)>),
    notes: &mut Vec<String>,
) -> Result<Rows> {
    let longest = experiment.max_tokens;
    let rules = answer_rules(experiment, model.config());
    if experiment.task == Task::Generation && rules.end.is_none() {
        notes.push(
            "config.json has no eos_token_id: every generated text has data.max_new_tokens tokens"
                .to_owned(),
        );
    }
    let declared = &model.config().eos_token_ids;
    let writes_turns =
        experiment.task == Task::Chat && experiment.raw.data.max_new_tokens.is_some();
    let stop = match chat.filter(|_| writes_turns) {
        Some((template, files)) => chat::stop_tokens(template, (files, &tokenizer), declared)?,
        None => declared.clone(),
    };
    let max_new_tokens = rules.max_new_tokens;
    let writing = Writing { tokenizer: Arc::clone(&tokenizer), max_new_tokens, stop };
    let chat = chat.map(|(template, _)| template);
    let cache = RowCache::of(experiment);

    let mut encoder = Encoder::new(tokenizer.as_ref(), longest)?.with_rules(rules.clone());
    if let Some(template) = chat {
        notes.extend(chat::notes(template));
        encoder = encoder.with_chat(template);
    }
    let mut shards = match &cache {
        None => {
            let rows = (&holdings.table, &holdings.division);
            Shards::encode_with(work, &encoder, rows)?
        }
        Some(cache) => {
            let key = |rows: &[&Example]| {
                let by = (tokenizer.as_ref(), chat);
                key_of_sequences(rows, by, (longest, rules.clone()))
            };
            cached(cache, (holdings, work), &encoder, (&key, notes))?
        }
    };
    let public = public_text::rows(experiment, (&encoder, &holdings.table.labels))?;
    if experiment.task == Task::Generation {
        shards = shards.with_writing(&writing);
    }
    if writes_turns {
        let rows = (&holdings.table, &holdings.division);
        let (written, counts) = shards.with_last_answers(work, (&encoder, &writing), rows)?;
        notes.extend(chat::omitted(&counts, longest - max_new_tokens));
        shards = written;
    }
    if let Some(loss) = experiment.recipe.work.preference {
        shards = shards.with_preference(loss);
    }
    let vocabulary = model.config().vocab_size;
    within_embedding(experiment, &shards, vocabulary)?;
    if tokenizer.vocabulary_size() > vocabulary {
        notes.push(format!(
            "the tokenizer has {} pieces and the model's embedding {} rows; no row of the data \
             uses the others",
            grouped(tokenizer.vocabulary_size() as u64),
            grouped(vocabulary as u64)
        ));
    }
    Ok((shards, public))
}

/// How answers in text are cut, ended and compared.
pub(crate) fn answer_rules(experiment: &Experiment, config: &Config) -> AnswerRules {
    let (data, usual) = (&experiment.raw.data, AnswerRules::default());
    let end = config.eos_token_ids.first().copied();
    AnswerRules {
        length_norm: data.length_norm.unwrap_or(usual.length_norm),
        max_new_tokens: data.max_new_tokens.unwrap_or(usual.max_new_tokens),
        end,
    }
}

/// Refuses tokens that the embedding has no row for, before anything trains on the others.
fn within_embedding(experiment: &Experiment, shards: &Shards, vocabulary: usize) -> Result<()> {
    let (key, hint) = match experiment.model {
        ModelSource::Folder(_) => {
            ("model.path", "the tokenizer is not the one that the weights were trained with")
        }
        ModelSource::Fresh(..) => ("model.tokenizer", "its ids have gaps: some ids have no piece"),
    };
    let whole = |name: &str| format!("a row of {name}");
    let central = ("a row of the central test set".to_owned(), &shards.central_test);
    let sets = shards.clients.iter().flat_map(|shard| {
        [&shard.train, &shard.validation, &shard.test]
            .map(|examples| (whole(&shard.name), examples))
    });
    for (whose, examples) in sets.chain([central]) {
        let beyond = |id: &&u32| **id as usize >= vocabulary;
        let mut ids = examples.encoded().iter().flat_map(|encoded| {
            let candidates = match &encoded.target {
                Target::Choice(choice) => choice.candidates.as_slice(),
                Target::One(_)
                | Target::Many(_)
                | Target::PerToken(_)
                | Target::Text(_)
                | Target::Preference(_) => &[],
            };
            encoded.ids.iter().chain(candidates.iter().flat_map(|candidate| &candidate.ids))
        });
        if let Some(id) = ids.find(beyond) {
            let found = format!("token {id} in {whose}");
            let expected = format!("less than {vocabulary}, the rows of the model's embedding");
            return Err(ConfigError::new(key, found, expected).with_hint(hint).into());
        }
    }
    Ok(())
}

/// The names of tokenised rows, by what they follow from.
type KeyOf<'a> = &'a dyn Fn(&[&Example]) -> Digest;

/// Everybody's examples as tokens, from the cache if they are there.
fn cached(
    cache: &RowCache,
    (holdings, work): (&PartitionedData, &Work<'_>),
    encoder: &dyn EncodeRows,
    (key, notes): (KeyOf<'_>, &mut Vec<String>),
) -> Result<Shards> {
    let PartitionedData { table, division, .. } = holdings;
    let rows: Vec<&Example> =
        Shards::used(division).into_iter().map(|row| &table.examples[row]).collect();
    let key = key(&rows);
    let sequences = if let Some(sequences) = cache.sequences(key, rows.len()) {
        sequences
    } else {
        let sequences = Shards::sequences(work, encoder, &rows)?;
        notes.extend(cache.unkept(cache.keep_sequences(key, &sequences)));
        sequences
    };
    Ok(Shards::gathered((table, division), sequences))
}
