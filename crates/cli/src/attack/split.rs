//! `fedra attack split`: a server that holds the middle of a decoder tries to read the text.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fedra::prepare::pretrained::Pretrained;
use fedra::text::grid::grouped;
use fedra_audit::{Attack, Decoder, FineTuning, Grid, Knowledge, PublicText, Study};
use fedra_compute::Seed;
use fedra_engine::{NoiseDraw, NoiseKind};
use fedra_model::{Classifier, Head, Wanted, load_checkpoint};

use super::findings::show;
use super::lines::{self, Lines};
use crate::console;
use crate::device::DeviceFlags;
use crate::flags::{Verbosity, one_of, parse_seed};
use crate::hub;
use crate::screen::{self, TextLine};
use crate::study_folder::StudyFolder;

pub const HELP: &str = "\
Examples:
  fedra attack split --model stories260k --text input.txt
  fedra attack split --model stories260k --text private.txt --public other.txt \\
    --first 0,1,2,4 --gamma 0,0.5,1,2,4 --lines 32 --out attack
  fedra attack split --model SmolLM2-135M-Instruct.Q4_1.gguf --data notes.toml --attack search \\
    --noise absolute --gamma 0.02,0.2,2 --candidates 64 --json

Without --public, the rest of the private text stands in for public text, which favours the
attacker. docs/attack_methods.md describes the attacks.";

/// The whole command.
#[derive(Args)]
pub struct Split {
    /// The decoder: a folder or a GGUF file; with --data, the experiment's unless given
    #[arg(long, value_name = "DIR|FILE.gguf", required_unless_present = "data")]
    model: Option<PathBuf>,
    /// The private text, one example a line
    #[arg(long, value_name = "FILE", conflicts_with = "data", required_unless_present = "data")]
    text: Option<PathBuf>,
    /// An experiment whose training rows are the private text
    #[arg(long, value_name = "FILE.toml")]
    data: Option<PathBuf>,
    /// Public text that the attacker has, one example a line
    #[arg(long, value_name = "FILE")]
    public: Option<PathBuf>,
    /// Blocks below the cut, separated by commas
    #[arg(long, value_name = "P", value_delimiter = ',', default_value = "1")]
    first: Vec<usize>,
    /// Noise levels: gamma (relative), scale (absolute) or sigma (clipped)
    #[arg(long, value_name = "G", value_delimiter = ',', default_value = "0,0.1,0.5,1,2,4,8")]
    gamma: Vec<f64>,
    /// How noise is measured: in units of each row's root mean square, as the mean absolute value, or in
    /// units of a norm to which rows are clipped
    #[arg(long, value_enum, default_value_t = NoiseName::Relative)]
    noise: NoiseName,
    /// The largest norm of a row, for clipped noise
    #[arg(long, value_name = "C")]
    norm: Option<f64>,
    /// Whether noise is new each time a line is sent; averaging tries both unless given
    #[arg(long, value_parser = one_of([("fresh", NoiseDraw::Fresh), ("cached", NoiseDraw::Cached)]))]
    draw: Option<NoiseDraw>,
    /// Attacks to run, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "all", value_parser = one_of(ATTACKS))]
    attack: Vec<&'static [Attack]>,
    /// Fine-tuning steps of the client before the attack, on the attacked lines and seven times as
    /// many others; 0 for none
    #[arg(long, value_name = "N", default_value_t = 20)]
    tune_steps: u32,
    /// Learning rate of these steps
    #[arg(long, value_name = "R", default_value_t = 3e-4)]
    tune_rate: f64,
    /// Candidates of a search at each position; the inverter preselects them in a larger vocabulary
    #[arg(long, value_name = "M", default_value_t = 512)]
    candidates: usize,
    /// How often the attacker sees a line, for averaging
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,4,16,64")]
    views: Vec<u32>,
    /// Tokens with a smaller share of the public text are rare
    #[arg(long, value_name = "SHARE", default_value_t = 0.001)]
    rare: f64,
    /// Lines to attack; as many again are held out to measure the loss
    #[arg(long, value_name = "N", default_value_t = 16)]
    lines: usize,
    /// Longest line, in tokens
    #[arg(long, value_name = "N", default_value_t = 48)]
    tokens: usize,
    /// About how many public tokens to learn from
    #[arg(long, value_name = "N", default_value_t = 50_000)]
    public_tokens: usize,
    /// Repetitions with fresh noise
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeats: u32,
    /// Random seed
    #[arg(long, value_name = "N", value_parser = parse_seed, default_value = "1")]
    seed: u64,
    #[command(flatten)]
    device: DeviceFlags,
    /// Print one JSON object a line instead of tables
    #[arg(long)]
    json: bool,
    /// Write index.html, charts and results.jsonl to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// How noise is measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NoiseName {
    Relative,
    Absolute,
    Clipped,
}

/// Attacks that are run together.
const ATTACKS: [(&str, &[Attack]); 5] = [
    ("inverter", &[Attack::Inverter, Attack::ShiftedInverter]),
    ("search", &[Attack::Search, Attack::SearchWithPrior]),
    ("average", &[Attack::Average]),
    ("guess", &[Attack::Unigram, Attack::Language]),
    ("all", &Attack::ALL),
];

