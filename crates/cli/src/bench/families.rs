//! `fedra bench families`: one training step of every family at the same shape, beside the family that it is measured against.
//!
//! A family is a set of properties, and each has its own operations: windows, norms of queries and keys, gated feed-forward
//! layers, caps. The command says what these cost. All models have the same blocks, width, heads and tokens; the feed-forward
//! layer has two matrices of four times the width, or three of two thirds of that, so products are equal. Models take turns,
//! so that a noisy machine is noisy for all.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::text::grid::{Grid, grouped};
use fedra_compute::{Device, Optimiser, Params, Seed, Solver, Tape, Tensor};
use fedra_model::hf::Config;
use fedra_model::{Batch, Head, ImageInput, Model, Positions, Rope, Targets, Window};
use fedra_plan::Scope;
use serde_json::{Map, Value, json};

use super::family::{FAMILIES, check_families, family};
use super::report::{least, median, rounded};
use crate::console;
use crate::flags::Threads;

const BLOCKS: usize = 6;
const WIDTH: usize = 384;
const HEADS: usize = 12;
const WORDS: usize = 8192;
const CLASSES: usize = 16;
/// Images of this side in patches of 16 have about as many tokens as texts here: 197, with a class token.
const IMAGE: usize = 224;
const PATCH: usize = 16;
const TOKENS: usize = 197;
/// The furthest that a token sees in blocks with a window.
const WINDOW: usize = 64;

/// Time one training step of every family at the same shape
#[derive(Args)]
pub struct FamiliesBench {
    /// A family to time, beside the one it is measured against (may be repeated; all when absent)
    #[arg(long = "family", value_name = "NAME")]
    chosen: Vec<String>,
    /// Sequences or images in a batch
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Steps of each family and turn
    #[arg(long, default_value_t = 4)]
    steps: usize,
    /// How often families take turns
    #[arg(long, default_value_t = 3)]
    turns: usize,
    #[command(flatten)]
    threads: Threads,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// A family at the common shape, and what its steps took.
struct Timed {
    name: String,
    against: &'static str,
    model: Model,
    seconds: Vec<f64>,
}

impl FamiliesBench {
    /// Measures and prints.
    pub fn run(&self) -> Result<()> {
        if self.batch == 0 || self.steps == 0 || self.turns == 0 {
            bail!("--batch, --steps and --turns must be at least 1");
        }
        let mut all = self.families()?;
        self.threads.pool()?.install(|| {
            for _ in 0..self.turns {
                for family in &mut all {
                    let seconds = self.steps_of(&family.model)?;
                    family.seconds.extend(seconds);
                }
            }
            anyhow::Ok(())
        })?;
        self.print(&all)
    }

    /// The chosen families and those that they are measured against.
    fn families(&self) -> Result<Vec<Timed>> {
        let mut all = every_family()?;
        check_families(&self.chosen, all.iter().map(|family| family.name.as_str()).collect())?;
        let named = |name: &String| all.iter().find(|family| family.name == *name);
        let baselines: Vec<&str> =
            self.chosen.iter().filter_map(named).map(|it| it.against).collect();
        all.retain(|family| {
            let name = &family.name;
            self.chosen.is_empty()
                || self.chosen.contains(name)
                || baselines.contains(&name.as_str())
        });
        Ok(all)
    }

    /// Seconds of steps of a fresh model, behind one that is not counted.
    fn steps_of(&self, model: &Model) -> Result<Vec<f64>> {
        let device = Device::cpu();
        let mut params = model.fresh_params(&device, Seed(0))?;
        let mut optimiser = Optimiser::new(&device, Solver::adamw(1e-4, 0.01))?;
        let scope = Scope::everything(model.layout());
        let steps = (0..=self.steps as u64).map(|number| {
            let (batch, targets) = self.batch(model, number)?;
            let start = Instant::now();
            step(&device, (model, &mut params, &mut optimiser), &scope, (&batch, &targets))?;
            Ok(start.elapsed().as_secs_f64())
        });
        Ok(steps.collect::<Result<Vec<f64>>>()?.split_off(1))
    }

    /// Random tokens or images, and what should be said about them.
    fn batch(&self, model: &Model, number: u64) -> Result<(Batch, Vec<Option<u32>>)> {
        let config = model.config();
        let mut draw = Seed(1).with(number).generator();
        let tokens = config.image.map_or(TOKENS, |image| image.tokens());
        let count = self.batch * tokens;
        let words = config.vocab_size.max(1);
        let ids: Vec<u32> = (0..count).map(|_| draw.below(words) as u32).collect();
        let mut batch = Batch::packed(ids, vec![tokens; self.batch])?;
        if let Some(image) = config.image {
            let pixels = (0..self.batch * image.pixels()).map(|_| draw.normal() as f32);
            batch = batch.with_pixels(pixels.collect())?;
        }
        let (count, below) = match model.head() {
            Head::Sequence { classes, .. } => (self.batch, classes),
            Head::Tokens { .. } | Head::Language | Head::Bare => (count, words),
        };
        let targets = (0..count).map(|_| Some(draw.below(below) as u32)).collect();
        Ok((batch, targets))
    }

