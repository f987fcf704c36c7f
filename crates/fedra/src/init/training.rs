//! What learns, and how: a folder is looked into, a preset is chosen, and the numbers of a run follow
//! from the rows there are.
//!
//! The numbers are a starting point for a first run, not what is best: `fedra compare --tune` finds that.

use fedra_data::{AnswerForm, LabelShape, Task, printable};
use fedra_engine::methods::Method;
use fedra_model::Preset;

use super::models::{self, ModelShape};
use super::roles::{MOST_LISTED, Roles, short};
use super::sight::Sight;
use super::wishes::{Chosen, Wishes};
use crate::config::{ConfigError, hub};
use crate::error::{Context, Result};
use crate::prepare::token_lengths::{TokenLengths, cut_rows};
use crate::text::grid::grouped;

/// Clients that rows are partitioned over where nobody says who holds them.
const MADE_UP: usize = 4;
/// Local steps that a client takes in all, about, with fresh weights.
const FRESH_STEPS: usize = 400;
/// The same with pretrained weights, which have little left to learn.
const PRETRAINED_STEPS: usize = 150;
/// Steps after which a client's round is cut short.
const MOST_STEPS: usize = 200;
/// From here on low-rank adapters learn in place of the weights.
const LARGE: usize = 80_000_000;
/// Rows below which a client is joined with others.
const FEWEST: usize = 10;
/// Clients from which on only some take part in a round.
const MANY_CLIENTS: usize = 20;
/// Tokens of an example beyond which a first run would take long.
const MOST_TOKENS: usize = 512;
/// The same where texts are cut into windows.
const MOST_WINDOW: usize = 256;
/// Tokens of an example below which nothing is won.
const FEWEST_TOKENS: usize = 24;

/// The model and the numbers of a run.
#[derive(Clone, Debug)]
pub struct Training {
    /// What learns.
    pub model: ModelChoice,
    /// How the model was found to be.
    pub model_why: String,
    /// Tokens that it can read.
    positions: usize,
    /// Whether adapters learn in place of the weights.
    pub lora: bool,
    /// How many clients there are.
    pub clients: usize,
    /// How many rows the smallest client has.
    pub fewest: usize,
    /// The column of what must stay together and how many values it has, where these are fewer than clients would
    /// be made up.
    pub few_documents: Option<FewDocuments>,
    /// Tokens of an example.
    pub max_tokens: Chosen<usize>,
    /// Examples of a step.
    pub batch: Chosen<usize>,
    /// Rounds.
    pub rounds: Chosen<u32>,
    /// Steps after which a client's round ends.
    pub max_steps: Option<usize>,
    /// The rate.
    pub rate: Chosen<f64>,
    /// The method.
    pub method: String,
    /// Clients of a round, where not all take part.
    pub sample: Option<usize>,
}

/// A column and how many values it has, which are too few to make up the usual number of clients.
pub type FewDocuments = (String, usize);

/// What learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelChoice {
    /// A folder or a GGUF file.
    Folder(std::path::PathBuf),
    /// A shape with fresh weights, with fewer blocks than it has where given.
    Preset(String, Option<usize>),
}

