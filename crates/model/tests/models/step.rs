//! A training step ready to be taken: a model, its numbers, a batch and the right answers.

use crate::formula::Spec;
use crate::golden::{self, Task, TinyCase};
use fedra_compute::{Device, Gradients, Params, Tape, Tensor, Value};
use fedra_model::hf::{Architecture, Config};
use fedra_model::{Batch, Head, Model, Reading, Targets};
use fedra_plan::{ParamId, Scope, Shape};
use std::collections::BTreeMap;

/// Everything that a loss needs.
#[derive(Clone, Debug)]
pub struct Step {
    pub name: String,
    pub device: Device,
    pub model: Model,
    pub params: Params,
    pub batch: Batch,
    pub answers: Answers,
}

/// Targets that own their numbers.
#[derive(Clone, Debug)]
pub enum Answers {
    Classes(Vec<Option<u32>>),
    Labels(Vec<f32>),
}

impl Answers {
    pub fn targets(&self) -> Targets<'_> {
        match self {
            Self::Classes(classes) => Targets::Classes(classes),
            Self::Labels(labels) => Targets::Labels(labels),
        }
    }
}

/// What a step brings.
#[derive(Debug)]
pub struct Outcome {
    pub loss: f32,
    pub gradients: Gradients,
}

impl Step {
    /// The step of a tiny golden case: weights by formula, under the library's names.
    pub fn tiny(golden: &TinyCase) -> Self {
        let json = golden.config.to_string();
        let config = Config::parse("config.json".as_ref(), json.as_bytes()).unwrap();
        let architecture = config.architecture().unwrap();
        let model = Model::new(config, golden.case.head(), None).unwrap();
        let tensors = tensors(&model, architecture);
        let (device, gradients) = (Device::cpu(), &golden.case.gradients);
        let known: Vec<&str> = gradients.iter().map(|entry| &*entry.name).collect();
        let ours: Vec<&str> = tensors.keys().map(String::as_str).collect();
        assert_eq!(ours, known, "parameters under the library's names");
        let made = gradients.iter().zip(0..).flat_map(|(entry, seed)| {
            let is_norm = entry.name.to_lowercase().contains("norm");
            let around_one = is_norm && entry.name.ends_with(".weight");
            let (scale, offset) = if around_one { (0.1, 1.0) } else { (0.2, 0.0) };
            let spec = Spec { shape: entry.shape.clone(), seed, scale, offset };
            split(&device, &model, (&entry.name, &tensors[&entry.name]), &spec)
        });
        let params = made.collect();
        Self {
            name: format!("{} {:?}", architecture.class_name(), golden.case.task),
            device,
            model,
            params,
            batch: golden.case.batch(),
            answers: golden.case.answers().unwrap(),
        }
    }

    /// Every task of both families.
    pub fn every_tiny() -> Vec<Self> {
        let files = ["tiny_bert.json", "tiny_llama.json"];
        let cases = files.into_iter().flat_map(golden::cases::<TinyCase>);
        cases.map(|case| Self::tiny(&case)).collect()
    }

    /// All of the other families.
    pub fn families() -> Vec<Self> {
        golden::cases::<TinyCase>("families.json").iter().map(Self::tiny).collect()
    }

    /// One of every family of images.
    pub fn images() -> Vec<Self> {
        let cases: Vec<TinyCase> = golden::cases("families.json");
        let images = cases.iter().filter(|case| case.case.task == Task::ImageClassification);
        images.map(Self::tiny).collect()
    }

    /// Every task of text, and every family of images.
    pub fn every_kind() -> Vec<Self> {
        Self::every_tiny().into_iter().chain(Self::images()).collect()
    }

    pub fn everything(&self) -> Scope {
        Scope::everything(self.model.layout())
    }

    /// The step as training takes it.
    pub fn take(&self, scope: &Scope) -> Outcome {
        let mut tape = Tape::new(&self.device);
        let weights = self.params.training(scope);
        let targets = self.answers.targets();
        let loss = self.model.loss(&mut tape, weights, &self.batch, targets).unwrap();
        self.backward(tape, &loss)
    }

    /// The same loss, with every row of the last block computed and those with a target picked.
    pub fn take_over_all_rows(&self, scope: &Scope) -> Outcome {
        let mut tape = Tape::new(&self.device);
        let (model, weights) = (&self.model, self.params.training(scope));
        let hidden = model.embed(&mut tape, weights, &self.batch).unwrap();
        let all = 0..model.blocks();
        let hidden = model
            .run_blocks(&mut tape, weights, hidden, self.batch.packing(), all, &Reading::All)
            .unwrap();
        let (rows, answers) = self.answered_rows();
        let read = tape.rows(&hidden, &rows).unwrap();
        let loss = model.head_loss(&mut tape, weights, &read, answers.targets()).unwrap();
        self.backward(tape, &loss)
    }

    pub fn backward(&self, tape: Tape, loss: &Value) -> Outcome {
        let one = Tensor::scalar(&self.device, 1.0);
        Outcome { loss: loss.tensor.item(), gradients: tape.backward(&[(loss, one)]).unwrap() }
    }

    /// The rows that the loss reads, and the answers of just those.
    fn answered_rows(&self) -> (Vec<u32>, Answers) {
        match (self.model.head(), &self.answers) {
            (Head::Tokens { .. } | Head::Language, Answers::Classes(classes)) => {
                let answered = (0u32..).zip(classes).filter(|(_, class)| class.is_some());
                let (rows, classes) = answered.map(|(row, class)| (row, *class)).unzip();
                (rows, Answers::Classes(classes))
            }
            _ => (self.model.answer_rows(&self.batch), self.answers.clone()),
        }
    }

