//! Pairs of answers against what TRL, PEFT and PyTorch make of them, and as examples that noise hides.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fedra_client::{Evaluator, Examples, TrainResult, TrainTask, Trainer};
use fedra_compute::{Device, Params, SecretKey, Seed};
use fedra_data::{Encoded, EncodedPreference, LabelSet, Target, Task};
use fedra_engine::{ClipRule, NoiseMultiplier, PreferenceForm, PreferenceLoss, PrivateSteps, Work};
use fedra_model::peft::AdapterFolder;
use fedra_model::{Classifier, Head, Model, load};
use fedra_plan::{ByteCount, Layer, ParamId, Part, Role, Round, Scope};
use fedra_wire::ParamValues;
use serde_json::Value;

use crate::world::{bits, sgd};

/// Sums over a few hundred numbers in f32, against f64.
const NEAR: f64 = 2e-5;

struct Golden {
    model: Model,
    params: Params,
    device: Device,
    pairs: Vec<Encoded>,
    cases: Vec<Value>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/preference")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// The next token of each, where that is part of the answer.
fn told(prompt: usize, ids: &[u32]) -> Vec<Option<u32>> {
    (1..=ids.len()).map(|next| ids.get(next).copied().filter(|_| next >= prompt)).collect()
}

impl Golden {
    fn open() -> Self {
        let golden = std::fs::read(folder().join("golden.json")).unwrap();
        let golden: Value = serde_json::from_slice(&golden).unwrap();
        let pair = |pair: &Value| {
            let [prompt, chosen, rejected] = [0, 1, 2].map(|place| ids(&pair[place]));
            let (chosen, rejected) = ([prompt.clone(), chosen], [prompt.clone(), rejected]);
            let (chosen, rejected) = (chosen.concat(), rejected.concat());
            let told = [told(prompt.len(), &chosen), told(prompt.len(), &rejected)].concat();
            let target = EncodedPreference { chosen: chosen.len(), told };
            Encoded {
                ids: [chosen, rejected].concat(),
                types: Vec::new(),
                target: Target::Preference(target),
                dropped: 0,
                pixels: None,
            }
        };
        let pairs = golden["pairs"].as_array().unwrap().iter().map(pair).collect();
        let device = Device::cpu();
        let base = load(&folder(), Head::Language, None, (&device, Seed(0))).unwrap();
        let adapter = AdapterFolder::open(&folder().join("adapter"), base.model.config()).unwrap();
        let adapters = adapter.adapters().clone();
        let config = base.model.config().clone();
        let model = Model::new(config, Head::Language, Some(adapters)).unwrap();
        let mut params = base.params;
        adapter.load((&model, &mut params), &Classifier::Stored, &device).unwrap();
        let cases = golden["cases"].as_array().unwrap().clone();
        Self { model, params, device, pairs, cases }
    }

    fn scope(&self) -> Scope {
        Scope::of_parts(self.model.layout(), [Part::LoraA, Part::LoraB])
    }

