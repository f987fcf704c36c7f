//! From a draft to an experiment: do the values make sense, alone and together?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fedra_data::{Clinic, Format, LabelShape, Partition, Split, Task};
use fedra_engine::methods::{Method, Pruning, Safl};
use fedra_engine::{Encoding, EngineError, Evaluation, Population, Recipe, Sampler, Work};
use fedra_model::hf::Config;
use fedra_model::{Adapters, Preset};
use fedra_plan::{AttentionSide, Part, Probe, RelevantTokens, Rule, Site};

use super::draft::{By, Data, Source as Written};
use super::{Complaint, Draft, Experiment, ModelSource, Source, reading};

type Result<T> = std::result::Result<T, Complaint>;

/// The name of the small preset in files, beside those of [`Preset`].
const TINY_ENCODER: &str = "tiny-encoder";
/// Pieces of a vocabulary that is grown, unless the file says otherwise.
const USUAL_VOCABULARY: usize = 1000;
/// Tokens of an example, unless the file says otherwise.
const USUAL_TOKENS: usize = 128;

/// Checks a draft, and fills in what depends on more than one key.
pub fn check(mut draft: Draft) -> Result<Experiment> {
    let name = name(&draft)?;
    if !["auto", "cpu"].contains(&draft.device.as_str()) {
        return Err(Complaint::new("device", format!("{:?}", draft.device), "auto or cpu"));
    }
    at_least_one("threads", draft.threads)?;
    at_least_one("data.max_examples", draft.data.max_examples)?;
    at_least_one("data.max_test", draft.data.max_test)?;
    at_least_one("evaluate.every", Some(draft.evaluate.every as usize))?;
    if draft.privacy.is_some() {
        let expected = "no such table: this version trains without privacy";
        return Err(Complaint::new("privacy", "a table", expected));
    }
    let tokens = *draft.data.max_tokens.get_or_insert(USUAL_TOKENS);
    if tokens < 3 {
        return Err(Complaint::new("data.max_tokens", tokens, "at least 3"));
    }
    let expected = "concepts, diagnosis, classes, tokens or language";
    let task = draft.data.task.ok_or_else(|| Complaint::new("data.task", "nothing", expected))?;
    let rounds = draft.federation.rounds;
    let rounds =
        rounds.ok_or_else(|| Complaint::new("federation.rounds", "nothing", "at least 1"))?;
    at_least_one("federation.rounds", Some(rounds as usize))?;
    at_least_one("federation.clients", draft.federation.clients)?;
    let source = source(&mut draft, task)?;
    let partition = partition(&draft)?;
    sample(&draft)?;
    let model = model(&mut draft, tokens)?;
    let recipe = recipe(&draft, rounds, (&model, task))?;
    let compare = draft.compare.take();
    Ok(Experiment { name, source, task, partition, model, rounds, recipe, draft, compare })
}

fn at_least_one(key: &str, value: Option<usize>) -> Result<()> {
    match value {
        Some(0) => Err(Complaint::new(key, 0, "at least 1")),
        Some(_) | None => Ok(()),
    }
}

