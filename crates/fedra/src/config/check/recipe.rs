//! `[method]` and all that it is given: work, sampling, encodings.

use std::collections::BTreeMap;

use fedra_data::{AnswerForm, LabelShape, Task};
use fedra_engine::methods::{Method, Pruning, Safl};
use fedra_engine::{
    AdapterMean, Encoding, EngineError, Evaluation, MinArrivals, NoiseDraw, Population, Recipe,
    Sampler, Schedule, Weighting, Work,
};
use fedra_model::Adapters;
use fedra_plan::{AttentionSide, Layer, Part, Probe, RelevantTokens, Rule};
use fedra_privacy::Unit;
use serde::Serialize;
use serde::de::Error;

use super::values::Result;
use crate::config::checked::ModelSource;
use crate::config::raw_config::{self, LoraHead, LoraMean, RawConfig};
use crate::config::{ConfigError, reading};

/// The method with the work, the sampling and the encodings that the file chose for it.
pub(super) fn recipe(
    raw: &RawConfig,
    rounds: u32,
    (model, task): (&ModelSource, Task),
) -> Result<Recipe> {
    ConfigError::new("federation.sample.uniform", 0, "at least 1")
        .when(raw.federation.sample == Sampler::Uniform(0))?;
    let written = &raw.work;
    let encoding = raw.wire.encoding;
    let expected = "another one; SAFL sends some heads by method.prune = { heads = 0.5 }";
    ConfigError::new("wire.encoding", encoding, expected)
        .when(matches!(encoding, Encoding::Heads { .. }))?;
    check_loss(written, task)?;
    let work = Work {
        epochs: written.epochs,
        batch: written.batch,
        schedule: Schedule::over(written.schedule, written.warmup, rounds),
        accumulate: written.accumulate,
        moments: written.moments,
        class_weights: written.class_weights.clone(),
        label_smoothing: written.label_smoothing,
        preference: (task == Task::Preference).then(|| written.preference.unwrap_or_default()),
        dropout: written.dropout,
        max_steps: written.max_steps,
        clip: written.clip,
        encoding: raw.wire.encoding,
        download: raw.wire.download,
        ..Work::new(written.optimiser)
    };
    let privacy = raw.privacy.as_ref();
    // Noise that a guarantee is to cover is new each time.
    let draw = privacy.map_or(NoiseDraw::default(), |_| NoiseDraw::Fresh);
    let evaluation = Evaluation {
        every: raw.evaluate.every,
        drift: raw.evaluate.drift,
        attention: raw.evaluate.attention,
        ..Evaluation::default()
    };
    let base = Recipe {
        start: raw.federation.start,
        sampler: raw.federation.sample,
        conditions: raw.conditions.clone().unwrap_or_default(),
        min_arrivals: raw.federation.min_arrivals,
        max_norm: raw.federation.max_norm,
        retries: raw.federation.retries,
        depths: depths(raw, model)?,
        ranks: ranks(raw)?,
        evaluation,
        adapters: match raw.model.lora.as_ref().map(|lora| lora.mean) {
            Some(LoraMean::Exact) => AdapterMean::Exact,
            Some(LoraMean::Separate | LoraMean::FreezeA) | None => AdapterMean::Separate,
        },
        split: raw.split.as_ref().map(|table| table.split(draw)).transpose()?,
        privacy: privacy.map(|table| table.privacy(raw.split.as_ref())).transpose()?,
        learns: trainable(raw, task)?,
        ..Recipe::new(work)
    };
    for step in base.split.iter().flat_map(|split| &split.moves) {
        let found = format_args!("a move in round {}", step.round);
        let expected = format_args!("rounds up to {rounds}, the last (federation.rounds)");
        ConfigError::new("split.moves", found, expected).when(step.round > rounds)?;
    }
    let mut method = method(raw)?;
    if let Some(safl) = method.safl_mut() {
        settle(safl, raw, (model, task))?;
    }
    let mut recipe = method.over(rounds).recipe(base);
    if privacy.is_some_and(|privacy| privacy.unit == Unit::Client) {
        // What a client may move the mean by must not depend on its size, nor a round on who came.
        recipe.weighting = Weighting::Uniform;
        if recipe.min_arrivals == MinArrivals::default() {
            recipe.min_arrivals = MinArrivals::Count(0);
        }
    }
    if privacy.is_some_and(|privacy| privacy.rows.is_some()) {
        // A client's weight must not follow from its true number of rows either.
        recipe.weighting = Weighting::Uniform;
    }
    check(&recipe, raw).map_err(|error| beneath(raw, error))?;
    Ok(recipe)
}

