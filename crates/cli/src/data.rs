//! `fedra data`: what a dataset becomes, before anything learns from it.

use anyhow::Result;
use clap::Args;
use fedra::Experiment;
use fedra::config::Party;
use fedra::prepare::data_notes;
use fedra::prepare::partitioned_data::PartitionedData;
use fedra::prepare::token_lengths::TokenLengths;
use fedra::text::grid::{Grid, grouped};
use fedra_data::{
    Body, Example, LabelShape, Labels, Message, Preference, Small, Table, Task, printable,
};

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Written;
use crate::flags::Verbosity;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  fedra data experiments/clinic-concepts.toml
  fedra data experiments/thousand.toml --all
  fedra data experiments/clinic-concepts.toml --set data.partition.by=dirichlet \\
    --set data.partition.alpha=0.1
  fedra data study.toml --client north

Shares are of rows: where a row may have several labels, they add up to more than 100 %.";

/// Most labels that are listed one by one.
const MOST_LABELS: usize = 30;
/// Most clients that have a line of their own unless all are asked for.
const MOST_CLIENTS: usize = 30;

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Data {
    #[command(flatten)]
    written: Written,
    /// Show every client and every label
    #[arg(long)]
    all: bool,
    /// Show only the rows of this client, read as `fedra join` reads them
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
}

impl Data {
    /// Prints rows, labels, lengths, clients and splits of an experiment's data.
    pub fn run(&self) -> Result<()> {
        let (clients, labels) =
            if self.all { (usize::MAX, usize::MAX) } else { (MOST_CLIENTS, MOST_LABELS) };
        let terminal = Terminal::new(Verbosity::Lively);
        let (experiment, holdings) = match &self.client {
            None => {
                let experiment = self.written.experiment(DeviceFlags::default())?;
                let holdings = PartitionedData::heard(&experiment, &terminal)?;
                (experiment, holdings)
            }
            Some(name) => {
                let experiment = self.written.experiment_for(Party::Site)?;
                let holdings = fedra::run::site::holdings(&experiment, name, &terminal)?;
                if let Some(others) = data_notes::of_others(&holdings, name) {
                    console::say(format_args!("note: {others}"));
                }
                (experiment, holdings.only(name))
            }
        };
        show(&experiment, &holdings, (clients, labels));
        Ok(())
    }
}

fn show(
    experiment: &Experiment,
    holdings: &PartitionedData,
    (most_clients, most_labels): (usize, usize),
) {
    let PartitionedData { table, division, small } = holdings;
    let held: usize = division.clients.iter().map(fedra_data::Holding::len).sum();
    let train: usize = division.clients.iter().map(|holding| holding.train.len()).sum();
    let central = division.central_test.len();

    let mut facts = Grid::new(["", ""]);
    let mut fact = |name: &str, value: String| facts.row([name.to_owned(), value]);
    fact("experiment", experiment.name.clone());
    fact("task", format!("{}, {}", table.task.name(), in_words(table.task)));
    fact("rows", {
        let all = table.examples.len();
        let unused = all - held - central;
        let left_out = match unused {
            0 => String::new(),
            unused => format!(" ({} left out)", grouped(unused as u64)),
        };
        format!("{}{left_out}", grouped(all as u64))
    });
    if let Some(image) = &experiment.image {
        fact("pixels per image", sizes(table));
        let (width, height) = (image.width, image.height);
        let kind = if image.channels == 1 { "grey" } else { "colour" };
        fact("the model reads", format!("{width} x {height}, {kind}"));
    } else {
        fact("words per row", lengths(table));
    }
    let tokens = TokenLengths::of_experiment(experiment, holdings);
    if let Ok(tokens) = &tokens {
        fact("tokens per row", tokens.in_words());
        if let Some(turns) = &tokens.turns {
            fact("turns", turns.in_words());
        }
    }
    fact("clients", {
        let partition = &experiment.raw.data.partition;
        let fewest = partition.min_examples.unwrap_or_default();
        let fate = match partition.small.unwrap_or_default() {
            Small::Merge => format!("merged into {:?}", Small::TOGETHER),
            Small::Drop => "left out".to_owned(),
        };
        let note = match *small {
            0 => String::new(),
            small => format!(" ({small} with fewer than {fewest} training rows {fate})"),
        };
        format!("{}{note}", grouped(division.clients.len() as u64))
    });
    let absent = &experiment.raw.data.partition.leave_out;
    if !absent.is_empty() {
        fact("take no part", printable(&absent.join(", ")).into_owned());
    }
    fact("training rows", grouped(train as u64));
    fact("central test", grouped(central as u64));
    console::page(facts.lines()[1..].join("\n"));
    console::data("");
    if table.task.shape() != LabelShape::Absent {
        console::table(&labels(table, most_labels));
        console::data("");
    }
    if let Some(asked) = table.examples.first().and_then(|example| asked(example, table)) {
        console::page(asked);
        console::data("");
    }
    console::data(division.picture(table, most_clients).trim_end());
    if table.task.shape() != LabelShape::Absent {
        let what = match table.task.shape() {
            LabelShape::PerWord => "spans",
            LabelShape::One | LabelShape::Many | LabelShape::Absent => "rows",
        };
        console::page(format_args!(
            "a cell: the label's share of the client's {what} against its share of all {what}\n\
             {LEGEND}"
        ));
    }
    if division.clients.len() > most_clients || table.labels.len() > most_labels {
        console::say("note: --all shows every client and every label");
    }
    if let Some(turns) = tokens.as_ref().ok().and_then(|tokens| tokens.turns.as_ref()) {
        turns.notes(experiment.max_tokens).iter().for_each(console::say);
    }
    let about_tokens = match &tokens {
        Ok(tokens) => tokens.note(),
        // What a model cannot do with the rows is refused by `plan` and `run`, which need the model.
        Err(error) => {
            Some(format!("note: tokens are not counted: {}", printable(&error.in_words())))
        }
    };
    data_notes::of_data(holdings).iter().chain(&about_tokens).for_each(console::say);
}