/// The name becomes a folder, so it must be one.
fn name(draft: &Draft) -> Result<String> {
    let name = draft.name.clone().unwrap_or_default();
    let legal = |c: char| c.is_alphanumeric() || ['-', '_', '.', ' '].contains(&c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(legal) {
        let expected = "letters, digits, blanks, dots, - and _ (it names a folder)";
        return Err(Complaint::new("name", format!("{name:?}"), expected));
    }
    Ok(name)
}

fn source(draft: &mut Draft, task: Task) -> Result<Source> {
    lone_tables(&draft.data)?;
    let format = match draft.data.source {
        Written::SyntheticClinic => return clinic(draft, task).map(Source::Clinic),
        Written::Mimic => {
            let path = existing("data.path", &required_path(&draft.data)?)?;
            return Ok(Source::Mimic(draft.data.mimic.clone().unwrap_or_default(), path));
        }
        Written::Jsonl => Format::JsonLines,
        Written::Csv => Format::Csv,
        Written::Tsv => Format::Tsv,
        Written::Parquet => Format::Parquet,
        Written::Conll => Format::Conll,
        Written::I2b2 => Format::I2b2,
    };
    let data = &mut draft.data;
    let mut files = Vec::new();
    for (key, path, split) in [
        ("data.path", &mut data.path, None),
        ("data.train", &mut data.train, Some(Split::Train)),
        ("data.validation", &mut data.validation, Some(Split::Validation)),
        ("data.test", &mut data.test, Some(Split::Test)),
    ] {
        if let Some(path) = path {
            *path = existing(key, path)?;
            files.push((path.clone(), split));
        }
    }
    if data.path.is_none() && data.train.is_none() {
        let expected = "a file (or data.train and data.test)";
        return Err(Complaint::new("data.path", "nothing", expected));
    }
    Ok(Source::Files(format, files))
}

/// Refuses the table of another source than the one that is read.
fn lone_tables(data: &Data) -> Result<()> {
    let spelt = |source: Written| {
        toml::Value::try_from(source).map_or_else(|e| e.to_string(), |v| v.to_string())
    };
    for (key, given, own) in [
        ("data.clinic", data.clinic.is_some(), Written::SyntheticClinic),
        ("data.mimic", data.mimic.is_some(), Written::Mimic),
    ] {
        if given && data.source != own {
            let found = format!("a table beside data.source = {}", spelt(data.source));
            let expected = format!("it only beside {}", spelt(own));
            let hint =
                "start from a file without that table; docs/data.md has one for your own data";
            return Err(Complaint::new(key, found, expected).with_hint(hint));
        }
    }
    Ok(())
}

fn clinic(draft: &mut Draft, task: Task) -> Result<Clinic> {
    if !matches!(task, Task::Concepts | Task::Diagnosis) {
        let expected = "concepts or diagnosis, which the synthetic clinic writes";
        return Err(Complaint::new("data.task", format!("{:?}", task.name()), expected));
    }
    let data = &mut draft.data;
    for (key, path) in [
        ("data.path", &data.path),
        ("data.train", &data.train),
        ("data.validation", &data.validation),
        ("data.test", &data.test),
    ] {
        if let Some(path) = path {
            let expected = "no path: the synthetic clinic needs none";
            return Err(Complaint::new(key, path.display(), expected));
        }
    }
    let clinic = data.clinic.get_or_insert_with(Clinic::default);
    // Where rows are dealt anew, the number of clients says nothing about hospitals.
    match (data.partition.by, draft.federation.clients) {
        (By::Client, Some(clients)) => clinic.hospitals = clients,
        (By::Client, None) => draft.federation.clients = Some(clinic.hospitals),
        (By::Iid | By::Dirichlet | By::Shards | By::Quantity, _) => {}
    }
    at_least_one("data.clinic.hospitals", Some(clinic.hospitals))?;
    if clinic.notes < clinic.hospitals {
        let expected = format!("at least one for each of the {} hospitals", clinic.hospitals);
        return Err(Complaint::new("data.clinic.notes", clinic.notes, expected));
    }
    for (key, knob, top) in [
        ("data.clinic.feature_shift", clinic.feature_shift, 1.0),
        ("data.clinic.label_shift", clinic.label_shift, 1.0),
        ("data.clinic.size_skew", clinic.size_skew, 4.0),
    ] {
        if !(0.0..=top).contains(&knob) {
            return Err(Complaint::new(key, knob, format!("a number from 0 to {top}")));
        }
    }
    Ok(clinic.clone())
}

fn required_path(data: &Data) -> Result<PathBuf> {
    let expected = "the folder of the source";
    data.path.clone().ok_or_else(|| Complaint::new("data.path", "nothing", expected))
}

/// The path from the root, so that a run resumes from any folder.
fn existing(key: &str, path: &Path) -> Result<PathBuf> {
    if !path.exists() {
        let complaint = Complaint::new(key, path.display(), "a file or folder that exists");
        return Err(match std::env::current_dir() {
            Ok(here) if path.is_relative() => complaint
                .with_hint(format!("relative paths start where fedra runs: {}", here.display())),
            Ok(_) | Err(_) => complaint,
        });
    }
    std::path::absolute(path).map_err(|error| Complaint::new(key, error, "a path"))
}

fn partition(draft: &Draft) -> Result<Partition> {
    let written = &draft.data.partition;
    let clients = || {
        let expected = "how many clients to deal the rows to";
        let count = draft.federation.clients;
        count.ok_or_else(|| Complaint::new("federation.clients", "nothing", expected))
    };
    let alpha = || match written.alpha {
        Some(alpha) if alpha > 0.0 && alpha.is_finite() => Ok(alpha),
        Some(alpha) => Err(Complaint::new("data.partition.alpha", alpha, "a number above 0")),
        None => Err(Complaint::new("data.partition.alpha", "nothing", "a number above 0")),
    };
    let partition = match written.by {
        By::Client => Partition::Client,
        By::Iid => Partition::Iid { clients: clients()? },
        By::Dirichlet => Partition::Dirichlet { clients: clients()?, alpha: alpha()? },
        By::Quantity => Partition::Quantity { clients: clients()?, alpha: alpha()? },
        By::Shards => {
            let key = "data.partition.shards";
            let expected = "how many shards a client gets";
            let shards = written.shards.ok_or_else(|| Complaint::new(key, "nothing", expected))?;
            at_least_one(key, Some(shards))?;
            Partition::Shards { clients: clients()?, shards }
        }
    };
    idle_knobs(written)?;
    at_least_one("data.partition.min_examples", written.min_examples)?;
    if written.small.is_some() && written.min_examples.is_none() {
        let expected = "it only beside data.partition.min_examples";
        return Err(Complaint::new("data.partition.small", "a choice", expected));
    }
    let shares = draft.data.shares;
    for (key, share) in [
        ("data.shares.central", shares.central),
        ("data.shares.validation", shares.validation),
        ("data.shares.test", shares.test),
    ] {
        if !(0.0..1.0).contains(&share) {
            return Err(Complaint::new(key, share, "a share from 0 to below 1"));
        }
    }
    let sum = shares.validation + shares.test;
    if sum >= 1.0 {
        let expected = "less than 1 together with data.shares.test";
        return Err(Complaint::new("data.shares.validation", shares.validation, expected));
    }
    Ok(partition)
}

/// Refuses a knob that the way of dealing does not turn: who sets alpha believes that it matters.
fn idle_knobs(written: &super::draft::Partition) -> Result<()> {
    let (by, turns_alpha, turns_shards) = match written.by {
        By::Client => ("client", false, false),
        By::Iid => ("iid", false, false),
        By::Dirichlet => ("dirichlet", true, false),
        By::Quantity => ("quantity", true, false),
        By::Shards => ("shards", false, true),
    };
    let alpha = written.alpha.filter(|_| !turns_alpha).map(|alpha| ("alpha", alpha.to_string()));
    let shards = written.shards.filter(|_| !turns_shards).map(|n| ("shards", n.to_string()));
    let Some((key, found)) = alpha.or(shards) else { return Ok(()) };
    let ways = if key == "alpha" { "dirichlet or quantity" } else { "shards" };
    let expected = format!("it only where rows are dealt by {ways}, not by {by}");
    let turned = if key == "alpha" { "dirichlet" } else { "shards" };
    let hint = format!(
        "--set data.partition.by={turned} puts it to use, --set 'data.partition={{ by = \"{by}\" }}' \
         drops it"
    );
    Err(Complaint::new(&format!("data.partition.{key}"), found, expected).with_hint(hint))
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
                Some(clients) => format!("from 1 to the {clients} clients"),
                None => "at least 1".to_owned(),
            };
            Err(Complaint::new("federation.sample.uniform", count, expected))
        }
        Sampler::Poisson(rate) if rate > 0.0 && rate <= 1.0 => Ok(()),
        Sampler::Poisson(rate) => {
            Err(Complaint::new("federation.sample.poisson", rate, "above 0 and at most 1"))
        }
    }
}