/// Refuses what the loss of a task has no place for.
fn check_loss(work: &raw_config::Work, task: Task) -> Result<()> {
    let several = task.shape() == LabelShape::Many;
    let why = format!("where an example has one label: {} has several at once", task.name());
    ConfigError::only("work.label_smoothing", &why).when(several && work.label_smoothing > 0.0)?;
    let weighted = work.class_weights.is_some();
    ConfigError::only("work.class_weights", &why).when(several && weighted)?;
    let is_preference = task == Task::Preference;
    ConfigError::only("work.preference", "to the task preference")
        .when(work.preference.is_some() && !is_preference)?;
    ConfigError::excludes("work.label_smoothing", "the task preference")
        .with_hint("work.preference = { label_smoothing = 0.1 } is that of pairs")
        .when(is_preference && work.label_smoothing > 0.0)?;
    let in_text = task.answer_form() == AnswerForm::Text || task.shape() == LabelShape::Absent;
    let why = format!("to tasks with labels: {} is answered in text", task.name());
    ConfigError::only("work.class_weights", &why).when(in_text && weighted)
}

/// Checks a recipe for the clients that a file declares. How many there are is known only with the data;
/// whatever else is wrong, shows now.
pub fn check(recipe: &Recipe, raw: &RawConfig) -> Result<()> {
    let clients = match recipe.population {
        Population::Pooled => 1,
        Population::Federated => raw.federation.clients.unwrap_or(usize::MAX),
    };
    recipe.check(clients).map_err(of_engine)
}

/// The method with its settings.
fn method(raw: &RawConfig) -> Result<Method> {
    let settings = reading::spelt(raw.method.settings.clone());
    let unknown = || ConfigError::unknown_variant(&raw.method.name, &Method::NAMES);
    let read = Method::read(&raw.method.name, settings);
    let read = read.ok_or_else(|| unknown().with_key("method.name"))?;
    let method = read.map_err(|error| error.inside("method"))?;
    method.check().map_err(of_engine)?;
    Ok(method)
}

/// What may learn at all: everything, or the adapters and the head.
fn trainable(raw: &RawConfig, task: Task) -> Result<Rule> {
    let is_preference = task == Task::Preference;
    let Some(lora) = &raw.model.lora else {
        let expected = "one, such as { rank = 8, head = \"frozen\" }: the reference of a preference is the model \
                        without its adapters";
        ConfigError::new("model.lora", "no table", expected).when(is_preference)?;
        return Ok(Rule::Everything);
    };
    let expected = "\"frozen\" for preferences: the reference is the model without its adapters, head included";
    ConfigError::new("model.lora.head", "\"learns\"", expected)
        .when(is_preference && lora.head == LoraHead::Learns)?;
    let expected = "\"frozen\" where roles or target_modules name the head: it learns whole, or an adapter on it does";
    ConfigError::new("model.lora.head", "\"learns\"", expected)
        .when(lora.roles.contains(&Adapters::HEAD) && lora.head == LoraHead::Learns)?;
    let adapters = match lora.mean {
        LoraMean::FreezeA => Rule::Parts([Part::LoraB].into()),
        LoraMean::Separate | LoraMean::Exact => Rule::Parts([Part::LoraA, Part::LoraB].into()),
    };
    let adapters =
        if lora.dora { adapters | Rule::Parts([Part::Magnitude].into()) } else { adapters };
    let has_labels = task.answer_form() != AnswerForm::Text && task.shape() != LabelShape::Absent;
    let expected = "\"learns\" for a task with labels: its head may be fresh";
    ConfigError::new("model.lora.head", "\"frozen\"", expected)
        .when(lora.head == LoraHead::Frozen && has_labels)?;
    Ok(match lora.head {
        LoraHead::Learns => adapters | Rule::Layers([Layer::Head].into()),
        LoraHead::Frozen => adapters,
    })
}