    fn train(&self, work: &Work, examples: &[Encoded], cache: ByteCount) -> TrainResult {
        let (scope, labels) = (self.scope(), LabelSet::default());
        let key = SecretKey::simulated(Seed(3));
        let task = TrainTask {
            client: "a client",
            examples,
            round: Round(0),
            scope: &scope,
            work,
            labels: &labels,
            moments: None,
            correction: fedra_client::Correction::Nothing,
            seed: Seed(1),
            key: Some(&key),
        };
        let trainer = Trainer { model: &self.model, device: &self.device, cache };
        trainer.train(&mut self.params.clone(), &task).unwrap()
    }
}

fn rule(case: &Value) -> PreferenceLoss {
    let loss = match case["loss"].as_str().unwrap() {
        "dpo" => PreferenceForm::Dpo,
        _ => PreferenceForm::Ipo,
    };
    let number = |key: &str| case[key].as_f64().unwrap();
    PreferenceLoss { loss, beta: number("beta"), label_smoothing: number("label_smoothing") }
}

fn work(rule: PreferenceLoss) -> Work {
    Work { batch: 16, preference: Some(rule), ..sgd(1.0) }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect()
}

/// The parameter of a name of PEFT's.
fn id(name: &str) -> ParamId {
    let parts: Vec<&str> = name.split('.').collect();
    let role = match parts[4] {
        "q_proj" => Role::Query,
        "v_proj" => Role::Value,
        "down_proj" => Role::Down,
        other => panic!("{other}"),
    };
    let part = if parts[5] == "lora_A" { Part::LoraA } else { Part::LoraB };
    ParamId::new(Layer::Block(parts[2].parse().unwrap()), role, part)
}

#[test]
fn losses_and_gradients_of_pairs_are_those_of_trl() {
    let golden = Golden::open();
    for case in &golden.cases {
        let rule = rule(case);
        let result = golden.train(&work(rule), &golden.pairs, ByteCount(0));
        let losses = numbers(&case["losses"]);
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        let found = result.course.loss.unwrap();
        assert!((found - mean).abs() < NEAR * mean.max(1.0), "{rule:?}: {found}, expected {mean}");
        let gradients = case["gradients"].as_object().unwrap();
        assert_eq!(gradients.len(), golden.scope().iter().count());
        for (name, expected) in gradients {
            let expected = numbers(expected);
            // One step of rate one is minus the gradient.
            let found = result.change.get(id(name)).unwrap();
            assert_eq!(found.len(), expected.len(), "{name}");
            let size = expected.iter().map(|one| one.abs()).fold(1e-3, f64::max);
            for (found, expected) in found.iter().zip(&expected) {
                let away = (f64::from(-found) - expected).abs();
                assert!(away < 10.0 * NEAR * size, "{rule:?} {name}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn scores_are_margins_and_the_mean_loss() {
    let golden = Golden::open();
    let labels = LabelSet::default();
    for (case, tokens) in golden.cases.iter().zip([1, 10_000].into_iter().cycle()) {
        let (device, model) = (&golden.device, &golden.model);
        let evaluator =
            Evaluator { model, device, task: Task::Preference, labels: &labels, tokens };
        let examples: Examples = golden.pairs.iter().cloned().collect();
        let unjudged = evaluator.score(&golden.params, &examples).unwrap_err().to_string();
        assert!(unjudged.contains("how pairs are judged"), "{unjudged}");
        let scores =
            evaluator.score(&golden.params, &examples.with_preference(rule(case))).unwrap();
        let named: BTreeMap<&str, f64> = scores.named().into_iter().collect();
        let margins = numbers(&case["margins"]);
        let won = margins.iter().filter(|margin| **margin > 0.0).count();
        assert_eq!(named["preference_accuracy"], won as f64 / margins.len() as f64);
        let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / numbers.len() as f64;
        for (found, expected) in [("margin", margins), ("loss", numbers(&case["losses"]))]
            .map(|(name, expected)| (named[name], mean(&expected)))
        {
            assert!(
                (found - expected).abs() < NEAR * expected.abs().max(1.0),
                "{found} {expected}"
            );
        }
    }
}

#[test]
fn several_batches_of_a_step_and_kept_hidden_states_give_the_step_of_one_batch() {
    let golden = Golden::open();
    let whole = work(PreferenceLoss::default());
    let once = golden.train(&whole, &golden.pairs, ByteCount(0)).change;
    let parts = Work { batch: 1, accumulate: 3, ..whole.clone() };
    let summed = golden.train(&parts, &golden.pairs, ByteCount(0)).change;
    assert!(norm(&minus(&once, &summed)) < 1e-6 * norm(&once).max(1.0));
    // Nothing in front of the first adapter is learned, but a prefix needs a frozen block.
    let scope = Scope::of_blocks(golden.model.layout(), [1]) & golden.scope();
    let twice = Work { epochs: 2, batch: 2, ..whole };
    let labels = LabelSet::default();
    let change = |cache| {
        let task = TrainTask {
            client: "a client",
            examples: &golden.pairs,
            round: Round(0),
            scope: &scope,
            work: &twice,
            labels: &labels,
            moments: None,
            correction: fedra_client::Correction::Nothing,
            seed: Seed(1),
            key: None,
        };
        let trainer = Trainer { model: &golden.model, device: &golden.device, cache };
        bits(&trainer.train(&mut golden.params.clone(), &task).unwrap().change)
    };
    assert_eq!(change(ByteCount(0)), change(ByteCount(1 << 30)));
}

fn norm(values: &ParamValues) -> f64 {
    let squares = values.iter().flat_map(|(_, values)| values).map(|v| f64::from(*v).powi(2));
    squares.sum::<f64>().sqrt()
}

fn minus(left: &ParamValues, right: &ParamValues) -> ParamValues {
    let less = |(id, values): (_, &[f32])| {
        let right = right.get(id).unwrap();
        (id, values.iter().zip(right).map(|(a, b)| a - b).collect())
    };
    left.iter().map(less).collect()
}

#[test]
fn a_pair_moves_the_model_by_its_clip_norm_and_no_more() {
    let golden = Golden::open();
    let plain = work(PreferenceLoss { beta: 0.5, ..PreferenceLoss::default() });
    let clip = 0.01;
    let noise = NoiseMultiplier::new(1.0).unwrap();
    let private = PrivateSteps { clip, clipping: ClipRule::Flat, noise, cap: None, rows: None };
    let noised = Work { batch: 10_000, private: Some(private), ..plain.clone() };
    let [first, second, third] = [0, 1, 2].map(|place| golden.pairs[place].clone());
    let of = |pairs: &[Encoded]| golden.train(&noised, pairs, ByteCount(0)).change;
    // The noise is the same, and the second pair: what is left are the two others, clipped.
    let found = minus(&of(&[first.clone(), second.clone()]), &of(&[third.clone(), second]));
    let clipped = |pair: &Encoded| {
        let change = golden.train(&plain, std::slice::from_ref(pair), ByteCount(0)).change;
        let factor = clip / norm(&change);
        assert!(factor < 1.0, "the test is about pairs that are clipped: {factor}");
        let scaled = |(id, values): (_, &[f32])| {
            (id, values.iter().map(|one| (f64::from(*one) * factor / 2.0) as f32).collect())
        };
        change.iter().map(scaled).collect::<ParamValues>()
    };
    let expected = minus(&clipped(&first), &clipped(&third));
    let away = norm(&minus(&found, &expected));
    assert!(away < 1e-5 && norm(&expected) > 1e-3, "{away} of {}", norm(&expected));
}

#[test]
fn pairs_need_adapters_and_a_loss_and_nothing_else_beside_them() {
    let golden = Golden::open();
    let plain = golden.model.without_adapters().unwrap();
    let scope = Scope::everything(plain.layout());
    let labels = LabelSet::default();
    let train = |model: &Model, scope: &Scope, work: &Work, examples: &[Encoded]| {
        let task = TrainTask {
            client: "a client",
            examples,
            round: Round(0),
            scope,
            work,
            labels: &labels,
            moments: None,
            correction: fedra_client::Correction::Nothing,
            seed: Seed(1),
            key: None,
        };
        let trainer = Trainer { model, device: &golden.device, cache: ByteCount(0) };
        trainer.train(&mut golden.params.clone(), &task).unwrap_err().to_string()
    };
    let asked = work(PreferenceLoss::default());
    let refused = train(&plain, &scope, &asked, &golden.pairs);
    assert!(refused.contains("a model with adapters"), "{refused}");
    let text = Encoded { target: Target::PerToken(vec![None; 9]), ..golden.pairs[0].clone() };
    let mixed = [golden.pairs[0].clone(), text];
    let refused = train(&golden.model, &golden.scope(), &asked, &mixed);
    assert!(refused.contains("pairs, of which one is preferred"), "{refused}");
    let refused = train(&golden.model, &golden.scope(), &sgd(1.0), &golden.pairs);
    assert!(refused.contains("a loss of preferences"), "{refused}");
}
