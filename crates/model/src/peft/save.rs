//! Writing an adapter folder. The configuration is written last: a folder without one was
//! interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use fedra_compute::Params;
use fedra_plan::{Layer, ParamId, Part, Role};
use serde_json::{Map, Value, json};

use super::files::{CONFIG, HEAD, LABELS, WEIGHTS};
use crate::error::ModelError;
use crate::head::Head;
use crate::hf::config::Problem;
use crate::hf::writer::{self, Outline};
use crate::hf::{Architecture, Precision, file};
use crate::lora::Adapters;
use crate::model::Model;

/// What stands before every name in an adapter's file.
const PREFIX: &str = "base_model.model.";

/// How to save an adapter.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdapterSaving<'a> {
    /// Where the model lies that it adapts: a path, or a name that the other library knows.
    pub base: Option<&'a str>,
    /// The revision of a base that is known by its name.
    pub revision: Option<&'a str>,
    /// Names of the classes of a classification head.
    pub labels: Option<&'a [String]>,
    /// How the outputs of a head over whole texts are read.
    pub problem: Option<Problem>,
}

/// Writes the adapters of a model and its head as a folder that PEFT loads.
pub fn save(
    dir: &Path,
    model: &Model,
    params: &Params,
    saving: AdapterSaving<'_>,
) -> Result<(), ModelError> {
    let refuse = |found: &str, expected: &str| {
        Err(ModelError::structure("adapter to save", &found, &expected))
    };
    let Some(adapters) = model.adapters() else {
        return refuse("a model without adapters", "one with low-rank adapters");
    };
    let task = match model.head() {
        // The library has no word for images.
        Head::Sequence { .. } if model.config().image.is_some() => None,
        Head::Language if model.is_decoder() => Some("CAUSAL_LM"),
        Head::Language => return refuse("an encoder's vocabulary", "a head that classifies"),
        Head::Sequence { .. } => Some("SEQ_CLS"),
        Head::Tokens { .. } => Some("TOKEN_CLS"),
        Head::Bare => return refuse("a model without a head", "one with a head"),
    };
    let architecture = model.head().architecture(model.config())?.of_modules();
    let (mut outlines, mut stored) = (Vec::new(), BTreeMap::new());
    let is_part = |id: &ParamId| id.part.is_adapter() || is_whole_head(model, *id);
    for (id, shape) in model.layout().iter().filter(|(id, _)| is_part(id)) {
        let joined = Joined::of(id, model, architecture);
        let whole = ParamId { part: Part::Weight, ..id };
        let name = match &joined {
            None => architecture.tensor_name(id),
            Some(joined) => architecture.tensor_name(whole).map(|name| joined.name(&name)),
        };
        let name = name.ok_or(ModelError::Unnamed { id, class: architecture.class_name() })?;
        let name = if name.starts_with(PREFIX) { name } else { format!("{PREFIX}{name}") };
        let shape = joined.as_ref().map_or(shape.dims().to_vec(), |joined| joined.shape(model));
        if stored.insert(name.clone(), (id, joined)).is_none() {
            outlines.push(Outline { name, shape });
        }
    }
    fs::create_dir_all(dir).map_err(ModelError::io("create", dir))?;
    writer::stream(&dir.join(WEIGHTS), outlines, Precision::F32, |name| match &stored[name] {
        (id, None) => Ok(params.get(*id)?.to_host()),
        (_, Some(joined)) => Ok(joined.values(model, params)?.into()),
    })?;
    let joined: BTreeMap<String, usize> = stored
        .iter()
        .filter_map(|(name, (_, joined))| {
            let ranks = joined.as_ref()?.adapted.len();
            let module = name.strip_suffix(".lora_A.weight")?.rsplit_once('.')?.1;
            (ranks > 1).then(|| (module.to_owned(), ranks))
        })
        .collect();
    let pattern = |of: &dyn Fn(usize) -> Value| -> Map<String, Value> {
        joined.iter().map(|(module, count)| (module.clone(), of(*count))).collect()
    };
    if let Some(labels) = saving.labels {
        write(&dir.join(LABELS), &json!(labels))?;
    }
    if let Some(problem) = saving.problem {
        write(&dir.join(HEAD), &json!({ "problem_type": problem.name() }))?;
    }
    let config = json!({
        "base_model_name_or_path": saving.base,
        "bias": "none",
        "fan_in_fan_out": architecture.has_transposed(),
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": whole_or_not(adapters.alpha()),
        "lora_dropout": 0.0,
        "modules_to_save": modules_to_save(model, architecture),
        "peft_type": "LORA",
        "r": adapters.rank(),
        "revision": saving.revision,
        "rank_pattern": pattern(&|count| json!(count * adapters.rank())),
        "alpha_pattern": pattern(&|count| whole_or_not(count as f32 * adapters.alpha())),
        "target_modules": target_modules(adapters, architecture),
        "task_type": task,
        "use_dora": adapters.has_magnitudes(),
        "use_rslora": false,
    });
    write(&dir.join(CONFIG), &config)
}

