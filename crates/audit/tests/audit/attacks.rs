//! Attacks on a small random decoder: what must succeed, and what must not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use fedra_audit::{
    Attack, AuditError, Decoder, Finding, FineTuning, Grid, Knowledge, PublicText, Study, Verdict,
};
use fedra_compute::{Device, Params};
use fedra_engine::{NoiseDraw, NoiseKind};
use fedra_model::hf::Config;
use fedra_model::{Head, Model};
use fedra_plan::{Layer, ParamId, Part, Role};
use fedra_seed::{Generator, Seed};

const VOCABULARY: usize = 60;

struct World {
    model: Model,
    params: Params,
    device: Device,
    lines: Vec<Vec<u32>>,
    public: PublicText,
}

impl World {
    fn new() -> Self {
        let config = Config {
            vocab_size: VOCABULARY,
            hidden_size: 32,
            num_hidden_layers: 3,
            num_attention_heads: 4,
            num_key_value_heads: Some(2),
            head_dim: Some(8),
            intermediate_size: 48,
            max_position_embeddings: 64,
            tie_word_embeddings: true,
            ..Config::llama()
        };
        let device = Device::cpu();
        let model = Model::new(config, Head::Language, None).unwrap();
        let mut params = model.fresh_params(&device, Seed(3)).unwrap();
        // As in trained models, a state is more its own token's than its context's.
        let table = ParamId::new(Layer::Embedding, Role::Token, Part::Weight);
        params.get_mut(table).unwrap().scale(100.0);
        let mut draws = Seed(5).generator();
        let lines = (0..6).map(|_| line(&mut draws)).collect();
        let public = (0..200).map(|_| line(&mut draws)).collect();
        let public = PublicText::new(public, 1, VOCABULARY).unwrap();
        Self { model, params, device, lines, public }
    }

    fn decoder(&self) -> Decoder<'_> {
        Decoder::new(&self.model, &self.params, &self.device).unwrap()
    }

    fn run(&self, grid: &Grid) -> Result<Vec<Finding>, AuditError> {
        self.run_with(&self.params, grid)
    }

    fn run_with(&self, client: &Params, grid: &Grid) -> Result<Vec<Finding>, AuditError> {
        let study = Study {
            client: self.decoder().with(client),
            public: self.decoder(),
            lines: &self.lines,
            held_out: &self.lines,
            public_text: &self.public,
            known: &[1],
            text: &|tokens| format!("{tokens:?}"),
            grid,
        };
        study.run(&mut |_| {})
    }
}

/// A known token, then eleven of which each third one is the commonest.
fn line(draws: &mut Generator) -> Vec<u32> {
    let token = |place: usize| match place % 3 {
        0 => 7,
        1 | 2 => 2 + draws.below(VOCABULARY - 2) as u32,
        _ => unreachable!("a remainder of three"),
    };
    [1].into_iter().chain((0..11).map(token)).collect()
}

fn grid(attacks: &[Attack], gammas: &[f64]) -> Grid {
    Grid {
        firsts: vec![0, 1, 2],
        noises: gammas.iter().map(|&gamma| NoiseKind::Relative { gamma }).collect(),
        draw: None,
        attacks: attacks.iter().copied().collect::<BTreeSet<_>>(),
        knowledge: vec![Knowledge::Exact],
        views: vec![1, 16],
        repeats: 1,
        candidates: VOCABULARY,
        rare: 0.02,
        seed: Seed(11),
    }
}

fn of(findings: &[Finding], attack: Attack) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(move |finding| finding.attack == attack)
}

#[test]
fn search_with_exact_weights_and_no_noise_reads_every_token() {
    let world = World::new();
    let attacks = [Attack::Search, Attack::SearchWithPrior];
    let findings = world.run(&grid(&attacks, &[0.0])).unwrap();
    for attack in attacks {
        let accuracies: Vec<f64> = of(&findings, attack).map(|one| one.rates.accuracy).collect();
        assert_eq!(accuracies, [1.0; 3], "{attack:?}");
    }
    assert!(of(&findings, Attack::Search).all(|one| one.rates.rouge_l == 1.0));
    assert!(Verdict::of(&findings).iter().all(|verdict| verdict.safe.is_none()));
}

#[test]
fn search_under_huge_noise_is_at_chance_and_the_verdict_says_where_it_became_so() {
    let world = World::new();
    let grid = Grid { repeats: 4, ..grid(&[Attack::Search], &[100.0, 0.1]) };
    let findings = world.run(&grid).unwrap();
    for finding in of(&findings, Attack::Search) {
        let setting = finding.setting.unwrap();
        let accuracy = finding.rates.accuracy;
        if setting.noise.level() > 1.0 {
            assert!(accuracy < 0.12, "{setting:?}: {accuracy}");
        } else {
            assert!(accuracy > 0.99, "{setting:?}: {accuracy}");
        }
    }
    for verdict in Verdict::of(&findings) {
        assert_eq!(verdict.safe.map(|setting| setting.noise.level()), Some(100.0));
        assert_eq!(verdict.readable.map(|setting| setting.noise.level()), Some(0.1));
    }
}