impl Split {
    /// Attacks, writes, prints.
    pub fn run(&self) -> Result<()> {
        let begun = Instant::now();
        let mut grid = self.grid()?;
        let (private, model) = match (&self.text, &self.data) {
            (Some(text), _) => (lines::of_file("--text", text)?, None),
            (None, Some(data)) => lines::of_experiment(data)?,
            (None, None) => bail!("give --text or --data"),
        };
        let public =
            self.public.as_ref().map(|file| lines::of_file("--public", file)).transpose()?;
        let Some(path) = self.model.clone().or(model) else {
            bail!("--model is missing: the experiment names no folder or GGUF file");
        };
        let path = hub::folder("--model", &path, Verbosity::Lively)?;
        let folder = self.out.as_deref().map(StudyFolder::create).transpose()?;

        let Pretrained { checkpoint, tokenizer } = Pretrained::open(&path).context("--model")?;
        let wanted =
            Wanted { head: Head::Language, classifier: Classifier::Stored, adapters: None };
        let (device, seed) = (self.device.open(Verbosity::Lively)?, Seed(self.seed));
        let loaded = load_checkpoint(&checkpoint, wanted, (&device, seed)).context("--model")?;
        let decoder = Decoder::new(&loaded.model, &loaded.params, &device).context("--model")?;
        if self.tokens > loaded.model.longest() {
            let longest = loaded.model.longest();
            bail!("--tokens: found {}, expected at most {longest}, the model's", self.tokens);
        }
        let wanted = lines::Wanted {
            attacked: self.lines,
            learnt: if self.tune_steps == 0 { 0 } else { 7 * self.lines },
            public: self.public_tokens,
            tokens: self.tokens,
        };
        let texts = (&private[..], public.as_deref());
        let lines = Lines::draw(&tokenizer, texts, wanted, seed.of("lines"))?;
        let public_text = PublicText::new(lines.public, lines.known.len(), decoder.vocabulary())?;
        self.introduce(&public_text);

        let mut progress = Progress { line: TextLine::new(true), said: String::new() };
        progress.tell("the client fine-tunes");
        let tuning = FineTuning { steps: self.tune_steps, rate: self.tune_rate, batch: 8 };
        grid.firsts.iter().try_for_each(|&first| decoder.check_first(first))?;
        let blocks = grid.firsts.iter().copied().max().unwrap_or(0);
        let tuned = tuning.tune(decoder, (&lines.learnt, blocks), seed.of("tuning"))?;
        if self.tune_steps == 0 {
            grid.knowledge = vec![Knowledge::Exact];
        }
        let text = |tokens: &[u32]| tokenizer.text(tokens).unwrap_or_default();
        let study = Study {
            client: decoder.with(&tuned),
            public: decoder,
            lines: &lines.attacked,
            held_out: &lines.held_out,
            public_text: &public_text,
            known: &lines.known,
            text: &text,
            grid: &grid,
        };
        let findings = study.run(&mut |what| progress.tell(what))?;
        progress.line.remove();
        let truth = text(&lines.attacked[0][lines.known.len()..]);
        show((&findings, &truth), self.json, folder.as_ref())?;
        console::say(format_args!("{:.0} s", begun.elapsed().as_secs_f64()));
        Ok(())
    }

    fn introduce(&self, public: &PublicText) {
        let tokens = grouped(public.total);
        if self.public.is_none() {
            console::say(format_args!(
                "note: {tokens} tokens of the private file's other lines stand for public text; \
                 --public names a file"
            ));
        } else {
            console::say(format_args!("{tokens} public tokens"));
        }
    }

    fn grid(&self) -> Result<Grid> {
        if self.norm.is_some() != (self.noise == NoiseName::Clipped) {
            let found = if self.norm.is_some() { "a number" } else { "nothing" };
            bail!("--norm: found {found}, expected a number with --noise clipped, and only then");
        }
        let norm = self.norm.unwrap_or_default();
        let kind = |&level: &f64| match self.noise {
            NoiseName::Relative => NoiseKind::Relative { gamma: level },
            NoiseName::Absolute => NoiseKind::Absolute { scale: level },
            NoiseName::Clipped => NoiseKind::Clipped { norm, sigma: level },
        };
        if !(0.0..=1.0).contains(&self.rare) {
            bail!("--rare: found {}, expected a share from 0 to 1", self.rare);
        }
        if self.lines == 0 {
            bail!("--lines: found 0, expected at least 1");
        }
        let attacks: BTreeSet<Attack> = self.attack.iter().copied().flatten().copied().collect();
        Ok(Grid {
            firsts: self.first.clone(),
            noises: self.gamma.iter().map(kind).collect(),
            draw: self.draw,
            attacks,
            knowledge: vec![Knowledge::Exact, Knowledge::Pretrained],
            views: self.views.clone(),
            repeats: self.repeats,
            candidates: self.candidates,
            rare: self.rare,
            seed: Seed(self.seed).of("attack"),
        })
    }
}

/// What is being done: a live line on a terminal, a line for each attack elsewhere.
struct Progress {
    line: TextLine,
    said: String,
}

impl Progress {
    fn tell(&mut self, what: &str) {
        self.line.set(what.to_owned());
        let attack = what.split(", token").next().unwrap_or(what);
        if !screen::is_live() && self.said != attack {
            attack.clone_into(&mut self.said);
            console::say(attack);
        }
    }
}