    /// Hidden states in front of block 0 and behind each block.
    pub fn hidden_states(&self) -> Vec<Tensor> {
        let mut tape = Tape::new(&self.device);
        let weights = self.params.frozen();
        let mut hidden = self.model.embed(&mut tape, weights, &self.batch).unwrap();
        let mut states = vec![hidden.tensor.clone()];
        for block in 0..self.model.blocks() {
            let (range, all) = (block..block + 1, &Reading::All);
            hidden = self
                .model
                .run_blocks(&mut tape, weights, hidden, self.batch.packing(), range, all)
                .unwrap();
            states.push(hidden.tensor.clone());
        }
        states
    }

    /// What the library calls the last hidden state: behind a decoder's final norm.
    pub fn last_hidden_state(&self) -> Tensor {
        let bare = Model::new(self.model.config().clone(), Head::Bare, None).unwrap();
        let mut tape = Tape::new(&self.device);
        bare.logits(&mut tape, self.params.frozen(), &self.batch).unwrap().tensor
    }

    pub fn logits(&self) -> Tensor {
        let mut tape = Tape::new(&self.device);
        self.model.logits(&mut tape, self.params.frozen(), &self.batch).unwrap().tensor
    }

    /// The same model on other sequences, which need no answers.
    pub fn on(&self, sequences: &[Vec<u32>]) -> Self {
        Self { batch: Batch::new(sequences).unwrap(), ..self.clone() }
    }

    /// The sequences of the batch.
    pub fn sequences(&self) -> Vec<Vec<u32>> {
        let batch = &self.batch;
        let rows = batch.packing().starts().zip(batch.packing().lengths());
        rows.map(|(start, length)| batch.ids()[start..start + length].to_vec()).collect()
    }
}

impl Outcome {
    /// Equality to the bit, with a message that names the parameter.
    #[track_caller]
    pub fn assert_same(&self, other: &Self, what: &str) {
        assert_eq!(self.loss.to_bits(), other.loss.to_bits(), "{what}: loss");
        let ids = |outcome: &Self| outcome.gradients.iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(self), ids(other), "{what}: trained parameters");
        self.assert_contains(other, what);
    }

    /// Every gradient of the other is ours, to the bit.
    #[track_caller]
    pub fn assert_contains(&self, other: &Self, what: &str) {
        for (id, theirs) in other.gradients.iter() {
            let mine = self.gradients.get(id).unwrap();
            assert!(bits(&mine.to_dense()) == bits(&theirs.to_dense()), "{what}: gradient of {id}");
        }
    }
}

/// Numbers to be compared to the bit.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Every tensor of the library, and the parameters that lie one after the other in its rows.
pub fn tensors(model: &Model, architecture: Architecture) -> BTreeMap<String, Vec<ParamId>> {
    let mut tensors: BTreeMap<String, Vec<ParamId>> = BTreeMap::new();
    for id in model.layout().ids() {
        tensors.entry(architecture.tensor_name(id).unwrap()).or_default().push(id);
    }
    tensors
}

/// Whether the library stores a tensor with inputs as rows: GPT-2's projections.
pub fn is_transposed(model: &Model, name: &str) -> bool {
    model.config().family.model_type == "gpt2" && name.contains(".c_") && name.ends_with(".weight")
}

/// A matrix with this many columns, the other way round.
pub fn transpose(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    let column = |column: usize| (0..rows).map(move |row| values[row * columns + column]);
    (0..columns).flat_map(column).collect()
}

/// The parameters in a tensor by formula.
fn split(
    device: &Device,
    model: &Model,
    (name, ids): (&str, &[ParamId]),
    spec: &Spec,
) -> Vec<(ParamId, Tensor)> {
    let mut values = spec.values();
    if is_transposed(model, name) {
        values = transpose(&values, spec.shape[1]);
    }
    let mut rest = &values[..];
    let mut made = Vec::new();
    for &id in ids {
        let shape = model.layout().get(id).unwrap();
        let (mine, behind) = rest.split_at(shape.elements());
        let cols = *shape.dims().last().unwrap();
        made.push((id, Tensor::from_slice(device, mine.len() / cols, cols, mine).unwrap()));
        rest = behind;
    }
    assert!(rest.is_empty(), "{ids:?} and {:?}", spec.shape);
    made
}

/// The library's name of every parameter of a model.
pub fn names(model: &Model, architecture: Architecture) -> BTreeMap<String, ParamId> {
    let name = |id| architecture.tensor_name(id).unwrap();
    model.layout().ids().map(|id| (name(id), id)).collect()
}

/// A parameter by formula.
pub fn tensor(device: &Device, spec: &Spec) -> Tensor {
    let cols = *spec.shape.last().unwrap();
    let values = spec.values();
    Tensor::from_slice(device, values.len() / cols, cols, &values).unwrap()
}

/// Numbers by formula for every parameter, each from a seed of its own.
pub fn made_params(device: &Device, model: &Model, scale: f64) -> Params {
    let made = |((id, shape), seed): ((ParamId, &Shape), u64)| {
        let spec = Spec { shape: shape.dims().to_vec(), seed, scale, offset: 0.0 };
        (id, tensor(device, &spec))
    };
    model.layout().iter().zip(0..).map(made).collect()
}
