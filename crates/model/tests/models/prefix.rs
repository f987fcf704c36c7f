//! The prefix cache: replaying a frozen prefix changes no bit, within its budget.

use crate::step::{Outcome, Step};
use fedra_compute::Tape;
use fedra_model::PrefixCache;
use fedra_plan::{Layer, Scope};

/// The step with its prefix from the cache; sequence `i` is example `i`.
fn take(cache: &mut PrefixCache, step: &Step, scope: &Scope) -> Outcome {
    let mut tape = Tape::new(&step.device);
    let names: Vec<u64> = (0..step.batch.packing().sequences() as u64).collect();
    let behind = (&step.model, &step.params);
    let hidden = cache.hidden(&mut tape, behind, &step.batch, &names).unwrap();
    let (weights, targets) = (step.params.training(scope), step.answers.targets());
    let from = (hidden, cache.blocks());
    let loss = step.model.loss_from(&mut tape, weights, from, &step.batch, targets).unwrap();
    step.backward(tape, &loss)
}

/// What trains behind a prefix of `blocks` blocks.
fn behind(step: &Step, blocks: usize) -> Scope {
    let rest = blocks as u16..step.model.layout().blocks();
    let layers = rest.map(Layer::Block).chain([Layer::Head]);
    Scope::of_layers(step.model.layout(), layers)
}

const PLENTY: usize = 1 << 20;

#[test]
fn a_replayed_prefix_gives_the_bits_of_a_computed_one() {
    for step in Step::every_kind() {
        for blocks in 0..=step.model.blocks() {
            let scope = behind(&step, blocks);
            let expected = step.take(&scope);
            let mut cache = PrefixCache::new(blocks, PLENTY);
            for epoch in ["computed", "replayed"] {
                let what = format!("{}, {blocks} blocks {epoch}", step.name);
                take(&mut cache, &step, &scope).assert_same(&expected, &what);
                assert_eq!(cache.len(), step.batch.packing().sequences());
            }
        }
    }
}

#[test]
fn a_cache_keeps_what_fits_and_computes_the_rest() {
    let step = &Step::every_tiny()[0];
    let scope = behind(step, 2);
    let expected = step.take(&scope);
    let bytes = |rows: usize| rows * step.model.width() * size_of::<f32>();
    // The lengths are 7, 1, 12 and 3.
    for (budget, kept) in [
        (0, &[][..]),
        (bytes(1) - 1, &[]),
        (bytes(1), &[1]),
        (bytes(7), &[7]),
        (bytes(11), &[7, 1, 3]),
        (bytes(20), &[7, 1, 12]),
        (bytes(23), &[7, 1, 12, 3]),
    ] {
        let mut cache = PrefixCache::new(2, budget);
        assert!(cache.is_empty());
        for _ in 0..3 {
            take(&mut cache, step, &scope).assert_same(&expected, &format!("budget {budget}"));
            assert_eq!(cache.used(), bytes(kept.iter().sum()), "budget {budget}");
            assert_eq!(cache.len(), kept.len(), "budget {budget}");
        }
    }
}

#[test]
fn examples_are_found_again_in_any_company() {
    let step = &Step::every_tiny()[2];
    let sequences = step.sequences();
    let mut cache = PrefixCache::new(1, PLENTY);
    for names in [&[2u64, 0][..], &[0, 1, 2], &[1, 0], &[3, 2, 1, 0], &[2, 2]] {
        let chosen: Vec<_> = names.iter().map(|&name| sequences[name as usize].clone()).collect();
        let part = step.on(&chosen);
        let mut tape = Tape::new(&part.device);
        let model = (&part.model, &part.params);
        let found = cache.hidden(&mut tape, model, &part.batch, names).unwrap().tensor;
        let expected = &part.hidden_states()[1];
        assert_eq!(*found.to_host(), *expected.to_host(), "{names:?}");
    }
    assert_eq!(cache.len(), 4);
}

#[test]
fn other_tokens_under_a_known_name_are_computed() {
    let step = &Step::every_tiny()[0];
    let mut cache = PrefixCache::new(1, PLENTY);
    for sequence in [vec![5, 6, 7], vec![5, 6], vec![5, 6, 8]] {
        let one = step.on(&[sequence]);
        let mut tape = Tape::new(&one.device);
        let model = (&one.model, &one.params);
        let found = cache.hidden(&mut tape, model, &one.batch, &[0]).unwrap().tensor;
        assert_eq!(*found.to_host(), *one.hidden_states()[1].to_host());
    }
}

#[test]
fn every_sequence_needs_a_name() {
    let step = &Step::every_tiny()[0];
    let mut tape = Tape::new(&step.device);
    let model = (&step.model, &step.params);
    let error = PrefixCache::new(1, PLENTY).hidden(&mut tape, model, &step.batch, &[1]);
    let message = error.unwrap_err().to_string();
    assert_eq!(message, "batch: number of example names is 1, expected 4");
}
