//! What a run learns from, as digests: a run is the same run only with the same inputs.
//!
//! What is hashed is content and not where it lies: rows as they were read, in their order, whatever
//! format they had; weights and tokenizer as the bytes of their files. A moved file is the same, and
//! a file in which one label was changed is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use blake3::Hasher;
use fedra_compute::{Params, WeightFormat};
use fedra_data::{Body, Example, Labels, Message, Preference, Split};
use fedra_model::hf::companions::CHAT_TEMPLATE;
use fedra_plan::Digest;
use serde::{Deserialize, Serialize};

use crate::config::{Experiment, ModelSource, Vocabulary, hub};
use crate::error::{Context, Result};
use crate::listener::{Listener, Silent};
use crate::prepare::partitioned_data::PartitionedData;

/// The inputs of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inputs {
    /// What is read, whose it is and which part of the data it belongs to, row by row.
    pub rows: Digest,
    /// The names of the labels, and those of each row.
    pub labels: Digest,
    /// Which rows each client holds, and what for.
    pub partition: Digest,
    /// `config.json` of the model folder; absent for a preset and for a GGUF file.
    pub config: Option<Digest>,
    /// The weights of the model folder, or the whole of a GGUF file; absent where they are drawn.
    pub weights: Option<Digest>,
    /// The tokenizer of the model folder; absent where it is grown from the rows, and for a GGUF
    /// file.
    pub tokenizer: Option<Digest>,
    /// The adapters that it starts from; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Digest>,
}

impl Inputs {
    /// Hashes what an experiment starts from.
    pub fn of(experiment: &Experiment, holdings: &PartitionedData) -> Result<Self> {
        Self::of_rows(holdings).with_model(model_digests(&experiment.model)?, experiment)
    }

    /// Hashes rows and their partition; of the model nothing is known yet.
    pub(crate) fn of_rows(holdings: &PartitionedData) -> Self {
        let PartitionedData { table, division, .. } = holdings;
        let (mut rows, mut labels, mut dealt) = (Sum::new(), Sum::new(), Sum::new());
        labels.texts(table.labels.names());
        for example in &table.examples {
            add_row(&mut rows, example);
            add_labels(&mut labels, &example.labels);
        }
        for holding in &division.clients {
            dealt.text(&holding.client);
            for part in [&holding.train, &holding.validation, &holding.test] {
                dealt.numbers(part);
            }
        }
        dealt.numbers(&division.central_test);
        let (rows, labels, partition) = (rows.end(), labels.end(), dealt.end());
        let [config, weights, tokenizer, adapter] = [None; 4];
        Self { rows, labels, partition, config, weights, tokenizer, adapter }
    }

    fn with_model(self, model: ModelDigests, experiment: &Experiment) -> Result<Self> {
        let [config, weights, tokenizer] = model;
        // The numbers that are computed with follow from the format too.
        let format = experiment.raw.model.weights;
        let stored = |weights: Digest| {
            if format == WeightFormat::F32 {
                return weights;
            }
            digest(|sum| {
                sum.text(&weights.to_string());
                sum.text(format.name());
            })
        };
        let weights = weights.map(stored);
        Ok(Self { config, weights, tokenizer, adapter: adapter(experiment)?, ..self })
    }

    /// Takes note that clients learn from some of their examples only.
    pub(crate) fn keep(&mut self, kept: &[Vec<bool>]) {
        self.partition = digest(|sum| {
            sum.text(&self.partition.to_string());
            for client in kept {
                sum.numbers(&client.iter().map(|kept| usize::from(*kept)).collect::<Vec<_>>());
            }
        });
    }

    /// Takes note of rows that were put between those of the clients.
    pub(crate) fn add(&mut self, what: &str) {
        self.rows = digest(|sum| {
            sum.text(&self.rows.to_string());
            sum.text(what);
        });
    }

    /// What is another than it was, with both digests.
    pub fn changes(&self, now: &Self) -> Vec<Change> {
        const NAMES: [&str; 7] =
            ["rows", "labels", "partition", "config", "weights", "tokenizer", "adapter"];
        // A row's place follows from the row: another partition beside other rows says nothing more.
        let other_rows = self.rows != now.rows || self.labels != now.labels;
        let pairs = NAMES.into_iter().zip(self.digests().into_iter().zip(now.digests()));
        let changed =
            pairs.filter(|(what, (was, is))| was != is && !(other_rows && *what == "partition"));
        changed.map(|(what, (expected, found))| Change { what, expected, found }).collect()
    }

