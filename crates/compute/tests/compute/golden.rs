//! Every operation against what PyTorch answered in f64: the result and each gradient.

use crate::draw::{
    bias_id, distance, frozen, id, mean, norm, numbers, of, positions, spans, splitmix64, trained,
    uniform,
};
use fedra_compute::{
    Activation, Angles, Attention, ComputeError, Device, Gradients, Logits, LossWeights, Mask,
    Projected, Projection, Sequences, Tape, Value, Weight,
};
use fedra_plan::{ParamId, Role};
use serde_json::Value as Json;
use std::sync::Arc;

/// Relative to a tensor's norm. One f32 rounding is 6e-8; the longest sums here have 67 terms and
/// the polynomials err by up to 6e-7.
const TOLERANCE: f64 = 1e-5;

/// The file that `tools/golden.py` made.
pub fn read() -> Json {
    let text = include_str!("../golden/ops.json");
    serde_json::from_str(text).expect("the golden file is JSON")
}

#[test]
fn the_formula_gives_the_numbers_that_the_golden_file_was_made_from() {
    let generator = &read()["generator"];
    for pair in list(&generator["splitmix64"]) {
        let [from, to] = [0, 1].map(|i| pair[i].as_str().unwrap().parse::<u64>().unwrap());
        assert_eq!(splitmix64(from), to);
    }
    for pair in list(&generator["uniform"]) {
        for (i, expected) in list(&pair[1]).iter().enumerate() {
            assert_eq!(uniform(pair[0].as_u64().unwrap(), i) as f32, float(expected));
        }
    }
    for spec in list(&generator["tensor"]) {
        assert_eq!(drawn(spec).1, floats(&spec["values"]));
    }
}

#[test]
fn every_operation_and_gradient_agrees_with_pytorch() {
    let golden = read();
    let cases = list(&golden["cases"]);
    assert_eq!(cases.len(), 41, "a new case needs an arm in `answer`");
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let answers = answer(case);
        let gradients = case["gradients"].as_object().unwrap().keys();
        assert!(gradients.eq(answers[1..].iter().map(|(what, _)| what)), "{name}");
        for (what, found) in answers {
            let expected = match what.as_str() {
                "output" => floats(&case["output"]["values"]),
                _ => floats(&case["gradients"][&what]),
            };
            // A gradient that vanishes has no size of its own to compare with.
            let vanishes = expected.iter().all(|x| *x == 0.0);
            let error = if vanishes { norm(&found) } else { distance(&found, &expected) };
            assert!(error < TOLERANCE, "{name}: {what} is off by {error:e}");
        }
    }
}

/// Runs one case: the output, then the gradient of each input, by name.
fn answer(case: &Json) -> Vec<(String, Vec<f32>)> {
    let mut run = Run::new(case);
    let settings = &case["settings"];
    let lengths = settings.get("lengths").map(counts).unwrap_or_default();
    let y = match case["name"].as_str().expect("a case has a name") {
        "linear" => {
            let (x, projection) = (run.value("x"), run.projection());
            run.tape.linear(&x, &[projection])
        }
        "linear_gelu" => {
            let (x, projection) = (run.value("x"), run.projection());
            run.tape.linear_activated(&x, &projection, Activation::Gelu)
        }
        name @ ("gelu" | "gelu_tanh" | "relu" | "silu") => {
            let x = run.value("x");
            let projection = run.identity(x.tensor.cols());
            run.tape.linear_activated(&x, &projection, activation(name))
        }
        "tanh_pooler" => {
            let (x, projection) = (run.value("x"), run.projection());
            let firsts: Vec<u32> =
                spans(&lengths).iter().map(|span| span.queries.start as u32).collect();
            let x = run.tape.rows(&x, &firsts).expect("first tokens");
            run.tape.linear_activated(&x, &projection, Activation::Tanh)
        }
        "layer_norm" => {
            let (x, weight, bias) = (run.value("x"), run.weight("weight"), run.weight("bias"));
            run.tape.layer_norm(&x, &weight, Some(&bias), float(&settings["eps"]))
        }
        "rotary" | "rotary_far" => {
            let [_, heads, width] = counts(&case["inputs"]["x"]["shape"])[..] else {
                panic!("rotary turns tokens by heads by features");
            };
            let theta = settings["theta"].as_f64().expect("theta is a number");
            let angles = Arc::new(Angles::new(40, width, theta));
            let x = run.value("x");
            run.tape.rotary(x, heads, &positions(&lengths), &angles)
        }
        "attention_bidirectional"
        | "attention_causal"
        | "attention_grouped"
        | "attention_long_bidirectional"
        | "attention_long_grouped"
        | "attention_window_of_one"
        | "attention_window_of_two"
        | "attention_window_beyond_the_text"
        | "attention_window_both_sides"
        | "attention_window_long_capped"
        | "attention_capped" => {
            let [heads, kv_heads, width] =
                ["heads", "kv_heads", "head_dim"].map(|name| count(&settings[name]));
            let mask = match settings["causal"].as_bool() {
                Some(true) => Mask::Causal,
                Some(false) | None => Mask::Bidirectional,
            };
            let usual = Attention::new(heads, kv_heads, width, mask);
            let geometry = Attention {
                window: settings.get("window").map(count),
                scale: settings.get("scale").map_or(usual.scale, float),
                soft_cap: settings.get("soft_cap").and_then(Json::as_f64).map(|cap| cap as f32),
                ..usual
            };
            let all = run.beside(&["q", "k", "v"]);
            run.tape.attention(geometry, Projected::Together(&all), &spans(&lengths), None)
        }
        name @ ("swiglu" | "geglu" | "geglu_tanh" | "reglu") => {
            let both = run.beside(&["gate", "up"]);
            run.tape.gated(&both, activation(name))
        }
        "embedding" => {
            let tables = ["token", "position", "segment"].map(|name| run.weight(name));
            let at = positions(&lengths);
            let [ids, segments] =
                ["ids", "segments"].map(|name| list(&settings[name]).iter().map(index).collect());
            let (ids, segments): (Vec<u32>, Vec<u32>) = (ids, segments);
            let indices = [&ids, &at, &segments];
            let tables: Vec<_> = tables.iter().zip(indices.map(Vec::as_slice)).collect();
            let sum = run.tape.embed(&tables).expect("every index is in its table");
            let (weight, bias) = (run.weight("weight"), run.weight("bias"));
            run.tape.layer_norm(&sum, &weight, Some(&bias), float(&settings["eps"]))
        }
        "cross_entropy" | "token_cross_entropy" => {
            let logits = run.value("logits");
            let labels = list(&settings["labels"]).iter();
            let targets: Vec<_> =
                labels.map(|label| label.as_u64().map(|label| label as u32)).collect();
            run.tape.cross_entropy(&logits, &targets, mean(&targets))
        }
        "multi_label" => {
            let logits = run.value("logits");
            let targets: Vec<_> = list(&settings["labels"]).iter().flat_map(floats).collect();
            run.tape.multi_label(&logits, &targets, LossWeights::mean(targets.len()))
        }
        name => rows_and_columns(&mut run, name, settings),
    };
    run.finish(&y.expect("golden cases are well formed"))
}