/// The method with the work, the sampling and the encodings that the file chose for it.
fn recipe(draft: &Draft, rounds: u32, (model, task): (&ModelSource, Task)) -> Result<Recipe> {
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
        depths: depths(draft, model)?,
        evaluation,
        learns: trainable(draft),
        ..Recipe::new(work)
    };
    let settings = reading::spelt(draft.method.settings.clone());
    let mut method = Method::by_name(&draft.method.name, settings).map_err(complaint)?;
    if let Some(safl) = method.safl_mut() {
        settle(safl, draft, (model, task))?;
    }
    let recipe = method.over(rounds).recipe(base);
    // How many clients there are is known only with the data; whatever else is wrong, shows now.
    let clients = match recipe.population {
        Population::Pooled => 1,
        Population::Federated => draft.federation.clients.unwrap_or(usize::MAX),
    };
    recipe.check(clients).map_err(|error| beneath(draft, complaint(error)))?;
    Ok(recipe)
}

/// What may learn at all: everything, or the adapters and the head.
fn trainable(draft: &Draft) -> Rule {
    match &draft.model.lora {
        None => Rule::Everything,
        Some(_) => {
            Rule::Parts([Part::LoraA, Part::LoraB].into()) | Rule::Sites([Site::Head].into())
        }
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
        watched = safl.attention();
    }
    let Probe::Attention { side, tokens } = watched else { return Ok(()) };
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
    let blocks = match config(model)? {
        Config::Bert(bert) => bert.num_hidden_layers,
        Config::Llama(llama) => llama.num_hidden_layers,
    };
    if usize::from(usual) != blocks {
        let expected = format!("the {blocks} blocks of the model, which the others share");
        return Err(Complaint::new("federation.depths.default", usual, expected));
    }
    Ok(depths)
}

fn config(model: &ModelSource) -> Result<Config> {
    match model {
        ModelSource::Fresh(config, _) => Ok(config.as_ref().clone()),
        ModelSource::Folder(path) => open_config(path),
    }
}

