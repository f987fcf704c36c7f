//! `[method]` and all that it is given: work, sampling, encodings.

use std::collections::BTreeMap;

use fedra_data::{AnswerForm, LabelShape, Task};
use fedra_engine::methods::{Method, Pruning, Safl};
use fedra_engine::{
    AdapterMean, Encoding, EngineError, Evaluation, MinArrivals, NoiseDraw, Population, Privacy,
    Recipe, Sampler, Split, Weighting, Work,
};
use fedra_model::hf::Config;
use fedra_plan::{AttentionSide, Part, Probe, RelevantTokens, Rule, Site};
use fedra_privacy::Unit;

use super::model::config;
use super::values::Result;
use crate::complaint::{Complaint, nearest};
use crate::experiment::checked::ModelSource;
use crate::experiment::draft::{Draft, LoraHead, LoraMean};
use crate::experiment::reading;
use crate::grid::counted;

/// The method with the work, the sampling and the encodings that the file chose for it.
pub(super) fn recipe(
    draft: &Draft,
    rounds: u32,
    (model, task): (&ModelSource, Task),
) -> Result<Recipe> {
    sample(draft)?;
    let written = &draft.work;
    if let Encoding::Heads { .. } = draft.wire.encoding {
        let expected = "another one; SAFL sends some heads by method.prune = { heads = 0.5 }";
        return Err(Complaint::new("wire.encoding", draft.wire.encoding, expected));
    }
    let work = Work {
        epochs: written.epochs,
        batch: written.batch,
        schedule: written.schedule,
        max_steps: written.max_steps,
        clip: written.clip,
        encoding: draft.wire.encoding,
        download: draft.wire.download,
        ..Work::new(written.optimiser)
    };
    let evaluation = Evaluation {
        every: draft.evaluate.every,
        drift: draft.evaluate.drift,
        attention: draft.evaluate.attention,
        ..Evaluation::default()
    };
    let base = Recipe {
        start: draft.federation.start,
        sampler: draft.federation.sample,
        conditions: draft.conditions.clone().unwrap_or_default(),
        min_arrivals: draft.federation.min_arrivals,
        max_norm: draft.federation.max_norm,
        retries: draft.federation.retries,
        depths: depths(draft, model)?,
        evaluation,
        adapters: match draft.model.lora.as_ref().map(|lora| lora.mean) {
            Some(LoraMean::Exact) => AdapterMean::Exact,
            Some(LoraMean::Separate | LoraMean::FreezeA) | None => AdapterMean::Separate,
        },
        split: split(draft)?,
        privacy: privacy(draft)?,
        learns: trainable(draft, task)?,
        ..Recipe::new(work)
    };
    let late = |split: &Split| split.moves.iter().map(|step| step.round).find(|at| *at > rounds);
    if let Some(round) = base.split.as_ref().and_then(late) {
        let expected = format!("rounds up to {rounds}, the last (federation.rounds)");
        return Err(Complaint::new("split.moves", format!("a move in round {round}"), expected));
    }
    let settings = reading::spelt(draft.method.settings.clone());
    let mut method = Method::by_name(&draft.method.name, settings).map_err(complaint)?;
    if let Some(safl) = method.safl_mut() {
        settle(safl, draft, (model, task))?;
    }
    let mut recipe = method.over(rounds).recipe(base);
    if draft.privacy.as_ref().is_some_and(|privacy| privacy.unit == Unit::Client) {
        // What a client may move the mean by must not depend on its size, nor a round on who came.
        recipe.weighting = Weighting::Uniform;
        if recipe.min_arrivals == MinArrivals::default() {
            recipe.min_arrivals = MinArrivals::Count(0);
        }
    }
    if recipe.privacy.as_ref().is_some_and(|privacy| privacy.rows.is_some()) {
        // A client's weight must not follow from its true number of rows either.
        recipe.weighting = Weighting::Uniform;
    }
    // How many clients there are is known only with the data; whatever else is wrong, shows now.
    let clients = match recipe.population {
        Population::Pooled => 1,
        Population::Federated => draft.federation.clients.unwrap_or(usize::MAX),
    };
    recipe.check(clients).map_err(|error| beneath(draft, complaint(error)))?;
    Ok(recipe)
}

/// The cut. Noise that a promise is to cover is new each time.
fn split(draft: &Draft) -> Result<Option<Split>> {
    let draw = match draft.privacy {
        None => NoiseDraw::default(),
        Some(_) => NoiseDraw::Fresh,
    };
    draft.split.as_ref().map(|table| table.split(draw)).transpose()
}

/// The promise. Beside a cut it is the rows' noise that keeps it.
fn privacy(draft: &Draft) -> Result<Option<Privacy>> {
    let Some(table) = &draft.privacy else { return Ok(None) };
    let rows = draft.split.as_ref().filter(|_| table.unit == Unit::Example);
    match rows.map(|split| split.noise.unwrap_or_default()) {
        None => table.privacy().map(Some),
        Some(noise) => table.privacy_of_rows(noise).map(Some),
    }
}

