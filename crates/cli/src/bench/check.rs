//! `fedra bench check`: whether a device computes what the processor does.
//!
//! Steps of tiny models of every family and head run on both, at odd sizes: loss and gradients of all that
//! learns, a step of the optimiser, private gradients, adapters with and without magnitudes over quantised
//! weights, decoding from a cache, the scores of a probe. A difference is
//! `|a - b| / |b|` over all numbers of a result; a bound belongs to a precision.

use anyhow::{Result, bail};
use clap::Args;
use fedra::config::DeviceReport;
use fedra::text::grid::Grid;
use fedra_compute::{
    Clipping, Device, Gradients, LossWeights, Optimiser, Params, Precision, RowWeights, Seed,
    Solver, Tape, Tensor, WeightFormat,
};
use fedra_model::hf::Config;
use fedra_model::{
    Adapters, Batch, BlockProbe, Head, KeyValueCache, Model, Relevant, Targets, WeightStorage,
    Weighted,
};
use fedra_plan::{Part, Role, Scope};
use serde_json::{Value, json};
use std::path::Path;

use super::family::{FAMILIES, check_families, family};
use crate::console;
use crate::device::{DeviceFlags, peers_precision};

/// The same with heads as wide as tensor cores take them.
const WIDE_HEADS: &str = include_str!("check/wide_heads.json");
const CLASSES: usize = 3;
/// Lengths of a batch's sequences.
const LENGTHS: [usize; 5] = [1, 7, 12, 3, 16];
/// The same for models that read longer ones.
const LONG: [usize; 4] = [1, 70, 33, 150];
/// Rank of the adapters over quantised weights.
const RANK: usize = 4;

/// Compare a device with the processor: losses, gradients and steps of every family and head
#[derive(Args)]
pub struct Check {
    /// A family to compare (may be repeated; all when absent)
    #[arg(long = "family", value_name = "NAME")]
    chosen: Vec<String>,
    #[command(flatten)]
    device: DeviceFlags,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What was compared, and how far apart the two are.
struct Found {
    model: String,
    what: &'static str,
    difference: f64,
}

impl Check {
    /// Compares and prints; a difference beyond its bound is an error.
    pub fn run(&self) -> Result<()> {
        let device = self.device.open_to_check()?;
        let bound = match device.precision() {
            Precision::F32 => 2e-5,
            Precision::Tf32 => 3e-2,
            Precision::Bf16 => 0.3,
        };
        let mut configurations: Vec<Value> = serde_json::from_str(FAMILIES)?;
        configurations.extend(serde_json::from_str::<Vec<Value>>(WIDE_HEADS)?);
        check_families(&self.chosen, configurations.iter().map(family).collect())?;
        let mut found = Vec::new();
        for (number, configuration) in configurations.iter().enumerate() {
            let family = family(configuration);
            if !self.chosen.is_empty() && !self.chosen.iter().any(|name| name == family) {
                continue;
            }
            let json = configuration.to_string();
            let config = Config::parse(Path::new("config.json"), json.as_bytes())?;
            for (name, head) in heads(&config) {
                // Not every family has every head.
                let Ok(model) = Model::new(config.clone(), head, None) else { continue };
                let name = format!("{family} {number}, {name}");
                let case = Case::new(model, &device)?;
                let mut add = |what, difference| {
                    found.push(Found { model: name.clone(), what, difference });
                };
                let (loss, gradients, step) = case.step()?;
                add("loss", loss);
                add("gradients", gradients);
                add("optimiser", step);
                add("private", case.private()?);
                add("probe", case.probe()?);
                for format in [WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4] {
                    for kind in [Kind::Lora, Kind::Dora] {
                        let case = Case::new(adapted(&config, head, (format, kind))?, &device)?;
                        let (loss, gradients, _) = case.step()?;
                        let private = case.private()?;
                        add(kind.name(), loss.max(gradients).max(private));
                    }
                }
                if case.model.is_decoder() && matches!(case.model.head(), Head::Language) {
                    add("cache", case.decode()?);
                }
            }
        }
        device.check()?;
        self.print((&device, &found), bound)
    }

