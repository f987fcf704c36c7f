//! A proposal as an experiment file, with a comment for every decision.

use std::fmt::Write as _;

use fedra_data::{Format, LabelShape, Missing, Task, printable};

use super::roles::short;
use super::training::ModelChoice;
use super::{Proposal, Sight};
use crate::text::grid::{counted, grouped};
use crate::text::shell;

/// Letters of a line of comments.
const WIDTH: usize = 96;

pub(super) fn to_toml(proposal: &Proposal, file: &str) -> String {
    let Proposal { sight, wishes, .. } = proposal;
    let mut text = String::new();
    let rows = if sight.survey.is_whole { "" } else { "more than " };
    comment(
        &mut text,
        &format!(
            "Written by `fedra init` after a look at {}: {rows}{}, {}. Every line may be changed; \
         docs/experiment.md has all keys.",
            what(sight),
            counted(sight.survey.rows as u64, "row"),
            counted(sight.survey.columns.len() as u64, "column"),
        ),
    );
    let file = shell::quoted(file);
    let _written = write!(
        text,
        "#\n#   fedra data {file}    # are these my rows, labels and clients?\n\
         #   fedra plan {file}    # what would learn and travel, how much memory?\n\
         #   fedra run {file}     # run it\n\nseed = 1\n"
    );
    data(&mut text, proposal);
    model(&mut text, proposal);
    federation(&mut text, proposal);
    work(&mut text, proposal);
    let _written = write!(text, "\n[method]\n");
    comment(
        &mut text,
        "FedAvg is where to begin. `fedra compare FILE --sweep method.name=fedavg,fedprox,safl` \
         compares others.",
    );
    let _written = writeln!(text, "name = {}", quoted(&proposal.training.method));
    if let Some(epsilon) = wishes.epsilon {
        privacy(&mut text, sight, epsilon);
    }
    text
}

fn what(sight: &Sight) -> String {
    match sight.files.as_slice() {
        [one] => short(&one.path.display().to_string()),
        files => format!("{} files of clients", files.len()),
    }
}

fn data(text: &mut String, proposal: &Proposal) {
    let Proposal { roles, sight, wishes, training } = proposal;
    let _written = writeln!(text, "\n[data]\nsource = {}", quoted(source(sight.found.format)));
    if let Some(delimiter) = sight.found.delimiter {
        let _written = writeln!(text, "delimiter = {}", quoted(&delimiter.to_string()));
    }
    if let Some(encoding) = sight.found.encoding {
        comment(text, "The file is not UTF-8: look at letters with accents in `fedra data`.");
        let _written = writeln!(text, "encoding = {}", quoted(encoding.name()));
    }
    reasoned(text, "task", &quoted(roles.task.value.name()), &roles.task.why);
    paths(text, proposal);
    if wishes.missing == Some(Missing::Drop) {
        reasoned(text, "missing", "\"drop\"", "rows without a text or a label are left out");
    }
    answers(text, proposal);
    columns(text, proposal);
    if wishes.epsilon.is_some() && roles.task.value != Task::Choice {
        labels(text, proposal);
    }
    partition(text, proposal);
    shares(text, proposal);
    let tokens = &training.max_tokens;
    reasoned(text, "max_tokens", &tokens.value.to_string(), &tokens.why);
    if sight.is_by_client() {
        let _written = writeln!(text, "\n[data.clients]");
        comment(
            text,
            "A file for each client. Relative paths start in the folder where fedra runs.",
        );
        for file in &sight.files {
            let name = file.client.as_deref().unwrap_or_default();
            let path = quoted(&file.path.to_string_lossy());
            let _written = writeln!(text, "{} = {path}", quoted(name));
        }
    }
}

fn paths(text: &mut String, proposal: &Proposal) {
    let Proposal { sight, wishes, .. } = proposal;
    let test = wishes.test.as_ref().map(|test| quoted(&test.to_string_lossy()));
    if sight.is_by_client() {
        if let Some(test) = test {
            let _written = writeln!(text, "test = {test}");
        }
        return;
    }
    comment(text, "Relative paths start in the folder where fedra runs.");
    let path = quoted(&sight.files[0].path.to_string_lossy());
    let _written = match test {
        None => writeln!(text, "path = {path}"),
        Some(test) => writeln!(text, "train = {path}\ntest = {test}"),
    };
}