impl Training {
    pub(super) fn of(sight: &Sight, roles: &Roles, wishes: &Wishes) -> Result<Self> {
        let (model, model_why, parameters, positions) = model(sight, roles, wishes)?;
        let is_fresh = matches!(model, ModelChoice::Preset(..));
        let expected =
            "one of them: a vocabulary built from clients' rows would reveal their words";
        ConfigError::new("epsilon", "no model and no tokenizer", expected).when(
            wishes.epsilon.is_some()
                && is_fresh
                && wishes.tokenizer.is_none()
                && sight.images.is_none(),
        )?;
        let labels = roles.labels(sight).map(|labels| labels.len());
        let lists = match (roles.task.value, wishes.epsilon) {
            (Task::Choice, _) => Some("task"),
            (task, Some(_)) if task.shape() != LabelShape::Absent => Some("epsilon"),
            (_, _) => None,
        };
        if let (Some(key), None | Some(MOST_LISTED..)) = (lists, labels) {
            let found = format!("{MOST_LISTED} different labels or more");
            return Err(ConfigError::new(key, found, "few enough for the file to list them").into());
        }
        if let Some(method) = &wishes.method {
            ConfigError::new("method", format_args!("{method:?}"), Method::NAMES.join(", "))
                .when(!Method::NAMES.contains(&method.as_str()))?;
        }
        let is_preference = roles.task.value == Task::Preference;
        let lora = is_preference || (!is_fresh && parameters >= LARGE);
        let (clients, fewest, few_documents) = clients(sight, roles, wishes)?;
        // Counted once the rows are read ([`Self::fit`]).
        let max_tokens = Chosen::new(positions.min(MOST_WINDOW), "until rows are counted");
        let rows = sight.survey.rows * 7 / 10 / clients.max(1);
        let batch = match (wishes.epsilon, rows) {
            (Some(_), 320..) => Chosen::new(64, "large batches reduce the effect of noise"),
            (Some(_), _) => Chosen::new(16, "there are few rows"),
            (None, 320..) => Chosen::new(16, "a usual number"),
            (None, _) => Chosen::new(8, "there are few rows, so there are more and smaller steps"),
        };
        let steps = rows.div_ceil(batch.value).max(1);
        let max_steps = (steps > 2 * MOST_STEPS).then_some(MOST_STEPS);
        let each = max_steps.unwrap_or(steps);
        let usual = || {
            let all = if is_fresh { FRESH_STEPS } else { PRETRAINED_STEPS };
            let rounds = (all / each).clamp(5, 30) as u32;
            let why = format!("about {} steps per round at each client", grouped(each as u64));
            Chosen::new(rounds, why)
        };
        let rounds = wishes.rounds.map_or_else(usual, Chosen::wished);
        let why = match (is_fresh, lora) {
            (true, _) => "fresh weights take large steps",
            (false, true) => "adapters take larger steps than weights",
            (false, false) => "a starting point for a first run",
        };
        let rate = match (is_fresh || lora || wishes.epsilon.is_some(), parameters) {
            (true, _) | (false, 0..5_000_000) => Chosen::new(1e-3, why),
            (false, 5_000_000..50_000_000) => Chosen::new(2e-4, "a small pretrained model"),
            (false, _) => Chosen::new(5e-5, "a pretrained model"),
        };
        let method = wishes.method.clone().unwrap_or_else(|| "fedavg".to_owned());
        let sample = (clients > MANY_CLIENTS).then_some(MANY_CLIENTS / 2);
        Ok(Self {
            model,
            model_why,
            positions,
            lora,
            clients,
            fewest,
            few_documents,
            max_tokens,
            batch,
            rounds,
            max_steps,
            rate,
            method,
            sample,
        })
    }

    /// The most tokens of an example that are worth proposing.
    pub(super) fn most_tokens(&self, roles: &Roles) -> usize {
        // A text without labels is cut into windows, which need not be long.
        let most = if roles.task.value == Task::Language { MOST_WINDOW } else { MOST_TOKENS };
        self.positions.min(most)
    }

    /// Takes as many tokens as examples have, up to what is worth proposing. Sequences are packed, so a
    /// bound that few of them reach costs nothing for the others.
    pub(super) fn fit(&mut self, lengths: &TokenLengths, roles: &Roles) {
        let most = self.most_tokens(roles);
        let longest = lengths.of_share(1.0);
        let value = longest.next_multiple_of(8).clamp(FEWEST_TOKENS.min(most), most);
        let (usual, longest) = (grouped(lengths.of_share(0.95) as u64), grouped(longest as u64));
        let why = if roles.task.value == Task::Language {
            "texts are read in windows of this many tokens".to_owned()
        } else if lengths.cut == 0 {
            format!("the longest row has {longest} tokens of this model, 95 % have up to {usual}")
        } else {
            let reads =
                if most == self.positions { "the model reads no more" } else { "more takes long" };
            let cut = cut_rows((lengths.cut as u64, lengths.len() as u64), value);
            format!("{cut} ({reads}): 95 % have up to {usual} tokens")
        };
        self.max_tokens = Chosen::new(value, why);
    }

    /// Fewest training rows of a client that stands alone, where some have too few.
    pub(super) fn min_examples(&self) -> Option<usize> {
        (self.fewest < FEWEST).then_some(FEWEST / 2)
    }
}