    /// Rows, labels, partition, config, weights, tokenizer, adapter.
    pub fn digests(&self) -> [Option<Digest>; 7] {
        let [rows, labels, partition] = [self.rows, self.labels, self.partition].map(Some);
        [rows, labels, partition, self.config, self.weights, self.tokenizer, self.adapter]
    }
}

/// One input that is another than it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub what: &'static str,
    /// What the run began with.
    pub expected: Option<Digest>,
    /// What there is now.
    pub found: Option<Digest>,
}

impl std::fmt::Display for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Enough of a digest to see that two differ; the files have all of it.
        let short = |digest: Option<Digest>| match digest {
            Some(digest) => digest.to_string()[..16].to_owned(),
            None => "none".to_owned(),
        };
        let (found, expected) = (short(self.found), short(self.expected));
        write!(formatter, "other {} (found {found}, expected {expected})", self.what)
    }
}

/// What decides about the rows of an experiment: its `[data]`, how many clients, and the seed.
type DataKey = (toml::Value, Option<usize>, u64);

/// The inputs of many experiments, of which most share theirs.
#[derive(Debug, Default)]
pub struct Fingerprints {
    data: Vec<(DataKey, Inputs)>,
    folders: BTreeMap<PathBuf, ModelDigests>,
}

impl Fingerprints {
    /// The inputs of an experiment; rows and weights are read only once for all that share them.
    pub fn of(&mut self, experiment: &Experiment) -> Result<Inputs> {
        self.heard(experiment, &Silent)
    }

    /// The same while somebody listens.
    pub fn heard(&mut self, experiment: &Experiment, listener: &dyn Listener) -> Result<Inputs> {
        let key = data_key(experiment)?;
        let known = self.data.iter().find(|(known, _)| *known == key);
        let data = if let Some((_, data)) = known {
            data.clone()
        } else {
            let data = Inputs::of_rows(&PartitionedData::heard(experiment, listener)?);
            self.data.push((key, data.clone()));
            data
        };
        let model = match &experiment.model {
            // Only its tokenizer counts, and a few files are soon read.
            ModelSource::Fresh(..) => model_digests(&experiment.model)?,
            ModelSource::Folder(path) => {
                let known = self.folders.get(path).copied();
                let model = known.map_or_else(|| model_digests(&experiment.model), Ok)?;
                self.folders.insert(path.clone(), model);
                model
            }
        };
        data.with_model(model, experiment)
    }

    /// Takes note of inputs that were found out elsewhere.
    pub fn note(&mut self, experiment: &Experiment, inputs: &Inputs) -> Result<()> {
        let key = data_key(experiment)?;
        if self.data.iter().all(|(known, _)| *known != key) {
            self.data.push((key, inputs.clone()));
        }
        Ok(())
    }
}

fn data_key(experiment: &Experiment) -> Result<DataKey> {
    let raw = &experiment.raw;
    Ok((toml::Value::try_from(&raw.data)?, raw.federation.clients, raw.seed))
}

fn add_labels(sum: &mut Sum, labels: &Labels) {
    match labels {
        Labels::One(label) => sum.numbers(&[*label as usize]),
        Labels::Choice(choice) => {
            sum.numbers(&[choice.label as usize]);
            for (label, text) in &choice.candidates {
                sum.numbers(&[*label as usize]);
                sum.text(text);
            }
        }
        Labels::Text(text) => sum.text(text),
        Labels::Preference(Preference { chosen, rejected }) => {
            add_messages(sum, chosen);
            add_messages(sum, rejected);
        }
        Labels::Many(many) | Labels::PerWord(many) => {
            sum.numbers(&many.iter().map(|label| *label as usize).collect::<Vec<_>>());
        }
        Labels::Absent => sum.numbers(&[]),
    }
}

fn add_messages(sum: &mut Sum, messages: &[Message]) {
    sum.count(messages.len());
    for message in messages {
        sum.text(message.role.name());
        sum.text(&message.content);
    }
}

fn add_row(sum: &mut Sum, example: &Example) {
    match &example.body {
        Body::Text(text) => sum.text(text),
        Body::Pair(first, second) => {
            sum.text(first);
            sum.text(second);
        }
        Body::Words(words) => sum.texts(words),
        Body::Image(image) => sum.bytes(image.digest()),
        Body::Conversation(messages) => add_messages(sum, messages),
    }
    let split = example.split.map(|split| match split {
        Split::Train => "train",
        Split::Validation => "validation",
        Split::Test => "test",
    });
    for name in [example.client.as_deref(), split, example.document.as_deref()] {
        sum.count(usize::from(name.is_some()));
        sum.text(name.unwrap_or_default());
    }
}