/// What is computed row by row or number by number.
fn rows_and_columns(run: &mut Run<'_>, name: &str, settings: &Json) -> Result<Value, ComputeError> {
    match name {
        "layer_norm_without_bias" => {
            let (x, weight) = (run.value("x"), run.weight("weight"));
            run.tape.layer_norm(&x, &weight, None, float(&settings["eps"]))
        }
        "rms_norm" | "rms_norm_offset" => {
            let (x, weight) = (run.value("x"), run.weight("weight"));
            let offset = settings.get("offset").map_or(0.0, float);
            run.tape.rms_norm(&x, &weight, float(&settings["eps"]), offset)
        }
        "column_norm_by_head" | "column_norm_by_head_offset" | "column_norm_of_all_heads" => {
            let (x, query, key) = (run.value("x"), run.weight("query"), run.weight("key"));
            let [queries, keys] = counts(&settings["columns"])[..] else {
                panic!("columns of query and key");
            };
            let parts = [(0..queries, &query), (queries..queries + keys, &key)];
            let (epsilon, offset) = (float(&settings["eps"]), float(&settings["offset"]));
            run.tape.norm_columns(x, &parts, epsilon, offset)
        }
        "scale_columns" => {
            let (x, weight) = (run.value("x"), run.weight("weight"));
            run.tape.scale_columns(x, &weight)
        }
        "soft_capped" => {
            let x = run.value("x");
            run.tape.soft_capped(x, float(&settings["soft_cap"]))
        }
        "scaled" => {
            let x = run.value("x");
            Ok(run.tape.scaled(x, float(&settings["factor"])))
        }
        "sum" => {
            let (x, y) = (run.value("x"), run.value("y"));
            run.tape.add(x, &y)
        }
        "sequence_means" => {
            let sequences = Sequences::of_lengths(&counts(&settings["lengths"]));
            let x = run.value("x").in_sequences(&sequences)?;
            run.tape.sequence_means(&x)
        }
        "vocabulary_capped" => {
            let (x, weight, bias) = (run.value("x"), run.weight("weight"), run.weight("bias"));
            let targets: Vec<_> = list(&settings["labels"]).iter().map(index).map(Some).collect();
            let soft_cap = Some(float(&settings["soft_cap"]));
            let logits = Logits { weight: &weight, bias: Some(&bias), soft_cap };
            run.tape.vocabulary_cross_entropy(&x, logits, &targets, mean(&targets))
        }
        unknown => panic!("no operation is called {unknown}"),
    }
}

fn activation(name: &str) -> Activation {
    match name {
        "gelu" | "geglu" => Activation::Gelu,
        "gelu_tanh" | "geglu_tanh" => Activation::GeluTanh,
        "relu" | "reglu" => Activation::Relu,
        "silu" | "swiglu" => Activation::Silu,
        unknown => panic!("no activation is called {unknown}"),
    }
}

