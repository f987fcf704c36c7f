//! Recipes under client-level privacy: every method, with what may stand beside it.

use std::sync::Arc;

use fedra_engine::*;
use fedra_plan::{BlockScores, Layer, Layout, ParamId, Part, Probe, Role, Rule, Shape};
use fedra_privacy::{Delta, Guarantee, NoiseMultiplier, Relation, Unit};

use super::fleet;

/// Clients of different sizes.
pub const EXAMPLES: [u64; 5] = [40, 70, 100, 10, 30];
pub const CLIP: f64 = 0.5;
pub const ROUNDS: u32 = 3;

/// An embedding, four blocks with adapters, a head.
pub fn layout() -> Layout {
    let id = |layer, role, part| ParamId::new(layer, role, part);
    let square = Shape::matrix(3, 3);
    let block = |block: u16| {
        let layer = Layer::Block(block);
        [
            (id(layer, Role::Query, Part::Weight), square),
            (id(layer, Role::Key, Part::Weight), square),
            (id(layer, Role::Value, Part::Weight), square),
            (id(layer, Role::Value, Part::LoraA), Shape::matrix(1, 3)),
            (id(layer, Role::Value, Part::LoraB), Shape::matrix(3, 1)),
        ]
    };
    let ends = [
        (id(Layer::Embedding, Role::Token, Part::Weight), Shape::matrix(6, 3)),
        (id(Layer::Head, Role::Classifier, Part::Weight), Shape::vector(4)),
    ];
    Layout::new(ends.into_iter().chain((0..4).flat_map(block))).expect("legal")
}