/// Configuration, weights and tokenizer of a model folder: what decides what a run starts from.
type ModelDigests = [Option<Digest>; 3];

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const TOKENIZER: [&str; 6] = [
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    CHAT_TEMPLATE,
    "preprocessor_config.json",
];

fn model_digests(model: &ModelSource) -> Result<ModelDigests> {
    let path = match model {
        ModelSource::Fresh(_, Vocabulary::Grown(_) | Vocabulary::Absent) => return Ok([None; 3]),
        ModelSource::Fresh(_, Vocabulary::Declared(path)) => {
            return Ok([None, None, files(path, TOKENIZER.map(str::to_owned))?]);
        }
        ModelSource::Folder(path) => path,
    };
    if path.is_file() {
        // One file is all three, under whatever name.
        let digest = of_file(path).with_context(|| format!("cannot read {}", path.display()));
        return Ok([None, Some(digest?), None]);
    }
    let config = files(path, ["config.json".to_owned()])?;
    Ok([config, files(path, weights(path)?)?, files(path, TOKENIZER.map(str::to_owned))?])
}

/// The adapters that an experiment starts from.
fn adapter(experiment: &Experiment) -> Result<Option<Digest>> {
    let names = || fedra_model::peft::files().into_iter().chain([CHAT_TEMPLATE]).map(str::to_owned);
    let dir = experiment.raw.model.adapter.as_deref().map(hub::folder_of);
    dir.map_or(Ok(None), |dir| files(&dir, names()))
}

/// The part of an index of shards that names them.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The weights' files: one, or the index and every shard that it names.
fn weights(folder: &Path) -> Result<Vec<String>> {
    let index = folder.join(INDEX);
    if folder.join(SINGLE).is_file() || !index.is_file() {
        return Ok(vec![SINGLE.to_owned()]);
    }
    let shown = index.display();
    let text = fs::read_to_string(&index).with_context(|| format!("cannot read {shown}"))?;
    let index: Index = serde_json::from_str(&text).with_context(|| format!("reading {shown}"))?;
    let shards: BTreeSet<String> = index.weight_map.into_values().collect();
    Ok([INDEX.to_owned()].into_iter().chain(shards).collect())
}