/// How many clients there are, the rows of the smallest, and what keeps their number low.
fn clients(
    sight: &Sight,
    roles: &Roles,
    wishes: &Wishes,
) -> Result<(usize, usize, Option<FewDocuments>)> {
    if sight.is_by_client() {
        return Ok((sight.files.len(), sight.rows.iter().copied().min().unwrap_or(0), None));
    }
    let column = roles.client.as_ref().and_then(|client| sight.survey.column(&client.value));
    if let Some(column) = column {
        return Ok((column.distinct(), column.values.values().copied().min().unwrap_or(0), None));
    }
    let rows = sight.survey.rows;
    let column = roles.document.as_ref().and_then(|document| sight.survey.column(&document.value));
    // Rows that name no document are documents of their own, and so are all where no column does.
    let documents = match column {
        Some(column) if column.has_more => rows,
        Some(column) => column.distinct() + rows.saturating_sub(column.filled),
        None => rows,
    };
    if let Some(wished) = wishes.clients {
        let what = column.map_or("the number of rows".to_owned(), |column| {
            let name = short(&column.name);
            format!("the different values of column {name:?}, whose rows stay together")
        });
        ConfigError::new("clients", wished, format_args!("at most {documents}, {what}"))
            .when(wished > documents)?;
    }
    // Some are set aside for the central test set.
    let most = (documents * 4 / 5).max(1);
    let clients = wishes.clients.unwrap_or(MADE_UP.min(most));
    let few = column.filter(|_| wishes.clients.is_none() && most < MADE_UP);
    let few = few.map(|column| (column.name.clone(), documents));
    Ok((clients, rows / clients.max(1), few))
}

/// What learns, what it is in words, its parameters and the tokens it can read.
fn model(
    sight: &Sight,
    roles: &Roles,
    wishes: &Wishes,
) -> Result<(ModelChoice, String, usize, usize)> {
    let needs_decoder = roles.task.value.answer_form() == AnswerForm::Text;
    let reads_images = sight.images.is_some();
    let task = roles.task.value.name();
    if let Some(path) = &wishes.model {
        ConfigError::excludes("preset", "a model").when(wishes.preset.is_some())?;
        let shown = path.display();
        let mut written = path.clone();
        let folder = hub::pinned("model", &mut written)?.unwrap_or_else(|| path.clone());
        let shape = ModelShape::open(&folder).with_context(|| format!("model {shown}"))?;
        let found = format_args!("an encoder of {} blocks in {shown}", shape.blocks);
        ConfigError::new("model", found, format_args!("a decoder for the task {task}"))
            .when(needs_decoder && !shape.is_decoder)?;
        let expected = if reads_images { "a model of images" } else { "a model of texts" };
        ConfigError::new("model", shape.family(), expected)
            .when(shape.reads_images != reads_images)?;
        let why = format!("a pretrained {}", shape.in_words());
        return Ok((ModelChoice::Folder(written), why, shape.parameters, shape.positions));
    }
    let is_open = wishes.preset.is_none() && wishes.tokenizer.is_none();
    let found = models::fitting(&sight.models, (needs_decoder, reads_images)).filter(|_| is_open);
    if let Some((found, Ok(shape))) = found.map(|found| (found, &found.shape)) {
        let place = if found.is_cached {
            format!(", {} in the Hugging Face cache", printable(&found.name))
        } else {
            String::new()
        };
        let why = format!("a pretrained {}{place}; --model DIR takes another", shape.in_words());
        let path = ModelChoice::Folder(found.written());
        return Ok((path, why, shape.parameters, shape.positions));
    }
    let fresh = "fresh weights; --model DIR takes a pretrained model in Hugging Face layout";
    match &wishes.preset {
        Some(name) => Ok((ModelChoice::Preset(name.clone(), None), fresh.to_owned(), 0, 512)),
        None if reads_images => {
            let preset = ModelChoice::Preset("vit-tiny".to_owned(), None);
            Ok((preset, format!("a small Vision Transformer with {fresh}"), 0, 512))
        }
        None if matches!(roles.task.value, Task::Chat | Task::Preference) => {
            let why = format!(
                "{fresh}. Fresh weights know no language: they show that the file works, and learn little"
            );
            Ok((ModelChoice::Preset(Preset::TinyDecoder.name().to_owned(), None), why, 0, 2048))
        }
        None if needs_decoder => {
            let why = format!(
                "{fresh}. The task {task} needs a decoder: two fresh blocks show that the file works, but learn \
                 little"
            );
            Ok((ModelChoice::Preset("smollm2".to_owned(), Some(2)), why, 0, 2048))
        }
        None => {
            let preset = ModelChoice::Preset("tiny-encoder".to_owned(), None);
            Ok((preset, format!("a small encoder with {fresh}"), 0, 512))
        }
    }
}