/// Prompt and answers of tasks that are answered in text.
fn answers(text: &mut String, proposal: &Proposal) {
    let Proposal { roles, sight, .. } = proposal;
    let Some(label) = &roles.label else { return };
    let asked = match roles.task.value {
        Task::Choice | Task::Generation => &label.value,
        Task::Concepts | Task::Diagnosis | Task::Classes | Task::Tokens | Task::Language => return,
    };
    comment(
        text,
        "What the model reads, with columns in braces; ask for the answer in your words.",
    );
    let read: Vec<String> = roles.text.value.iter().map(|name| format!("{{{name}}}")).collect();
    let prompt = format!("{}\n{}:", read.join("\n"), heading(asked));
    let _written = writeln!(text, "prompt = {}", quoted(&prompt));
    if roles.task.value == Task::Generation {
        reasoned(text, "target", &quoted(&format!("{{{asked}}}")), &label.why);
        return;
    }
    let labels = roles.labels(sight).unwrap_or_default();
    let escaped = |label: &String| label.replace('{', "{{").replace('}', "}}");
    let each =
        labels.iter().map(|label| format!("{} = {}", quoted(label), quoted(&escaped(label))));
    let each: Vec<String> = each.collect();
    comment(text, "What the label says = what the model would say.");
    let _written = writeln!(text, "answers = {{ {} }}", each.join(", "));
}