    fn print(&self, (device, found): (&Device, &[Found]), bound: f64) -> Result<()> {
        let wrong = |found: &&Found| found.difference.is_nan() || found.difference > bound;
        let failed: Vec<&Found> = found.iter().filter(wrong).collect();
        let kinds =
            ["loss", "gradients", "optimiser", "private", "probe", "quantised", "dora", "cache"];
        let worst = kinds.map(|kind| {
            let of_kind = found.iter().filter(|found| found.what == kind);
            of_kind.max_by(|a, b| a.difference.total_cmp(&b.difference))
        });
        if self.json {
            let rows: Vec<Value> = found
                .iter()
                .map(
                    |it| json!({ "model": it.model, "what": it.what, "difference": it.difference }),
                )
                .collect();
            console::json(json!({
                "device": DeviceReport::of(device).device, "precision": peers_precision(device),
                "bound": bound, "failed": failed.len(), "compared": rows,
            }));
        } else {
            let mut grid = Grid::new(["what", ">compared", ">worst", "where"]);
            for (kind, worst) in kinds.into_iter().zip(worst) {
                let Some(worst) = worst else { continue };
                let count = found.iter().filter(|found| found.what == kind).count();
                let difference = format!("{:.1e}", worst.difference);
                grid.row([kind.to_owned(), count.to_string(), difference, worst.model.clone()]);
            }
            console::data(grid);
            for Found { model, what, difference } in &failed {
                console::data(format_args!("differs: {model}: {what} by {difference:.1e}"));
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        bail!("{} of {} results differ by more than {bound:.0e}", failed.len(), found.len())
    }
}

/// The heads that a model of this configuration may have.
fn heads(config: &Config) -> Vec<(&'static str, Head)> {
    let sequence = |pooler| Head::Sequence { classes: CLASSES, pooler };
    if config.image.is_some() {
        return vec![("images", sequence(false)), ("images", sequence(true))];
    }
    vec![
        ("sequences", sequence(true)),
        ("sequences", sequence(false)),
        ("tokens", Head::Tokens { classes: CLASSES }),
        ("language", Head::Language),
    ]
}

/// Adapters over weights that may be quantised.
#[derive(Clone, Copy)]
enum Kind {
    Lora,
    /// With magnitudes.
    Dora,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Lora => "quantised",
            Self::Dora => "dora",
        }
    }
}

/// A model whose adapters learn over weights in this format; a decoder's vocabulary has one too, with magnitudes where its
/// weight is its own.
fn adapted(config: &Config, head: Head, (format, kind): (WeightFormat, Kind)) -> Result<Model> {
    let is_own = matches!(kind, Kind::Lora) || !config.tie_word_embeddings;
    let is_adapted = matches!(head, Head::Language) && config.causal && is_own;
    let roles = [Role::Query, Role::Value, Role::Up].into_iter();
    let roles = roles.chain(is_adapted.then_some(Adapters::HEAD));
    let adapters = Adapters::new(RANK, 2.0 * RANK as f32, roles)?;
    let adapters = match kind {
        Kind::Lora => adapters,
        Kind::Dora => adapters.with_magnitudes(),
    };
    let model = Model::new(config.clone(), head, Some(adapters))?;
    let frozen = Scope::everything(model.layout()) - &learning(&model);
    let storage = WeightStorage::new(format, model.layout(), &frozen);
    Ok(model.stored_as(storage))
}

/// Adapters, where there are any; else everything.
fn learning(model: &Model) -> Scope {
    match model.adapters() {
        Some(_) => Scope::of_parts(model.layout(), Part::ADAPTER),
        None => Scope::everything(model.layout()),
    }
}

/// A model on both sides, and a batch.
struct Case {
    model: Model,
    scope: Scope,
    batch: Batch,
    targets: Vec<Option<u32>>,
    sides: [(Device, Params); 2],
}

impl Case {
    fn new(model: Model, device: &Device) -> Result<Self> {
        let host = Device::cpu();
        let mut params = model.fresh_params(&host, Seed(7))?;
        // Adapters that have learnt something: a fresh one corrects nothing.
        let mut learnt = Seed(9).generator();
        for (_, tensor) in params.iter_mut().filter(|(id, _)| id.part == Part::LoraB) {
            let numbers: Vec<f32> =
                (0..tensor.elements()).map(|_| 0.05 * learnt.normal() as f32).collect();
            tensor.overwrite(&numbers)?;
        }
        let there = params.iter().map(|(id, tensor)| (id, tensor.to(device))).collect();
        let mut draw = Seed(8).generator();
        let config = model.config();
        let lengths: Vec<usize> = match config.image {
            Some(image) => vec![image.tokens(); 3],
            None if model.longest() >= LONG[3] => LONG.to_vec(),
            None => LENGTHS.iter().map(|length| *length.min(&model.longest())).collect(),
        };
        let tokens: usize = lengths.iter().sum();
        let words = config.vocab_size.max(1);
        let ids: Vec<u32> = (0..tokens).map(|_| draw.below(words) as u32).collect();
        let mut batch = Batch::packed(ids, lengths.clone())?;
        if let Some(image) = config.image {
            let pixels = (0..lengths.len() * image.pixels()).map(|_| draw.normal() as f32);
            batch = batch.with_pixels(pixels.collect())?;
        }
        let (count, below) = match model.head() {
            Head::Sequence { classes, .. } => (lengths.len(), classes),
            Head::Tokens { classes } => (tokens, classes),
            Head::Language | Head::Bare => (tokens, words),
        };
        let target = |place: usize| (place % 5 != 3).then(|| draw.below(below) as u32);
        let targets = (0..count).map(target).collect();
        let scope = learning(&model);
        let sides = [(device.clone(), there), (host, params)];
        Ok(Self { model, scope, batch, targets, sides })
    }