/// An error about a setting that stands in `method.base` names it there.
fn beneath(raw: &RawConfig, refusal: ConfigError) -> ConfigError {
    let settings = &raw.method.settings;
    let base = settings.get("base").and_then(toml::Value::as_table);
    match (refusal.key.strip_prefix("method."), base) {
        (Some(key), Some(base)) if base.contains_key(key) && !settings.contains_key(key) => {
            let key = format!("method.base.{key}");
            refusal.with_key(key)
        }
        _ => refusal,
    }
}

/// Fills in what SAFL takes from the model, and refuses what the task or the wire cannot give.
fn settle(safl: &mut Safl, raw: &RawConfig, (model, task): (&ModelSource, Task)) -> Result<()> {
    let config = model.config()?;
    let side = if config.causal { AttentionSide::Query } else { AttentionSide::Key };
    // Query heads that share a key head cannot be told apart there.
    let heads = config.kv_heads();
    let side = *safl.side.get_or_insert(side);
    // Where every word has a label, the first token decides nothing.
    if side == AttentionSide::Key && task.shape() == LabelShape::PerWord {
        safl.relevant.get_or_insert(RelevantTokens::Entities);
    }
    let encoding = raw.wire.encoding;
    ConfigError::new(
        "wire.encoding",
        encoding,
        "f32 with method.prune, which is an encoding itself",
    )
    .when(safl.prune.is_some() && encoding != Encoding::F32)?;
    let mut watched = safl.probe();
    if let Some(Pruning::Heads { of, .. }) = &mut safl.prune {
        ConfigError::excludes("method.prune.heads", "model.lora: adapters have no attention heads")
            .when(raw.model.lora.is_some())?;
        *of = heads as u16;
        watched = Some(safl.attention());
    }
    let Some(Probe::Attention { side, tokens }) = watched else { return Ok(()) };
    let of_words = task.shape() == LabelShape::PerWord;
    let queried = "\"all\": the query side is measured over all content tokens";
    ConfigError::value(spelt(tokens), queried)
        .with_key("method.relevant")
        .when(side == AttentionSide::Query && tokens != RelevantTokens::All)?;
    ConfigError::value(spelt(tokens), "\"cls\" or \"all\": the task labels no tokens")
        .with_key("method.relevant")
        .when(tokens == RelevantTokens::Entities && !of_words)
}

/// A setting as a file spells it.
fn spelt(setting: impl Serialize) -> toml::Value {
    toml::Value::try_from(setting).expect("a word")
}

/// The depths of those clients that have fewer blocks than the model.
fn depths(raw: &RawConfig, model: &ModelSource) -> Result<BTreeMap<String, u16>> {
    let mut depths = raw.federation.depths.clone();
    let Some(usual) = depths.remove("default") else { return Ok(depths) };
    let blocks = model.config()?.num_hidden_layers;
    let expected = format_args!("the {blocks} blocks of the model, which the others share");
    ConfigError::new("federation.depths.default", usual, expected)
        .when(usize::from(usual) != blocks)?;
    Ok(depths)
}

/// The ranks of those clients whose adapters have a lower one than the shared ones.
fn ranks(raw: &RawConfig) -> Result<BTreeMap<String, u16>> {
    let mut ranks = raw.federation.ranks.clone();
    if ranks.is_empty() {
        return Ok(ranks);
    }
    let Some(lora) = &raw.model.lora else {
        let expected = "[model.lora] beside it: these are ranks of adapters";
        return Err(ConfigError::new("federation.ranks", "no adapters", expected));
    };
    let reason =
        "federation.ranks: adapters of a folder do not stand in the order of their singular values";
    ConfigError::excludes("model.adapter", reason).when(raw.model.adapter.is_some())?;
    if let Some(usual) = ranks.remove("default") {
        let expected = format_args!("{}, the rank of model.lora, which the others have", lora.rank);
        ConfigError::new("federation.ranks.default", usual, expected)
            .when(usize::from(usual) != lora.rank)?;
    }
    // Who has all of it is no exception.
    ranks.retain(|_, rank| usize::from(*rank) != lora.rank);
    Ok(ranks)
}

/// The engine's refusal of a setting.
pub fn of_engine(error: EngineError) -> ConfigError {
    if let EngineError::Setting { key, found, expected } = error {
        return if found == "nothing" {
            ConfigError::missing(key, expected)
        } else {
            ConfigError::new(key, found, expected)
        };
    }
    ConfigError::sentence("method", error)
}