/// The digest of those files of a folder that are there, each with its name.
fn files(folder: &Path, names: impl IntoIterator<Item = String>) -> Result<Option<Digest>> {
    let (mut sum, mut any) = (Sum::new(), false);
    for name in names {
        let path = folder.join(&name);
        if !path.is_file() {
            continue;
        }
        any = true;
        sum.text(&name);
        sum.file(&path).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(any.then(|| sum.end()))
}

/// The digest of one file.
pub fn of_file(path: &Path) -> io::Result<Digest> {
    let mut sum = Sum::new();
    sum.file(path)?;
    Ok(sum.end())
}

/// The digest of what is added.
pub(crate) fn digest(add: impl FnOnce(&mut Sum)) -> Digest {
    let mut sum = Sum::new();
    add(&mut sum);
    sum.end()
}

/// The digest of a saved model's weights: of a folder's files, or of one GGUF file.
pub fn of_model(path: &Path) -> Result<Digest> {
    let [_, weights, _] = model_digests(&ModelSource::Folder(path.to_owned()))?;
    let shown = path.display();
    weights.with_context(|| format!("{shown}: found no weights, expected a model folder"))
}

/// BLAKE3 over values that cannot run into each other: each has its length before it. Where processors have no
/// instructions for SHA-256, that took most of the time before the first round of a large model.
pub(crate) struct Sum(Hasher);

impl Sum {
    /// Before any value.
    pub fn new() -> Self {
        Self(Hasher::new())
    }

    fn count(&mut self, count: usize) {
        self.0.update(&(count as u64).to_le_bytes());
    }

    /// The bytes of a file.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Some texts.
    pub fn texts(&mut self, texts: &[impl AsRef<str>]) {
        self.count(texts.len());
        for text in texts {
            self.text(text.as_ref());
        }
    }

    /// Some numbers.
    pub fn numbers(&mut self, numbers: &[usize]) {
        self.count(numbers.len());
        for number in numbers {
            self.count(*number);
        }
    }

    /// A row that is tokenised: how it is read, and its labels, each kind apart from the others.
    pub fn row(&mut self, example: &Example) {
        let body = match &example.body {
            Body::Text(_) => 0,
            Body::Pair(..) => 1,
            Body::Words(_) => 2,
            Body::Image(_) => 3,
            Body::Conversation(_) => 4,
        };
        let (kind, count) = match &example.labels {
            Labels::One(_) => (0, 1),
            Labels::Many(labels) => (1, labels.len()),
            Labels::PerWord(labels) => (2, labels.len()),
            Labels::Absent => (3, 0),
            Labels::Choice(choice) => (4, choice.candidates.len()),
            Labels::Text(_) => (5, 1),
            Labels::Preference(_) => (6, 2),
        };
        self.numbers(&[body, kind, count]);
        add_row(self, example);
        add_labels(self, &example.labels);
    }

    /// The name and the bits of every parameter. Those that come part by part, in the order of their sites, have
    /// the digest of all at once.
    pub fn params(&mut self, params: &Params) {
        for (id, tensor) in params.iter() {
            self.text(&id.to_string());
            self.text(tensor.format().name());
            tensor.each_stored(&mut |bytes| {
                self.0.update(bytes);
            });
        }
    }

    fn file(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::open(path)?;
        self.0.update(&file.metadata()?.len().to_le_bytes());
        let mut buffer = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            self.0.update(&buffer[..read]);
        }
    }

    /// The digest of all of them.
    pub fn end(self) -> Digest {
        Digest::from_bytes(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn inputs(folder: &Path, name: &str, rows: &str) -> Inputs {
        let file = folder.join(name);
        fs::write(&file, rows).unwrap();
        let source = file.extension().unwrap().to_string_lossy().into_owned();
        let text = format!(
            "[data]\nsource = '{source}'\ntask = 'classes'\npath = '{}'\n[federation]\nrounds = 1\n",
            file.display()
        );
        let experiment =
            Experiment::from_text(&text, "x.toml", "x", &Overrides::default()).unwrap();
        Inputs::of(&experiment, &PartitionedData::of(&experiment).unwrap()).unwrap()
    }

    fn rows(change: &dyn Fn(usize, &mut [String; 3])) -> Vec<[String; 3]> {
        let row = |number: usize| {
            let label = ["good", "bad"][number % 2].to_owned();
            let mut row = [format!("note {number}"), label, format!("home-{}", number % 4)];
            change(number, &mut row);
            row
        };
        (0..40).map(row).collect()
    }

    fn jsonl(rows: &[[String; 3]]) -> String {
        let line = |[text, label, client]: &[String; 3]| {
            format!("{}\n", serde_json::json!({ "text": text, "label": label, "client": client }))
        };
        rows.iter().map(line).collect()
    }

    #[test]
    fn content_counts_and_neither_place_nor_format() {
        let folder = tempfile::tempdir().unwrap();
        let same = rows(&|_, _| {});
        let first = inputs(folder.path(), "a.jsonl", &jsonl(&same));
        assert_eq!(inputs(folder.path(), "moved.jsonl", &jsonl(&same)), first);
        let csv: String = same.iter().map(|row| row.join(",") + "\n").collect();
        assert_eq!(inputs(folder.path(), "a.csv", &format!("text,label,client\n{csv}")), first);
        assert_eq!((first.config, first.weights, first.tokenizer), (None, None, None));
    }

    #[test]
    fn each_change_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let first = inputs(folder.path(), "a.jsonl", &jsonl(&rows(&|_, _| {})));
        let changed = |change: &dyn Fn(usize, &mut [String; 3])| -> Vec<&str> {
            let now = inputs(folder.path(), "b.jsonl", &jsonl(&rows(change)));
            first.changes(&now).iter().map(|change| change.what).collect()
        };
        let flip = |_: usize, row: &mut [String; 3]| {
            row[1] = if row[1] == "good" { "bad" } else { "good" }.to_owned();
        };
        assert_eq!(changed(&flip), ["labels"]);
        let one = |number: usize, row: &mut [String; 3]| {
            if number == 7 {
                row[0].push('!');
            }
        };
        assert_eq!(changed(&one), ["rows"]);
        let mut turned = rows(&|_, _| {});
        turned.swap(0, 4);
        let now = inputs(folder.path(), "c.jsonl", &jsonl(&turned));
        assert_eq!(first.changes(&now)[0].what, "rows");
        let words = first.changes(&now)[0].to_string();
        assert!(words.starts_with("other rows (found ") && words.contains(", expected "));
    }
}
