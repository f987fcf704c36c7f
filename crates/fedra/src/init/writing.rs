//! A proposal as an experiment file, with a comment for every decision.

use std::fmt::{Display, Write as _};

use fedra_data::{
    CONVERSATION_PAIRS, Format, LabelShape, Missing, OptionColumns, OptionTemplates, Task,
    printable,
};
use fedra_report::wrapped;

use super::proposal::Proposal;
use super::roles::short;
use super::training::ModelChoice;
use crate::text::grid::{counted, grouped};
use crate::text::shell;

/// Letters of a line of comments.
const WIDTH: usize = 96;
/// Rows a client from which on labels can be spread unevenly and leave nobody with nothing.
const ROWS_TO_SKEW: usize = 50;

impl Proposal {
    /// The text of the experiment file that will have this name.
    pub fn to_toml(&self, file: &str) -> String {
        let Self { sight, wishes, .. } = self;
        let mut out = TomlText::default();
        let what = match sight.files.as_slice() {
            [one] => short(&one.path.display().to_string()),
            files => format!("{} files of clients", files.len()),
        };
        out.comment(&format!(
            "Written by `fedra init` from {what}: {}{}, {}. You can change every line; docs/experiment.md has \
             all keys.",
            if sight.survey.is_whole { "" } else { "more than " },
            counted(sight.survey.rows as u64, "row"),
            counted(sight.survey.columns.len() as u64, "column"),
        ));
        let file = shell::quoted(file);
        out.line(format_args!(
            "#\n#   fedra data {file}    # are these my rows, labels and clients?\n\
             #   fedra plan {file}    # what would learn and travel, how much memory?\n\
             #   fedra run {file}     # run it\n"
        ));
        out.set("seed", 1);
        self.data(&mut out);
        self.model(&mut out);
        self.federation(&mut out);
        self.work(&mut out);
        out.table("method");
        out.comment(
            "FedAvg is a good first choice. `fedra compare FILE --sweep method.name=fedavg,fedprox,safl` \
             compares others.",
        );
        out.set("name", quoted(&self.training.method));
        if let Some(epsilon) = wishes.epsilon {
            self.privacy(&mut out, epsilon);
        }
        out.0
    }

    fn data(&self, out: &mut TomlText) {
        let Self { roles, sight, wishes, training } = self;
        out.table("data");
        out.set("source", quoted(source(sight.found.format)));
        if let Some(delimiter) = sight.found.delimiter {
            out.set("delimiter", quoted(&delimiter.to_string()));
        }
        if let Some(encoding) = sight.found.encoding {
            out.comment("The file is not UTF-8: check accented letters with `fedra data`.");
            out.set("encoding", quoted(encoding.name()));
        }
        out.reasoned("task", quoted(roles.task.value.name()), &roles.task.why);
        let test = wishes.test.as_ref().map(|test| quoted(&test.to_string_lossy()));
        if !sight.is_by_client() {
            out.comment("Relative paths start in the folder where fedra runs.");
            let key = if test.is_some() { "train" } else { "path" };
            out.set(key, quoted(&sight.files[0].path.to_string_lossy()));
        }
        if let Some(test) = test {
            out.set("test", test);
        }
        if wishes.missing == Some(Missing::Drop) {
            let what = if sight.images.is_some() { "a readable image" } else { "a text" };
            let why = format!("rows without {what} or a label are left out");
            out.reasoned("missing", "\"drop\"", &why);
        }
        self.answers(out);
        if !matches!(sight.found.format, Format::Conll | Format::Images | Format::Idx) {
            self.columns(out);
        }
        if wishes.epsilon.is_some() && roles.task.value != Task::Choice {
            self.labels(out);
        }
        self.partition(out);
        self.shares(out);
        if sight.images.is_some() {
            out.comment(
                "`augment = { flip = true, crop = 2 }` would mirror and move training images at random.",
            );
        } else {
            out.reasoned("max_tokens", training.max_tokens.value, &training.max_tokens.why);
        }
        if sight.is_by_client() {
            out.table("data.clients");
            out.comment(
                "A file for each client. Relative paths start in the folder where fedra runs.",
            );
            for file in &sight.files {
                let name = file.client.as_deref().unwrap_or_default();
                out.set(&quoted(name), quoted(&file.path.to_string_lossy()));
            }
        }
    }