#[test]
fn a_shortlist_of_the_inverter_loses_nothing_where_there_is_little_noise() {
    let world = World::new();
    let grid = Grid { candidates: 8, ..grid(&[Attack::Search], &[0.1]) };
    let findings = world.run(&grid).unwrap();
    assert_eq!(of(&findings, Attack::Inverter).count(), 0);
    for finding in of(&findings, Attack::Search) {
        assert!(finding.rates.accuracy > 0.98, "{finding:?}");
    }
}

#[test]
fn an_inverter_of_the_same_token_beats_one_of_the_next_by_far() {
    let world = World::new();
    let attacks = [Attack::Inverter, Attack::ShiftedInverter];
    let findings = world.run(&grid(&attacks, &[0.0, 0.5])).unwrap();
    let pairs = of(&findings, attacks[0]).zip(of(&findings, attacks[1]));
    for (same, next) in pairs {
        assert!(same.rates.accuracy > 0.9, "{same:?}");
        assert!(next.rates.accuracy < 0.5, "{next:?}");
        assert!(same.rates.rare.unwrap() > next.rates.rare.unwrap() + 0.5);
    }
}

#[test]
fn fresh_noise_is_averaged_away_and_cached_noise_is_not() {
    let world = World::new();
    let findings = world.run(&grid(&[Attack::Average], &[2.0])).unwrap();
    let accuracy = |first, draw, views| {
        let is = |finding: &&Finding| {
            finding.setting.is_some_and(|setting| setting.first == first)
                && (finding.draw, finding.views) == (Some(draw), views)
        };
        of(&findings, Attack::Average).find(is).unwrap().rates.accuracy
    };
    for first in 0..3 {
        let fresh = [1, 16].map(|views| accuracy(first, NoiseDraw::Fresh, views));
        let cached = [1, 16].map(|views| accuracy(first, NoiseDraw::Cached, views));
        assert!(fresh[1] > 0.95 && fresh[1] > fresh[0] + 0.2, "{first}: {fresh:?}");
        assert_eq!(cached[0], cached[1]);
        assert!(cached[1] < 0.8, "{first}: {cached:?}");
    }
}

#[test]
fn public_weights_read_less_of_a_client_that_has_moved_away_from_them() {
    let world = World::new();
    let tuning = FineTuning { steps: 40, rate: 3e-2, batch: 6 };
    let tuned = tuning.tune(world.decoder(), (&world.lines, 2), Seed(1)).unwrap();
    let knowledge = vec![Knowledge::Exact, Knowledge::Pretrained];
    let grid = Grid { knowledge, firsts: vec![2], ..grid(&[Attack::Search], &[0.0]) };
    let findings = world.run_with(&tuned, &grid).unwrap();
    let accuracies: Vec<f64> =
        of(&findings, Attack::Search).map(|finding| finding.rates.accuracy).collect();
    assert_eq!(accuracies[0], 1.0);
    assert!(accuracies[1] < 0.9, "{accuracies:?}");
}

#[test]
fn a_larger_grid_repeats_a_smaller_one_to_the_bit() {
    let world = World::new();
    let small = world.run(&grid(&[Attack::Search], &[1.0])).unwrap();
    let large = world.run(&grid(&[Attack::Search, Attack::Inverter], &[0.5, 1.0])).unwrap();
    for finding in of(&small, Attack::Search) {
        assert!(large.contains(finding), "{finding:?}");
    }
}

#[test]
fn what_cannot_be_attacked_is_refused_with_what_was_expected() {
    let world = World::new();
    let base = grid(&[Attack::Search], &[1.0]);
    let clipped = |norm| NoiseKind::Clipped { norm, sigma: 1.0 };
    let cases = [
        (Grid { firsts: vec![3], ..base.clone() }, "first: found 3, expected less than 3"),
        (Grid { firsts: vec![], ..base.clone() }, "cuts: found none, expected at least one"),
        (
            Grid { noises: vec![NoiseKind::Relative { gamma: f64::NAN }], ..base.clone() },
            "noise gamma: found NaN, expected finite and at least 0",
        ),
        (Grid { noises: vec![clipped(0.0)], ..base.clone() }, "clipping norm: found 0"),
        (Grid { views: vec![0], ..base.clone() }, "views: found 0, expected at least 1"),
        (Grid { candidates: 0, ..base.clone() }, "candidates: found none"),
    ];
    for (grid, expected) in cases {
        let error = world.run(&grid).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let mut short = World::new();
    short.lines = vec![vec![1]];
    let error = short.run(&base).unwrap_err().to_string();
    assert!(error.starts_with("tokens of a line: found 1, expected 2 to 64"), "{error}");
    short.lines = vec![vec![1, 60]];
    let error = short.run(&base).unwrap_err().to_string();
    assert!(error.starts_with("token: found 60, expected less than 60"), "{error}");
    assert!(PublicText::new(vec![vec![1]], 1, 60).is_err());
}

#[test]
fn an_encoder_is_no_model_of_this_attack() {
    let config = Config { vocab_size: 60, num_hidden_layers: 1, ..Config::bert() };
    let model = Model::new(config, Head::Language, None).unwrap();
    let error = Decoder::new(&model, &Params::default(), &Device::cpu()).unwrap_err();
    assert_eq!(error.to_string(), "model: found an encoder, expected a decoder, such as a LLaMA");
}