/// Adapters of projections that the library stores together. It has one adapter for them, of the sum of their
/// ranks: the rows of A one after the other, and each B in its own rows and columns.
struct Joined {
    /// All that lie in the tensor, in the order of their rows.
    all: Vec<ParamId>,
    /// Those that have an adapter.
    adapted: Vec<ParamId>,
    part: Part,
}

impl Joined {
    fn of(id: ParamId, model: &Model, architecture: Architecture) -> Option<Self> {
        let all = architecture.stored_with(ParamId { part: Part::Weight, ..id });
        if id.layer == Layer::Head || all.len() < 2 {
            return None;
        }
        let has = |other: &&ParamId| model.layout().contains(ParamId { part: id.part, ..**other });
        let adapted = all.iter().filter(has).copied().collect();
        Some(Self { all, adapted, part: id.part })
    }

    /// The adapter's name, beside that of the weight.
    fn name(&self, weight: &str) -> String {
        let path = weight.trim_end_matches(".weight");
        let end = match self.part {
            Part::LoraA => "lora_A.weight",
            Part::Magnitude => "lora_magnitude_vector",
            Part::Weight | Part::Bias | Part::LoraB => "lora_B.weight",
        };
        format!("{PREFIX}{path}.{end}")
    }

    fn shape(&self, model: &Model) -> Vec<usize> {
        let rank = model.adapters().map_or(0, Adapters::rank) * self.adapted.len();
        let dims = |id: &ParamId| model.layout().get(*id).map_or(&[0, 0][..], |shape| shape.dims());
        match self.part {
            Part::LoraA => vec![rank, dims(&self.all[0])[1]],
            Part::Magnitude => vec![self.all.iter().map(|id| dims(id)[0]).sum()],
            Part::Weight | Part::Bias | Part::LoraB => {
                vec![self.all.iter().map(|id| dims(id)[0]).sum(), rank]
            }
        }
    }

    fn values(&self, model: &Model, params: &Params) -> Result<Vec<f32>, ModelError> {
        if self.part == Part::Magnitude {
            return self.magnitudes(params);
        }
        let [rows, columns] = self.shape(model)[..] else { return Ok(Vec::new()) };
        let part = |id: &ParamId| params.get(ParamId { part: self.part, ..*id });
        let mut values = Vec::with_capacity(rows * columns);
        if self.part == Part::LoraA {
            for id in &self.adapted {
                values.extend_from_slice(&part(id)?.to_host());
            }
            return Ok(values);
        }
        for id in &self.all {
            let outputs = model.layout().get(*id).map_or(0, |shape| shape.dims()[0]);
            let Some(place) = self.adapted.iter().position(|other| other == id) else {
                values.resize(values.len() + outputs * columns, 0.0);
                continue;
            };
            let own = part(id)?.to_host();
            let rank = columns / self.adapted.len();
            for row in own.chunks_exact(rank) {
                values.resize(values.len() + place * rank, 0.0);
                values.extend_from_slice(row);
                values.resize(values.len() + columns - (place + 1) * rank, 0.0);
            }
        }
        Ok(values)
    }
}

