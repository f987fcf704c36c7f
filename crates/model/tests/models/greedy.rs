//! The most likely continuations of every decoder family, with a cache and without, are those of transformers.

use crate::golden::{self, TinyCase};
use crate::step::Step;
use fedra_compute::{Tape, Tensor};
use fedra_model::{Batch, Head, KeyValueCache};
use serde::Deserialize;

/// What `tools/golden_greedy.py` writes.
#[derive(Debug, Deserialize)]
struct Continuation {
    family: String,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    /// The least distance between the two most likely tokens.
    margin: f64,
}

#[test]
fn every_decoder_continues_a_text_as_transformers_does() {
    let continuations: Vec<Continuation> = golden::cases("greedy.json");
    let cases = golden::cases::<TinyCase>("families.json").into_iter();
    let decoders: Vec<(String, Step)> = cases
        .filter(|case| case.case.head() == Head::Language)
        .map(|case| (case.family.clone(), Step::tiny(&case)))
        .filter(|(_, step)| step.model.is_decoder())
        .collect();
    assert_eq!(continuations.len(), 2 * decoders.len());
    for Continuation { family, prompt, tokens, margin } in continuations {
        let (_, step) = decoders.iter().find(|(name, _)| *name == family).unwrap();
        assert!(margin > 9e-4, "{family}: {margin}");
        assert_eq!(cached(step, &prompt, tokens.len()), tokens, "{family}, with a cache");
        assert_eq!(whole(step, &prompt, tokens.len()), tokens, "{family}, without one");
    }
}

/// Every token from the whole text before it.
fn whole(step: &Step, prompt: &[u32], count: usize) -> Vec<u32> {
    let mut text = prompt.to_vec();
    for _ in 0..count {
        text.push(likeliest(&step.on(&[text.clone()]).logits()));
    }
    text.split_off(prompt.len())
}

/// Every token from the one before it and the keys and values of all others.
fn cached(step: &Step, prompt: &[u32], count: usize) -> Vec<u32> {
    let Step { model, params, device, .. } = step;
    let mut cache = KeyValueCache::new(device, model, 0..model.blocks(), 4).unwrap();
    let (mut new, mut tokens) = (prompt.to_vec(), Vec::new());
    for _ in 0..count {
        if cache.must_restart(model, cache.len() + new.len()) {
            cache.restart_long();
            new = [prompt, &tokens].concat();
        }
        let mut tape = Tape::new(device);
        let batch = Batch::new(&[&new]).unwrap().continuing(vec![cache.len()]).unwrap();
        let hidden = model.embed(&mut tape, params.frozen(), &batch).unwrap();
        let given = (hidden, batch.packing());
        let hidden = model.decode(&mut tape, params.frozen(), given, &mut [&mut cache]).unwrap();
        let logits = model.head_logits(&mut tape, params.frozen(), &hidden).unwrap().tensor;
        new = vec![likeliest(&logits)];
        tokens.push(new[0]);
    }
    tokens
}

/// The most likely token behind the last row.
fn likeliest(logits: &Tensor) -> u32 {
    let (rows, words) = logits.shape();
    let values = logits.to_host();
    let last = values[(rows - 1) * words..].iter().zip(0u32..);
    last.max_by(|a, b| a.0.total_cmp(b.0)).unwrap().1
}