    /// Prompt and answers of tasks that are answered in text.
    fn answers(&self, out: &mut TomlText) {
        let Self { roles, sight, .. } = self;
        let in_text = matches!(roles.task.value, Task::Choice | Task::Generation);
        let Some(label) = roles.label.as_ref().filter(|_| in_text) else { return };
        if let Some(found) = &roles.options {
            out.comment("What the model reads: {options} are the options, each with its letter.");
            out.set("prompt", quoted(&format!("{{{}}}\n{{options}}\nAnswer:", found.question)));
            let OptionTemplates { options, first, .. } = &found.templates;
            let columns = match options {
                OptionColumns::Each(columns) => list(columns),
                OptionColumns::In(column) => quoted(column),
            };
            let mut keys = vec![format!("options = {columns}"), "by = \"letter\"".to_owned()];
            keys.extend((*first > 0).then(|| format!("first = {first}")));
            out.comment(
                "by = \"text\" compares the texts of the options; length_norm then matters.",
            );
            out.set("answers", braced(keys.into_iter()));
            return;
        }
        out.comment(
            "What the model reads, with columns in braces; phrase the question in your own words.",
        );
        let read: Vec<String> = roles.text.value.iter().map(|name| format!("{{{name}}}")).collect();
        let prompt = format!("{}\n{}:", read.join("\n"), heading(&label.value));
        out.set("prompt", quoted(&prompt));
        if roles.task.value == Task::Generation {
            out.reasoned("target", quoted(&format!("{{{}}}", label.value)), &label.why);
            return;
        }
        let labels = roles.labels(sight).unwrap_or_default();
        let escaped = |label: &String| label.replace('{', "{{").replace('}', "}}");
        let each =
            labels.iter().map(|label| format!("{} = {}", quoted(label), quoted(&escaped(label))));
        out.comment("Label = the answer that the model gives.");
        out.set("answers", braced(each));
    }

    fn columns(&self, out: &mut TomlText) {
        let Self { roles, .. } = self;
        let mut keys = Vec::new();
        let mut comments = TomlText::default();
        let mut put = |key: &str, value: String, why: &str| {
            comments.comment(&format!("{key}: {why}"));
            keys.push(format!("{key} = {value}"));
        };
        if roles.task.value == Task::Preference {
            out.comment(&roles.text.why);
        } else if roles.task.value == Task::Chat {
            let is_usual = |pair: [&str; 2]| {
                CONVERSATION_PAIRS.iter().any(|&(prompt, answer)| [prompt, answer] == pair)
            };
            match roles.text.value.as_slice() {
                [prompt, answer] if is_usual([prompt, answer]) => out.comment(&roles.text.why),
                [prompt, answer] => {
                    put("prompt", quoted(prompt), "what a user asks");
                    put("answer", quoted(answer), "what the assistant says");
                }
                several => {
                    for name in several {
                        put("messages", quoted(name), &roles.text.why);
                    }
                }
            }
        } else if !matches!(roles.task.value, Task::Choice | Task::Generation) {
            let value = match roles.text.value.as_slice() {
                [one] => quoted(one),
                several => list(several),
            };
            let key = if self.sight.images.is_some() { "image" } else { "text" };
            put(key, value, &roles.text.why);
        }
        if let Some(label) = roles.label.as_ref().filter(|_| roles.task.value != Task::Generation) {
            put("label", quoted(&label.value), &label.why);
        }
        if let Some(separator) = roles.separator.filter(|separator| *separator != ';') {
            let why = "the character between the labels of a row";
            put("separator", quoted(&separator.to_string()), why);
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
            out.0.push_str(&comments.0);
            out.set("columns", braced(keys.into_iter()));
        }
    }

    /// The names of all labels, which a private run does not take from clients' rows.
    fn labels(&self, out: &mut TomlText) {
        let Some(mut labels) = self.roles.labels(&self.sight) else { return };
        if self.roles.task.value.shape() == LabelShape::PerWord {
            // A tag that begins a span stands for the one that continues with it, and O is always there.
            labels.retain(|label| label != "O");
            for label in &mut labels {
                if let Some(kind) = label.strip_prefix("I-") {
                    *label = format!("B-{kind}");
                }
            }
            labels.sort();
            labels.dedup();
        }
        out.comment(
            "All labels. A private run does not take them from clients' rows: check that this list is public \
             knowledge, and add missing labels.",
        );
        out.set("labels", list(&labels));
    }