/// The engine's refusal in the three parts of ours.
pub fn complaint(error: EngineError) -> Complaint {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are not about settings")]
    match error {
        EngineError::Setting { key, found, expected } => Complaint::new(key, found, expected),
        EngineError::UnknownMethod { found, expected } => {
            let near = super::complaint::nearest(&found, &Method::NAMES);
            let complaint = Complaint::new("method.name", format!("{found:?}"), expected);
            match near {
                Some(near) => complaint.with_hint(format!("the nearest is {near:?}")),
                None => complaint,
            }
        }
        EngineError::MethodSettings { reason, .. } => Complaint::worded(&reason).within("method"),
        other => Complaint::new("method", other, "another setting"),
    }
}

fn model(draft: &mut Draft, tokens: usize) -> Result<ModelSource> {
    let model = &mut draft.model;
    if let Some(lora) = &model.lora {
        Adapters::new(lora.rank, lora.alpha, lora.roles.iter().copied()).map_err(|error| {
            let complaint = Complaint::worded(&error.to_string());
            let key = complaint.key().trim_start_matches("LoRA ").to_owned();
            complaint.about(key).within("model.lora")
        })?;
    }
    if let Some(path) = &mut model.path {
        if let Some(preset) = &model.preset {
            let expected = "no preset beside model.path";
            return Err(Complaint::new("model.preset", format!("{preset:?}"), expected));
        }
        for (key, given) in [
            ("model.vocabulary", model.vocabulary),
            ("model.blocks", model.blocks),
            ("model.width", model.width),
            ("model.heads", model.heads),
        ] {
            if let Some(given) = given {
                return Err(Complaint::new(key, given, "nothing: the folder decides"));
            }
        }
        *path = existing("model.path", path)?;
        let config = open_config(path)?;
        fits(&config, tokens)?;
        return Ok(ModelSource::Folder(path.clone()));
    }
    let name = model.preset.get_or_insert_with(|| TINY_ENCODER.to_owned()).clone();
    let preset = if name == TINY_ENCODER { Some(Preset::Tiny) } else { Preset::parse(&name) };
    let Some(preset) = preset else {
        let names = Preset::ALL.map(Preset::name);
        let expected = format!("{TINY_ENCODER} or one of {}", names.join(", "));
        return Err(Complaint::new("model.preset", format!("{name:?}"), expected));
    };
    let mut config = preset.config();
    let Config::Bert(bert) = &mut config else {
        let expected = "an encoder; a decoder comes with its own tokenizer: use model.path";
        return Err(Complaint::new("model.preset", format!("{name:?}"), expected));
    };
    for (key, size) in
        [("model.blocks", model.blocks), ("model.width", model.width), ("model.heads", model.heads)]
    {
        at_least_one(key, size)?;
    }
    bert.num_hidden_layers = model.blocks.unwrap_or(bert.num_hidden_layers);
    bert.hidden_size = model.width.unwrap_or(bert.hidden_size);
    bert.intermediate_size = 4 * bert.hidden_size;
    bert.num_attention_heads = model.heads.unwrap_or(bert.num_attention_heads);
    if !bert.hidden_size.is_multiple_of(bert.num_attention_heads) {
        let (width, heads) = (bert.hidden_size, bert.num_attention_heads);
        let expected = format!("a multiple of the {heads} attention heads");
        return Err(Complaint::new("model.width", width, expected));
    }
    // Positions that no example reaches would be parameters that never learn.
    bert.max_position_embeddings = bert.max_position_embeddings.min(tokens);
    fits(&config, tokens)?;
    config.check().map_err(|error| Complaint::new("model", error, "a legal shape"))?;
    let vocabulary = *model.vocabulary.get_or_insert(USUAL_VOCABULARY);
    at_least_one("model.vocabulary", Some(vocabulary))?;
    Ok(ModelSource::Fresh(Box::new(config), vocabulary))
}

fn open_config(path: &Path) -> Result<Config> {
    let file = path.join(fedra_model::hf::config::FILE);
    if !file.is_file() {
        let found = format!("no {} in {}", fedra_model::hf::config::FILE, path.display());
        return Err(Complaint::new("model.path", found, "a folder in Hugging Face layout"));
    }
    Config::open(path).map_err(|error| {
        let complaint = Complaint::worded(&error.to_string());
        let within = format!("model.path: {}", complaint.key());
        complaint.about(within)
    })
}

fn fits(config: &Config, tokens: usize) -> Result<()> {
    let longest = match config {
        Config::Bert(bert) => bert.max_position_embeddings,
        Config::Llama(llama) => llama.max_position_embeddings,
    };
    if tokens > longest {
        let expected = format!("at most the {longest} positions of the model");
        return Err(Complaint::new("data.max_tokens", tokens, expected));
    }
    Ok(())
}