    fn print(&self, all: &[Timed]) -> Result<()> {
        let time = |name: &str| -> Result<(f64, f64)> {
            let found = all.iter().find(|family| family.name == name);
            let seconds = &found.with_context(|| format!("no family {name}"))?.seconds;
            Ok((median(seconds).context("at least one step")?, least(seconds)))
        };
        let mut grid =
            Grid::new(["family", ">parameters", ">ms", ">best", "against", ">ratio", ">best"]);
        let mut rows = Vec::new();
        for Timed { name, against, model, .. } in all {
            let ((found, best), (usual, usual_best)) = (time(name)?, time(against)?);
            let parameters = Scope::everything(model.layout()).elements(model.layout());
            let ms = |seconds: f64| rounded(seconds * 1e3, 1);
            let (ratio, best_ratio) = (found / usual, best / usual_best);
            grid.row([
                name.clone(),
                grouped(parameters as u64),
                ms(found).to_string(),
                ms(best).to_string(),
                (*against).to_owned(),
                format!("{ratio:.2}"),
                format!("{best_ratio:.2}"),
            ]);
            rows.push(json!({
                "family": name, "parameters": parameters, "median_ms": ms(found), "best_ms": ms(best),
                "against": against, "ratio": rounded(ratio, 3), "best_ratio": rounded(best_ratio, 3),
            }));
        }
        if self.json {
            console::json(json!({
                "blocks": BLOCKS, "width": WIDTH, "heads": HEADS, "words": WORDS, "tokens": TOKENS,
                "batch": self.batch, "threads": self.threads.count(), "families": rows,
            }));
        } else {
            console::data(grid);
        }
        Ok(())
    }
}

/// Forward, backward and optimiser.
fn step(
    device: &Device,
    (model, params, optimiser): (&Model, &mut Params, &mut Optimiser),
    scope: &Scope,
    (batch, targets): (&Batch, &[Option<u32>]),
) -> Result<()> {
    let mut tape = Tape::new(device);
    let weights = params.training(scope);
    let loss = model.loss(&mut tape, weights, batch, Targets::Classes(targets))?;
    let gradients = tape.backward(&[(&loss, Tensor::scalar(device, 1.0))])?;
    Ok(optimiser.step(params, &gradients)?)
}

/// Every family once, at the common shape.
fn every_family() -> Result<Vec<Timed>> {
    let configurations: Vec<Value> = serde_json::from_str(FAMILIES)?;
    let (mut seen, mut all) = (BTreeSet::new(), Vec::new());
    for configuration in configurations {
        let name = family(&configuration).to_owned();
        if !seen.insert(name.clone()) {
            continue;
        }
        let text = configuration.to_string();
        let config = at_shape(Config::parse(Path::new("config.json"), text.as_bytes())?);
        let (head, against) = match (config.image.is_some(), config.causal) {
            (true, _) => (Head::Sequence { classes: CLASSES, pooler: false }, "vit"),
            (false, true) => (Head::Language, "llama"),
            (false, false) => (Head::Sequence { classes: CLASSES, pooler: false }, "bert"),
        };
        let model = Model::new(config, head, None)
            .with_context(|| format!("{name} at the common shape"))?;
        all.push(Timed { name, against, model, seconds: Vec::new() });
    }
    Ok(all)
}

/// The same properties at the common shape. Patterns of blocks go on as they begin.
fn at_shape(config: Config) -> Config {
    let cycle = |blocks: &[bool]| -> Vec<bool> {
        blocks.iter().copied().cycle().take(if blocks.is_empty() { 0 } else { BLOCKS }).collect()
    };
    let window = |window: &Window| Window { distance: WINDOW, blocks: cycle(&window.blocks) };
    let image = |image: ImageInput| ImageInput {
        distillation: image.distillation,
        registers: image.registers,
        ..ImageInput::new((IMAGE, IMAGE), PATCH, 3)
    };
    Config {
        num_hidden_layers: BLOCKS,
        hidden_size: WIDTH,
        num_attention_heads: HEADS,
        num_key_value_heads: None,
        head_dim: None,
        score_divisor: None,
        embedding_size: None,
        intermediate_size: if config.mlp.gated { WIDTH * 8 / 3 } else { WIDTH * 4 },
        vocab_size: config.image.map_or(WORDS, |_| 0),
        max_position_embeddings: 512,
        window: config.window.as_ref().map(window),
        image: config.image.map(image),
        positions: match config.positions {
            Positions::Rotary(rope) => {
                Positions::Rotary(Rope { unturned: cycle(&rope.unturned), ..rope })
            }
            learned @ Positions::Learned { .. } => learned,
        },
        original: Map::new(),
        ..config
    }
}