/// A method with its settings, and the key under which it is refused, if it is.
pub type Written = (&'static str, &'static str, Option<&'static str>);

/// Every method, with the settings that decide what is released.
pub const METHODS: &[Written] = &[
    ("centralised", "{}", Some("method.name")),
    ("local-only", "{}", None),
    ("fedavg", "{}", None),
    ("fedavg", r#"{"rate":0.5}"#, None),
    ("fedprox", r#"{"mu":0.1}"#, None),
    ("fedavgm", "{}", None),
    ("fedadam", "{}", None),
    ("fedyogi", "{}", None),
    ("fedadagrad", "{}", None),
    ("scaffold", "{}", Some("method.name")),
    ("fednova", "{}", Some("method.name")),
    ("feddyn", r#"{"alpha":0.1}"#, None),
    ("fedper", "{}", None),
    ("fedbabu", "{}", None),
    ("fedfrozen", r#"{"warmup":0}"#, None),
    ("fedfrozen", r#"{"warmup":1}"#, None),
    ("fedfrozen", r#"{"warmup":0.5,"stage2":"attention"}"#, None),
    ("fedfrozen", r#"{"warmup":1,"stage2":"strict"}"#, None),
    ("fedfrozen", r#"{"warmup":1,"freeze":"v"}"#, None),
    ("fedfrozen", r#"{"warmup":1,"freeze":"random"}"#, None),
    ("fedfrozen", r#"{"warmup":1,"freeze":"none","base":{"name":"fedadam"}}"#, None),
    ("fedfrozen", r#"{"warmup":1,"qk_rate":0.5}"#, None),
    ("fedfrozen", r#"{"warmup":1,"base":{"name":"feddyn"}}"#, None),
    ("fedfrozen", r#"{"warmup":1,"base":{"name":"safl","k":1}}"#, None),
    ("fedfrozen", r#"{"warmup":"adaptive"}"#, Some("method.warmup")),
    ("fedfrozen", r#"{"warmup":"per_block"}"#, Some("method.warmup")),
    ("safl", r#"{"k":1,"selector":"random"}"#, None),
    ("safl", r#"{"k":1,"selector":"random_fixed"}"#, None),
    ("safl", r#"{"k":1,"selector":"first"}"#, None),
    ("safl", r#"{"k":1,"selector":"last"}"#, None),
    ("safl", r#"{"k":2,"selector":"even"}"#, None),
    ("safl", r#"{"k":1,"selector":"cyclic"}"#, None),
    ("safl", r#"{"selector":{"blocks":[1,3]}}"#, None),
    ("safl", r#"{"k":1,"selector":"random","mask":"per_client"}"#, None),
    ("safl", r#"{"k":1,"selector":"random_fixed","mask":"per_client"}"#, None),
    ("safl", r#"{"k":{"default":1,"client-2":3},"selector":"cyclic"}"#, None),
    ("safl", r#"{"k":{"default":1,"client-2":3},"selector":"even"}"#, None),
    ("safl", r#"{"k":{"default":3,"client-2":1},"selector":"last"}"#, None),
    ("safl", r#"{"k":2,"selector":"even","explore":1,"embeddings":"learn"}"#, None),
    ("safl", r#"{"k":2,"selector":"cyclic","prune":0.5,"denominator":"everyone"}"#, None),
    ("safl", r#"{"k":1,"selector":"cyclic","base":{"name":"fedadam"}}"#, None),
    ("safl", r#"{"k":1,"selector":"cyclic","base":{"name":"feddyn"}}"#, None),
    ("safl", r#"{"k":1,"selector":"cyclic","base":{"name":"fedper"}}"#, None),
    ("safl", r#"{"k":1,"base":{"name":"scaffold"}}"#, Some("method.name")),
    ("safl", r#"{"k":1,"selector":"first","prune":{"heads":0.5}}"#, Some("method.prune")),
];

/// SAFL with blocks that are ranked by evidence; who gives it is another question.
pub const MEASURED: &[Written] = &[
    ("safl", r#"{"k":1}"#, None),
    ("safl", r#"{"k":2,"selector":"cover"}"#, None),
    ("safl", r#"{"k":1,"profile_every":2}"#, None),
    ("safl", r#"{"k":1,"settle":1}"#, None),
    ("safl", r#"{"k":2,"explore":1}"#, None),
    ("safl", r#"{"k":{"default":1,"client-2":3}}"#, None),
    ("safl", r#"{"k":1,"base":{"name":"fedavgm"}}"#, None),
    ("safl", r#"{"k":1,"mask":"per_client"}"#, Some("method.mask")),
    ("safl", r#"{"k":1,"selector":"disagreement"}"#, Some("method.selector")),
];

/// Who takes part.
pub const SAMPLERS: [Sampler; 3] = [Sampler::All, Sampler::Poisson(0.5), Sampler::Poisson(0.1)];

/// What stands beside a method: a name, what it does to a recipe, and the key that is refused.
pub type Beside = (&'static str, fn(&mut Recipe), Option<&'static str>);

/// Conditions, encodings and parts that are independent of the method.
pub const BESIDE: &[Beside] = &[
    ("fail", |recipe| recipe.conditions.fail = 0.5, None),
    ("slow", |recipe| recipe.conditions.slow = Slow { share: 0.5, factor: 8.0 }, None),
    ("away", |recipe| away(recipe, 1, Away { from: 2, to: Some(2) }), None),
    ("retries", |recipe| recipe.retries = 7, None),
    ("int8", |recipe| recipe.work.encoding = Encoding::Int8 { feedback: true }, None),
    ("bf16", |recipe| recipe.work.encoding = Encoding::Bf16, None),
    ("topk", |recipe| recipe.work.encoding = Encoding::TopK { share: 0.5, feedback: true }, None),
    ("down", |recipe| recipe.work.download = Encoding::Int8 { feedback: false }, None),
    ("shared", |recipe| recipe.start = Start::Shared, None),
    ("lora", |recipe| recipe.learns = adapters(&[Part::LoraA, Part::LoraB]), None),
    ("frozen a", |recipe| recipe.learns = adapters(&[Part::LoraB]), None),
    (
        "depths",
        |recipe| recipe.depths = [("client-1".to_owned(), 2)].into(),
        Some("federation.depths"),
    ),
    ("exact", |recipe| recipe.adapters = AdapterMean::Exact, Some("model.lora.mean")),
    ("close", |recipe| recipe.conditions.close_with = Some(2), Some("conditions.close_with")),
    ("uniform", |recipe| recipe.sampler = Sampler::Uniform(2), Some("federation.sample")),
    ("drift", |recipe| recipe.evaluation.drift = true, Some("evaluate.drift")),
    ("attention", |recipe| recipe.evaluation.attention = true, Some("evaluate.attention")),
    ("cap", |recipe| privacy_of(recipe).cap = Some(1.5), Some("privacy.cap")),
    (
        "per block",
        |recipe| privacy_of(recipe).clipping = ClipRule::PerBlock,
        Some("privacy.clipping"),
    ),
];

/// A recipe as an experiment file would make it.
pub fn recipe(
    (name, settings, _): Written,
    (sampler, noise): (Sampler, f64),
    beside: &dyn Fn(&mut Recipe),
) -> Recipe {
    let mut base = Recipe::new(fleet::work());
    base.sampler = sampler;
    base.evaluation.on = Vec::new();
    base.privacy = Some(Privacy {
        guarantee: Guarantee {
            unit: Unit::Client,
            relation: Relation::AddRemove,
            delta: Delta::new(1e-5).expect("legal"),
            budget: None,
        },
        clip: CLIP,
        clipping: ClipRule::Flat,
        noise: NoiseMultiplier::new(noise).expect("legal"),
        cap: None,
        rows: None,
        selection: PrivateSelection::NoisyUpdate,
        client_scores: false,
    });
    beside(&mut base);
    let settings: serde_json::Value = serde_json::from_str(settings).expect(settings);
    let method = methods::Method::by_name(name, settings).expect(name).over(ROUNDS);
    let mut recipe = method.recipe(base);
    recipe.weighting = Weighting::Uniform;
    recipe.min_arrivals = MinArrivals::Count(0);
    recipe
}

/// The guarantee of a recipe.
pub fn privacy_of(recipe: &mut Recipe) -> &mut Privacy {
    recipe.privacy.as_mut().expect("it makes a guarantee")
}

/// Keeps a client away in some rounds.
pub fn away(recipe: &mut Recipe, client: u32, rounds: Away) {
    recipe.conditions.away.insert(format!("client-{client}"), vec![rounds]);
}

fn adapters(parts: &[Part]) -> Rule {
    Rule::Parts(parts.iter().copied().collect()) | Rule::Layers([Layer::Head].into())
}

/// Text that anybody may have: blocks in the middle get the most attention.
#[derive(Debug)]
pub struct Public;

impl PublicText for Public {
    fn probe(&self, probe: Probe, model: &ParamValues) -> Result<BlockScores, EngineError> {
        assert!(!model.is_empty());
        Ok(BlockScores::new(probe, vec![0.1, 0.4, 0.3, 0.2])?)
    }
}

/// A federation of a recipe before its first round.
pub fn federation(recipe: Recipe) -> Federation {
    let seed = fedra_seed::Seed(5);
    let mut federation = Federation::new(recipe, layout(), start(), seed).expect("a whole model");
    federation.with_public_text(Arc::new(Public));
    federation
}

/// The model that every run starts from.
pub fn start() -> ParamValues {
    normal(7)
}

/// Standard normal values for every parameter.
fn normal(seed: u64) -> ParamValues {
    let mut generator = fedra_seed::Seed(seed).generator();
    let mut draw =
        |shape: &Shape| (0..shape.elements()).map(|_| generator.normal() as f32).collect();
    layout().iter().map(|(id, shape)| (id, draw(shape))).collect()
}

/// Clients with quadratic losses over this layout.
pub fn clients() -> fleet::Quadratics {
    fleet::Quadratics {
        layout: layout(),
        targets: (0..5).map(|client| normal(90 + client)).collect(),
        shared: start(),
        ..fleet::Quadratics::new(&EXAMPLES)
    }
}