fn sample(draft: &Draft) -> Result<()> {
    let clients = draft.federation.clients;
    match draft.federation.sample {
        Sampler::All => Ok(()),
        Sampler::Uniform(count) => {
            let most = clients.unwrap_or(usize::MAX);
            if count >= 1 && count as usize <= most {
                return Ok(());
            }
            let expected = match clients {
                Some(clients) => format!("from 1 to the {}", counted(clients as u64, "client")),
                None => "at least 1".to_owned(),
            };
            Err(Complaint::new("federation.sample.uniform", count, expected))
        }
        Sampler::Poisson(rate) if rate > 0.0 && rate <= 1.0 => Ok(()),
        Sampler::Poisson(rate) => {
            let expected = "a probability above 0 and at most 1";
            Err(Complaint::new("federation.sample.poisson", rate, expected))
        }
    }
}

/// What may learn at all: everything, or the adapters and the head.
fn trainable(draft: &Draft, task: Task) -> Result<Rule> {
    let Some(lora) = &draft.model.lora else { return Ok(Rule::Everything) };
    let adapters = match lora.mean {
        LoraMean::FreezeA => Rule::Parts([Part::LoraB].into()),
        LoraMean::Separate | LoraMean::Exact => Rule::Parts([Part::LoraA, Part::LoraB].into()),
    };
    let has_labels = task.answer_form() != AnswerForm::Text && task.shape() != LabelShape::Absent;
    match lora.head {
        LoraHead::Learns => Ok(adapters | Rule::Sites([Site::Head].into())),
        LoraHead::Frozen if has_labels => {
            let expected = "\"learns\" for a task with labels: its head may be fresh";
            Err(Complaint::new("model.lora.head", "\"frozen\"", expected))
        }
        LoraHead::Frozen => Ok(adapters),
    }
}

/// A complaint about a setting that stands in `method.base` names it there.
fn beneath(draft: &Draft, complaint: Complaint) -> Complaint {
    let settings = &draft.method.settings;
    let base = settings.get("base").and_then(toml::Value::as_table);
    match (complaint.key().strip_prefix("method."), base) {
        (Some(key), Some(base)) if base.contains_key(key) && !settings.contains_key(key) => {
            let key = format!("method.base.{key}");
            complaint.about(key)
        }
        _ => complaint,
    }
}

/// Fills in what SAFL takes from the model, and refuses what the task or the wire cannot give.
fn settle(safl: &mut Safl, draft: &Draft, (model, task): (&ModelSource, Task)) -> Result<()> {
    let (side, heads) = match config(model)? {
        Config::Bert(bert) => (AttentionSide::Key, bert.num_attention_heads),
        // Query heads that share a key head cannot be told apart there.
        Config::Llama(llama) => (AttentionSide::Query, llama.num_key_value_heads),
    };
    let side = *safl.side.get_or_insert(side);
    // Where every word has a label, the first token decides nothing.
    if side == AttentionSide::Key && task.shape() == LabelShape::PerWord {
        safl.relevant.get_or_insert(RelevantTokens::Entities);
    }
    if safl.prune.is_some() && draft.wire.encoding != Encoding::F32 {
        let expected = "f32 beside method.prune, which is an encoding itself";
        return Err(Complaint::new("wire.encoding", draft.wire.encoding, expected));
    }
    let mut watched = safl.probe();
    if let Some(Pruning::Heads { of, .. }) = &mut safl.prune {
        if draft.model.lora.is_some() {
            let expected = "a share of entries: adapters have no heads of their own";
            return Err(Complaint::new("method.prune", "heads beside model.lora", expected));
        }
        *of = heads as u16;
        watched = Some(safl.attention());
    }
    let Some(Probe::Attention { side, tokens }) = watched else { return Ok(()) };
    let named = |tokens| match tokens {
        RelevantTokens::Cls => "\"cls\"",
        RelevantTokens::Entities => "\"entities\"",
        RelevantTokens::All => "\"all\"",
    };
    match (side, tokens) {
        (AttentionSide::Query, RelevantTokens::Cls | RelevantTokens::Entities) => {
            let expected = "\"all\": the query side is measured over all content tokens";
            Err(Complaint::new("method.relevant", named(tokens), expected))
        }
        (AttentionSide::Key, RelevantTokens::Entities) if task.shape() != LabelShape::PerWord => {
            let expected = "\"cls\" or \"all\": the task labels no tokens";
            Err(Complaint::new("method.relevant", named(tokens), expected))
        }
        (AttentionSide::Key | AttentionSide::Query, _) => Ok(()),
    }
}

/// The depths of those clients that have fewer blocks than the model.
fn depths(draft: &Draft, model: &ModelSource) -> Result<BTreeMap<String, u16>> {
    let mut depths = draft.federation.depths.clone();
    let Some(usual) = depths.remove("default") else { return Ok(depths) };
    let blocks = config(model)?.blocks();
    if usize::from(usual) != blocks {
        let expected = format!("the {blocks} blocks of the model, which the others share");
        return Err(Complaint::new("federation.depths.default", usual, expected));
    }
    Ok(depths)
}

/// The engine's refusal in the three parts of ours.
pub fn complaint(error: EngineError) -> Complaint {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are not about settings")]
    match error {
        EngineError::Setting { key, found, expected } => Complaint::new(key, found, expected),
        EngineError::UnknownMethod { found, expected } => {
            let near = nearest(&found, &Method::NAMES);
            let complaint = Complaint::new("method.name", format!("{found:?}"), expected);
            match near {
                Some(near) => complaint.with_hint(format!("the nearest is {near:?}")),
                None => complaint,
            }
        }
        EngineError::MethodSettings { reason, .. } => Complaint::worded(&reason).within("method"),
        other => Complaint::sentence("method", other),
    }
}