const LEGEND: &str = "  \u{b7} absent   \u{2591} below half   \u{2592} near it   \
                      \u{2593} above 1.5 times   \u{2588} above 3 times";

fn in_words(task: Task) -> &'static str {
    match task.shape() {
        LabelShape::One if task == Task::Choice => "the likeliest of several answers",
        LabelShape::Absent if task == Task::Generation => "a text after a prompt",
        LabelShape::Absent if task == Task::Chat => "what the assistant says in conversations",
        LabelShape::Absent if task == Task::Preference => "which of two answers is preferred",
        LabelShape::One => "one label per row",
        LabelShape::Many => "any number of labels per row",
        LabelShape::PerWord => "one label per word",
        LabelShape::Absent => "no labels: the next token",
    }
}

/// Most messages of a conversation that are shown.
const MOST_MESSAGES: usize = 6;
/// Most letters of a prompt that are shown.
const MOST_LETTERS: usize = 600;

/// What a model reads and may answer, where that is written from columns.
fn asked(example: &Example, table: &Table) -> Option<String> {
    let mut answers: Vec<String> = Vec::new();
    match &example.labels {
        Labels::Choice(choice) => {
            for (label, text) in &choice.candidates {
                let right = if *label == choice.label { " (right)" } else { "" };
                let name = printable(table.labels.name(*label));
                answers.push(format!("  answer {name}{right}: {}", printable(text)));
            }
        }
        Labels::Text(text) => answers.push(format!("  to write: {}", printable(text))),
        Labels::Absent | Labels::Preference(_) if matches!(example.body, Body::Conversation(_)) => {
            return conversation(example);
        }
        Labels::One(_)
        | Labels::Many(_)
        | Labels::PerWord(_)
        | Labels::Absent
        | Labels::Preference(_) => return None,
    }
    let prompt = example.body.to_text();
    let letters = prompt.chars().count();
    let start = if letters > MOST_LETTERS { ".." } else { "" };
    let end: String = prompt.chars().skip(letters.saturating_sub(MOST_LETTERS)).collect();
    let lines = format!("{start}{end}");
    let lines = lines.lines().map(|line| format!("  | {}", printable(line)));
    let all: Vec<String> =
        ["the first row as a prompt".to_owned()].into_iter().chain(lines).chain(answers).collect();
    Some(all.join("\n"))
}