/// A column's name as the last line of a prompt.
fn heading(name: &str) -> String {
    let name = name.rsplit('.').next().unwrap_or(name).replace(['_', '{', '}'], " ");
    let mut letters = name.trim().chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

fn columns(text: &mut String, proposal: &Proposal) {
    let Proposal { roles, sight, .. } = proposal;
    if sight.found.format == Format::Conll {
        return;
    }
    let in_text = matches!(roles.task.value, Task::Choice | Task::Generation);
    let mut keys = Vec::new();
    let mut put = |key: &str, value: String, why: &str| {
        comment(text, &format!("{key}: {why}"));
        keys.push(format!("{key} = {value}"));
    };
    if !in_text {
        let value = match roles.text.value.as_slice() {
            [one] => quoted(one),
            several => {
                let names: Vec<String> = several.iter().map(|name| quoted(name)).collect();
                format!("[{}]", names.join(", "))
            }
        };
        put("text", value, &roles.text.why);
    }
    if let Some(label) = roles.label.as_ref().filter(|_| roles.task.value != Task::Generation) {
        put("label", quoted(&label.value), &label.why);
    }
    if let Some(separator) = roles.separator.filter(|separator| *separator != ';') {
        put("separator", quoted(&separator.to_string()), "what stands between the labels of a row");
    }
    if let Some(client) = &roles.client {
        put("client", quoted(&client.value), &client.why);
    }
    if let Some(split) = &roles.split {
        put("split", quoted(split), "its values are train, validation and test");
    }
    if let Some(document) = &roles.document {
        put("document", quoted(&document.value), &document.why);
    }
    if !keys.is_empty() {
        let _written = writeln!(text, "columns = {{ {} }}", keys.join(", "));
    }
}

/// The names of all labels, which a private run does not take from clients' rows.
fn labels(text: &mut String, proposal: &Proposal) {
    let Proposal { roles, sight, .. } = proposal;
    let Some(mut labels) = roles.labels(sight) else { return };
    if roles.task.value.shape() == LabelShape::PerWord {
        // A tag that begins a span stands for the one that goes on with it, and O is always there.
        labels.retain(|label| label != "O");
        for label in &mut labels {
            if let Some(kind) = label.strip_prefix("I-") {
                *label = format!("B-{kind}");
            }
        }
        labels.sort();
        labels.dedup();
    }
    comment(
        text,
        "All labels there are. A private run does not take them from clients' rows: check that this list \
         is public knowledge, and add what is missing.",
    );
    let names: Vec<String> = labels.iter().map(|label| quoted(label)).collect();
    let _written = writeln!(text, "labels = [{}]", names.join(", "));
}

fn partition(text: &mut String, proposal: &Proposal) {
    let Proposal { roles, sight, training, .. } = proposal;
    if sight.is_by_client() || roles.client.is_some() {
        let Some(fewest) = training.min_examples() else {
            let _written = writeln!(text, "partition = {{ by = \"client\" }}");
            return;
        };
        comment(
            text,
            &format!(
                "The smallest client has {}. Clients with fewer than {fewest} training rows learn as \
                 one, called \"others\"; small = \"drop\" leaves them out.",
                counted(training.fewest as u64, "row")
            ),
        );
        let _written = writeln!(
            text,
            "partition = {{ by = \"client\", min_examples = {fewest}, small = \"merge\" }}"
        );
        return;
    }
    let has_classes = match roles.task.value.shape() {
        LabelShape::One | LabelShape::Many => true,
        LabelShape::PerWord | LabelShape::Absent => false,
    };
    let clients = counted(training.clients as u64, "client");
    let start = format!(
        "Nothing says who holds a row, so rows are dealt to {clients} made up for it \
         (--client-column COLUMN names a column that does)"
    );
    if has_classes && training.fewest >= ROWS_TO_SKEW {
        comment(
            text,
            &format!("{start}; labels are spread unevenly, more so with a smaller alpha."),
        );
        let _written = writeln!(text, "partition = {{ by = \"dirichlet\", alpha = 0.5 }}");
    } else {
        comment(text, &format!("{start}, at random."));
        let _written = writeln!(text, "partition = {{ by = \"iid\" }}");
    }
}

/// Rows a client from which on labels can be spread unevenly and leave nobody with nothing.
const ROWS_TO_SKEW: usize = 50;

fn shares(text: &mut String, proposal: &Proposal) {
    let Proposal { roles, wishes, .. } = proposal;
    let declared = wishes.test.is_some() || roles.split.is_some();
    let (central, own, why) = match (wishes.epsilon.is_some(), declared) {
        (true, true) => (
            "0.0",
            "0.0",
            "The file of test rows is the central test set. In a private run clients score nothing.",
        ),
        (true, false) => (
            "0.2",
            "0.0",
            "One row in five is kept for the central test set; in a private run clients score nothing.",
        ),
        (false, true) => (
            "0.1",
            "0.1",
            "Test rows that the data declare are the central test set, and shares are of all others.",
        ),
        (false, false) => (
            "0.15",
            "0.1",
            "Rows of the central test set, and of each client's own validation and test.",
        ),
    };
    comment(text, why);
    let _written =
        writeln!(text, "shares = {{ central = {central}, validation = {own}, test = {own} }}");
}

fn model(text: &mut String, proposal: &Proposal) {
    let Proposal { training, wishes, sight, .. } = proposal;
    let _written = writeln!(text, "\n[model]");
    match &training.model {
        ModelChoice::Folder(path) => {
            reasoned(text, "path", &quoted(&path.to_string_lossy()), &training.model_why);
        }
        ModelChoice::Preset(name, blocks) => {
            reasoned(text, "preset", &quoted(name), &training.model_why);
            if let Some(blocks) = blocks {
                let _written = writeln!(text, "blocks = {blocks}");
            }
            match &wishes.tokenizer {
                Some(tokenizer) => {
                    let tokenizer = quoted(&tokenizer.to_string_lossy());
                    let _written = writeln!(text, "tokenizer = {tokenizer}");
                }
                None if sight.survey.rows >= 2000 => {
                    let why = "pieces of the vocabulary, grown from the training text";
                    reasoned(text, "vocabulary", "4000", why);
                }
                None => {}
            }
        }
    }
    if training.lora {
        let _written = writeln!(text, "\n[model.lora]");
        comment(
            text,
            "The model is large: low-rank adapters learn and travel in place of its weights.",
        );
        let _written = writeln!(text, "rank = 8\nalpha = 16");
    }
}

fn federation(text: &mut String, proposal: &Proposal) {
    let Proposal { training, roles, sight, .. } = proposal;
    let _written = writeln!(text, "\n[federation]");
    let rounds = &training.rounds;
    reasoned(text, "rounds", &rounds.value.to_string(), &rounds.why);
    if roles.client.is_none() && !sight.is_by_client() {
        let _written = writeln!(text, "clients = {}", training.clients);
    }
    match training.sample {
        Some(sample) => {
            let why = format!("of {} clients, so many take part in a round", training.clients);
            reasoned(text, "sample", &format!("{{ uniform = {sample} }}"), &why);
        }
        None => {
            let _written = writeln!(text, "sample = \"all\"");
        }
    }
}

fn work(text: &mut String, proposal: &Proposal) {
    let training = &proposal.training;
    let _written = writeln!(text, "\n[work]\nepochs = 1");
    reasoned(text, "batch", &training.batch.value.to_string(), &training.batch.why);
    if let Some(steps) = training.max_steps {
        let why =
            "a client's round ends after so many steps; without this line it sees all its rows";
        reasoned(text, "max_steps", &steps.to_string(), why);
    }
    let rate =
        format!("{{ name = \"adamw\", rate = {:e}, weight_decay = 0.01 }}", training.rate.value);
    let why = format!(
        "{}; `fedra compare FILE --tune work.optimiser.rate=3e-4,1e-3,3e-3` finds a better one",
        training.rate.why
    );
    reasoned(text, "optimiser", &rate, &why);
}

fn privacy(text: &mut String, sight: &Sight, epsilon: f64) {
    let _written = writeln!(text, "\n[privacy]");
    comment(
        text,
        "One row more or less changes what the model says by at most this much; docs/privacy.md has the \
         whole promise. Noise is found so that all rounds together stay below it.",
    );
    let delta = if sight.survey.rows > 20_000 { "1e-6" } else { "1e-5" };
    let _written = writeln!(text, "unit = \"example\"\nepsilon = {epsilon:?}");
    let why = format!("well below one in the {} rows", grouped(sight.survey.rows as u64));
    reasoned(text, "delta", delta, &why);
    let _written = writeln!(text, "clip = 1.0");
}

fn source(format: Format) -> &'static str {
    match format {
        Format::JsonLines => "jsonl",
        Format::Csv => "csv",
        Format::Tsv => "tsv",
        Format::Parquet => "parquet",
        Format::Conll => "conll",
        Format::I2b2 => "i2b2-2010",
    }
}