    fn partition(&self, out: &mut TomlText) {
        let Self { roles, sight, training, .. } = self;
        if sight.is_by_client() || roles.client.is_some() {
            let mut small = String::new();
            if let Some(fewest) = training.min_examples() {
                out.comment(&format!(
                    "The smallest client has {}. Clients with fewer than {fewest} training rows are merged into \
                     one, called \"others\"; small = \"drop\" leaves them out.",
                    counted(training.fewest as u64, "row")
                ));
                small = format!(", min_examples = {fewest}, small = \"merge\"");
            }
            out.set("partition", format_args!("{{ by = \"client\"{small} }}"));
            return;
        }
        let has_classes = matches!(roles.task.value.shape(), LabelShape::One | LabelShape::Many);
        let (how, by) = if has_classes && training.fewest >= ROWS_TO_SKEW {
            let how = "; labels are spread unevenly, more so with a smaller alpha.";
            (how, "{ by = \"dirichlet\", alpha = 0.5 }")
        } else {
            (", at random.", "{ by = \"iid\" }")
        };
        out.comment(&format!(
            "No column names the client of a row, so rows are assigned to {} (--client-column COLUMN names a \
             column){how}",
            counted(training.clients as u64, "simulated client")
        ));
        out.set("partition", by);
    }

    fn shares(&self, out: &mut TomlText) {
        let declared = self.wishes.test.is_some() || self.roles.split.is_some();
        let (central, own, why) = match (self.wishes.epsilon.is_some(), declared) {
            (true, true) => (
                "0.0",
                "0.0",
                "The file of test rows is the central test set. In a private run clients compute no scores.",
            ),
            (true, false) => (
                "0.2",
                "0.0",
                "One row in five is kept for the central test set; in a private run clients compute no scores.",
            ),
            (false, true) => (
                "0.1",
                "0.1",
                "Rows that the data declares as test rows are the central test set; shares apply to all others.",
            ),
            (false, false) => (
                "0.15",
                "0.1",
                "Rows of the central test set, and of each client's own validation and test.",
            ),
        };
        out.comment(why);
        let shares = format!("{{ central = {central}, validation = {own}, test = {own} }}");
        out.set("shares", shares);
    }

    fn model(&self, out: &mut TomlText) {
        let Self { training, wishes, sight, roles } = self;
        out.table("model");
        match &training.model {
            ModelChoice::Folder(path) => {
                out.reasoned("path", quoted(&path.to_string_lossy()), &training.model_why);
            }
            ModelChoice::Preset(name, blocks) => {
                out.reasoned("preset", quoted(name), &training.model_why);
                if let Some(blocks) = blocks {
                    out.set("blocks", blocks);
                }
                if let Some(images) = &sight.images {
                    let (size, patch, channels) = images.shape();
                    let why = format!("images are resized to {size} x {size} pixels");
                    out.reasoned("image_size", size, &why);
                    out.reasoned("patch", patch, "pixels of a patch along each side");
                    let why = if channels == 1 { "grey images" } else { "colour images" };
                    out.reasoned("channels", channels, why);
                } else if let Some(tokenizer) = &wishes.tokenizer {
                    out.set("tokenizer", quoted(&tokenizer.to_string_lossy()));
                } else if sight.survey.rows >= 2000 {
                    let why = "pieces of the vocabulary, built from the training text";
                    out.reasoned("vocabulary", 4000, why);
                }
            }
        }
        if training.lora {
            out.table("model.lora");
            let is_preference = roles.task.value == Task::Preference;
            out.comment(if is_preference {
                "Low-rank adapters learn and travel. The model without them is the reference of preferences, so its \
                 head stays as it is."
            } else {
                "The model is large: low-rank adapters learn and travel in place of its weights."
            });
            out.set("rank", 8);
            out.set("alpha", 16);
            if is_preference {
                out.set("head", quoted("frozen"));
            }
        }
    }

    fn federation(&self, out: &mut TomlText) {
        let training = &self.training;
        out.table("federation");
        out.reasoned("rounds", training.rounds.value, &training.rounds.why);
        if self.makes_up_clients() {
            out.set("clients", training.clients);
        }
        match training.sample {
            Some(sample) => {
                let why = format!(
                    "number of clients, out of {}, that take part in a round",
                    training.clients
                );
                out.reasoned("sample", format!("{{ uniform = {sample} }}"), &why);
            }
            None => out.set("sample", "\"all\""),
        }
    }