/// A conversation, message by message, and the answers of which one is preferred.
fn conversation(example: &Example) -> Option<String> {
    let Body::Conversation(messages) = &example.body else { return None };
    let mut lines = vec!["the first conversation".to_owned()];
    let said = |(name, message): (&str, &Message)| {
        let text: String = message.content.trim().chars().take(MOST_LETTERS / 3).collect();
        let more = if text.len() < message.content.trim().len() { " .." } else { "" };
        let text = format!("{name}: {text}{more}");
        text.lines().map(|line| format!("  | {}", printable(line))).collect::<Vec<_>>()
    };
    let named = messages.iter().map(|message| (message.role.name(), message));
    lines.extend(named.take(MOST_MESSAGES).flat_map(said));
    if messages.len() > MOST_MESSAGES {
        lines.push(format!("  .. and {} more messages", messages.len() - MOST_MESSAGES));
    }
    if let Labels::Preference(Preference { chosen, rejected }) = &example.labels {
        lines.extend(chosen.iter().flat_map(|message| said(("chosen", message))));
        lines.extend(rejected.iter().flat_map(|message| said(("rejected", message))));
    }
    Some(lines.join("\n"))
}

/// Width and height of images: the usual one, or the smallest and the largest.
fn sizes(table: &Table) -> String {
    let size = |example: &Example| match &example.body {
        Body::Image(image) => Some(image.size()),
        Body::Text(_) | Body::Pair(..) | Body::Words(_) | Body::Conversation(_) => None,
    };
    let mut sizes: Vec<(u32, u32)> = table.examples.iter().filter_map(size).collect();
    sizes.sort_unstable_by_key(|(width, height)| (u64::from(*width) * u64::from(*height), *width));
    let shown = |(width, height): &(u32, u32)| format!("{width} x {height}");
    match (sizes.first(), sizes.last()) {
        (Some(first), Some(last)) if first != last => {
            let middle = shown(&sizes[sizes.len() / 2]);
            format!("median {middle}, smallest {}, largest {}", shown(first), shown(last))
        }
        (Some(first), _) => shown(first),
        (None, _) => String::new(),
    }
}

fn lengths(table: &Table) -> String {
    let words = |example: &Example| match &example.body {
        Body::Text(text) => text.split_whitespace().count(),
        Body::Pair(first, second) => {
            first.split_whitespace().count() + second.split_whitespace().count()
        }
        Body::Words(words) => words.len(),
        Body::Image(_) => 0,
        Body::Conversation(messages) => {
            messages.iter().map(|message| message.content.split_whitespace().count()).sum()
        }
    };
    let mut lengths: Vec<usize> = table.examples.iter().map(words).collect();
    lengths.sort_unstable();
    let at = |share: f64| grouped(lengths[((lengths.len() - 1) as f64 * share) as usize] as u64);
    format!("median {}, 95 % up to {}, longest {}", at(0.5), at(0.95), at(1.0))
}

/// How often each label occurs, commonest first.
fn labels(table: &Table, most: usize) -> Grid {
    let counts: Vec<u64> = table.label_counts().into_iter().map(|count| count as u64).collect();
    let rows = table.examples.len() as u64;
    let (of, total) = match table.task.shape() {
        LabelShape::PerWord => (">share of words", counts.iter().sum()),
        LabelShape::One | LabelShape::Many | LabelShape::Absent => (">share of rows", rows),
    };
    let share = |count: u64| format!("{:.1} %", 100.0 * count as f64 / total.max(1) as f64);
    let mut ranked: Vec<(u64, &String)> = counts.into_iter().zip(table.labels.names()).collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let mut grid = Grid::new(["label", ">count", of]);
    for (count, name) in ranked.iter().take(most) {
        grid.row([(*name).clone(), grouped(*count), share(*count)]);
    }
    if ranked.len() > most {
        let rest: u64 = ranked[most..].iter().map(|label| label.0).sum();
        // Rows with several of them count once for each, so there is no share of rows to tell.
        let share = match table.task.shape() {
            LabelShape::Many => "-".to_owned(),
            LabelShape::One | LabelShape::PerWord | LabelShape::Absent => share(rest),
        };
        grid.row([format!("and {} more", ranked.len() - most), grouped(rest), share]);
    }
    let bare = |example: &&Example| matches!(&example.labels, Labels::Many(l) if l.is_empty());
    let bare = table.examples.iter().filter(bare).count() as u64;
    if bare > 0 {
        grid.row(["(no label)".to_owned(), grouped(bare), share(bare)]);
    }
    grid
}