/// A key, and why it has this value: behind it where there is room, above it where not.
fn reasoned(text: &mut String, key: &str, value: &str, why: &str) {
    let why = printable(why);
    let line = format!("{key} = {value}");
    let padded = format!("{line:<34}# {why}");
    let _written = if padded.chars().count() <= WIDTH {
        writeln!(text, "{padded}")
    } else {
        comment(text, &why);
        writeln!(text, "{line}")
    };
}

/// A sentence in lines of comments.
fn comment(text: &mut String, sentence: &str) {
    let mut line = "#".to_owned();
    for word in printable(sentence).split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > 1 {
            let _written = writeln!(text, "{line}");
            "#".clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    let _written = writeln!(text, "{line}");
}

/// A text as TOML, on one line whatever it holds.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            control if control.is_control() => {
                let _written = write!(out, "\\u{:04X}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_reads_back_as_it_was() {
        for text in ["plain", "a \"b\" \\ c", "two\nlines\tand \u{1b}[0m", "", "\u{85}x"] {
            let table: toml::Table = format!("{0} = {0}", quoted(text)).parse().unwrap();
            assert_eq!(table.iter().next(), Some((&text.to_owned(), &text.into())));
        }
    }

    #[test]
    fn comments_never_leave_their_lines() {
        let mut text = String::new();
        comment(&mut text, &format!("a\nb = 1 {}", "word ".repeat(60)));
        assert!(text.lines().all(|line| line.starts_with("# ") && line.chars().count() <= WIDTH));
    }
}