    fn work(&self, out: &mut TomlText) {
        let training = &self.training;
        out.table("work");
        out.set("epochs", 1);
        out.reasoned("batch", training.batch.value, &training.batch.why);
        if let Some(steps) = training.max_steps {
            let why = "the most steps of a client in a round; without this line it trains on all its rows";
            out.reasoned("max_steps", steps, why);
        }
        let rate = training.rate.value;
        let why = format!(
            "{}; `fedra compare FILE --tune work.optimiser.rate={:.0e},{rate:e},{:.0e}` finds a better one",
            training.rate.why,
            rate / 3.0,
            rate * 3.0
        );
        let optimiser = format!("{{ name = \"adamw\", rate = {rate:e}, weight_decay = 0.01 }}");
        out.reasoned("optimiser", optimiser, &why);
    }

    fn privacy(&self, out: &mut TomlText, epsilon: f64) {
        out.table("privacy");
        out.comment(
            "The privacy budget: a bound on how much one row can change the model; see docs/privacy.md. The \
             noise is chosen so that all rounds together stay below it.",
        );
        out.set("unit", "\"example\"");
        out.set("epsilon", format_args!("{epsilon:?}"));
        let rows = self.sight.survey.rows;
        let delta = if rows > 20_000 { "1e-6" } else { "1e-5" };
        let why = format!("well below 1 / {} (the number of rows)", grouped(rows as u64));
        out.reasoned("delta", delta, &why);
        out.set("clip", "1.0");
    }
}

/// A column's name as the last line of a prompt.
fn heading(name: &str) -> String {
    let name = name.rsplit('.').next().unwrap_or(name).replace(['_', '{', '}'], " ");
    let mut letters = name.trim().chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

fn source(format: Format) -> &'static str {
    match format {
        Format::JsonLines => "jsonl",
        Format::Csv => "csv",
        Format::Tsv => "tsv",
        Format::Parquet => "parquet",
        Format::Conll => "conll",
        Format::I2b2 => "i2b2-2010",
        Format::Images => "images",
        Format::Idx => "idx",
    }
}

/// A TOML file on its way.
#[derive(Default)]
struct TomlText(String);

impl TomlText {
    fn line(&mut self, line: impl Display) {
        let _written = writeln!(self.0, "{line}");
    }

    fn table(&mut self, name: &str) {
        self.line(format_args!("\n[{name}]"));
    }

    fn set(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {value}"));
    }

    /// A key, and why it has this value: behind it where there is room, above it where not.
    fn reasoned(&mut self, key: &str, value: impl Display, why: &str) {
        let why = printable(why);
        let line = format!("{key} = {value}");
        let padded = format!("{line:<34}# {why}");
        if padded.chars().count() <= WIDTH {
            self.line(padded);
        } else {
            self.comment(&why);
            self.line(line);
        }
    }

    /// A sentence in lines of comments.
    fn comment(&mut self, sentence: &str) {
        for line in wrapped(&printable(sentence), WIDTH - 2) {
            self.line(format_args!("# {line}"));
        }
    }
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

fn braced(keys: impl Iterator<Item = String>) -> String {
    format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
}

/// A text as TOML, on one line whatever it holds: a string of JSON, with no control character left.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for letter in serde_json::Value::from(text).to_string().chars() {
        if letter.is_control() {
            let _written = write!(out, "\\u{:04X}", letter as u32);
        } else {
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_reads_back_as_it_was() {
        for text in
            ["plain", "a \"b\" \\ c", "two\nlines\tand \u{1b}[0m", "", "\u{85}x\u{7f}", "\u{8}\r"]
        {
            let table: toml::Table = format!("{0} = {0}", quoted(text)).parse().unwrap();
            assert_eq!(table.iter().next(), Some((&text.to_owned(), &text.into())));
        }
    }

    #[test]
    fn comments_never_leave_their_lines() {
        let mut out = TomlText::default();
        out.comment(&format!("a\nb = 1 {}", "word ".repeat(60)));
        assert!(out.0.lines().all(|line| line.starts_with("# ") && line.chars().count() <= WIDTH));
    }
}