    /// How far losses, gradients and weights after a step of `AdamW` are apart.
    fn step(&self) -> Result<(f64, f64, f64)> {
        let mut losses = Vec::new();
        let mut gradients: Vec<Gradients> = Vec::new();
        for (device, params) in &self.sides {
            let mut tape = Tape::new(device);
            let weights = params.training(&self.scope);
            let targets = Targets::Classes(&self.targets);
            let loss = self.model.loss(&mut tape, weights, &self.batch, targets)?;
            losses.push(loss.tensor.item());
            gradients.push(tape.backward(&[(&loss, Tensor::scalar(device, 1.0))])?);
        }
        let [ours, theirs] = [&gradients[0], &gradients[1]].map(dense);
        // Both sides take the processor's gradients, so that only the step is compared.
        let mut stepped = Vec::new();
        for ((device, params), gradients) in self.sides.iter().zip(&mut gradients) {
            let mut params = params.clone();
            let mut optimiser = Optimiser::new(device, Solver::adamw(1e-3, 0.01))?;
            for ((_, gradient), numbers) in gradients.iter_mut().zip(&theirs) {
                gradient.densify().overwrite(numbers)?;
            }
            for _ in 0..2 {
                optimiser.step(&mut params, gradients)?;
            }
            let numbers = params.iter().map(|(_, tensor)| tensor.to_host().into_owned());
            stepped.push(numbers.collect::<Vec<_>>());
        }
        let loss = difference(&[vec![losses[0]]], &[vec![losses[1]]]);
        Ok((loss, difference(&ours, &theirs), difference(&stepped[0], &stepped[1])))
    }

    /// The same for the sum of clipped gradients.
    fn private(&self) -> Result<f64> {
        let each = vec![0.25; self.batch.packing().sequences()];
        let rows = RowWeights::PerSequence(&each);
        let weights = LossWeights { rows, divisor: 1.0, ..LossWeights::SUM };
        let mut sums = Vec::new();
        for (device, params) in &self.sides {
            let mut tape = Tape::by_example(device, &self.batch.packing().boundaries());
            let targets = Weighted { targets: Targets::Classes(&self.targets), weights };
            let trained = params.training(&self.scope);
            let loss = self.model.loss(&mut tape, trained, &self.batch, targets)?;
            let gradients = tape.backward_by_example(&[(&loss, Tensor::scalar(device, 1.0))])?;
            let factors = Clipping::Flat(0.1).factors(&gradients);
            let sum = gradients.weighted_sum(|layer, example| factors.at(layer, example));
            sums.push(dense(&sum));
        }
        Ok(difference(&sums[0], &sums[1]))
    }

    /// The attention that a probe counts.
    fn probe(&self) -> Result<f64> {
        let mut found = Vec::new();
        for (device, params) in &self.sides {
            let mut tape = Tape::new(device);
            let mut probe = BlockProbe::new(Relevant::First);
            self.model.probe_blocks(&mut tape, params.frozen(), &self.batch, &mut probe)?;
            let scores: Vec<f32> = probe.means().iter().map(|score| *score as f32).collect();
            found.push(vec![scores]);
        }
        Ok(difference(&found[0], &found[1]))
    }

    /// Logits of tokens that come one after another.
    fn decode(&self) -> Result<f64> {
        let mut found = Vec::new();
        for (device, params) in &self.sides {
            let mut cache = KeyValueCache::new(device, &self.model, 0..self.model.blocks(), 4)?;
            let mut numbers = Vec::new();
            for part in self.batch.ids()[..8].chunks(3) {
                let mut tape = Tape::new(device);
                let batch = Batch::packed(part.to_vec(), vec![part.len()])?;
                let batch = batch.continuing(vec![cache.len()])?;
                let weights = params.frozen();
                let hidden = self.model.embed(&mut tape, weights, &batch)?;
                let given = (hidden, batch.packing());
                let hidden = self.model.decode(&mut tape, weights, given, &mut [&mut cache])?;
                numbers.push(hidden.tensor.to_host().into_owned());
            }
            found.push(numbers);
        }
        Ok(difference(&found[0], &found[1]))
    }
}

/// All numbers of all gradients.
fn dense(gradients: &Gradients) -> Vec<Vec<f32>> {
    gradients.iter().map(|(_, gradient)| gradient.to_dense()).collect()
}

/// `|a - b| / |b|` over all numbers; infinite where there are more on one side.
fn difference(ours: &[Vec<f32>], theirs: &[Vec<f32>]) -> f64 {
    let lengths = |numbers: &[Vec<f32>]| numbers.iter().map(Vec::len).collect::<Vec<_>>();
    if lengths(ours) != lengths(theirs) {
        return f64::INFINITY;
    }
    let (mut apart, mut size) = (0.0, 0.0);
    for (ours, theirs) in ours.iter().zip(theirs) {
        for (a, b) in ours.iter().zip(theirs) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            apart += (a - b) * (a - b);
            size += b * b;
        }
    }
    (apart / size.max(f64::MIN_POSITIVE)).sqrt()
}