/// A tape under way, and where each named input went.
struct Run<'a> {
    case: &'a Json,
    device: Device,
    tape: Tape,
    leaves: Vec<(String, Leaf)>,
}

enum Leaf {
    Weight(ParamId),
    /// Some columns of an input.
    Columns(Value, std::ops::Range<usize>),
}

impl<'a> Run<'a> {
    fn new(case: &'a Json) -> Self {
        let device = Device::cpu();
        Self { case, tape: Tape::new(&device), device, leaves: Vec::new() }
    }

    fn value(&mut self, name: &str) -> Value {
        self.beside(&[name])
    }

    /// One input made of several named ones, their columns side by side.
    fn beside(&mut self, names: &[&str]) -> Value {
        let parts: Vec<_> = names.iter().map(|name| drawn(&self.case["inputs"][*name])).collect();
        let rows = parts[0].0.0;
        let width: usize = parts.iter().map(|((_, cols), _)| cols).sum();
        let joined: Vec<f32> = (0..rows)
            .flat_map(|row| parts.iter().flat_map(move |((_, cols), x)| &x[row * cols..][..*cols]))
            .copied()
            .collect();
        let value = self.tape.input(of(&self.device, (rows, width), &joined));
        let mut column = 0;
        for (name, ((_, cols), _)) in names.iter().zip(&parts) {
            let columns = column..column + cols;
            self.leaves.push(((*name).into(), Leaf::Columns(value.clone(), columns)));
            column += cols;
        }
        value
    }

    fn weight(&mut self, name: &str) -> Weight {
        let (shape, numbers) = drawn(&self.case["inputs"][name]);
        let id = match name {
            "token" => id(Role::Token),
            "position" => id(Role::Position),
            "segment" => id(Role::Segment),
            "query" => id(Role::Query),
            "key" => id(Role::Key),
            "bias" => bias_id(Role::Up),
            _ => id(Role::Up),
        };
        self.leaves.push((name.into(), Leaf::Weight(id)));
        trained(id, of(&self.device, shape, &numbers))
    }

    fn projection(&mut self) -> Projection {
        let (weight, bias) = (self.weight("weight"), self.weight("bias"));
        Projection { weight, bias: Some(bias), lora: None }
    }

    fn identity(&self, width: usize) -> Projection {
        let one = |i| if i % (width + 1) == 0 { 1.0 } else { 0.0 };
        let numbers: Vec<f32> = (0..width * width).map(one).collect();
        let weight = frozen(id(Role::Up), of(&self.device, (width, width), &numbers));
        Projection { weight, bias: None, lora: None }
    }

    fn finish(mut self, y: &Value) -> Vec<(String, Vec<f32>)> {
        let spec = &self.case["upstream"];
        let upstream = if spec.is_null() { vec![1.0] } else { drawn(spec).1 };
        let upstream = of(&self.device, y.tensor.shape(), &upstream);
        let gradients = self.tape.backward(&[(y, upstream)]).expect("every input trains");
        self.leaves.sort_by(|(a, _), (b, _)| a.cmp(b));
        let mut answers = vec![("output".into(), y.tensor.to_host().into_owned())];
        answers.extend(self.leaves.iter().map(|(name, leaf)| (name.clone(), leaf.of(&gradients))));
        answers
    }
}

impl Leaf {
    fn of(&self, gradients: &Gradients) -> Vec<f32> {
        match self {
            Self::Weight(id) => gradients.get(*id).expect("it trains").to_dense(),
            Self::Columns(value, columns) => {
                let gradient = gradients.of_input(value).expect("it is an input");
                let rows = gradient.to_host();
                let rows = rows.chunks_exact(gradient.cols());
                rows.flat_map(|row| row[columns.clone()].to_vec()).collect()
            }
        }
    }
}

/// Shape (a row when it has one dimension, tokens by all features when it has three) and numbers.
pub fn drawn(spec: &Json) -> ((usize, usize), Vec<f32>) {
    let shape = counts(&spec["shape"]);
    let total = shape.iter().product();
    let rows = if shape.len() == 1 { 1 } else { shape[0] };
    let number = |name: &str| spec[name].as_f64().expect("a spec's numbers");
    let seed = spec["seed"].as_u64().expect("a spec's seed");
    ((rows, total / rows), numbers(seed, total, (number("scale"), number("offset"))))
}

/// A JSON list.
pub fn list(json: &Json) -> &[Json] {
    json.as_array().expect("a list")
}

/// A JSON list of numbers.
pub fn floats(json: &Json) -> Vec<f32> {
    list(json).iter().map(float).collect()
}

/// A JSON number.
pub fn float(json: &Json) -> f32 {
    json.as_f64().expect("a number") as f32
}

fn counts(json: &Json) -> Vec<usize> {
    list(json).iter().map(count).collect()
}

fn count(json: &Json) -> usize {
    json.as_u64().expect("a count") as usize
}

fn index(json: &Json) -> u32 {
    count(json) as u32
}
