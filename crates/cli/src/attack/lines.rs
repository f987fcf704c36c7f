//! The texts of an attack as lines of tokens: private ones, held-out ones, public ones.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fedra::Experiment;
use fedra::config::ModelSource;
use fedra::prepare::partitioned_data::PartitionedData;
use fedra_compute::Seed;
use fedra_data::Tokenizer;

use crate::flags::Verbosity;
use crate::hub;

/// The largest text that is read.
const LARGEST: u64 = 1 << 30;
/// Lines with fewer tokens of their own say too little.
const SHORTEST: usize = 8;

/// Lines of text in their order.
pub fn of_file(flag: &str, file: &Path) -> Result<Vec<String>> {
    let shown = file.display();
    let size = fs::metadata(file).with_context(|| format!("{flag}: cannot open {shown}"))?.len();
    if size > LARGEST {
        bail!("{flag}: found {size} bytes in {shown}, expected at most {LARGEST}");
    }
    let text = fs::read_to_string(file)
        .with_context(|| format!("{flag}: cannot read {shown} as UTF-8"))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The training rows of all clients of an experiment, and the model that it names.
pub fn of_experiment(file: &Path) -> Result<(Vec<String>, Option<PathBuf>)> {
    let open = || Experiment::open(file, &fedra::Overrides::default());
    let experiment = hub::opened(Verbosity::Lively, open)?;
    let holdings = PartitionedData::of(&experiment)?;
    let rows = holdings.division.clients.iter().flat_map(|holding| &holding.train);
    let texts = rows.map(|&row| holdings.table.examples[row].body.to_text()).collect();
    let model = match &experiment.model {
        ModelSource::Folder(path) => Some(path.clone()),
        ModelSource::Fresh(..) => None,
    };
    Ok((texts, model))
}

/// How many lines are wanted, and of which length.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Lines to attack, and as many again to measure the loss on.
    pub attacked: usize,
    /// Other lines that the client learns from.
    pub learnt: usize,
    /// Public tokens, about.
    pub public: usize,
    /// Most tokens of a line, known ones included.
    pub tokens: usize,
}

/// Texts in a random order.
type Texts<'a> = std::vec::IntoIter<&'a String>;

/// Lines as tokens, each behind the tokens with which every line begins.
pub struct Lines {
    pub attacked: Vec<Vec<u32>>,
    pub held_out: Vec<Vec<u32>>,
    /// What the client learns from: the attacked lines and others.
    pub learnt: Vec<Vec<u32>>,
    pub public: Vec<Vec<u32>>,
    pub known: Vec<u32>,
}

impl Lines {
    /// Draws lines at random. Public lines come from the public text, or where there is none from
    /// the rest of the private text.
    pub fn draw(
        tokenizer: &Tokenizer,
        (private, public): (&[String], Option<&[String]>),
        wanted: Wanted,
        seed: Seed,
    ) -> Result<Self> {
        let known = tokenizer.templates().single.before();
        let room = wanted.tokens.saturating_sub(known.len());
        if room < SHORTEST {
            let least = SHORTEST + known.len();
            bail!("--tokens: found {}, expected at least {least}", wanted.tokens);
        }
        let encode = |text: &str| -> Result<Option<Vec<u32>>> {
            let pieces = tokenizer.pieces(text)?;
            let line = known.iter().copied().chain(pieces.iter().copied().take(room));
            Ok((pieces.len() >= SHORTEST).then(|| line.collect()))
        };
        let mut private = shuffled(private, seed.of("private"));
        let take = |count: usize, from: &mut Texts<'_>| -> Result<Vec<Vec<u32>>> {
            let mut lines = Vec::new();
            while lines.len() < count {
                let Some(text) = from.next() else { break };
                lines.extend(encode(text)?);
            }
            Ok(lines)
        };
        let attacked = take(wanted.attacked, &mut private)?;
        let held_out = take(wanted.attacked, &mut private)?;
        if attacked.len() < wanted.attacked || held_out.is_empty() {
            bail!(
                "the private text: found {} lines of {SHORTEST} tokens or more, expected at least {}",
                attacked.len() + held_out.len(),
                wanted.attacked + 1
            );
        }
        // Where the same file has to be public text too, half of the rest is left for that.
        let most = if public.is_some() { private.len() } else { private.len() / 2 };
        let mut learnt = attacked.clone();
        learnt.extend(take(wanted.learnt.min(most), &mut private)?);
        let mut others = match public {
            Some(public) => shuffled(public, seed.of("public")),
            None => private,
        };
        let (mut public, mut tokens) = (Vec::new(), 0);
        while tokens < wanted.public {
            let Some(text) = others.next() else { break };
            if let Some(line) = encode(text)? {
                tokens += line.len() - known.len();
                public.push(line);
            }
        }
        if public.is_empty() {
            bail!(
                "the public text: found no line of {SHORTEST} tokens or more, expected some; \
                 --public names a file"
            );
        }
        Ok(Self { attacked, held_out, learnt, public, known })
    }
}

fn shuffled(texts: &[String], seed: Seed) -> Texts<'_> {
    let mut order: Vec<&String> = texts.iter().collect();
    seed.generator().shuffle(&mut order);
    order.into_iter()
}