impl Joined {
    /// A projection without an adapter has the norms that its rows have.
    fn magnitudes(&self, params: &Params) -> Result<Vec<f32>, ModelError> {
        let mut values = Vec::new();
        for id in &self.all {
            if self.adapted.contains(id) {
                values
                    .extend_from_slice(&params.get(ParamId { part: self.part, ..*id })?.to_host());
            } else {
                values.extend(params.get(*id)?.row_norms());
            }
        }
        Ok(values)
    }
}

fn write(path: &Path, json: &Value) -> Result<(), ModelError> {
    file::write(path, |out| writeln!(out, "{json:#}").map_err(ModelError::io("write", path)))
}

/// The library's type for this number is a whole one.
fn whole_or_not(alpha: f32) -> Value {
    if alpha.fract() == 0.0 && alpha < 1e9 { json!(alpha as u64) } else { json!(alpha) }
}

/// The modules of the head, which learn beside the adapters.
fn modules_to_save(model: &Model, architecture: Architecture) -> BTreeSet<String> {
    let module = |id: ParamId| {
        let name = architecture.tensor_name(id)?;
        let path = name.rsplit_once('.').map(|(path, _)| path.to_owned())?;
        // The library saves a head that consists of several modules as one.
        let bare = path.strip_prefix(architecture.family.prefix).unwrap_or(&path);
        let whole = ["pooler", "classifier"]
            .into_iter()
            .find(|whole| bare.starts_with(&format!("{whole}.")));
        Some(whole.map_or(path.clone(), str::to_owned))
    };
    model.layout().ids().filter(|id| is_whole_head(model, *id)).filter_map(module).collect()
}

/// Whether a parameter is a part of the head that is saved whole: it has no adapter.
fn is_whole_head(model: &Model, id: ParamId) -> bool {
    let is_adapted = model.layout().contains(ParamId { part: Part::LoraA, ..id });
    id.layer == Layer::Head && !is_adapted
}

/// The adapted modules: by the ends of their names, or by a pattern where an end would say too much.
fn target_modules(adapters: &Adapters, architecture: Architecture) -> Value {
    let module = |role: &Role| {
        let id = ParamId::new(Layer::Block(0), *role, Part::Weight);
        let name = architecture.tensor_name(id)?;
        let (_, inside) = name.split_once(".0.")?;
        Some(inside.trim_end_matches(".weight").to_owned())
    };
    let mut modules: BTreeSet<String> = adapters.roles().iter().filter_map(module).collect();
    if adapters.adapts_head() {
        let id = ParamId::new(Layer::Head, Adapters::HEAD, Part::Weight);
        let name = architecture.tensor_name(id);
        modules.extend(name.map(|name| name.trim_end_matches(".weight").to_owned()));
    }
    let has = |role| adapters.roles().contains(&role);
    // In BERT, `attention.output.dense` ends as `output.dense` does.
    let ends = |role: Role, end: &str| module(&role).is_some_and(|name| name.ends_with(end));
    if ends(Role::Output, "output.dense") && has(Role::Down) && !has(Role::Output) {
        let either: Vec<String> = modules.iter().map(|module| module.replace('.', r"\.")).collect();
        return json!(format!(r".*\.layer\.\d+\.({})", either.join("|")));
    }
    let end = |module: &String| match module.rsplit_once('.') {
        Some((_, end)) if end != "dense" => end.to_owned(),
        Some(_) | None => module.clone(),
    };
    json!(modules.iter().map(end).collect::<BTreeSet<_>>())
}
